"""A rank of nccl_programs.py's small all-reduces: PyTorch's, in CUDA graphs and one by one. Knows nothing of Paceline.

Prints lines "graph BYTES N us" and "eager BYTES N us" (rank 0): the time of one call, the least of some measurements.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

SIZES = (8, 4 << 10, 64 << 10, 256 << 10)
CALLS = 50  # of a graph, or of a measurement
MEASUREMENTS = 20


def least_microseconds(run: torch.cuda.CUDAGraph | None, x: torch.Tensor) -> float:
    times = []
    for _ in range(MEASUREMENTS):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        if run is not None:
            run.replay()
        else:
            for _ in range(CALLS):
                dist.all_reduce(x)
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begin) / CALLS)
    return min(times)


def graph_of(x: torch.Tensor) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            dist.all_reduce(x)
    return graph


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for size in SIZES:
        x = torch.zeros(size // 4, device="cuda")
        for _ in range(5):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        for way, run in (("graph", graph_of(x)), ("eager", None)):
            spent = least_microseconds(run, x)
            if dist.get_rank() == 0:
                print(f"{way} {size} {spent:.2f} us", flush=True)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']} is well", flush=True)


if __name__ == "__main__":
    main()
