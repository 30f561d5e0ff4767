"""What ranks of a Job do: calls that fail, and what is told of them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy
import paceline


def error_of(call: Any) -> list[str]:
    try:
        call()
    except paceline.Error as error:
        return [type(error).__name__, str(error)]
    return ["no error", ""]


def mismatch(comm: Any) -> list[str]:
    """Rank 0 calls with another count."""
    return error_of(lambda: comm.all_reduce(numpy.ones(5 if comm.rank == 0 else 4)))


def broadcast_from_next(comm: Any) -> list[str]:
    """Every rank waits for another root."""
    return error_of(lambda: comm.broadcast(numpy.ones(4), root=(comm.rank + 1) % comm.size))


def abort_from_thread(comm: Any) -> list[str]:
    """Rank 0 aborts while the others wait for it."""
    if comm.rank == 0:
        time.sleep(0.2)
        comm.abort()
        return error_of(lambda: comm.barrier())
    found = error_of(lambda: comm.barrier())
    assert comm.get_async_error() is not None
    return found


def wrong_parts(comm: Any, name: str) -> list[str]:
    return error_of(lambda: getattr(comm, name)(numpy.ones(4), out=numpy.ones(4)))


def scatter_without_out(comm: Any) -> list[str]:
    """The other ranks call again, rightly, so that root's call ends."""
    found = error_of(lambda: comm.scatter(numpy.arange(comm.size) if comm.rank == 0 else None))
    if comm.rank:
        assert comm.scatter(out=numpy.empty(1, numpy.int64))[0] == comm.rank
    return found


def try_barrier(comm: Any) -> list[str]:
    return error_of(comm.barrier)


def die_or_wait(comm: Any, victim: int) -> list[str]:
    if comm.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return error_of(comm.barrier)


def go_on(comm: Any, dead: int | None, gone: list[int]) -> list[Any]:
    """Rank `dead` kills itself, those `gone` do not go on, the others do: who is missing, as they are told; a sum."""
    if comm.rank == dead:
        os.kill(os.getpid(), signal.SIGKILL)
    told = None
    try:
        comm.barrier()
    except paceline.Error as error:
        told = error.rank
    if comm.rank in gone:
        return [told]
    with comm.shrink(gone) as rest:
        return [told, rest.rank, rest.size, int(rest.all_reduce(numpy.full(1000, rest.rank + 1))[0])]
