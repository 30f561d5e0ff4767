"""A rank of nccl_programs.py's steps: the same training twice in one process, on two NCCLs, a step of each in turn.

Two runs of a program differ by more than two libraries do: memory, threads and clocks come to lie otherwise. Here both
have all that in common. One process group's communicator is made by the preloaded library; the other's unique id is
made where the job seems to span machines, so the library makes it NCCL's own, and hands every call on (14 ns).

Prints a line "WAY SIZE: NCCL's N us, N us; ratio of pairs N (N to N)" a training (rank 0).
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from nccl_training_side import WAYS, Group, Size, microseconds

SIZES = {
    "small": Size(),  # its steps are limited by Python
    "large": Size(width=4096, batch=4096, dtype=torch.bfloat16),  # by the GPUs
}


def group_of(machines: str) -> Group:
    """A process group whose unique id is made where the launcher seems to say so."""
    here = os.environ["LOCAL_WORLD_SIZE"]
    if machines == "several":
        os.environ["LOCAL_WORLD_SIZE"] = "1"
    group = dist.new_group()
    dist.all_reduce(torch.zeros(1, device="cuda"), group=group)  # makes the communicator
    torch.cuda.synchronize()
    os.environ["LOCAL_WORLD_SIZE"] = here
    return group


def interval(ratios: list[float]) -> tuple[float, float]:
    """Of their median: 95 of 100 medians of samples of them lie between."""
    generator = random.Random(1)
    medians = sorted(median(generator.choices(ratios, k=len(ratios))) for _ in range(400))
    return medians[10], medians[-11]


def compare(ours: Callable[[], object], theirs: Callable[[], object], seconds: float) -> str:
    """Steps one by one, in turn, the first of a pair now this one and now that; the ranks agree on how many."""
    for _ in range(10):
        ours()
        theirs()
    begin = time.perf_counter()
    for _ in range(3):
        microseconds(ours)
        microseconds(theirs)
    count = torch.tensor([3 * seconds / (time.perf_counter() - begin)], device="cuda")
    dist.all_reduce(count, op=dist.ReduceOp.MIN)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for pair in range(max(10, int(count))):
        order = [("ours", ours), ("theirs", theirs)]
        for name, step in order if pair % 2 else reversed(order):
            times[name].append(microseconds(step)[0])
    ratios = [other / own for own, other in zip(times["ours"], times["theirs"])]
    low, high = interval(ratios)
    own, other = median(times["ours"]), median(times["theirs"])
    return (
        f"NCCL's {other:.0f} us, {own:.0f} us: {other / own:.3f}; of {len(ratios)} pairs {median(ratios):.3f} "
        f"({low:.3f} to {high:.3f})"
    )


def main() -> None:
    ways, sizes, seconds = sys.argv[1].split(","), sys.argv[2].split(","), float(sys.argv[3])
    rank = int(os.environ["LOCAL_RANK"])
    cpus = sorted(os.sched_getaffinity(0))  # as launchers do: else ranks wander, and now and then share a CPU
    share = len(cpus) // int(os.environ["LOCAL_WORLD_SIZE"])
    os.sched_setaffinity(0, cpus[rank * share : (rank + 1) * share])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    groups = {"ours": group_of("one"), "theirs": group_of("several")}
    for size in sizes:
        for way in ways:
            steps = {name: WAYS[way](SIZES[size], group)[1] for name, group in groups.items()}
            verdict = compare(steps["ours"], steps["theirs"], seconds)
            if dist.get_rank() == 0:
                print(f"{way} {size}: {verdict}", flush=True)
            del steps
            gc.collect()
            torch.cuda.empty_cache()
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is well", flush=True)


if __name__ == "__main__":
    main()
