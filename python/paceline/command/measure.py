"""Timing collectives: the slowest rank's time of each call, the median over calls.

trial.py makes the calls on host memory, gpu_trial.py on GPU memory.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ..insight import Plan
from .sizes import size_text
from .trial import Trial

_STAGING = 5 << 19  # bytes: what a rank has (node_layout.h), and some more
_IN_CELL = 1 << 10  # bytes: shorter messages do not go there
_MOST_WALKING = 500  # calls


@dataclass(frozen=True)
class Times:
    """Of the calls of a row, microseconds; each call's time is that of its slowest rank."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class Row:
    """One line of the table and of the JSON."""

    collective: str
    bytes: int
    count: int
    dtype: str
    op: str | None
    root: int | None
    algorithm: str
    transport: str
    chunk_bytes: int
    radix: int  # 0: the algorithm has none
    time_us: Times
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None  # elements, over all ranks; None: not checked
    chosen: bool  # what runs when no algorithm is forced

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Effort:
    """How often a row's call is made; None: as often as fits into `seconds`, but at least `least` times."""

    iterations: int | None = None
    warmup: int | None = None
    seconds: float = 0.25
    least: int = 5


def measure(
    trial: Trial,
    count: int,
    algorithms: Sequence[str | None],
    effort: Effort,
    check: bool,
    progress: Callable[[str], None] = lambda _: None,
    rounds: int = 3,
    known_us: Mapping[str, float | None] | None = None,
) -> dict[str | None, Row]:
    """The rows of one size, the same on every rank: one for each algorithm that applies (None: the chosen one).

    Algorithms are as Communicator.set_algorithm takes them.
    Several algorithms are measured in several rounds, in turn, so that a disturbance of the machine meets all of them.
    How often a call is made follows from known_us, its time where that is known, the same on every rank; else from a
    few calls made to find it out.
    """
    comm = trial.comm
    chosen = trial.plan(count, None).algorithm
    plans: dict[str | None, Plan] = {}
    plain: set[str] = set()  # algorithms that are in `plans` under their plain names
    for name in algorithms:
        plan = trial.plan(count, name)
        if name is not None and len(algorithms) > 1 and plan.algorithm != name.split()[0]:
            continue  # does not apply
        if name is None or " " not in name:  # else one of several ways to run it
            if plan.algorithm in plain:
                continue
            plain.add(plan.algorithm)
        plans[name] = plan
    if len(plans) == 1:
        rounds = 1
    calls: dict[str | None, int] = {}
    times: dict[str | None, array[int]] = {name: array("q") for name in plans}
    for number in range(rounds):
        for name in plans:
            progress(f"{trial.collective.name} {size_text(trial.bytes(count))} {plans[name].algorithm}")
            if number == 0:
                known = (known_us or {}).get(name or "")
                needed = _needed(trial, count, name, effort) if known is None else _around(known)
                fitting = int(effort.seconds / max(needed, 1e-6))
                calls[name] = effort.iterations or min(max(fitting, effort.least), 1000)
            comm.set_algorithm(name)
            if effort.warmup != 0:
                trial.run(count, 1)  # the first call after set_algorithm() makes the plan: no call of a program's
            walk = _to_walk_staging(count * trial.dtype.size, plans[name].transport)
            if effort.warmup is None and walk > 0:
                trial.repeat(count, walk)
            if effort.warmup is None and number == 0:
                trial.run(count, min(50, fitting // 10))
            times[name].extend(trial.run(count, -(-calls[name] // rounds)))
    rows = {}
    for name, plan in plans.items():
        wrong = None
        if check:
            comm.set_algorithm(name)
            trial.run(count, 1)
            comm.set_algorithm(None)
            wrong = trial.wrong(count)
        comm.set_algorithm(None)
        comm.all_reduce(times[name], op="max")
        rows[name] = _row(trial, count, plan, times[name], wrong, plan.algorithm == chosen)
    return rows


def _needed(trial: Trial, count: int, algorithm: str | None, effort: Effort) -> float:
    """Seconds that a call takes, with all that goes before it, after the first calls; all ranks agree on it."""
    comm = trial.comm
    comm.set_algorithm(algorithm)
    trial.run(count, 1 if effort.warmup is None else effort.warmup)
    # The shorter of two: a disturbed call must not leave a row with few.
    needed = array("d", [min(_seconds(trial, count) for _ in range(2))])
    comm.set_algorithm(None)
    comm.all_reduce(needed, op="max")
    return needed[0]


def _to_walk_staging(nbytes: int, transport: str) -> int:
    """Calls after which ranks of a node have written all of their staging, as programs have that call again and again.

    What several ranks read there, they are slow to write for the second time (docs/notes/cpu.md, Read by several).

    >>> [_to_walk_staging(nbytes, "shm") for nbytes in (8, 4096, 1 << 20, 8 << 20)], _to_walk_staging(4096, "tcp")
    ([0, 500, 3, 1], 0)
    """
    if transport != "shm" or nbytes < _IN_CELL:
        return 0
    return min(_MOST_WALKING, -(-_STAGING // nbytes))


def _around(microseconds: float) -> float:
    """Seconds that a call of a known time takes with all that goes before it: inputs, a barrier, Python."""
    return 1.5e-6 * microseconds + 1e-5


def _seconds(trial: Trial, count: int) -> float:
    """Of one call, with all that goes before it."""
    begin = time.perf_counter()
    trial.run(count, 1)
    return time.perf_counter() - begin


def settle(trial: Trial, seconds: float) -> None:
    """Make short calls for so long: until the kernel has found each rank a CPU, and the CPUs are at full speed."""
    comm = trial.comm
    comm.set_algorithm(None)
    end = time.perf_counter() + seconds
    late = array("q", [0])
    while not late[0]:
        trial.run(1, 100)
        late[0] = int(time.perf_counter() > end)
        comm.all_reduce(late, op="max")


def _row(trial: Trial, count: int, plan: Plan, times: array[int], wrong: int | None, chosen: bool) -> Row:
    collective, ranks = trial.collective, trial.comm.size
    total = trial.bytes(count)
    middle = median(times) / 1000
    algbw = total / middle / 1000 if middle else 0.0
    return Row(
        collective=collective.name,
        bytes=total,
        count=count,
        dtype=trial.dtype.name,
        op=trial.pattern.op if collective.reduces else None,
        root=trial.root if collective.rooted else None,
        algorithm=plan.algorithm,
        transport=plan.transport,
        chunk_bytes=plan.chunk_bytes,
        radix=plan.radix,
        time_us=Times(middle, min(times) / 1000, max(times) / 1000),
        algbw_gbs=algbw,
        busbw_gbs=algbw * collective.bus_factor(ranks),
        wrong=wrong,
        chosen=chosen,
    )
