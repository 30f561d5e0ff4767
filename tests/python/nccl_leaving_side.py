"""A rank of a PyTorch program that ends without destroy_process_group, rank 0 before the others."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    x = torch.full((1000,), rank + 1.0, device="cuda")
    for _ in range(3):
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert x[0].item() == (ranks + 1) / 2
    time.sleep(3 * rank)
    assert x.sum().item() == 1000 * (ranks + 1) / 2
    print(f"rank {rank} is well", flush=True)


if __name__ == "__main__":
    main()
