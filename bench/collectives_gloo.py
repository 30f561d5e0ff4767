"""Gloo's collectives through torch.distributed, under the same clock as timing.h: the same steps, arguments and output.

Rank, size and address come from the environment (env://). A call's time has torch.distributed's overhead in it: that is
how Gloo is used.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

LONG_CALL = 64 << 10  # bytes sent from which on the ranks meet after a call, too


def element(first: int, count: int, rank: int, call: int) -> torch.Tensor:
    """What `rank` sends in call number `call`, from element `first` on."""
    index = torch.arange(first, first + count, dtype=torch.int64)
    return ((((index + rank * 7919 + call * 104729) * 2654435761) & 0xFFFFFFFF) >> 24).to(torch.float32)


def gathered(count: int, first: int, call: int, size: int) -> torch.Tensor:
    return torch.cat([element(first, count, rank, call) for rank in range(size)])


def summed(count: int, first: int, call: int, size: int) -> torch.Tensor:
    return torch.stack([element(first, count, rank, call) for rank in range(size)]).sum(0)


class Collective:
    """One collective at one size: its buffers, its call, and what the result must be."""

    def __init__(self, name: str, count: int, rank: int, size: int) -> None:
        self.count, self.rank, self.size = count, rank, size
        sends_parts = name in ("reduce_scatter", "scatter", "all_to_all")
        gets_parts = name in ("all_gather", "gather", "all_to_all")
        self.send = torch.zeros(count * size if sends_parts else count)
        self.recv = torch.zeros(count * size if gets_parts else count)
        parts = list((self.send if sends_parts else self.recv).chunk(size)) if sends_parts or gets_parts else []
        self.parts = parts if rank == 0 else None
        self.run: Callable[[], object] = getattr(self, name)

    # Each method makes one call. torch reduces in place: the copy is part of an out-of-place call.

    def all_reduce(self) -> None:
        self.recv.copy_(self.send)
        dist.all_reduce(self.recv)

    def reduce(self) -> None:
        self.recv.copy_(self.send)
        dist.reduce(self.recv, 0)

    def broadcast(self) -> None:
        dist.broadcast(self.send if self.rank == 0 else self.recv, 0)

    def all_gather(self) -> None:
        dist.all_gather_into_tensor(self.recv, self.send)

    def reduce_scatter(self) -> None:
        dist.reduce_scatter_tensor(self.recv, self.send)

    def gather(self) -> None:
        dist.gather(self.send, self.parts, 0)

    def scatter(self) -> None:
        dist.scatter(self.recv, self.parts, 0)

    def all_to_all(self) -> None:
        dist.all_to_all_single(self.recv, self.send)

    def barrier(self) -> None:
        dist.barrier()

    def send_recv(self) -> None:
        if self.rank == 0:
            dist.send(self.send, 1)
            dist.recv(self.recv, 1)
        elif self.rank == 1:
            dist.recv(self.recv, 0)
            dist.send(self.send, 0)

    def expected(self, name: str, call: int) -> torch.Tensor | None:
        """What this rank must have received; None where it receives nothing."""
        count, mine = self.count, self.rank * self.count
        receives = {"reduce": self.rank == 0, "gather": self.rank == 0, "broadcast": self.rank > 0}
        if not receives.get(name, name != "barrier" and (name != "send_recv" or self.rank < 2)):
            return None
        if name in ("all_reduce", "reduce"):
            return summed(count, 0, call, self.size)
        if name == "reduce_scatter":
            return summed(count, mine, call, self.size)
        if name in ("gather", "all_gather"):
            return gathered(count, 0, call, self.size)
        if name == "all_to_all":
            return gathered(count, mine, call, self.size)
        if name == "scatter":
            return element(mine, count, 0, call)
        return element(0, count, 1 - self.rank if name == "send_recv" else 0, call)

    def timed(self, call: int) -> tuple[float, float]:
        """Start and end of one call, microseconds."""
        self.send.copy_(element(0, self.send.numel(), self.rank, call))
        dist.barrier()
        start = time.monotonic_ns()
        self.run()
        end = time.monotonic_ns()
        if self.send.nbytes >= LONG_CALL:
            dist.barrier()
        return start * 1e-3, end * 1e-3


def over_ranks(values: list[float]) -> list[float]:
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return [float(value) for value in tensor]


def measure(name: str, bytes_: int, limit: int, cap_us: float) -> bool:
    rank, size = dist.get_rank(), dist.get_world_size()
    count = bytes_ // 4
    if name in ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"):
        count = max(1, count // size)
        bytes_ = count * size * 4
    collective = Collective(name, count, rank, size)
    call = 0

    def agreed() -> float:
        nonlocal call
        start = time.monotonic_ns()
        collective.timed(call)
        call += 1
        return over_ranks([(time.monotonic_ns() - start) * 1e-3])[0]

    one_call = agreed()
    if one_call < cap_us:
        one_call = agreed()
    calls = max(3, min(limit, int(cap_us / one_call)))
    starts, ends = [], []
    for number in range(-(calls // 5), calls):
        start, end = collective.timed(call)
        call += 1
        if number >= 0:
            starts.append(start)
            ends.append(end)
    share = 0.5 if name == "send_recv" else 1.0  # half a round trip
    busy = share if name != "send_recv" or rank < 2 else 0.0
    times = over_ranks([busy * (end - start) for start, end in zip(starts, ends)])
    last = over_ranks(ends)
    first = over_ranks([-start for start in starts])
    expected = collective.expected(name, call - 1)
    wrong = over_ranks([0.0 if expected is None else float((collective.recv != expected).sum())])[0]
    if rank == 0:
        print("row", bytes_, int(wrong), *(f"{value:.2f}" for value in times))
        print("span", bytes_, 0, *(f"{share * (end + start):.2f}" for end, start in zip(last, first)), flush=True)
    return one_call < cap_us


def main() -> None:
    name, cap_us = sys.argv[1], float(sys.argv[2]) * 1e6
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in sys.argv[3:]:
        bytes_, limit = size.split(":")
        if not measure(name, int(bytes_), int(limit), cap_us):
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
