"""Inputs whose results are exact in every type, and the check of a result, without NumPy.

As in nccl-tests the inputs are small whole numbers, chosen so that no order of reduction rounds: every partial result
is exact even in an 8-bit float, and the result can be compared bit for bit. Values repeat after PERIOD elements (a
prime, so that a chunk in the wrong place shows), so a buffer of any size is made and compared as repeated bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ..datatypes import DataType
from .collectives import Collective

PERIOD = 251
SCALAR = 2  # of the operator premulsum
_TILES = 256  # periods compared at a time


@dataclass(frozen=True)
class Block:
    """A stretch of an expected buffer: `count` elements of `table`, from index `start` on."""

    table: bytes
    start: int
    count: int


class Pattern:
    """The inputs of all ranks for one type and operation."""

    def __init__(self, dtype: DataType, op: str, ranks: int) -> None:
        self.dtype, self.op, self.ranks = dtype, op, ranks
        self._values = [[_value(dtype, op, ranks, rank, index) for index in range(PERIOD)] for rank in range(ranks)]

    @functools.cached_property
    def contributions(self) -> list[bytes]:
        """Of each rank: PERIOD elements."""
        return [self._encode(values) for values in self._values]

    @functools.cached_property
    def reduced(self) -> bytes:
        """All ranks' contributions reduced: PERIOD elements."""
        return self._encode([_reduce(self.op, column) for column in zip(*self._values, strict=True)])

    def expected(self, collective: Collective, rank: int, root: int, count: int, shift: int) -> list[Block]:
        """What the recv buffer must hold, where the inputs start at index `shift` of their tables."""
        mine = self.contributions[rank]
        if collective.rooted and rank != root and collective.name in ("reduce", "gather"):
            return []
        if collective.name == "broadcast":
            return [Block(self.contributions[root], shift, count)]
        if collective.name == "scatter":
            return [Block(self.contributions[root], shift + rank * count, count)]
        if collective.name == "reduce_scatter":
            return [Block(self.reduced, shift + rank * count, count)]
        if collective.reduces:
            return [Block(self.reduced, shift, count)]
        if collective.name == "all_to_all":
            return [Block(table, shift + rank * count, count) for table in self.contributions]
        if collective.receives_all:
            return [Block(table, shift, count) for table in self.contributions]
        return [Block(mine, shift, 0)]

    def _encode(self, values: list[int]) -> bytes:
        elements = {value: self.dtype.encode(value) for value in set(values)}
        return b"".join(elements[value] for value in values)


def repeated(table: bytes, nbytes: int) -> bytes:
    """The table over and over, at least so many bytes."""
    return table * -(-nbytes // len(table))


def wrong_elements(buffer: memoryview, blocks: list[Block], element_bytes: int) -> int:
    """How many elements of the buffer differ from the blocks, which follow each other in it."""
    position, wrong = 0, 0
    for block in blocks:
        for piece, expected in _pieces(buffer[position:], block, element_bytes):
            if piece != expected:
                wrong += sum(
                    piece[at : at + element_bytes] != expected[at : at + element_bytes]
                    for at in range(0, len(piece), element_bytes)
                )
        position += block.count * element_bytes
    return wrong


def _pieces(buffer: memoryview, block: Block, element_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Found and expected bytes, piece by piece: comparing bytes is as fast as memcmp."""
    first = block.start % PERIOD * element_bytes
    tile = (block.table * 2)[first : first + len(block.table)] * min(_TILES, -(-block.count // PERIOD) or 1)
    total = block.count * element_bytes
    for begin in range(0, total, len(tile)):
        length = min(len(tile), total - begin)
        yield bytes(buffer[begin : begin + length]), tile[:length]


def _hash(rank: int, index: int) -> int:
    return ((index + 1) * (rank + 3) * 2654435761 >> 7) & 0xFFFF


def _holds(dtype: DataType, number: int) -> bool:
    try:
        return dtype.decode(dtype.encode(number)) == number
    except OverflowError:
        return False


def _value(dtype: DataType, op: str, ranks: int, rank: int, index: int) -> int:
    limit = min(dtype.exact, 2**24)
    if op in ("max", "min"):
        return _hash(rank, index) % min(limit + 1, 97)
    if op == "prod":  # at most two ranks contribute more than 1: the product stays small
        return 2 if rank in (index % ranks, index // 3 % ranks) else 1
    if op == "avg":  # one rank contributes everything, a multiple of the number of ranks
        whole = ranks * (1 + index % 2) if 2 * ranks <= limit else ranks
        exact = whole <= limit or ("float" in dtype.name and _holds(dtype, whole))
        return whole if exact and rank == index % ranks else 0
    largest_sum = limit // SCALAR if op == "premulsum" else limit
    # With more ranks than the sum has room for, each element gets something from every g-th rank only.
    groups = -(-ranks // largest_sum)
    contributors = -(-ranks // groups)
    if rank % groups != index % groups:
        return 0
    return _hash(rank, index) % (min(largest_sum // contributors, 9) + 1)


def _reduce(op: str, values: tuple[int, ...]) -> int:
    if op == "prod":
        return prod(values)
    if op in ("max", "min"):
        return max(values) if op == "max" else min(values)
    if op == "avg":
        return sum(values) // len(values)
    return sum(values) * (SCALAR if op == "premulsum" else 1)
