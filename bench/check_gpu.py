"""Inputs whose results are exact, and the check of a result on the GPU, for compare_gpu.py.

Inputs are small whole numbers that differ by rank and place; their period is a prime, so a piece in the wrong place
shows. Buffers are filled and compared piece by piece: memory for more than the message is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

_PIECE = 32 << 20  # elements
_PERIOD = 97


@dataclass(frozen=True)
class Block:
    """A stretch of a result: what `rank` (None: the sum of all) has at `start`, `length` elements, put at `at`."""

    at: int
    start: int
    length: int
    rank: int | None


def expected(collective: str, rank: int, ranks: int, count: int) -> list[Block]:
    """What a rank's output must hold. `count` is that of the call; rank 0 is the root, and sends to rank 1."""
    if collective == "all_reduce":
        return [Block(0, 0, count, None)]
    if collective == "reduce_scatter":
        return [Block(0, rank * count, count, None)]
    if collective == "scatter":
        return [Block(0, rank * count, count, 0)]
    if collective == "all_gather":
        return [Block(other * count, 0, count, other) for other in range(ranks)]
    if collective == "all_to_all":
        return [Block(other * count, rank * count, count, other) for other in range(ranks)]
    if collective == "broadcast":
        return [Block(0, 0, count, 0)] if rank else []
    if collective == "send_recv":
        return [Block(0, 0, count, 0)] if rank == 1 else []
    if rank:
        return []
    return {"reduce": [Block(0, 0, count, None)]}.get(
        collective, [Block(other * count, 0, count, other) for other in range(ranks)]
    )


def fill(buffer: torch.Tensor, rank: int) -> None:
    """Write a rank's input into a buffer."""
    for begin, end in _pieces(buffer.numel()):
        buffer[begin:end] = _input(begin, end - begin, rank, buffer.device)


def wrong_elements(output: torch.Tensor, blocks: list[Block], ranks: int) -> int:
    """How many elements of an output differ from what they must be."""
    wrong = torch.zeros((), dtype=torch.int64, device=output.device)
    for block in blocks:
        for begin, end in _pieces(block.length):
            sources = range(ranks) if block.rank is None else [block.rank]
            right = torch.zeros(end - begin, device=output.device)
            for source in sources:
                right += _input(block.start + begin, end - begin, source, output.device)
            wrong += (output[block.at + begin : block.at + end] != right).sum()
    return int(wrong)


def _input(start: int, length: int, rank: int, device: torch.device) -> torch.Tensor:
    index = torch.arange(start, start + length, dtype=torch.int64, device=device)
    return ((index * 7 + rank * 31) % _PERIOD).to(torch.float32)


def _pieces(length: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(begin + _PIECE, length)) for begin in range(0, length, _PIECE))
