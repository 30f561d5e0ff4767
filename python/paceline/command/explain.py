"""`paceline explain`: say what would run for a collective, on ranks of this machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _native, tuning
from ..communicator import Communicator
from ..datatypes import DATA_TYPES, OPERATIONS
from ..insight import Plan
from ..launch import launch_self
from .bench import algorithm_table
from .collectives import COLLECTIVES
from .files import output_file, write_json
from .question import add_question, asked_sizes
from .sizes import positive, ranks_text, size_text
from .started import join, started_size

_LINE = "{:>12} {:>13}  {:<20} {:<9} {:<11} {:>8} {:>8} {:>13} {:>12}  {}"
_RUNNERS_UP = 3
_RANKS = 4


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
    add("-n", "--ranks", type=positive, help=f"how many ranks (default: {_RANKS})")
    add_question(parser, "8:64M:x8")
    add("--op", choices=OPERATIONS, default="sum", metavar="O", help="the operation (default: sum)")
    add("--json", type=output_file, metavar="F", help="write the rows to this file")
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    started = started_size(chosen.parser, [chosen.ranks] if chosen.ranks else [])
    ranks = started or chosen.ranks or _RANKS
    if not 0 <= chosen.root < ranks:
        chosen.parser.error(f"--root {chosen.root} is none of {ranks_text(ranks)}")
    if started is None:
        return launch_self(chosen.words, ranks, "paceline explain")
    with join() as comm:
        try:
            if comm.rank == 0:
                _answer(comm, chosen)
        finally:  # what fails on rank 0 is told by it alone
            comm.barrier()
    return 0


def _answer(comm: Communicator, chosen: argparse.Namespace) -> None:
    rows = _explain(comm, chosen)
    if chosen.json:
        document = {"version": _native.version(), "collective": chosen.collective, "ranks": comm.size, "rows": rows}
        write_json(chosen.json, document)


def _explain(comm: Communicator, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Print the rows and the reason for them."""
    forced = os.environ.get("PACELINE_ALGORITHM") or None
    collective, dtype = COLLECTIVES[chosen.collective], DATA_TYPES[chosen.dtype]
    known = os.environ.get("PACELINE_TOPOLOGY") or None
    # Between machines what goes by a topology competes with the others; elsewhere it runs where it is forced.
    names = [
        row["name"]
        for row in algorithm_table()
        if collective.name in row["collectives"] and (comm.links_measured() or not row["topology"])
    ]
    path = tuning.tuning_file()["path"]
    profile = tuning.load(Path(path)) if path else None
    here = tuning.job_of(tuning.setting(comm, {}, fit=False))
    rows = []
    untabled = []  # sizes for which the table has nothing
    print(f"# {chosen.collective} on {ranks_text(comm.size)}")
    print(_LINE.format("size(B)", "count", "algorithm", "transport", "protocol", "chunk", "channels",
                       "predicted(us)", "measured(us)", "next (us predicted)"))  # fmt: skip
    for size in asked_sizes(chosen):
        count = collective.count(size, comm.size, dtype.size)
        plan = comm.explain(collective.name, count, dtype.name, chosen.op, chosen.root)
        total = collective.total_bytes(count, comm.size, dtype.size)
        measured = None
        if profile is not None:
            where = (profile, here, collective.name)
            in_table = tuning.table_row(*where, count * dtype.size)
            measured = tuning.measured_us(*where, _way(plan, forced, in_table), count * dtype.size)
            if in_table is None:
                untabled.append(total)
        others = {}
        for name in names:
            comm.set_algorithm(name)
            other = comm.explain(collective.name, count, dtype.name, chosen.op, chosen.root)
            if other.algorithm == name != plan.algorithm:
                others[name] = other.predicted_us
        comm.set_algorithm(forced)
        following = sorted(others, key=lambda name: others[name])[:_RUNNERS_UP]
        runners_up = [{"algorithm": name, "predicted_us": others[name]} for name in following]
        rows.append({"bytes": total, "count": count, **vars(plan), "measured_us": measured, "next": runners_up})
        radix = f" radix={plan.radix}" if plan.radix else ""
        print(_LINE.format(
            total, count, plan.algorithm + radix, plan.transport, plan.protocol, size_text(plan.chunk_bytes),
            plan.channels, f"{plan.predicted_us:.2f}", f"{measured:.2f}" if measured else "-",
            ", ".join(f"{name} {others[name]:.2f}" for name in following)).rstrip())  # fmt: skip
    if forced:
        reason = f"PACELINE_ALGORITHM={forced}, wherever it applies"
    elif profile is None:
        reason = _reason_without_profile(comm.links_measured(), known)
    else:
        reason = _reason(profile, path, here, untabled, len(rows))
    if known and not comm.links_measured():
        reason += f"; what goes by the topology of {known} runs on one machine where it is forced"
    print(f"# {reason}")
    return rows


def _way(plan: Plan, forced: str | None, in_table: dict[str, Any] | None) -> str:
    """What runs, as set_algorithm takes it: the algorithm, with the chunk, radix and protocol that it was told."""
    own = {"algorithm": plan.algorithm}
    by_force = tuning.fields(forced) if forced else {}
    told = next(each for each in (by_force, in_table, own) if each and each["algorithm"] == plan.algorithm)
    if os.environ.get("PACELINE_CHUNK") and "chunk" not in by_force:
        told = {**told, "chunk": plan.chunk_bytes}
    return tuning.algorithm(told)


def _reason_without_profile(links_measured: bool, topology: str | None) -> str:
    if links_measured and topology:
        return f"the fastest in simulations on {topology}, where it says what is between these machines"
    if links_measured:
        return "the cheapest on the links measured as the job started: `paceline tune` measures more than links"
    return "the cheapest by the cost model, not calibrated here: `paceline tune` measures this machine"


def _reason(profile: dict[str, Any], path: str, job: tuple[str, int, int], untabled: Sequence[int], sizes: int) -> str:
    """Why these algorithms. untabled: those of the sizes for which the profile's table has nothing."""
    transport, ranks, node_ranks = job
    jobs = [tuning.job_of(setting) for setting in profile["settings"]]
    counts = {measured for over, measured, of_node in jobs if (over, of_node) == (transport, node_ranks)}
    if not counts:
        layout = f" with {node_ranks} ranks a node" if node_ranks > 1 else ""
        return f"the cheapest by the cost model: {path} has nothing measured over {transport}{layout}"
    model = f"the cheapest by the cost model, calibrated at {', '.join(map(str, sorted(counts)))} ranks in {path}"
    if ranks not in counts:
        return model
    if len(untabled) == sizes:
        return f"{model}, whose table has nothing for this"
    table = f"the fastest measured, by the table in {path}"
    if untabled:
        beyond = ", ".join(map(size_text, untabled))
        return f"{table}; at {beyond}, for which it has nothing, the cheapest by the cost model"
    return table
