"""A rank of a program for NCCL's C API of which rank 1 kills itself; the others go on without it (ncclCommShrink).

    nccl_shrink_side.py FOLDER

By a shrink that aborts, and then, of what that has made, by one after ncclCommRevoke.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

COUNT = 1 << 20
FLOAT32, SUM, DEFAULT, ABORT = 7, 0, 0, 1


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


nccl = ctypes.CDLL(None)
nccl.ncclGetErrorString.restype = nccl.ncclGetLastError.restype = ctypes.c_char_p


def check(result: int) -> None:
    if result:
        raise RuntimeError(f"{nccl.ncclGetErrorString(result).decode()}: {nccl.ncclGetLastError(None).decode()}")


def agreed_id(rank: int, folder: Path) -> UniqueId:
    """Rank 0's, by a file."""
    path = folder / "id"
    if rank == 0:
        identity = UniqueId()
        check(nccl.ncclGetUniqueId(ctypes.byref(identity)))
        path.with_suffix(".new").write_bytes(bytes(identity))
        path.with_suffix(".new").rename(path)
    while not path.exists():
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(path.read_bytes())


def all_reduce(comm: ctypes.c_void_p, value: float) -> torch.Tensor:
    x = torch.full((COUNT,), value, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    at = ctypes.c_void_p(x.data_ptr())
    check(nccl.ncclAllReduce(at, at, ctypes.c_size_t(COUNT), FLOAT32, SUM, comm, ctypes.c_void_p(stream)))
    return x


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError("nothing happened in 20 s")
        time.sleep(0.001)


def has_failed(comm: ctypes.c_void_p) -> bool:
    state = ctypes.c_int()
    check(nccl.ncclCommGetAsyncError(comm, ctypes.byref(state)))
    return state.value != 0


def shrunk(comm: ctypes.c_void_p, excluded: int, flags: int) -> tuple[ctypes.c_void_p, float]:
    begin, made = time.monotonic(), ctypes.c_void_p()
    check(nccl.ncclCommShrink(comm, (ctypes.c_int * 1)(excluded), 1, ctypes.byref(made), None, flags))
    return made, time.monotonic() - begin


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.zeros(1, device="cuda")
    comm = ctypes.c_void_p()
    check(nccl.ncclCommInitRank(ctypes.byref(comm), ranks, agreed_id(rank, Path(sys.argv[1])), rank))
    assert (all_reduce(comm, rank + 1.0) == ranks * (ranks + 1) / 2).all()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with suppress(RuntimeError):  # it may be known to be dead by now
        all_reduce(comm, 1.0)  # rank 1 does not come
    until(lambda: has_failed(comm))
    survivors, seconds = shrunk(comm, 1, ABORT)
    assert (all_reduce(survivors, 1.0) == ranks - 1).all()
    torch.cuda.synchronize()
    check(nccl.ncclCommDestroy(comm))
    waits = Path(sys.argv[1]) / "waits"
    if rank != ranks - 1:  # the others wait for it when they are revoked
        all_reduce(survivors, 1.0)
        waits.with_suffix(f".{rank}").touch()
    until(lambda: len(list(waits.parent.glob("waits*"))) == ranks - 2)
    check(nccl.ncclCommRevoke(survivors, 0))
    if rank != ranks - 1:
        rest, _ = shrunk(survivors, ranks - 2, DEFAULT)
        assert (all_reduce(rest, 1.0) == ranks - 2).all()
        torch.cuda.synchronize()
        check(nccl.ncclCommDestroy(rest))
    check(nccl.ncclCommDestroy(survivors))
    print(f"rank {rank} is well: shrunk in {1e3 * seconds:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
