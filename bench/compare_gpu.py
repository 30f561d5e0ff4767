#!/usr/bin/env python3
"""Compare Paceline with other libraries on this machine's GPUs: one run, interleaved, timed the same way.

    python bench/compare_gpu.py --gpus 2 --json gpu.json --plot gpu.svg

For each mode, collective and size every library takes its turn, three rounds of them; shown is the median over rounds,
with minimum and maximum. timing_gpu.py says how it times and checks. Ratio = the peer's time divided by Paceline's:
above 1 Paceline is faster.

The JSON file is written after every row, so what was measured stays when the run is cut off; report_gpu.py makes the
tables and the plot of such a file again. NVLink multicast is left off in all libraries (NCCL_NVLS_ENABLE=0 and the
like).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import report_gpu
from name_list import name_list
from paceline.command.files import output_file, picture_file
from paceline.command.sizes import positive, sizes
from paceline.datatypes import DATA_TYPES, OPERATIONS

if TYPE_CHECKING:
    from timing_gpu import Rank

WITHOUT_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
COLLECTIVES = [
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
]
LARGE = 4 << 30
MODES = ["graph", "eager"]
PEERS = ["nccl", "windows", "symmetric"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=positive, default=2)
    parser.add_argument("--collectives", type=name_list(COLLECTIVES), default=COLLECTIVES, metavar="NAME,...")
    every_size = "8,4K,64K,256K,1M,2M,16M,128M,1G"
    parser.add_argument("--sizes", type=sizes, default=every_size, metavar="LIST", help=f"default: {every_size}")
    parser.add_argument("--dtype", choices=DATA_TYPES, default="float32", metavar="T", help=", ".join(DATA_TYPES))
    parser.add_argument("--op", choices=OPERATIONS, default="sum", metavar="O", help=", ".join(OPERATIONS))
    parser.add_argument("--large", action="store_true", help="also 4 GB, where it fits")
    parser.add_argument("--modes", type=name_list(MODES), default=MODES, metavar="NAME,...", help="graph, eager")
    parser.add_argument(
        "--peers",
        type=name_list([*PEERS, "door"]),
        default=PEERS,
        metavar="NAME,...",
        help=f"{', '.join(PEERS)}; also door: Paceline's libnccl.so.2",
    )
    parser.add_argument("--seconds", type=float, default=600, help="begin no row later than this (default: 600)")
    parser.add_argument("--json", type=output_file, metavar="F")
    parser.add_argument(
        "--plot", type=picture_file, metavar="F", help="draw the ratios to this file (needs matplotlib)"
    )
    chosen = parser.parse_args()
    if chosen.plot and report_gpu.plot_missing():
        parser.error("--plot needs matplotlib: pip install matplotlib")
    chosen.sizes += [LARGE] * chosen.large
    return chosen


def machine(ranks: int) -> dict[str, Any]:
    """What a table must say about where it was measured."""
    import paceline
    import torch
    from peers_gpu import Unavailable, nccl_version

    question = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(question, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    try:
        nccl = nccl_version()
    except Unavailable:
        nccl = "none"
    return {
        "gpus": ranks,
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "cuda": torch.version.cuda,
        "nccl": nccl,
        "torch": torch.__version__,
        "paceline": paceline.__version__,
    }


def write(path: str, document: dict[str, Any]) -> None:
    """In one step: a reader, or the end of this process, finds the whole document."""
    beside = Path(path + ".new")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(path)


def compare(rank: Rank, chosen: argparse.Namespace, document: dict[str, Any]) -> str:
    """Measure row by row; why it ended, "" at the end of the list."""
    from timing_gpu import Failure

    begin = time.monotonic()
    for mode in chosen.modes:
        for collective in chosen.collectives:
            for nbytes in rank.sizes:
                if rank.agree(time.monotonic() - begin) > chosen.seconds:
                    return (
                        f"{chosen.seconds:g} s are over: {mode} {collective} of {nbytes} bytes and later were not run"
                    )
                try:
                    document["rows"] += rank.rows(collective, nbytes, mode)
                except Failure as failure:
                    return str(failure)
                if chosen.json and rank.comm.rank == 0:
                    write(chosen.json, document)
    return ""


def main() -> int:
    chosen = arguments()
    if "PACELINE_RANK" not in os.environ:
        command = [sys.executable, "-m", "paceline", "run", "-n", str(chosen.gpus), "--", sys.executable, *sys.argv]
        return subprocess.call(command, env={**os.environ, **WITHOUT_MULTICAST})
    from peers_gpu import Elements
    from timing_gpu import Rank

    begin = time.monotonic()
    rank = Rank(chosen.peers, chosen.sizes, Elements(DATA_TYPES[chosen.dtype], chosen.op))
    document = {**machine(rank.comm.size), "dtype": chosen.dtype, "op": chosen.op, "rows": []}
    ended = compare(rank, chosen, document)
    if rank.comm.rank == 0:
        print(report_gpu.text(document["rows"]))
        if chosen.plot:
            report_gpu.draw(document, chosen.plot)
        print(
            f"\ncompare_gpu: {len(document['rows'])} rows in {time.monotonic() - begin:.0f} s. {ended or 'Complete.'}"
        )
    rank.comm.barrier()
    sys.stdout.flush()
    os._exit(1 if ended else 0)  # the peers' own endings are not of interest


if __name__ == "__main__":
    sys.exit(main())
