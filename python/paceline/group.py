"""Groups: calls that begin together at the group's end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any

from . import _native
from .cuda_driver import wait_for_stream
from .errors import Error, InvalidUsage, check, failure

if TYPE_CHECKING:
    from .call_queue import Handle


class _OpenGroup(threading.local):
    """This thread's open group."""

    broken: Error | None = None  # why it will not be started, where C does not know

    def __init__(self) -> None:
        self.groups: list[_Group] = []  # the group, and those that are open in it
        self.alive: list[Any] = []  # what the group's calls read and write
        self.awaited: set[tuple[int, int]] = set()  # GPUs and streams whose end these must be kept for
        self.handles: list[tuple[Handle[Any], Any]] = []  # of its asynchronous calls, with what these read and write
        self.told: list[set[str]] = []  # of each call: the messages of its communicator's errors that the program knows


open_group = _OpenGroup()


def group() -> AbstractContextManager[None]:
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
    return _Group()


def in_group(beside: int = 0) -> bool:
    """Whether this thread is in a group, beside the first so many.

    Gives up one whose `with` statement is over, but was kept from ending it.
    """
    groups = open_group.groups
    for depth, each in enumerate(groups[beside:], beside):
        if each.statement() is None:
            _give_up(depth, "it was interrupted")
            break
    return len(groups) > beside


def note_refusal(error: BaseException) -> None:
    """A call has failed a check before C had it: as where C refuses one, its group starts nothing."""
    if in_group() and open_group.broken is None:
        _spoil(error if isinstance(error, Error) else _not_started(_raised("a call", error)))


class _Exit:
    """A method `__exit__` that tells its group when the `with` statement is over.

    The statement gets a bound method from here, which nobody else holds, and lets go of it when it is over: also where
    an interrupt (Ctrl-C) comes before the first line of `__exit__`, as no code of that method can tell.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __get__(self, owner: _Group | None, _: type | None = None) -> Callable[..., None]:
        if owner is None:
            return self._function  # for an ExitStack
        bound = MethodType(self._function, owner)
        if owner.statement() is None:
            owner.statement = weakref.ref(bound)
        return bound


def _is_there() -> bool:
    return True


class _Group:
    """C's group is open while the outermost of these is: one end closes it, wherever an interrupt (Ctrl-C) comes."""

    def __init__(self) -> None:
        self.statement: Callable[[], object] = lambda: None  # answers None when the `with` statement is over
        self._depth = -1  # it has not been entered

    def __enter__(self) -> None:
        if self._depth >= 0:
            raise InvalidUsage("this group has been entered before: each `with` needs a group() of its own")
        self._depth = len(open_group.groups) if in_group() else 0
        if self.statement() is None:  # there is none: an ExitStack, perhaps
            self.statement = _is_there
        try:
            if self._depth == 0:
                check(_native.library().paceGroupStart())
            open_group.groups.append(self)
        except BaseException as raised:
            _give_up(self._depth, _raised("its body", raised))
            raise

    @_Exit
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        self.statement = _is_there  # it may be over already, but now the group ends
        error = None
        try:
            if raised is not None:
                _give_up(self._depth, _raised("its body", raised))
            else:
                in_group(beside=self._depth + 1)
                if self._depth == 0:
                    error = _end()
                del open_group.groups[self._depth :]
        except BaseException as interrupt:
            _give_up(self._depth, _raised("its body", interrupt))
            raise
        if error is not None:
            raise error


def _raised(what: str, error: BaseException) -> str:
    return f"{what} raised {type(error).__name__}"


def _not_started(why: str) -> Error:
    return InvalidUsage(f"the group was not started: {why}")


def _spoil(why: Error) -> None:
    """Keep the open group from starting."""
    open_group.broken = why
    _native.library().paceBarrier(None, None)  # a call that fails its checks does


def _give_up(depth: int, why: str) -> None:
    """Keep the group, in so many others, from starting. One that was interrupted at its end may have begun."""
    try:
        _spoil(_not_started(why))
    finally:
        del open_group.groups[depth:]
        if depth == 0:
            try:
                _native.library().paceGroupEnd()
            finally:
                _let_go(open_group.broken)


def _end() -> Error | None:
    for handle, keep in open_group.handles:
        handle.expect(keep)
    result = _native.library().paceGroupEnd()
    error = (open_group.broken or failure(result)) if result else None
    if error is not None:
        for told in open_group.told:
            told.add(error.message)
    _let_go(error)
    return error


def _let_go(error: Error | None) -> None:
    """Tell the handles what became of their calls, and let go of the memory when the GPUs have ended with it.

    Some of its calls may run there also where the group has failed.
    """
    try:
        for handle, _ in open_group.handles:
            if error is not None:
                handle.not_begun(error)
    finally:
        open_group.broken, open_group.handles, open_group.told = None, [], []
    lost: Error | None = None
    while open_group.awaited:
        where = next(iter(open_group.awaited))
        try:
            wait_for_stream(*where)
        except Error as raised:
            lost = raised
        open_group.awaited.remove(where)  # last: an interrupt (Ctrl-C) loses none
    open_group.alive = []
    if error is None and lost is not None:
        raise lost
