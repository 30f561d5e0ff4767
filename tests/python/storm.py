"""Random calls, the same on every rank, each result checked: what goes on when a rank is killed or stopped. After some
of them all are of one kind, in which the blow is to fall.

Each rank decides for itself whether it works in place. Values are small whole numbers, so that every sum is exact in
every type; checking costs as little as an addition.
"""

from __future__ import annotations

import random
from typing import Any

import numpy
import paceline

Array = numpy.ndarray[Any, Any]

MOST = 4 << 20  # bytes
TYPES = ("float32", "float64", "int32", "uint8")
OPERATIONS = ("sum", "max", "min")
CALLS = (
    "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier",
    "exchange", "send",
)  # fmt: skip

_base = {name: (numpy.arange(MOST // numpy.dtype(name).itemsize) % 11).astype(name) for name in TYPES}


class Storm:
    def __init__(self, comm: paceline.Communicator, seed: int, last: str) -> None:
        self.comm = comm
        self.dice = random.Random(seed)
        self.own_dice = random.Random(f"{seed}/{comm.rank}")
        self.last = last
        self.mixed = self.dice.randrange(20)  # calls before those of the last kind
        self.calls = 0
        self.name = ""  # of the call that is made, or was the last

    def go_on(self) -> None:
        """One call; an AssertionError if its result is wrong."""
        comm, dice = self.comm, self.dice
        name = self.name = dice.choice(CALLS) if self.calls < self.mixed else self.last
        dtype = dice.choice(TYPES)
        self.op = dice.choice(OPERATIONS)
        self.root = dice.randrange(comm.size)
        total = int(8 * (MOST / 8) ** dice.random()) // numpy.dtype(dtype).itemsize
        self.count = max(1, total // comm.size if name in PARTED else total)
        self.base = _base[dtype]
        expected, result = getattr(self, "_" + name)()
        if expected is not None:
            assert numpy.array_equal(result, expected), f"call {self.calls}, {name} of {self.count} {dtype}: wrong"
        self.calls += 1

    # Rank r contributes its row of the base, plus r.

    def _row(self, row: int, plus: int) -> Array:
        return self.base[row * self.count : (row + 1) * self.count] + self.base.dtype.type(plus)

    def _rows(self, plus: int) -> Array:
        return numpy.stack([self._row(row, plus) for row in range(self.comm.size)])

    def _reduced(self, row: int) -> Array:
        last = self.comm.size - 1
        if self.op == "sum":
            return self._row(row, 0) * self.base.dtype.type(last + 1) + self.base.dtype.type(last * (last + 1) // 2)
        return self._row(row, last if self.op == "max" else 0)

    def _mine(self) -> Array:
        return self._row(0, self.comm.rank)

    def _in_place(self) -> bool:
        return self.own_dice.random() < 0.5

    def _one_of_rows(self) -> tuple[Array, Array]:
        """What this rank gives, and rows for all ranks': it may be one of them."""
        rows = numpy.zeros((self.comm.size, self.count), self.base.dtype)
        mine = self._mine()
        if self._in_place():
            rows[self.comm.rank] = mine
            mine = rows[self.comm.rank]
        return mine, rows

    def _all_reduce(self) -> Any:
        mine = self._mine()
        out = None if self._in_place() else numpy.zeros_like(mine)
        return self._reduced(0), self.comm.all_reduce(mine, op=self.op, out=out)

    def _broadcast(self) -> Any:
        return self._row(0, self.root), self.comm.broadcast(self._mine(), root=self.root)

    def _reduce(self) -> Any:
        mine = self._mine()
        out = None if self._in_place() else numpy.zeros_like(mine)
        result = self.comm.reduce(mine, op=self.op, root=self.root, out=out)
        return (None if result is None else self._reduced(0)), result

    def _all_gather(self) -> Any:
        mine, rows = self._one_of_rows()
        result = self.comm.all_gather(mine, out=rows)
        return numpy.stack([self._row(0, rank) for rank in range(self.comm.size)]), result

    def _reduce_scatter(self) -> Any:
        rows = self._rows(self.comm.rank)
        out = rows[self.comm.rank] if self._in_place() else None
        return self._reduced(self.comm.rank), self.comm.reduce_scatter(rows, op=self.op, out=out)

    def _gather(self) -> Any:
        mine, rows = self._one_of_rows()
        result = self.comm.gather(mine, root=self.root, out=rows)
        return (None if result is None else numpy.stack([self._row(0, rank) for rank in range(self.comm.size)])), result

    def _scatter(self) -> Any:
        out = numpy.zeros(self.count, self.base.dtype)
        x = self._rows(self.root) if self.comm.rank == self.root else None
        if x is not None and self._in_place():
            out = x[self.root]
        return self._row(self.comm.rank, self.root), self.comm.scatter(x, root=self.root, out=out)

    def _all_to_all(self) -> Any:
        result = self.comm.all_to_all(self._rows(self.comm.rank))
        return numpy.stack([self._row(self.comm.rank, rank) for rank in range(self.comm.size)]), result

    def _barrier(self) -> Any:
        self.comm.barrier()
        return None, None

    def _exchange(self) -> Any:
        """In a ring, all at once."""
        left, right = (self.comm.rank - 1) % self.comm.size, (self.comm.rank + 1) % self.comm.size
        got = numpy.zeros(self.count, self.base.dtype)
        with self.comm.group():
            self.comm.recv(got, left)
            self.comm.send(self._mine(), right)
        return self._row(0, left), got

    def _send(self) -> Any:
        """From root to its neighbour; the others go on."""
        to = (self.root + 1) % self.comm.size
        if self.comm.rank == self.root:
            self.comm.send(self._mine(), to)
        if self.comm.rank != to:
            return None, None
        got = numpy.zeros(self.count, self.base.dtype)
        self.comm.recv(got, self.root)
        return self._row(0, self.root), got


PARTED = {"reduce_scatter", "scatter", "all_to_all", "all_gather", "gather"}
