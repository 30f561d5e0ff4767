"""CuPy's binding of NCCL: one process for all GPUs, or (RANK, WORLD_SIZE) cupyx.distributed with a process a GPU."""

from __future__ import annotations

import os

import cupy
from cupy.cuda import nccl

COUNT = 4096


def one_process() -> None:
    devices = cupy.cuda.runtime.getDeviceCount()
    comms = nccl.NcclCommunicator.initAll(devices)
    arrays, streams = [], []
    for device in range(devices):
        with cupy.cuda.Device(device):
            arrays.append(cupy.full(COUNT, device + 1, dtype=cupy.float32))
            streams.append(cupy.cuda.Stream())
            cupy.cuda.Device(device).synchronize()
    nccl.groupStart()
    for comm, array, stream in zip(comms, arrays, streams):
        with cupy.cuda.Device(comm.device_id()):
            pointer = array.data.ptr
            comm.allReduce(pointer, pointer, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
    nccl.groupEnd()
    for device, (array, stream) in enumerate(zip(arrays, streams)):
        with cupy.cuda.Device(device):
            stream.synchronize()
            assert bool((array == devices * (devices + 1) // 2).all()), array[:4]
    print(f"{devices} of {devices} devices are well", flush=True)


def one_of_many() -> None:
    from cupyx.distributed import init_process_group

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cupy.cuda.Device(rank).use()
    comm = init_process_group(ranks, rank, host=os.environ["MASTER_ADDR"], port=int(os.environ["MASTER_PORT"]))
    mine = cupy.full(COUNT, rank + 1, dtype=cupy.float32)
    total = cupy.zeros_like(mine)
    comm.all_reduce(mine, total)
    assert bool((total == ranks * (ranks + 1) // 2).all()), total[:4]
    comm.broadcast(mine, root=ranks - 1)
    assert bool((mine == ranks).all()), mine[:4]
    comm.barrier()
    comm.stop()
    print(f"1 of {ranks} devices are well", flush=True)


if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        one_of_many()
    else:
        one_process()
