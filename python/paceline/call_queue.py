"""Asynchronous calls: a communicator's queue (a host stream of the C API) and the handles of the calls in it."""

from __future__ import annotations

import os
from copy import copy
from ctypes import c_uint64, c_void_p
from numbers import Real
from typing import Any, Generic, TypeVar

from . import _native
from .errors import Error, InvalidArgument, InvalidUsage, Timeout, check, failure
from .group import in_group

T = TypeVar("T")
_IN_PROGRESS = 7
_NO_LIMIT = -1.0
_STEP = 0.1  # seconds


class CallQueue:
    """The calls of one communicator that were started and have perhaps not ended, in order.

    told: the messages of the communicator's errors that the program knows.
    """

    def __init__(self, told: set[str]) -> None:
        library = _native.library()
        self._mark, self._wait, self._result, self._destroy = (
            library.paceHostStreamMark,
            library.paceHostStreamWait,
            library.paceHostStreamResult,
            library.paceHostStreamDestroy,
        )
        pointer = c_void_p()
        check(library.paceHostStreamCreate(pointer))
        self.stream = pointer.value
        # By marks. Several threads may wait, and an interrupt (Ctrl-C) or a finalizer may come in between: each step of
        # theirs stands for itself, and does no harm when it is done twice.
        self.errors: dict[int, Error] = {}  # of calls that have failed, as far as they were waited for
        self.told = told
        self._process = os.getpid()
        self._alive: dict[int, list[Any]] = {}  # memory of calls that may be under way
        self._oldest = 1  # no call before it is among them

    def mark(self) -> int:
        """The number of the call that was last given to the stream."""
        if self.stream is None:  # closed
            return 0
        number = c_uint64()
        check(self._mark(self.stream, number))
        return number.value

    def expect(self, keep: Any) -> int:
        """Keep the memory of the call that is given to the stream next while it runs. Returns that call's mark.

        Asked for before, since an interrupt (Ctrl-C) may come as soon as it is given.
        """
        given = self.mark()
        self._alive.setdefault(given + 1, []).append(keep)
        if len(self._alive) > 64:  # perhaps nobody waits: let go of what has ended
            self.wait(min(self._oldest + 32, given), 0)
        return given + 1

    def take_back(self) -> int:
        """Let go of the memory of calls that were expected, but not given to the stream.

        Returns the mark of the last call that was given to it.
        """
        given = self.mark()
        self._alive.pop(given + 1, None)
        return given

    def wait(self, mark: int, seconds: float) -> bool:
        """Wait for the calls up to the mark. Returns whether they have ended: well, or with one of `errors`.

        A forked child has nothing to wait for, and learns of no end: these calls are its parent's.
        """
        if self.in_child():
            return True
        stream = self.stream
        # Without a limit in steps, between which signals' handlers run.
        while (result := int(self._wait(stream, mark, _STEP if seconds < 0 else seconds))) == _IN_PROGRESS:
            if seconds >= 0:
                return False
        for ended in range(self._oldest, mark + 1):
            error = failure(code) if result and (code := int(self._result(stream, ended))) else None
            if self.stream is None:  # closed by a handler or another thread, which has noted the errors; these are none
                return True
            if error is not None:
                self.errors.setdefault(ended, error)
            self._alive.pop(ended, None)  # after its error, which else would be lost
            self._oldest = ended + 1
        return True

    def untold(self) -> Error | None:
        """The first error of a call that has ended so, of which the program does not know."""
        if self.in_child():  # the parent will tell it
            return None
        untold = (error for _, error in sorted(self.errors.items()) if error.message not in self.told)
        return copy(next(untold, None))  # a copy: as in Handle.wait()

    def in_child(self) -> bool:
        """Whether this is a forked child's copy."""
        return os.getpid() != self._process

    def knows_end_of(self, mark: int | None) -> bool:
        """Whether it has been waited for."""
        return mark is not None and mark < self._oldest

    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self.stream is not None and not self.wait(self.mark(), 0)

    def settle(self) -> None:
        """Wait for everything. The handles tell the errors, or the communicator's end."""
        if self._alive:
            self.wait(self.mark(), _NO_LIMIT)

    def close(self) -> None:
        """Wait for everything, and end. Nothing if it has ended."""
        if self.stream is None:
            return
        self.settle()
        stream, self.stream = self.stream, None  # first: an interrupt (Ctrl-C) must not have it destroyed twice
        if result := self._destroy(stream):
            self.stream = stream
            raise failure(result)


class Handle(Generic[T]):
    """A call that is under way. The arrays of the call are kept alive until it has ended, also if the handle goes."""

    def __init__(self, owner: object, queue: CallQueue, result: T) -> None:
        self._owner = owner  # the communicator must not go while a handle can still wait
        self._queue, self._result = queue, result
        self._mark: int | None = None  # None: not in the queue, since its group is still open or was never started
        self._error: Error | None = None  # why the group was not started

    def expect(self, keep: Any) -> None:
        """The call is the next one that the queue gets; `keep` is its memory."""
        self._mark = self._queue.expect(keep)

    def not_begun(self, why: Error) -> None:
        """What kept the call from the queue, unless it is there."""
        if self._mark is None or self._queue.take_back() < self._mark:
            self._error = why

    def __repr__(self) -> str:
        return f"<paceline.Handle, {'ended' if self.done() else 'under way'}>"

    def done(self) -> bool:
        """Whether the call has ended, well or with an error, without waiting. In an open group it has not begun."""
        if self._failed() is not None or self._queue.stream is None:
            return True
        return self._mark is not None and self._wait(0)

    def wait(self, timeout: float | None = None) -> T:
        """Wait for the call and return its result.

        Args:
            timeout: longest wait, seconds; None: until the communicator's own timeout ends the call.

        Raises:
            InvalidArgument: the timeout is no number.
            InvalidUsage: the call's group has not ended; or this is a forked child, and the call its parent's.
            Timeout: the call is still under way (it goes on; wait again).
            Error: the call failed.
        """
        if (error := self._failed()) is not None:
            raise error
        if timeout is not None and (not isinstance(timeout, Real) or timeout != timeout):
            raise InvalidArgument(f"timeout is {timeout!r}: give seconds")
        if self._queue.in_child() and not self._queue.knows_end_of(self._mark):
            raise InvalidUsage("the call is of the process that forked this one, where alone it can be waited for")
        # A communicator that is closed has waited for its calls.
        if self._queue.stream is not None and not self._wait(_NO_LIMIT if timeout is None else max(timeout, 0)):
            raise Timeout(f"the call is still under way after {timeout:g} s")
        if self._mark in self._queue.errors:
            self._queue.told.add(self._queue.errors[self._mark].message)
            # A copy: an exception that was raised has frames in its traceback that hold the communicator.
            raise copy(self._queue.errors[self._mark])
        return self._result

    def _failed(self) -> Error | None:
        """What kept the call from its queue, as far as is known."""
        if self._mark is None:
            in_group()  # gives up a group that was kept from its end
        return self._error

    def _wait(self, seconds: float) -> bool:
        if self._mark is None:
            raise InvalidUsage("the call begins at the end of the open group: wait after it")
        return self._queue.wait(self._mark, seconds)


class LaunchedHandle(Handle[T]):
    """A call on GPU memory: what the caller does next on the same stream comes after it."""

    def __init__(self, result: T) -> None:
        self._result = result

    def __repr__(self) -> str:
        return "<paceline.Handle, launched>"

    def done(self) -> bool:
        """Always: there is nothing for the host to wait for."""
        return True

    def wait(self, timeout: float | None = None) -> T:
        """The call's result, without waiting."""
        return self._result
