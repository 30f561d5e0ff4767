"""GPU libraries behind one interface: timed by compare_gpu.py. Each enqueues a collective many times on a CUDA stream.

C libraries are called from C, by a loop, as the programs call them that they were made for.
`bytes` is the whole message as nccl-tests counts it: all ranks' parts together where each rank has a part. Rank 0 is
the root, and sends to rank 1. Buffers are torch's tensors of bytes.
"""

from __future__ import annotations

import ctypes
import functools
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import paceline
import torch
from paceline import _native
from paceline.command.collectives import COLLECTIVES, Collective
from paceline.datatypes import OPERATIONS, DataType
from paceline.door import nccl_library
from repeat_calls import call, repeat

CALLS = {**COLLECTIVES, "send_recv": Collective("send_recv", "paceSend")}
SMALLEST_BUFFER = 1024  # bytes: a part has one element at least, so a row's message may be longer than it says


class Unavailable(Exception):
    """The library is not here."""


@dataclass(frozen=True)
class Elements:
    """What the collectives are of, and how they reduce. The numbers are the same in NCCL and Paceline."""

    dtype: DataType
    op: str

    @property
    def numbers(self) -> tuple[int, int]:
        return self.dtype.number, OPERATIONS[self.op]

    @property
    def torch_dtype(self) -> torch.dtype:
        names = {"float8e4m3": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}
        found: torch.dtype = getattr(torch, names.get(self.dtype.name, self.dtype.name))
        return found

    def count(self, collective: str, nbytes: int, ranks: int) -> int:
        """Elements as the collective's call counts them."""
        return CALLS[collective].count(nbytes, ranks, self.dtype.size)


class Buffers:
    """A rank's input and output, which is the input where the library works in place."""

    def __init__(self, send: torch.Tensor, recv: torch.Tensor) -> None:
        self.send, self.recv = send, recv


class Peer(Protocol):
    name: str

    def takes(self, collective: str, nbytes: int) -> bool: ...
    def buffers(self, nbytes: int) -> Buffers: ...
    def enqueue(self, collective: str, buffers: Buffers, nbytes: int, stream: int, times: int) -> None: ...


Calls = list[tuple[int, tuple[int, ...]]]  # repeat_calls.py's


@functools.cache
def plain_buffers(nbytes: int) -> Buffers:
    """Ordinary memory of torch's, the same for all libraries that take it."""
    return Buffers(*(torch.zeros(buffer_bytes(nbytes), dtype=torch.uint8, device="cuda") for _ in range(2)))


def buffer_bytes(nbytes: int) -> int:
    """Of a buffer that every collective of this size fits into."""
    return max(nbytes, SMALLEST_BUFFER)


class Paceline:
    name = "paceline"

    def __init__(self, comm: paceline.Communicator, elements: Elements) -> None:
        self.comm, self._elements, self._library = comm, elements, _native.library()

    def takes(self, collective: str, nbytes: int) -> bool:
        return True

    def buffers(self, nbytes: int) -> Buffers:
        return plain_buffers(nbytes)

    def enqueue(self, collective: str, buffers: Buffers, nbytes: int, stream: int, times: int) -> None:
        if repeat(self._calls(collective, buffers, nbytes, stream), times):
            raise RuntimeError(self._library.paceGetLastError(self.comm._handle).decode())

    def _calls(self, collective: str, buffers: Buffers, nbytes: int, stream: int) -> Calls:
        library, rank = self._library, self.comm.rank
        send, recv = buffers.send.data_ptr(), buffers.recv.data_ptr()
        n, kind, op = self._elements.count(collective, nbytes, self.comm.size), *self._elements.numbers
        end = (self.comm._handle or 0, stream)
        if collective == "send_recv":
            message = {0: (library.paceSend, send, 1), 1: (library.paceRecv, recv, 0)}.get(rank)
            return [call(message[0], message[1], n, kind, message[2], *end)] if message else []
        return [
            {
                "all_reduce": lambda: call(library.paceAllReduce, send, recv, n, kind, op, *end),
                "broadcast": lambda: call(library.paceBroadcast, send, recv if rank else send, n, kind, 0, *end),
                "reduce": lambda: call(library.paceReduce, send, recv, n, kind, op, 0, *end),
                "all_gather": lambda: call(library.paceAllGather, send, recv, n, kind, *end),
                "reduce_scatter": lambda: call(library.paceReduceScatter, send, recv, n, kind, op, *end),
                "all_to_all": lambda: call(library.paceAllToAll, send, recv, n, kind, *end),
                "gather": lambda: call(library.paceGather, send, recv, n, kind, 0, *end),
                "scatter": lambda: call(library.paceScatter, send, recv, n, kind, 0, *end),
            }[collective]()
        ]


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def _nccl_library(given: Path | None = None) -> Any:
    path = given or Path(torch.__file__).parent.parent / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    try:
        library = ctypes.CDLL(str(path) if path.exists() else "libnccl.so.2")
    except OSError as error:
        raise Unavailable(f"NCCL: {error}") from error
    library.ncclGetErrorString.restype = ctypes.c_char_p
    return library


