"""A rank of the training programs: PyTorch as anyone writes it, in five ways. Knows nothing of Paceline.

Writes DIRECTORY/WAY.pt, the trained parameters and losses, and prints a line "WAY: step N us" (rank 0). The same
program on another NCCL must end with the same numbers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH, STEPS = 1024, 4, 64, 30


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.down(torch.relu(self.up(x)))
        return added


def model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(Block() for _ in range(LAYERS))).cuda()


def batch(seed: int) -> Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(BATCH, WIDTH, device="cuda", generator=generator)


def optimizer_of(trained: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained.parameters(), lr=1e-3, momentum=0.9)


def steps_of(trained: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    optimizer = optimizer_of(trained)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = trained(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def full(parameter: Tensor) -> Tensor:
    whole: Tensor = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return whole.detach()


def train(way: str, step: Callable[[], Tensor], trained: nn.Module, directory: Path) -> None:
    losses = [step().clone() for _ in range(5)]
    torch.cuda.synchronize()
    times = []
    for _ in range(STEPS):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - begin))
        losses.append(loss.clone())
    parameters = torch.cat([full(parameter).flatten() for parameter in trained.parameters()])
    if dist.get_rank() == 0:
        torch.save({"losses": torch.stack(losses).cpu(), "parameters": parameters.cpu()}, directory / f"{way}.pt")
        print(f"{way}: step {sorted(times)[len(times) // 2]:.1f} us", flush=True)


def ddp(directory: Path) -> None:
    trained = DistributedDataParallel(model())
    train("ddp", steps_of(trained, batch(10 + dist.get_rank())), trained, directory)


def fsdp2(directory: Path) -> None:
    trained = model()
    for block in trained:
        fully_shard(block)
    fully_shard(trained)
    train("fsdp2", steps_of(trained, batch(10 + dist.get_rank())), trained, directory)


def tensor_parallel(directory: Path) -> None:
    trained = model()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for block in trained:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    train("tensor", steps_of(trained, batch(10)), trained, directory)


def compiled(directory: Path) -> None:
    trained = DistributedDataParallel(model())
    train("compile", steps_of(torch.compile(trained), batch(10 + dist.get_rank())), trained, directory)


def graph(directory: Path) -> None:
    """A whole step, with an all-reduce for each gradient, in a CUDA graph."""
    trained, x = model(), batch(10 + dist.get_rank())
    optimizer = optimizer_of(trained)

    def step() -> Tensor:
        loss: Tensor = trained(x).square().mean()
        loss.backward()
        for parameter in trained.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad()
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    optimizer.zero_grad()  # the graph's backward pass makes gradients of its own
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        loss = step()

    def replay() -> Tensor:
        recorded.replay()
        return loss

    train("graph", replay, trained, directory)


WAYS = {"ddp": ddp, "fsdp2": fsdp2, "tensor": tensor_parallel, "graph": graph, "compile": compiled}


def main() -> None:
    directory, ways = Path(sys.argv[1]), sys.argv[2].split(",")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for way in ways:
        WAYS[way](directory)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']} is well", flush=True)


if __name__ == "__main__":
    main()
