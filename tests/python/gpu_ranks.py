"""Ranks on this machine's GPUs: threads of one process, and raw calls of the C API on any bytes."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import paceline
from paceline import _native

PATIENCE = 60  # seconds that a thread may need beside its waits
WAIT_UNTIL_EQUAL = 1  # CU_STREAM_WAIT_VALUE_EQ


class Rank:
    """One rank: its communicator and its stream. Ranks share GPUs where there are fewer of these."""

    def __init__(self, rank: int, ranks: int, identity: bytes, timeout: float, chunk_bytes: int | None) -> None:
        import torch

        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.zeros(1, device="cuda")
        self.rank, self.ranks = rank, ranks
        self.comm = paceline.init(timeout, chunk_bytes=chunk_bytes, rank=rank, size=ranks, unique_id=identity)
        self.stream = torch.cuda.Stream()
        self._library = _native.library()

    def call(
        self, collective: str, send: int, recv: int, count: int, kind: int, op: int, root: int, stream: Any
    ) -> None:
        """A collective of the C API by its name, on addresses."""
        library, comm = self._library, self.comm._handle
        calls: dict[str, Callable[[], int]] = {
            "all_reduce": lambda: library.paceAllReduce(send, recv, count, kind, op, comm, stream),
            "broadcast": lambda: library.paceBroadcast(send, recv, count, kind, root, comm, stream),
            "reduce": lambda: library.paceReduce(send, recv, count, kind, op, root, comm, stream),
            "all_gather": lambda: library.paceAllGather(send, recv, count, kind, comm, stream),
            "reduce_scatter": lambda: library.paceReduceScatter(send, recv, count, kind, op, comm, stream),
            "gather": lambda: library.paceGather(send, recv, count, kind, root, comm, stream),
            "scatter": lambda: library.paceScatter(send, recv, count, kind, root, comm, stream),
            "all_to_all": lambda: library.paceAllToAll(send, recv, count, kind, comm, stream),
            "barrier": lambda: library.paceBarrier(comm, stream),
        }
        if calls[collective]():
            raise RuntimeError(f"{collective}: {library.paceGetLastError(comm).decode()}")

    def finish(self) -> None:
        """Wait for the stream; raise what went wrong on the GPU."""
        self.stream.synchronize()
        error = self.comm.get_async_error()
        if error is not None:
            raise error


class Gate:
    """Holds up what comes behind it on a stream, until it is opened."""

    def __init__(self, stream: Any) -> None:
        import torch

        self._word = torch.zeros(1, dtype=torch.int32).pin_memory()
        wait = ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2
        wait.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint]
        assert wait(stream.cuda_stream, self._word.data_ptr(), 1, WAIT_UNTIL_EQUAL) == 0

    def open(self) -> None:
        self._word[0] = 1


def on_gpus(
    ranks: int,
    body: Callable[[Rank, threading.Barrier], None],
    timeout: float = 30,
    chunk_bytes: int | None = None,
) -> None:
    """Run body(rank, barrier) on every rank, a thread each; raise the first error."""
    identity = paceline.unique_id()
    barrier = threading.Barrier(ranks)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            rank = Rank(number, ranks, identity, timeout, chunk_bytes)
            body(rank, barrier)
            rank.comm.close()
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout + 2 * PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    first = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)] or errors
    if first:
        raise first[0]
