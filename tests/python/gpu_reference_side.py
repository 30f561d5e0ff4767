"""A rank of test_gpu_reference.py: every type and operation by each way of kernels, on numbers whose sums round.

    python gpu_reference_side.py float32,int8

Each call is checked against a float64 reference (gpu_reference_numbers.py), then made twice more, captured and replayed
three times: all six have the same bits, and so have all ranks. Where the GPUs do not reach each other there are no ways
and no graphs. What is wrong is printed, for the first few calls that are, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import random
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import paceline
from gpu_reference_numbers import SCALARS, Array, decoded, drawn, is_float, reduced
from gpu_tables import go_by
from paceline import _native
from paceline.command.collectives import COLLECTIVES, Collective
from paceline.cuda_driver import Gpu, device_count
from paceline.datatypes import DATA_TYPES, OPERATIONS, DataType
from soak_plan import EVERYONE, Call, Episode
from soak_side import GUARD, UNTOUCHED, Side

EVEN = 16 * 1003  # elements: of every type a multiple of 16 bytes
ODD = EVEN + 1
SHIFTS = 100  # elements at which inputs may begin in their tables
LOOKS = 4  # calls until all ranks know a buffer
TOLD = 10
FOLDS = [kind for kind in COLLECTIVES.values() if kind.reduces]
MOVES = [kind for kind in COLLECTIVES.values() if not kind.reduces and kind.name != "barrier"]
EVERYWHERE = ("all_reduce", "broadcast", "all_gather")  # whose results all ranks have
ALGORITHMS = json.loads(_native.library().paceDescribe(b"algorithms"))


@dataclass(frozen=True)
class Way:
    """How calls go: by a row of a table, or, where there is none, by the schedules of forced algorithms."""

    name: str
    row: dict[str, Any] | None
    counts: tuple[int, ...]  # elements
    kinds: tuple[Collective, ...] = (*FOLDS, *MOVES)
    ranks: int = 2  # at least: with fewer it is another one

    @property
    def direct(self) -> bool:
        return bool(self.row and self.row.get("direct"))


LOADED = {"family": "streaming", "direct": True}
WAYS = [
    Way("brief", {"family": "brief"}, (1, 641)),
    Way("wide", {"family": "wide"}, (4099,)),
    Way("streaming", {"family": "streaming"}, (EVEN, ODD)),
    Way("streaming in two steps", {"family": "streaming", "steps": 2}, (EVEN, ODD), ranks=3),
    Way("deep", {"family": "deep"}, (EVEN, ODD), tuple(MOVES)),
    Way("large", {"family": "large", "chunk": 4096}, (EVEN,)),
    Way("large in two steps", {"family": "large", "steps": 2}, (EVEN,), ranks=3),
    Way("loaded", LOADED, (EVEN, ODD)),
    Way("pushed", {**LOADED, "pushed": True}, (EVEN,), tuple(FOLDS), ranks=3),
    Way("passed on", {**LOADED, "pushed": True, "passed": True}, (EVEN,), tuple(FOLDS)),
    Way("copy engines", {**LOADED, "engines": True}, (EVEN, ODD), tuple(MOVES)),
    Way("schedule", None, (1, EVEN, ODD)),
]


class Reference(Side):
    """One rank, one call at a time."""

    skew = 0  # bytes, by which the call's buffers lie off their elements

    def load(self, dtype: DataType, op: str) -> None:
        """New inputs, and what comes of them."""
        team = self.teams[0]
        self._gpu.use()
        self._episode, self.scalar = Episode(0, dtype, op), SCALARS[is_float(dtype)]
        inputs = [drawn(dtype, op, team.size, rank, team.size * ODD + SHIFTS) for rank in range(team.size)]
        self._inputs[0].write(inputs[team.rank])
        self._tables = [decoded(dtype, each) for each in inputs]
        self._reduced = reduced(dtype, op, self._tables)

    def result(self, call: Call, replays: bool = False) -> bytes:
        """Of the call, or of its graph."""
        self.prepare(call)
        if replays:
            self.replay(0)
        else:
            self.make(call)
        self.finish()
        start = self._places(call)[2]
        return bytes(self._recv[0].read(start, len(self._wanted(call)[0]) * self._episode.dtype.size))

    def complaint(self, call: Call, result: bytes) -> str:
        """What is wrong with it; empty: nothing."""
        wanted, bound = self._wanted(call)
        found = decoded(self._episode.dtype, result)
        exact = not is_float(self._episode.dtype)
        right = found == wanted if exact else np.abs(found - wanted) <= bound  # of a NaN neither is true
        if not right.all():
            at = int(np.argmin(right))
            far = f"{found[at]} at {at}, not {wanted[at]} within {bound[at]}"
            return f"{np.count_nonzero(~right)} of {len(found)} elements are wrong: {far}"
        behind = self._recv[0].read(self._places(call)[3], GUARD)
        return "" if set(behind) == {UNTOUCHED} else "written behind the output"

    def _wanted(self, call: Call) -> tuple[Array, Array]:
        """The output and how far it may be off."""
        team, name, count, begin = self.teams[0], call.collective.name, call.count, call.shift
        mine = begin + team.rank * count
        if name in ("reduce", "gather") and team.rank != call.root:
            parts = []
        elif call.collective.reduces:
            at = mine if name == "reduce_scatter" else begin
            return self._reduced[0][at : at + count], self._reduced[1][at : at + count]
        elif name in ("broadcast", "scatter"):
            parts = [(call.root, mine if name == "scatter" else begin)]
        else:
            parts = [(rank, mine if name == "all_to_all" else begin) for rank in range(team.size)]
        moved = [self._tables[rank][at : at + count] for rank, at in parts]
        whole = np.concatenate(moved) if moved else self._tables[0][:0]
        return whole, np.zeros(len(whole))

    def _places(self, call: Call) -> tuple[int, int, int, int]:
        start, nbytes, result, end = super()._places(call)
        return start + self.skew, nbytes, result + self.skew, end + self.skew


def calls(way: Way, dtype: DataType, op: str, ranks: int) -> Iterator[tuple[Call, int, bool]]:
    """Calls that go this way, their skew, and whether they lie as what goes fast: each count once so, and once not."""
    for kind in way.kinds:
        if op != "sum" and not kind.reduces:
            continue
        for count in way.counts:
            rng = random.Random(f"{way.name} {dtype.name} {op} {kind.name} {count}")
            for plain in (True, False):
                in_place = 0 if plain else rng.choice([0, EVERYONE, EVERYONE, 1])
                offsets = (0, 0) if plain else rng.choice([(0, 0), (1, 1), (1, 3), (0, 1), (2, 0)])
                skew = 0 if plain else rng.choice([0, 0, 1])
                root, shift = rng.randrange(ranks), rng.randrange(SHIFTS)
                yield Call(0, kind, count, root, in_place, shift, offsets, 0, 0), skew, plain


class Trial:
    """All calls of a type, and what was wrong with them."""

    def __init__(self, side: Reference) -> None:
        self._side, self._comm = side, side.teams[0]
        self._algorithms = {kind: self._of(kind) for kind in (*FOLDS, *MOVES)}
        self.done, self.wrong = 0, 0
        self._digests: list[int] = []  # of results that all ranks have
        self._whose: list[str] = []
        side.load(DATA_TYPES["float32"], "sum")
        first = Call(0, COLLECTIVES["all_reduce"], EVEN, 0, 0, 0, (0, 0), 0, 0)
        side.result(first)  # connects the GPUs
        self._direct = self._comm.gpus_direct()
        self._go(next(way for way in WAYS if way.direct), first)
        for _ in range(LOOKS):
            side.result(first)

    def of_type(self, dtype: DataType) -> None:
        number = 0
        for op in [*OPERATIONS, "premulsum"]:
            self._side.load(dtype, op)
            for way in WAYS:
                if way.ranks > self._comm.size:
                    continue
                for call, skew, plain in calls(way, dtype, op, self._comm.size):
                    self._side.skew = skew
                    algorithm = self._go(way, call, number)
                    number += 1
                    what = f"{dtype.name} {op} by {algorithm or way.name}: {_text(call)}, {skew} bytes off"
                    try:
                        self._try(way, call, plain and op != "premulsum", what)
                    except paceline.Error as error:
                        raise SystemExit(f"rank {self._comm.rank}: {what}: {type(error).__name__}: {error}") from None

    def compare(self) -> None:
        """The ranks' results."""
        self._comm.set_algorithm(None)
        least, most = np.array(self._digests), np.array(self._digests)
        self._comm.all_reduce(least, op="min")
        self._comm.all_reduce(most, op="max")
        for at in np.flatnonzero(least != most):
            self._tell(self._whose[at], "other bits on another rank")

    def _try(self, way: Way, call: Call, expects_direct: bool, what: str) -> None:
        side, before = self._side, 0
        # What is passed on by strips goes through the windows.
        by_strips = way.name == "passed on" and call.collective.name == "reduce" and self._comm.size > 2
        counts = self._direct and way.direct and expects_direct and not by_strips and call.count == EVEN
        if counts:
            before = self._comm.gpu_direct_calls()
        result = side.result(call)
        if counts and self._comm.gpu_direct_calls() == before:
            self._tell(what, "went through the window")
        if complaint := side.complaint(call, result):
            self._tell(what, complaint)
        for number in range(2):
            if side.result(call) != result:
                self._tell(what, f"other bits in call {number + 2}")
        if self._direct:
            with side.capture(0) as graph:
                side.make(call)
            side.keep(0, graph)
            for number in range(3):
                if side.result(call, replays=True) != result:
                    self._tell(what, f"other bits in replay {number + 1}")
        if call.collective.name in EVERYWHERE:
            self._digests.append(zlib.crc32(result))
            self._whose.append(what)
        self.done += 1

    def _go(self, way: Way, call: Call, number: int = 0) -> str:
        """From the next call on; by which algorithm, if it is forced."""
        comm, kind = self._comm, call.collective
        names = self._algorithms[kind]
        forced = names[number % len(names)] if way.row is None else None
        comm.set_algorithm(forced)
        if way.row is not None and comm.gpus_direct():
            go_by(comm, [{"collective": kind.name, "from": 0, **way.row}])
        return forced or ""

    def _of(self, kind: Collective) -> list[str]:
        return [row["name"] for row in ALGORITHMS if kind.name in row["collectives"]]

    def _tell(self, what: str, complaint: str) -> None:
        self.wrong += 1
        if self.wrong <= TOLD:
            _say(f"rank {self._comm.rank} of {self._comm.size}: {complaint}: {what}")


def _text(call: Call) -> str:
    where = f"in place {call.in_place:#b}" if call.in_place else f"at {call.offsets}"
    return f"{call.collective.name} of {call.count}, root {call.root}, {where}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")  # one write: the ranks share the pipe
    sys.stdout.flush()


def main() -> int:
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    comm = paceline.init()
    trial = Trial(Reference(gpu, [comm], comm.size * ODD * 8, slots=1))
    for name in sys.argv[1].split(","):
        trial.of_type(DATA_TYPES[name])
    trial.compare()
    direct = comm.gpus_direct()
    comm.close()
    _say(f"rank {os.environ['PACELINE_RANK']}: {trial.done} calls, {trial.wrong} wrong, GPUs direct: {direct}")
    return 1 if trial.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
