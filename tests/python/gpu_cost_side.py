"""A rank of test_gpu_cost.py: what a communicator on GPUs costs. Rank 0 prints the ranks' largest figures as JSON.

Timed are first calls on communicators that were made a moment ago: the process's first one, and others beside it.
"""

from __future__ import annotations

import json
import os
import time
from array import array

import paceline
from paceline import _native
from paceline.cuda_driver import Gpu, Memory, Stream, device_count

FLOAT32, SUM = 7, 0
FIRST_CALLS = {"8 B": 2, "1 MB": 1 << 18, "16 MB": 4 << 20}  # elements; each on a communicator of its own


def agreed(comm: paceline.Communicator, value: float) -> float:
    largest = array("d", [value])
    comm.all_reduce(largest, op="max")
    return largest[0]


def made(world: paceline.Communicator) -> paceline.Communicator:
    """A communicator beside the first one, of all ranks."""
    identity = bytearray(paceline.unique_id() if world.rank == 0 else bytes(128))
    world.broadcast(identity)
    return paceline.init(rank=world.rank, size=world.size, unique_id=bytes(identity))


def first_call(comm: paceline.Communicator, count: int, memory: Memory, stream: Stream) -> float:
    """Seconds until the result of the first call is there."""
    comm.barrier()
    begin = time.perf_counter()
    result = _native.library().paceAllReduce(
        memory.address, memory.address, count, FLOAT32, SUM, comm._handle, stream.handle
    )
    stream.synchronize()
    took = time.perf_counter() - begin
    if result:
        raise comm._failure(result)
    return took


def main() -> None:
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    memory, stream = Memory(16 << 20), Stream()
    world = paceline.init()
    figures = {"first call of all": first_call(world, 2, memory, stream)}
    calls = {}
    for name, count in FIRST_CALLS.items():
        world.barrier()
        free, begin = gpu.free_bytes(), time.perf_counter()
        comm = made(world)
        world.barrier()  # made on all ranks
        figures["creation"] = max(figures.get("creation", 0), time.perf_counter() - begin)
        figures["bytes"] = max(figures.get("bytes", 0), free - gpu.free_bytes())
        calls[f"first call of {name}"] = first_call(comm, count, memory, stream)
        world.barrier()
        comm.close()
    figures |= calls
    largest = {name: agreed(world, value) for name, value in figures.items()}
    if world.rank == 0:
        print(json.dumps({"gpus direct": world.gpus_direct(), **largest}))
    world.close()


if __name__ == "__main__":
    main()
