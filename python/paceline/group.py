"""Groups: calls that begin together at the group's end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _native
from .cuda_driver import wait_for_stream
from .errors import Error, InvalidUsage, failure

if TYPE_CHECKING:
    from .call_queue import Handle


class _OpenGroup(threading.local):
    """This thread's open group."""

    depth = 0
    broken: Error | None = None  # why it will not be started, where its body raised

    def __init__(self) -> None:
        self.alive: list[Any] = []  # what the group's calls read and write
        self.awaited: set[tuple[int, int]] = set()  # GPUs and streams whose end these must be kept for
        self.handles: list[tuple[Handle[Any], Any]] = []  # of its asynchronous calls, with what these read and write


open_group = _OpenGroup()


@contextmanager
def group() -> Iterator[None]:
    """Calls inside begin together at the end of the outermost group, which waits for them.

    Their results are there after the group, not inside it. Sends and receives of a group may stand in any order, on
    any communicators. On each communicator they come before the collectives, which run one after another: ranks that
    make the same calls without a group must make them in this order. When a call fails its checks, or the body raises
    anything, nothing of the group is started.

    Example, every rank sends to the right and receives from the left::

        with paceline.group():
            comm.send(outgoing, (comm.rank + 1) % comm.size)
            comm.recv(incoming, (comm.rank - 1) % comm.size)
    """
    library = _native.library()
    result = library.paceGroupStart()
    if result:
        raise failure(result)
    open_group.depth += 1
    try:
        yield
    except BaseException as raised:
        # A call that fails its checks keeps the group from starting: make sure that there is one.
        library.paceBarrier(None, None)
        open_group.broken = InvalidUsage(f"the group was not started: its body raised {type(raised).__name__}")
        _end()
        raise
    error = _end()
    if error is not None:
        raise error


def _end() -> Error | None:
    open_group.depth -= 1
    if open_group.depth > 0:
        result = _native.library().paceGroupEnd()
        return failure(result) if result else None
    handles, open_group.handles = open_group.handles, []
    before = [handle.queue_mark() for handle, _ in handles]
    result = _native.library().paceGroupEnd()
    error = (open_group.broken or failure(result)) if result else None
    for (handle, keep), mark in zip(handles, before, strict=True):
        if error is not None and handle.queue_mark() == mark:
            handle.not_begun(error)
        else:
            handle.begun(keep)
    awaited, open_group.awaited = open_group.awaited, set()
    alive, open_group.alive = open_group.alive, []
    open_group.broken = None
    if error is None:
        for gpu, stream in awaited:
            wait_for_stream(gpu, stream)
    del alive  # not before
    return error
