"""Joining a communicator: from the launcher's environment, by a unique id, or all ranks in one process."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_int, c_void_p

from . import _native
from .arguments import config, integer
from .communicator import Communicator
from .errors import InvalidArgument, check
from .membership import leave_unclaimed


def unique_id() -> bytes:
    """Make an id under which ranks meet (128 bytes, it holds a secret).

    Give it to the ranks by any private way; each passes it to `init`. This process, which may be a rank or none, then
    listens for them and must run until all have joined.

    Raises:
        ResourceError: it cannot listen.
    """
    made = _native.UniqueId()
    check(_native.library().paceGetUniqueId(byref(made)))
    return bytes(made)


def init(
    timeout: float | None = None,
    algorithm: str | None = None,
    chunk_bytes: int | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    unique_id: bytes | None = None,
    join_timeout: float | None = None,
) -> Communicator:
    """Join the communicator of all ranks. Collective: returns when all have come.

    Rank, size, address and secret come from the environment of torchrun, mpirun, srun or `paceline run`; without any
    of them the communicator has one rank. Or give rank, size and unique_id, all three.

    Args:
        timeout: longest wait of any call, seconds, above 0 and up to 1e9; None: PACELINE_TIMEOUT.
        algorithm: as `Communicator.set_algorithm` takes it; None: PACELINE_ALGORITHM, else chosen by cost.
        chunk_bytes: what one step of a pipelined schedule moves at most, from 1 up; None: PACELINE_CHUNK, else by cost.
        join_timeout: longest wait for the others to come, seconds; None: PACELINE_JOIN_TIMEOUT.
        rank, size, unique_id: this rank's number, how many there are, and what `unique_id()` returned.

    Raises:
        Timeout: a rank did not come within `join_timeout`; it is named.
        RemoteError, ResourceError, InvalidArgument: see the message.

    Example::

        with paceline.init() as comm:
            comm.all_reduce(x)
    """
    library = _native.library()
    options = config(timeout, algorithm, chunk_bytes, join_timeout)
    pointer = c_void_p()
    given = [value is not None for value in (rank, size, unique_id)]
    try:
        if not any(given):
            check(library.paceCommInitEnvironment(pointer, options))
        elif rank is None or size is None or unique_id is None:
            raise InvalidArgument("rank, size and unique_id go together: give all three, or none")
        elif not isinstance(unique_id, (bytes, bytearray, memoryview)):
            raise InvalidArgument(
                f"unique_id is of {type(unique_id).__name__}: give the bytes that unique_id() returned"
            )
        elif len(unique_id := bytes(unique_id)) != _native.UNIQUE_ID_BYTES:
            raise InvalidArgument(f"a unique id has {_native.UNIQUE_ID_BYTES} bytes, this has {len(unique_id)}")
        else:
            identity = _native.UniqueId.from_buffer_copy(unique_id)
            size = integer("size", size, 1)
            rank = integer("rank", rank, 0, size - 1)
            check(library.paceCommInitRankConfig(pointer, size, identity, rank, options))
        return Communicator(pointer.value)
    except BaseException:
        leave_unclaimed([pointer.value])
        raise


def init_all(devices: Iterable[int]) -> list[Communicator]:
    """Communicators of this process alone, a GPU each: the i-th is rank i, on GPU devices[i].

    Use them from a thread each, or from one thread with the ranks' calls in a `group()`.

    Raises:
        InvalidArgument, CudaError, Unsupported: there is no such GPU, or no support of GPUs in this build.

    Example::

        comms = paceline.init_all(range(torch.cuda.device_count()))
        with paceline.group():
            for comm, x in zip(comms, gradients):
                comm.all_reduce(x)
    """
    if not isinstance(devices, Iterable):
        raise InvalidArgument(f"devices is {devices!r}: give GPUs, as in init_all([0, 1]) or init_all(range(4))")
    numbers = [integer("a device", device, 0) for device in devices]
    pointers = (c_void_p * len(numbers))()
    try:
        check(_native.library().paceCommInitAll(pointers, len(numbers), (c_int * len(numbers))(*numbers)))
        return [Communicator(pointer) for pointer in pointers]
    except BaseException:
        leave_unclaimed(pointers)
        raise
