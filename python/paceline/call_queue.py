"""Asynchronous calls: a communicator's queue (a host stream of the C API) and the handles of the calls in it."""

from __future__ import annotations

import time
from collections import deque
from ctypes import c_void_p
from typing import Any, Generic, TypeVar

from . import _native
from .errors import Error, InvalidUsage, Timeout, check, failure
from .group import open_group

T = TypeVar("T")
_IN_PROGRESS = 7


class CallQueue:
    """The calls of one communicator that were started and not yet waited for, in order."""

    def __init__(self) -> None:
        library = _native.library()
        self._synchronize, self._query, self._destroy = (
            library.paceHostStreamSynchronize,
            library.paceHostStreamQuery,
            library.paceHostStreamDestroy,
        )
        pointer = c_void_p()
        check(library.paceHostStreamCreate(pointer))
        self.stream = pointer.value
        self.started = 0  # calls given to the stream
        self.ended = 0  # how many of them are known to have ended
        self.error: Error | None = None  # of the first that failed
        self._failed_from = 0  # the number of the first call that may have failed
        self._alive: deque[tuple[int, Any]] = deque()  # memory that calls under way use

    @property
    def busy(self) -> bool:
        return self.ended < self.started

    def start(self, keep: Any) -> int:
        """Count a call that was just given to the stream, and keep its memory. Returns its number."""
        self.started += 1
        self._alive.append((self.started, keep))
        if len(self._alive) > 64:  # nobody waits: let go of what has ended
            self.poll()
        return self.started

    def synchronize(self) -> None:
        """Wait for every call started so far."""
        number = self.started
        self._note(number, self._synchronize(self.stream))

    def poll(self) -> None:
        """Note without waiting whether every call started so far has ended."""
        number = self.started
        result = self._query(self.stream)
        if result != _IN_PROGRESS:
            self._note(number, result)

    def raise_error_of(self, number: int) -> None:
        if self.error is not None and number >= self._failed_from:
            raise self.error

    def _note(self, number: int, result: int) -> None:
        if result and self.error is None:
            self.error, self._failed_from = failure(result), self.ended + 1
        self.ended = max(self.ended, number)
        while self._alive and self._alive[0][0] <= self.ended:
            self._alive.popleft()

    def close(self) -> None:
        if self.stream is not None:
            stream, self.stream = self.stream, None
            self._destroy(stream)  # waits for what is queued
            self.ended = self.started
            self._alive.clear()


class Handle(Generic[T]):
    """A call that is under way. The arrays of the call are kept alive until it has ended, also if the handle goes."""

    def __init__(self, owner: object, queue: CallQueue, number: int, result: T) -> None:
        self._owner = owner  # the communicator must not go while a handle can still wait
        self._queue, self._number, self._result = queue, number, result

    def done(self) -> bool:
        """Whether the call has ended, well or with an error, without waiting."""
        if self._number > self._queue.ended:
            self._refuse_in_group()
            self._queue.poll()
        return self._number <= self._queue.ended

    def wait(self, timeout: float | None = None) -> T:
        """Wait for the call and return its result. Waits for the calls started before and after it, too.

        Args:
            timeout: longest wait, seconds; None: until the communicator's own timeout ends the call.

        Raises:
            Timeout: the call is still under way (it goes on; wait again).
            Error: the call failed.
        """
        if self._number > self._queue.ended:
            self._refuse_in_group()
            if timeout is None:
                self._queue.synchronize()
            else:
                self._wait_at_most(timeout)
        self._queue.raise_error_of(self._number)
        return self._result

    def _wait_at_most(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        pause = 10e-6
        while not self.done():
            if time.monotonic() >= deadline:
                raise Timeout(f"the call is still under way after {timeout:g} s")
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    def _refuse_in_group(self) -> None:
        if open_group.depth:
            raise InvalidUsage("the call begins at the end of the open group: wait after it")