def nccl_version() -> str:
    """Of the library that is measured, "2.28.9"."""
    number = ctypes.c_int()
    _nccl_library().ncclGetVersion(ctypes.byref(number))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


class Nccl:
    """NCCL's own API. With `windows`, buffers are registered as symmetric windows."""

    def __init__(
        self, comm: paceline.Communicator, elements: Elements, windows: bool, library: Path | None = None
    ) -> None:
        self.name = "NCCL windows" if windows else "NCCL default"
        self._elements, self._windows, self._rank, self._ranks = elements, windows, comm.rank, comm.size
        self._library = _nccl_library(library)
        if windows and not hasattr(self._library, "ncclCommWindowRegister"):
            raise Unavailable("this NCCL has no windows")
        identity = _UniqueId()
        if comm.rank == 0:
            self._check(self._library.ncclGetUniqueId(ctypes.byref(identity)))
        shared = np.frombuffer(bytes(identity), dtype=np.uint8).copy()
        comm.broadcast(shared)
        identity = _UniqueId.from_buffer_copy(shared.tobytes())
        self._comm = ctypes.c_void_p()
        self._check(self._library.ncclCommInitRank(ctypes.byref(self._comm), comm.size, identity, comm.rank))

    def _check(self, result: int) -> None:
        if result:
            raise RuntimeError(f"NCCL: {self._library.ncclGetErrorString(result).decode()}")

    def takes(self, collective: str, nbytes: int) -> bool:
        return True

    def buffers(self, nbytes: int) -> Buffers:
        if not self._windows:
            return plain_buffers(nbytes)
        return Buffers(self._registered(nbytes), self._registered(nbytes))

    def _registered(self, nbytes: int) -> torch.Tensor:
        pointer, window = ctypes.c_void_p(), ctypes.c_void_p()
        size = buffer_bytes(nbytes)
        self._check(self._library.ncclMemAlloc(ctypes.byref(pointer), ctypes.c_size_t(size)))
        self._check(
            self._library.ncclCommWindowRegister(self._comm, pointer, ctypes.c_size_t(size), ctypes.byref(window), 1)
        )
        return torch.as_tensor(_Memory(pointer.value or 0, size), device="cuda")

    def enqueue(self, collective: str, buffers: Buffers, nbytes: int, stream: int, times: int) -> None:
        self._check(repeat(self._calls(collective, buffers, nbytes, stream), times))

    def _calls(self, collective: str, buffers: Buffers, nbytes: int, stream: int) -> Calls:
        library = self._library
        send, recv = buffers.send.data_ptr(), buffers.recv.data_ptr()
        n, kind, op = self._elements.count(collective, nbytes, self._ranks), *self._elements.numbers
        end = (self._comm.value or 0, stream)
        last = recv if self._rank else send
        makers = {
            "all_reduce": lambda: call(library.ncclAllReduce, send, recv, n, kind, op, *end),
            "broadcast": lambda: call(library.ncclBroadcast, send, last, n, kind, 0, *end),
            "reduce": lambda: call(library.ncclReduce, send, recv, n, kind, op, 0, *end),
            "all_gather": lambda: call(library.ncclAllGather, send, recv, n, kind, *end),
            "reduce_scatter": lambda: call(library.ncclReduceScatter, send, recv, n, kind, op, *end),
        }
        if hasattr(library, "ncclAlltoAll"):
            makers |= {
                "all_to_all": lambda: call(library.ncclAlltoAll, send, recv, n, kind, *end),
                "gather": lambda: call(library.ncclGather, send, recv, n, kind, 0, *end),
                "scatter": lambda: call(library.ncclScatter, send, recv, n, kind, 0, *end),
            }
        return [makers[collective]()] if collective in makers else self._messages(collective, send, recv, n, end)

    def _messages(self, collective: str, send: int, recv: int, n: int, end: tuple[int, int]) -> Calls:
        """A message; and what NCCL has only as sends and receives before 2.28."""
        library, rank, kind = self._library, self._rank, self._elements.dtype.number
        part_bytes = n * self._elements.dtype.size

        def given(peer: int, part: int) -> tuple[int, tuple[int, ...]]:
            return call(library.ncclSend, send + part * part_bytes, n, kind, peer, *end)

        def taken(peer: int, part: int) -> tuple[int, tuple[int, ...]]:
            return call(library.ncclRecv, recv + part * part_bytes, n, kind, peer, *end)

        calls = [call(library.ncclGroupStart)]
        for peer in range(self._ranks):
            if collective == "all_to_all":
                calls += [given(peer, peer), taken(peer, peer)]
            elif collective == "scatter" and rank == 0:
                calls.append(given(peer, peer))
            elif collective == "gather" and rank == 0:
                calls.append(taken(peer, peer))
        if collective == "scatter":
            calls.append(taken(0, 0))
        elif collective == "gather":
            calls.append(given(0, 0))
        elif collective == "send_recv" and rank == 0:
            calls.append(given(1, 0))
        elif collective == "send_recv" and rank == 1:
            calls.append(taken(0, 0))
        return [*calls, call(library.ncclGroupEnd)]


