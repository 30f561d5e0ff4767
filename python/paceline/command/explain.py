"""`paceline explain`: say what would run for a collective, on ranks of this machine."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from .. import __version__, tuning
from ..datatypes import DATA_TYPES, OPERATIONS
from ..joining import init
from ..launch import launch_self, launched_size
from .bench import algorithm_table
from .collectives import COLLECTIVES
from .files import output_file
from .question import add_question
from .sizes import positive, size_text

_LINE = "{:>12} {:>13}  {:<18} {:<9} {:<11} {:>8} {:>8} {:>13} {:>12}  {}"
_RUNNERS_UP = 3


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        allow_abbrev=False,
        help="say what would run for a collective",
        description="Say which algorithm, transport and chunk a collective would run with at each size, why, the time "
        "predicted and, after `paceline tune`, the time measured, and what comes next.",
        epilog="example: paceline explain all_reduce -n 4 --size 8,64K,16M",
    )
    add = parser.add_argument
    add("-n", "--ranks", type=positive, default=4, help="how many ranks (default: 4)")
    add_question(parser, "8:64M:x8")
    add("--op", choices=OPERATIONS, default="sum", metavar="O", help="the operation (default: sum)")
    add("--json", type=output_file, metavar="F", help="write the rows to this file")
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    if launched_size() is None:
        return launch_self(chosen.words, chosen.ranks, "paceline explain")
    forced = os.environ.get("PACELINE_ALGORITHM") or None
    collective, dtype = COLLECTIVES[chosen.collective], DATA_TYPES[chosen.dtype]
    with init() as comm:
        if comm.rank == 0:
            rows = []
            print(f"# {chosen.collective} on {comm.size} ranks")
            print(_LINE.format("size(B)", "count", "algorithm", "transport", "protocol", "chunk", "channels",
                               "predicted(us)", "measured(us)", "next (us predicted)"))  # fmt: skip
            names = [row["name"] for row in algorithm_table() if collective.name in row["collectives"]]
            here = tuning.tuning_file()
            profile = tuning.load(Path(here["path"])) if here["path"] else None
            for size in chosen.sizes:
                count = collective.count(size, comm.size, dtype.size)
                plan = comm.explain(collective.name, count, dtype.name, chosen.op, chosen.root)
                total = collective.total_bytes(count, comm.size, dtype.size)
                nbytes = count * dtype.size
                measured = profile and tuning.measured_us(
                    profile, _measured_as(plan.transport), comm.size, collective.name, plan.algorithm, nbytes
                )
                others = {}
                for name in names:
                    comm.set_algorithm(name)
                    other = comm.explain(collective.name, count, dtype.name, chosen.op, chosen.root)
                    if other.algorithm == name != plan.algorithm:
                        others[name] = other.predicted_us
                comm.set_algorithm(forced)
                following = sorted(others, key=lambda name: others[name])[:_RUNNERS_UP]
                runners_up = [{"algorithm": name, "predicted_us": others[name]} for name in following]
                row = {"bytes": total, "count": count, **vars(plan), "measured_us": measured, "next": runners_up}
                rows.append(row)
                print(_LINE.format(
                    total, count, plan.algorithm, plan.transport, plan.protocol, size_text(plan.chunk_bytes),
                    plan.channels, f"{plan.predicted_us:.2f}", f"{measured:.2f}" if measured else "-",
                    ", ".join(f"{name} {others[name]:.2f}" for name in following)).rstrip())  # fmt: skip
            print(f"# {_reason(forced, profile, here['path'], _measured_as(plan.transport), comm.size)}")
            if chosen.json:
                document = {"version": __version__, "collective": chosen.collective, "ranks": comm.size, "rows": rows}
                Path(chosen.json).write_text(json.dumps(document, indent=1) + "\n")
        comm.barrier()
    return 0


def _measured_as(transport: str) -> str:
    """The name that profiles have for it."""
    return "loopback" if transport == "tcp" and os.environ.get("PACELINE_TRANSPORT") == "tcp" else transport


def _reason(forced: str | None, profile: dict[str, Any] | None, path: str, transport: str, ranks: int) -> str:
    """Why these algorithms."""
    if forced:
        return f"PACELINE_ALGORITHM={forced}, wherever it applies"
    if profile is None and transport in ("tcp", "shm+tcp"):
        return "the cheapest on the links measured as the job started: `paceline tune` measures more than links"
    if profile is None:
        return "the cheapest by the cost model, not calibrated here: `paceline tune` measures this machine"
    counts = {row["ranks"] for row in profile["settings"] if row["transport"] == transport}
    if ranks in counts:
        return f"the fastest measured, by the table in {path}"
    if not counts:
        return f"the cheapest by the cost model: {path} has nothing measured over {transport}"
    return f"the cheapest by the cost model, calibrated at {', '.join(map(str, sorted(counts)))} ranks in {path}"
