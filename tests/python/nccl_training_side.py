"""A rank of the training programs: PyTorch as anyone writes it, in five ways. Knows nothing of Paceline.

Writes DIRECTORY/WAY.pt, the trained parameters and losses, and prints a line "WAY: step N us" (rank 0). The same
program on another NCCL must end with the same numbers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

STEPS = 30


@dataclass(frozen=True)
class Size:
    width: int = 1024
    batch: int = 64
    dtype: torch.dtype = torch.float32
    layers: int = 4


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.down(torch.relu(self.up(x)))
        return added


def model(size: Size) -> nn.Sequential:
    torch.manual_seed(1)
    with torch.device("cuda"):
        return nn.Sequential(*(Block(size) for _ in range(size.layers))).to(size.dtype)


def batch(size: Size, seed: int) -> Tensor:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(size.batch, size.width, device="cuda", generator=generator).to(size.dtype)


def mesh_of(group: Group) -> DeviceMesh:
    if group is None:
        return init_device_mesh("cuda", (dist.get_world_size(),))
    return DeviceMesh.from_group(group, "cuda")


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


# A model, and a step of its training on the process group (None: of all ranks).
Group = dist.ProcessGroup | None
Training = tuple[nn.Module, Callable[[], Tensor]]


def ddp(size: Size, group: Group) -> Training:
    trained = DistributedDataParallel(model(size), process_group=group)
    return trained, steps_of(trained, batch(size, 10 + dist.get_rank()))


def fsdp2(size: Size, group: Group) -> Training:
    trained, mesh = model(size), mesh_of(group)
    for block in trained:
        fully_shard(block, mesh=mesh)
    fully_shard(trained, mesh=mesh)
    return trained, steps_of(trained, batch(size, 10 + dist.get_rank()))


def tensor_parallel(size: Size, group: Group) -> Training:
    trained, mesh = model(size), mesh_of(group)
    for block in trained:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return trained, steps_of(trained, batch(size, 10))


def compiled(size: Size, group: Group) -> Training:
    trained = DistributedDataParallel(model(size), process_group=group)
    return trained, steps_of(torch.compile(trained), batch(size, 10 + dist.get_rank()))


def graph(size: Size, group: Group) -> Training:
    """A whole step, with an all-reduce for each gradient, in a CUDA graph."""
    trained, x = model(size), batch(size, 10 + dist.get_rank())
    optimizer = optimizer_of(trained)

    def step() -> Tensor:
        loss: Tensor = trained(x).square().mean()
        loss.backward()
        for parameter in trained.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=group)
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

    replay.reads = step  # type: ignore[attr-defined]  # the parameters and the batch live as long as the graph

    return trained, replay


WAYS = {"ddp": ddp, "fsdp2": fsdp2, "tensor": tensor_parallel, "graph": graph, "compile": compiled}


def microseconds(step: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """The time of a step that all ranks begin together; and its loss."""
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    loss = step()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - begin), loss


def train(way: str, directory: Path) -> None:
    trained, step = WAYS[way](Size(), None)
    losses = [step().clone() for _ in range(5)]
    torch.cuda.synchronize()
    times = []
    for _ in range(STEPS):
        spent, loss = microseconds(step)
        times.append(spent)
        losses.append(loss.clone())
    parameters = torch.cat([full(parameter).flatten() for parameter in trained.parameters()])
    if dist.get_rank() == 0:
        torch.save({"losses": torch.stack(losses).cpu(), "parameters": parameters.cpu()}, directory / f"{way}.pt")
        print(f"{way}: step {sorted(times)[len(times) // 2]:.1f} us", flush=True)


def main() -> None:
    directory, ways = Path(sys.argv[1]), sys.argv[2].split(",")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for way in ways:
        train(way, directory)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']} is well", flush=True)


if __name__ == "__main__":
    main()
