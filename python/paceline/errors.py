"""What goes wrong: one exception class, and a subclass for each code that a program may want to tell apart."""

from __future__ import annotations

import re
from ctypes import c_int

from . import _native, interrupts


class Error(Exception):
    """An error of Paceline.

    Attributes:
        code: the number of the paceResult_t.
        message: what happened, to which rank, and what to do.
        rank: whom it is about, as the communicator numbers its ranks: who died or is late, one of the two that called
            different things, or this one; None: no rank.
    """

    code = 3

    def __init__(self, message: str, code: int | None = None, rank: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.rank = rank
        if code is not None:
            self.code = code


class CudaError(Error):
    """The CUDA runtime refused something."""

    code = 1


class ResourceError(Error):
    """The operating system refused something: memory, descriptors, sockets."""

    code = 2


class InternalError(Error):
    """A defect of Paceline."""

    code = 3


class InvalidArgument(Error, ValueError):
    """An argument is out of its range, or an array cannot be used as it is."""

    code = 4


class InvalidUsage(Error, RuntimeError):
    """The call cannot be made now: a closed communicator, two threads in one, an open group."""

    code = 5


class RemoteError(Error, ConnectionError):
    """Another rank died or left."""

    code = 6


class Timeout(Error, TimeoutError):
    """A rank did not answer within the timeout."""

    code = 8


class Mismatch(Error, RuntimeError):
    """Two ranks called different collectives, counts, types, operations or roots, or by different algorithms."""

    code = 9


class Aborted(Error, RuntimeError):
    """The communicator was aborted by this or another rank."""

    code = 10


class Unsupported(Error, NotImplementedError):
    """Not available in this build or on this machine."""

    code = 11


_CLASSES: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (CudaError, ResourceError, InternalError, InvalidArgument, InvalidUsage, RemoteError, Timeout, Mismatch,
                 Aborted, Unsupported)
}  # fmt: skip


# What the library's sentences call by its name in C.
_NAMES = {
    "paceGetUniqueId": "paceline.unique_id()",
    "paceCommAbort": "abort()",
    "paceCommSetAlgorithm": "set_algorithm()",
    "paceCommSplit": "split()",
    "paceMemAlloc": "paceline.empty()",
}
_C_NAME = re.compile("|".join(_NAMES))


def failure(result: int) -> Error:
    """The exception for what this thread's last call returned.

    With the thread's sentence, not the communicator's, which may be another thread's by now. Raises what a signal's
    handler has raised in that call instead.
    """
    interrupts.raise_pending()
    library = _native.library()
    message = (library.paceGetLastError(None) or b"").decode(errors="replace")
    if not message:
        message = library.paceGetErrorString(result).decode()
    message = _C_NAME.sub(lambda found: _NAMES[found[0]], message)
    rank = c_int(-1)
    library.paceGetLastErrorRank(None, rank)
    return _CLASSES.get(result, Error)(message, result, rank.value if rank.value >= 0 else None)


def check(result: int) -> None:
    """Raise for anything but success of a call that belongs to no communicator."""
    if result:
        raise failure(result)
