"""Where a command's topology comes from: the options, and what they ask of the library (paceTopology, pacePredict)."""

from __future__ import annotations

import argparse
from typing import Any

from .files import input_text, named_file
from .sizes import not_negative


def numbers(text: str) -> list[int]:
    """A list of GPUs: 0,1,4-7."""
    found: list[int] = []
    for item in text.split(","):
        ends = item.split("-")
        if len(ends) > 2 or not all(end.isdecimal() for end in ends):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of GPUs: write 0,1,2 or 0-3,6")
        first, last = not_negative(ends[0]), not_negative(ends[-1])
        if last < first:
            raise argparse.ArgumentTypeError(f"{text!r} is no list of GPUs: write 0,1,2 or 0-3,6")
        if last - first > 1 << 20:
            raise argparse.ArgumentTypeError(f"{text!r} names too many GPUs")
        found.extend(range(first, last + 1))
    return found


def add_source(parser: argparse.ArgumentParser, required: bool, gpus: str) -> Any:
    """Add --preset, --file and --nccl-xml, of which one may be given, and --gpus, with its help.

    Returns the group of the sources, for further ones.
    """
    parser.add_argument("--gpus", type=numbers, metavar="LIST", help=gpus)
    source = parser.add_mutually_exclusive_group(required=required)
    source.add_argument("--preset", metavar="P", help="a known machine or cluster, as dgx1-v100")
    source.add_argument("--file", type=named_file, metavar="F", help="a cluster file (docs/topology.md)")
    source.add_argument(
        "--nccl-xml", type=named_file, metavar="X", help="NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it"
    )
    return source


def source_request(chosen: argparse.Namespace, nodes: int) -> dict[str, Any]:
    """The fields of a request that name the topology and its GPUs. nodes: of the preset; 0: its own."""
    if nodes and chosen.preset is None:
        chosen.parser.error("--nodes goes with --preset")
    asked: dict[str, Any] = {} if chosen.gpus is None else {"gpus": chosen.gpus}
    if chosen.preset is not None:
        asked.update(preset=chosen.preset, nodes=nodes)
    for option, key in ((chosen.file, "file"), (chosen.nccl_xml, "nccl_xml")):
        if option is not None:
            asked[key] = input_text(option)
    return asked
