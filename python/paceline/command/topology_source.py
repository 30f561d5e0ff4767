"""Where a command's topology comes from: the options, and what they ask of the library (paceTopology, pacePredict)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_source(parser: argparse.ArgumentParser, required: bool) -> Any:
    """Add --preset, --file and --nccl-xml, of which one may be given. Returns their group, for further sources."""
    source = parser.add_mutually_exclusive_group(required=required)
    source.add_argument("--preset", metavar="P", help="a known machine or cluster, as dgx1-v100")
    source.add_argument("--file", metavar="F", help="a cluster file (docs/topology.md)")
    source.add_argument("--nccl-xml", metavar="X", help="NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it")
    return source


def source_request(chosen: argparse.Namespace, nodes: int) -> dict[str, Any]:
    """The fields of a request that name the topology. nodes: of the preset; 0: its own."""
    asked: dict[str, Any] = {}
    if chosen.preset:
        asked.update(preset=chosen.preset, nodes=nodes)
    for option, key in ((chosen.file, "file"), (chosen.nccl_xml, "nccl_xml")):
        if option:
            asked[key] = Path(option).read_text(errors="replace")
    return asked
