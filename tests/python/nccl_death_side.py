"""A rank of a PyTorch training of which the last rank kills itself; the others must not wait for it."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    trained = DistributedDataParallel(nn.Linear(512, 512).cuda())
    x = torch.ones(8, 512, device="cuda")
    for step in range(1000):
        if step == 10 and rank == ranks - 1:
            torch.cuda.synchronize()
            print(f"rank {rank} dies at {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        trained(x).sum().backward()
        torch.cuda.synchronize()
        if step >= 10:
            time.sleep(2)  # as if it waited for data: PyTorch's watchdog looks ten times a second
    print(f"rank {rank} has not noticed", flush=True)


if __name__ == "__main__":
    main()
