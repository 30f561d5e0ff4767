"""Inputs whose results are exact, and the check of a result on the GPU, for compare_gpu.py.

The inputs are those of `paceline bench --check`: small whole numbers, exact in every type, whose period is a prime, so
a piece in the wrong place shows. Buffers are filled and compared piece by piece: memory for more than the message is
not needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from paceline.command.pattern import PERIOD, Block, Pattern
from peers_gpu import CALLS, Buffers, Elements

_PERIODS = 1 << 15  # of a piece


class Check:
    """A rank's inputs, and what must come of them. Rank 0 is the root, and sends to rank 1."""

    def __init__(self, elements: Elements, rank: int, ranks: int) -> None:
        self._elements, self._rank, self._ranks = elements, rank, ranks
        self._pattern = Pattern(elements.dtype, elements.op, ranks)

    def begin(self, collective: str, nbytes: int, buffers: Buffers) -> None:
        """Write this rank's input, and what is no result."""
        call, element_bytes = CALLS[collective], self._elements.dtype.size
        count = self._elements.count(collective, nbytes, self._ranks)
        total = call.total_bytes(count, self._ranks, element_bytes)
        buffers.recv[:total].fill_(255)
        mine = Block(self._pattern.contributions[self._rank], 0, total // element_bytes)
        for at, piece in self._pieces(mine, buffers.send.device):
            buffers.send[at : at + len(piece)] = piece

    def wrong_elements(self, collective: str, nbytes: int, buffers: Buffers) -> int:
        """How many elements of the output differ from what they must be."""
        element_bytes, output = self._elements.dtype.size, buffers.recv
        wrong = torch.zeros((), dtype=torch.int64, device=output.device)
        begin = 0
        for block in self._expected(collective, self._elements.count(collective, nbytes, self._ranks)):
            for at, piece in self._pieces(block, output.device):
                found = output[begin + at : begin + at + len(piece)]
                wrong += (found != piece).view(-1, element_bytes).any(1).sum()
            begin += block.count * element_bytes
        return int(wrong)

    def _expected(self, collective: str, count: int) -> list[Block]:
        if collective == "send_recv":
            return [Block(self._pattern.contributions[0], 0, count)] if self._rank == 1 else []
        if collective == "broadcast" and self._rank == 0:
            return []  # its input is its output
        return self._pattern.expected(CALLS[collective], self._rank, 0, count, 0)

    def _pieces(self, block: Block, device: torch.device) -> Iterator[tuple[int, torch.Tensor]]:
        """A block's bytes on the GPU, and where they are in it."""
        element_bytes = self._elements.dtype.size
        first = block.start % PERIOD * element_bytes
        table = torch.frombuffer(bytearray(block.table), dtype=torch.uint8).to(device).roll(-first)
        total = block.count * element_bytes
        piece = table.repeat(min(_PERIODS, -(-block.count // PERIOD)))
        for at in range(0, total, len(piece)):
            yield at, piece[: total - at]
