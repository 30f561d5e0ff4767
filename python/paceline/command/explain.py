"""`paceline explain`: say what would run for a collective, on ranks of this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .. import __version__
from ..communicator import init
from ..datatypes import DATA_TYPES, OPERATIONS
from ..launch import launch_self, launched_size
from .collectives import COLLECTIVES
from .sizes import positive, size_text, sizes

_LINE = "{:>12} {:>13}  {:<30} {:<9} {:>8} {:>8} {:>13}"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        allow_abbrev=False,
        help="say what would run for a collective",
        description="Say which algorithm, transport and chunk a collective would run with at each size, and the time "
        "that the cost model predicts.",
        epilog="example: paceline explain all_reduce -n 4 --size 8,64K,16M",
    )
    add = parser.add_argument
    add("collective", metavar="COLLECTIVE", choices=COLLECTIVES, help=", ".join(COLLECTIVES))
    add("-n", "--ranks", type=positive, default=4, help="how many ranks (default: 4)")
    add("--size", "--sizes", dest="sizes", type=sizes, default=sizes("8:64M:x8"), metavar="LIST",
        help="bytes, as 8,64K,1M or 8:64M:x8 (default: 8:64M:x8)")  # fmt: skip
    add(
        "--dtype",
        choices=DATA_TYPES,
        default="float32",
        metavar="T",
        help="the type of the elements (default: float32)",
    )
    add("--op", choices=OPERATIONS, default="sum", metavar="O", help="the operation (default: sum)")
    add("--root", type=int, default=0, metavar="R", help="the root (default: 0)")
    add("--json", metavar="F", help="write the rows to this file")
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    if launched_size() is None:
        return launch_self(chosen.words, chosen.ranks, "paceline explain")
    collective, dtype = COLLECTIVES[chosen.collective], DATA_TYPES[chosen.dtype]
    with init() as comm:
        if comm.rank == 0:
            rows = []
            print(f"# {chosen.collective} on {comm.size} ranks")
            print(_LINE.format("size(B)", "count", "algorithm", "transport", "chunk", "channels", "predicted(us)"))
            for size in chosen.sizes:
                count = collective.count(size, comm.size, dtype.size)
                plan = comm.explain(collective.name, count, dtype.name, chosen.op, chosen.root)
                total = collective.total_bytes(count, comm.size, dtype.size)
                rows.append({"bytes": total, "count": count, **vars(plan)})
                chunk = size_text(plan.chunk_bytes)
                print(_LINE.format(total, count, plan.algorithm, plan.transport, chunk, plan.channels,
                                   f"{plan.predicted_us:.2f}"))  # fmt: skip
            if chosen.json:
                document = {"version": __version__, "collective": chosen.collective, "ranks": comm.size, "rows": rows}
                Path(chosen.json).write_text(json.dumps(document, indent=1) + "\n")
        comm.barrier()
    return 0
