"""A rank of nccl_programs.py's collectives: ordinary PyTorch on NCCL, which checks its results, all whole numbers."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
import torch.distributed as dist

SIZES = (1, 7, 1000, 65536, 3_000_001)


def filled(count: int, value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((count,), value, device="cuda", dtype=dtype)


def expect(tensor: torch.Tensor, value: float, what: str) -> None:
    assert bool((tensor == value).all()), f"{what}: {tensor[:4]} ... instead of {value}"


def collectives(rank: int, ranks: int, count: int) -> None:
    total = ranks * (ranks + 1) // 2
    x = filled(count, rank + 1)
    dist.all_reduce(x)
    expect(x, total, "all_reduce")
    x = filled(count, rank + 1, torch.bfloat16)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    expect(x, ranks, "all_reduce max")
    x = filled(count, rank + 1)
    dist.broadcast(x, src=ranks - 1)
    expect(x, ranks, "broadcast")
    x = filled(count, rank + 1)
    dist.reduce(x, dst=0)
    if rank == 0:
        expect(x, total, "reduce")
    x = filled(count * ranks, 0)
    dist.all_gather_into_tensor(x, filled(count, rank + 1))
    for other in range(ranks):
        expect(x[other * count : (other + 1) * count], other + 1, "all_gather")
    x = filled(count, 0)
    dist.reduce_scatter_tensor(x, filled(count * ranks, rank + 1))
    expect(x, total, "reduce_scatter")
    x = filled(count * ranks, 0)
    dist.all_to_all_single(x, filled(count * ranks, rank + 1))
    for other in range(ranks):
        expect(x[other * count : (other + 1) * count], other + 1, "all_to_all")
    x = filled(count, 0)
    messages = [
        dist.P2POp(dist.isend, filled(count, rank + 1), (rank + 1) % ranks),
        dist.P2POp(dist.irecv, x, (rank - 1) % ranks),
    ]
    for message in dist.batch_isend_irecv(messages):
        message.wait()
    expect(x, (rank - 1) % ranks + 1, "send and recv")


def premulsum(rank: int, ranks: int) -> None:
    x = filled(1000, rank + 1)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(2.0))
    expect(x, ranks * (ranks + 1), "premulsum")


def groups(rank: int, ranks: int) -> None:
    half = dist.new_group([other for other in range(ranks) if other != 0] or [0])
    if rank != 0 or ranks == 1:
        x = filled(100, 1)
        dist.all_reduce(x, group=half)
        expect(x, max(1, ranks - 1), "all_reduce of a new group")


def graphs(rank: int, ranks: int) -> None:
    x = filled(4096, 0)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        dist.all_reduce(x)
    x.zero_()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    expect(x, sum(ranks**power for power in (1, 2, 3)), "all_reduce in a graph")


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    steps: list[Callable[[], None]] = [lambda count=count: collectives(rank, ranks, count) for count in SIZES]
    steps += [lambda: premulsum(rank, ranks), lambda: groups(rank, ranks), lambda: graphs(rank, ranks)]
    for step in steps:
        step()
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print(f"rank {rank} is well", flush=True)


if __name__ == "__main__":
    main()