class _Memory:
    """Memory of NCCL's, for torch."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


class Door(Nccl):
    """The same on Paceline's libnccl.so.2: what the door adds to a call of the C API."""

    def __init__(self, comm: paceline.Communicator, elements: Elements) -> None:
        super().__init__(comm, elements, False, nccl_library())
        self.name = "door"


_SYMMETRIC_BYTES = {"one-shot": (4, 2 << 20), "two-shot": (4 << 10, 8 << 30)}  # where each can be the faster one


class SymmetricMemory:
    """torch's symmetric memory, which has all-reduce: by one exchange, or by two in place."""

    def __init__(self, comm: paceline.Communicator, elements: Elements, way: str) -> None:
        try:
            import torch.distributed as dist
            import torch.distributed._symmetric_memory as symmetric
        except ImportError as error:
            raise Unavailable(str(error)) from error
        self.name, self._way, self._elements = f"torch {way}", way, elements
        if not dist.is_initialized():
            dist.init_process_group(
                "nccl", init_method=f"tcp://127.0.0.1:{_agreed_port(comm)}", rank=comm.rank, world_size=comm.size
            )
        self._symmetric, self._group = symmetric, dist.group.WORLD.group_name

    def takes(self, collective: str, nbytes: int) -> bool:
        smallest, largest = _SYMMETRIC_BYTES[self._way]
        sums = collective == "all_reduce" and self._elements.op == "sum"
        return sums and smallest <= nbytes <= largest

    def buffers(self, nbytes: int) -> Buffers:
        size = buffer_bytes(min(nbytes, _SYMMETRIC_BYTES[self._way][1]))
        tensor = self._symmetric.empty(size, dtype=torch.uint8, device="cuda")
        self._symmetric.rendezvous(tensor, self._group)
        tensor.zero_()
        return Buffers(tensor, torch.zeros_like(tensor) if self._way == "one-shot" else tensor)

    def enqueue(self, collective: str, buffers: Buffers, nbytes: int, stream: int, times: int) -> None:
        send, recv = (tensor[:nbytes].view(self._elements.torch_dtype) for tensor in (buffers.send, buffers.recv))
        for _ in range(times):
            if self._way == "one-shot":
                torch.ops.symm_mem.one_shot_all_reduce_out(send, "sum", self._group, recv)
            else:
                torch.ops.symm_mem.two_shot_all_reduce_(send, "sum", self._group)


def _agreed_port(comm: paceline.Communicator) -> int:
    port = np.zeros(1, np.int64)
    if comm.rank == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port[0] = probe.getsockname()[1]
    comm.broadcast(port)
    return int(port[0])
