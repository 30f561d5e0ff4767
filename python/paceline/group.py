"""Groups: calls that begin together at the group's end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _native
from .cuda_driver import wait_for_stream
from .errors import Error, InvalidUsage, check, failure

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
    # C's group is open while the outermost group here is: one end closes it, wherever an interrupt (Ctrl-C) comes.
    depth = open_group.depth
    error = None
    try:
        if depth == 0:
            check(_native.library().paceGroupStart())
        open_group.depth = depth + 1
        yield
        open_group.depth = depth
        if depth == 0:
            error = _end()
    except BaseException as raised:
        _give_up(depth, raised)
        raise
    if error is not None:
        raise error


def _give_up(depth: int, raised: BaseException) -> None:
    """Keep the group, in so many others, from starting. One that was interrupted at its end may have begun."""
    open_group.depth = depth
    open_group.broken = InvalidUsage(f"the group was not started: its body raised {type(raised).__name__}")
    library = _native.library()
    try:
        library.paceBarrier(None, None)  # a call that fails its checks keeps the group from starting
    finally:
        if depth == 0:
            try:
                library.paceGroupEnd()
            finally:
                _let_go(open_group.broken, may_run=True)


def _end() -> Error | None:
    for handle, keep in open_group.handles:
        handle.expect(keep)
    result = _native.library().paceGroupEnd()
    error = (open_group.broken or failure(result)) if result else None
    _let_go(error, may_run=error is None)
    return error


def _let_go(error: Error | None, may_run: bool) -> None:
    """Tell the handles what became of their calls, and let go of the memory when the GPUs have ended with it."""
    try:
        for handle, _ in open_group.handles:
            if error is not None:
                handle.not_begun(error)
        for gpu, stream in open_group.awaited if may_run else ():
            wait_for_stream(gpu, stream)
    finally:
        open_group.broken = None
        open_group.handles, open_group.awaited, open_group.alive = [], set(), []
