"""Timing collectives: the C call itself, the slowest rank's time of each call, the median over calls.

Before each timed call the send buffer is rewritten and the ranks meet in a barrier. The result of the last call can be
checked bit for bit; every call has other inputs than the one before, so that an old result is no right result.
The C functions are called with ready-made ctypes objects, which keeps Python's part of a time near 0.4 us.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, cast

from .. import _native
from ..communicator import Communicator, Operation, Plan
from ..datatypes import DataType, PreMulSum
from .collectives import Collective
from .pattern import PERIOD, SCALAR, Block, Pattern, repeated, wrong_elements
from .sizes import size_text


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
    time_us: Times
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None  # elements, over all ranks; None: not checked
    chosen: bool  # what runs when no algorithm is forced

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Effort:
    """How often a row's call is made; None: as often as fits into `seconds`."""

    iterations: int | None = None
    warmup: int | None = None
    seconds: float = 0.25


class Trial:
    """One collective with its buffers, ready to be called and timed at any size up to `most` elements."""

    def __init__(self, comm: Communicator, collective: Collective, pattern: Pattern, root: int, most: int) -> None:
        self.comm, self.collective, self.pattern, self.root = comm, collective, pattern, root
        self.dtype: DataType = pattern.dtype
        parts = comm.size
        sends = most * (parts if collective.sends_all else 1)
        receives = most * (parts if collective.receives_all else 1)
        self._source = memoryview(
            repeated(pattern.contributions[comm.rank], sends + PERIOD, self.dtype.size) if most else b""
        )
        self._send, self._recv = _memory(sends * self.dtype.size), _memory(receives * self.dtype.size)
        op = PreMulSum(SCALAR) if pattern.op == "premulsum" else pattern.op
        self._op = cast(Operation, op if collective.reduces else "sum")
        self._calls = 0  # all ranks count alike, so their inputs stay in step
        # Indexing gives a function without declared argument types: nothing is converted while the clock runs.
        self._function = _native.library()[collective.function]
        self._barrier = _native.library()["paceBarrier"]

    def bytes(self, count: int) -> int:
        """The size of a row with this count."""
        return self.collective.total_bytes(count, self.comm.size, self.dtype.size)

    def plan(self, count: int) -> Plan:
        return self.comm.explain(self.collective.name, count, self.dtype.name, self._op, self.root)

    def run(self, count: int, calls: int) -> array[int]:
        """Make the call a number of times; this rank's time of each, ns."""
        sent = count * self.dtype.size * (self.comm.size if self.collective.sends_all else 1)
        # Slices are made once: what is left between two calls is a memory copy.
        target = self._send[1][:sent]
        step = 17 * self.dtype.size
        table = PERIOD * self.dtype.size
        arguments = self._arguments(count)
        meeting = (ctypes.c_void_p(self.comm._handle), ctypes.c_void_p(None))
        function, barrier, clock, source = self._function, self._barrier, time.perf_counter_ns, self._source
        times = array("q")
        for _ in range(calls):
            self._calls += 1
            start = self._calls * step % table
            target[:] = source[start : start + sent]
            barrier(*meeting)
            begin = clock()
            status = function(*arguments)
            elapsed = clock() - begin
            if status:
                raise self.comm._failure(status)
            times.append(elapsed)
        return times

    def wrong(self, count: int) -> int:
        """How many elements of all ranks' results of the last call are wrong."""
        blocks = self.pattern.expected(self.collective, self.comm.rank, self.root, count, self._calls * 17 % PERIOD)
        here = self._result(blocks)
        total = array("q", [wrong_elements(here, blocks, self.dtype.size)])
        self.comm.all_reduce(total)
        return total[0]

    def _result(self, blocks: list[Block]) -> memoryview:
        in_place = self.collective.name == "broadcast" and self.comm.rank == self.root
        return (self._send if in_place else self._recv)[1]

    def _arguments(self, count: int) -> tuple[Any, ...]:
        """send, recv, count, type, [op], [root], comm, stream. Broadcast is in place on root, as programs call it."""
        tail = (ctypes.c_void_p(self.comm._handle), ctypes.c_void_p(None))
        if self.collective.name == "barrier":
            return tail
        send, recv = self._send[0], self._recv[0]
        if self.collective.name == "broadcast" and self.comm.rank == self.root:
            recv = send
        middle: list[Any] = [ctypes.c_int(self.dtype.number)]
        if self.collective.reduces:
            middle.append(ctypes.c_int(self.comm._operator(self._op, self.dtype.number)))
        if self.collective.rooted:
            middle.append(ctypes.c_int(self.root))
        return (ctypes.c_void_p(send), ctypes.c_void_p(recv), ctypes.c_size_t(count), *middle, *tail)


def _memory(nbytes: int) -> tuple[int, memoryview]:
    """Ordinary private memory, as a program's own: its address and a view that keeps it."""
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(bytes(len(memory)))  # no page is first touched while the clock runs
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)), memoryview(memory)


def measure(
    trial: Trial,
    count: int,
    algorithms: list[str | None],
    effort: Effort,
    check: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """The rows of one size, the same on every rank: a row for each algorithm (None: the chosen one).

    Several algorithms are measured in three rounds, in turn, so that a disturbance of the machine meets all of them.
    """
    comm = trial.comm
    comm.set_algorithm(None)
    chosen = trial.plan(count).algorithm
    plans: dict[str | None, Plan] = {}
    for name in algorithms:
        comm.set_algorithm(name)
        plan = trial.plan(count)
        if name is None or len(algorithms) == 1 or plan.algorithm == name:  # of all, those that apply
            plans[name] = plan
    calls = {name: _warm_up(trial, count, name, effort) for name in plans}
    rounds = 1 if len(plans) == 1 else 3
    times: dict[str | None, array[int]] = {name: array("q") for name in plans}
    for _ in range(rounds):
        for name in plans:
            progress(f"{trial.collective.name} {size_text(trial.bytes(count))} {plans[name].algorithm}")
            comm.set_algorithm(name)
            times[name].extend(trial.run(count, -(-calls[name] // rounds)))
    rows = []
    for name, plan in plans.items():
        wrong = None
        if check:
            comm.set_algorithm(name)
            trial.run(count, 1)
            comm.set_algorithm(None)
            wrong = trial.wrong(count)
        comm.set_algorithm(None)
        comm.all_reduce(times[name], op="max")
        rows.append(_row(trial, count, plan, times[name], wrong, plan.algorithm == chosen))
    return rows


def _warm_up(trial: Trial, count: int, algorithm: str | None, effort: Effort) -> int:
    """Make the first calls, and return how many calls a row gets; all ranks agree on it."""
    comm = trial.comm
    comm.set_algorithm(algorithm)
    trial.run(count, 2 if effort.warmup is None else effort.warmup)
    begin = time.perf_counter()
    trial.run(count, 1)
    needed = array("d", [time.perf_counter() - begin])
    comm.set_algorithm(None)
    comm.all_reduce(needed, op="max")
    fitting = int(effort.seconds / max(needed[0], 1e-6))
    if effort.warmup is None:
        comm.set_algorithm(algorithm)
        trial.run(count, min(50, fitting // 10))
    return effort.iterations or min(max(fitting, 5), 1000)


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
        time_us=Times(middle, min(times) / 1000, max(times) / 1000),
        algbw_gbs=algbw,
        busbw_gbs=algbw * collective.bus_factor(ranks),
        wrong=wrong,
        chosen=chosen,
    )
