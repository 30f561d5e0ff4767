"""What a rank holds of a communicator: a paceComm_t, the way of a call through it, and its end."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from ctypes import c_int
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from . import _native
from .arrays import OnGpu
from .call_queue import CallQueue, Handle, LaunchedHandle
from .cuda_driver import wait_for_stream
from .errors import Aborted, Error, InvalidUsage, Mismatch, failure
from .group import in_group, open_group

T = TypeVar("T")
M = TypeVar("M", bound="Membership")


def _leave(library: Any, handle: int | None, queues: list[CallQueue]) -> None:
    try:
        in_group()  # gives up one that was kept from its end, and would keep the queues from theirs
        _end_queues(queues)
    finally:
        result = library.paceCommDestroy(handle)
    left = failure(result) if result == Mismatch.code else None
    _warn_of(_untold(queues))
    if left is not None and not _ends_by_exception():
        _warn(f"Mismatch: {left}", 3)


def _end_queues(queues: list[CallQueue]) -> None:
    for queue in queues:
        queue.close()  # may fail: the next time it goes on from there


def _untold(queues: list[CallQueue]) -> Error | None:
    return next(filter(None, (queue.untold() for queue in queues)), None)


def _warn_of(error: Error | None) -> None:
    """Where it cannot be raised."""
    if error is not None:
        _warn(f"an asynchronous call that nobody waited for failed: {type(error).__name__}: {error}", 4)


def _warn(message: str, stacklevel: int) -> None:
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=stacklevel)
    except RuntimeWarning:  # by `python -W error`
        with suppress(Exception):
            print(f"RuntimeWarning: {message}", file=sys.stderr)


def _ends_by_exception() -> bool:
    """Whether the program has shown the traceback that it ends with. An interactive one may have shown any other."""
    return getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")


def leave_unclaimed(made: Iterable[int | None]) -> None:
    """After an interrupt (Ctrl-C) as they were made: nobody has them, and other ranks must not wait for this one."""
    for handle in made:
        if handle:
            _native.library().paceCommDestroy(handle)


def _ends_well(raised: BaseException) -> bool:
    """Whether what leaves a `with` block is no failure: sys.exit(), or the end of a generator."""
    return isinstance(raised, GeneratorExit) or (isinstance(raised, SystemExit) and not raised.code)


def _closed() -> Error:
    return InvalidUsage("the communicator is closed")


class Membership:
    """A rank's part in a communicator, from the joining to the end. `Communicator` adds the calls."""

    def __init__(self, handle: int | None) -> None:
        """Takes over a paceComm_t; programs use `paceline.init()`."""
        library = self._library = _native.library()
        self._handle = handle
        self._queue: CallQueue | None = None
        # Also at exit: the others must learn that this rank left in peace, and did not die.
        self._queues: list[CallQueue] = []  # the queue once more, where the finalizer finds it
        self._told: set[str] = set()  # the messages of errors that the program knows
        self._launched = False  # whether calls were made on GPU memory, of which only the GPU knows whether they ended
        self._finalizer = weakref.finalize(self, _leave, library, handle, self._queues)
        self.rank: int = self._number(library.paceCommUserRank)
        """This rank's number, 0 <= rank < size."""
        self.size: int = self._number(library.paceCommCount)
        """How many ranks there are."""
        self.node_rank: int = self._number(library.paceCommNodeRank)
        """This rank's number among those on its node."""
        self.node_size: int = self._number(library.paceCommNodeCount)
        """How many ranks there are on this node."""

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise InvalidUsage("a communicator cannot be copied or pickled: have each process call paceline.init()")

    def _number(self, function: Callable[..., int]) -> int:
        value = c_int()
        result = function(self._handle, value)
        if result:
            raise self._failure(result)
        return value.value

    # ---- Failure, end ----

    def abort(self) -> None:
        """End the communicator on every rank: calls under way raise Aborted within a second. From any thread.

        Raises:
            InvalidUsage: it is closed.
        """
        result = self._library.paceCommAbort(self._handle)
        if result:
            raise self._failure(result)
        code = c_int()
        if not self._library.paceCommGetAsyncError(self._handle, code) and code.value == Aborted.code:
            self._failure(code.value)  # no news to who has asked for it

    def get_async_error(self) -> Error | None:
        """The error that ended the communicator, or None while it works. From any thread.

        Does not wait for other ranks; who finds an end that nobody has told of first tells them.
        """
        code = c_int()
        result = self._library.paceCommGetAsyncError(self._handle, code)
        if result:
            raise self._failure(result)
        return self._failure(code.value) if code.value else None

    def close(self) -> None:
        """Wait for asynchronous calls, then leave. Calls of others that still need this rank fail with RemoteError.

        Done by the end of a `with` block, and at the latest when the program ends. Closing twice does nothing. While
        another thread is inside a call it raises InvalidUsage, and the communicator stays open.

        A `with` block that an exception leaves does not wait: it aborts the communicator if asynchronous calls are
        under way, or calls were made on GPU memory, which may be.

        Raises:
            Error: the communicator is closed, but an asynchronous call has failed, and neither its handle's `wait()`
                nor another call has told that error. Where nothing can be raised, since an exception is under way or
                the program ends, it is a RuntimeWarning.
            Mismatch: the communicator is closed, but another rank has made a call that this one has not.
        """
        for error in self._end():
            if error is not None:
                raise error

    def _end(self) -> tuple[Error | None, Error | None]:
        """Wait, and leave. Returns what the program does not know: its calls' first error, and that of leaving."""
        if self._handle is None:
            return None, None
        in_group()  # gives up what an interrupt has left open, perhaps with calls of this communicator
        _end_queues(self._queues)
        self._queue = None
        handle, self._handle = self._handle, None  # first: an interrupt (Ctrl-C) must not have it destroyed twice
        result = self._library.paceCommDestroy(handle)
        if result == InvalidUsage.code:  # another thread is inside a call; after all else there is no handle any more
            self._handle = handle
            raise self._failure(result)
        self._finalizer.detach()
        left = failure(result) if result else None
        return _untold(self._queues), None if left is None or left.message in self._told else left

    def __enter__(self: M) -> M:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, where: TracebackType | None
    ) -> None:
        if raised is None:
            self.close()
            return
        if not _ends_well(raised) and self._handle is not None:
            in_group()  # as in _end()
            if self._launched or any(queue.is_busy() for queue in self._queues):
                with suppress(Error):  # a forked child has a copy, which it can only close
                    self.abort()
        untold, _ = self._end()  # that a rank which fails leaves others alone with their calls, these tell
        _warn_of(untold)

    # ---- The way of a call ----

    def _call(
        self, function: Callable[..., int], arguments: tuple[Any, ...], keep: Any, result: Any, async_op: bool
    ) -> Any:
        """Make a C call; `keep` is what keeps its memory alive, `result` what the caller gets."""
        memory = keep[0] if type(keep) is tuple else keep
        if type(memory) is OnGpu:
            return self._launch(function, arguments, keep, memory, result, async_op)
        if async_op and self._handle is not None:  # a closed one is refused by C, and so is its group
            return self._start(function, arguments, keep, result)
        if open_group.groups and in_group():
            open_group.alive.append(keep)
            open_group.told.append(self._told)
        status = function(*arguments, self._handle, None)
        if status:
            raise self._failure(status)
        return result

    def _launch(
        self,
        function: Callable[..., int],
        arguments: tuple[Any, ...],
        keep: Any,
        where: OnGpu,
        result: Any,
        later: bool,
    ) -> Any:
        """Make a C call on GPU memory: it goes on on the stream, in the order of what the caller does there."""
        gpu = where.gpu
        if open_group.groups and in_group():
            open_group.alive.append(keep)
            open_group.told.append(self._told)
            if gpu is not None:
                open_group.awaited.add((gpu, where.stream))
                gpu = None
        self._launched = True
        try:
            status = function(*arguments, self._handle, where.stream)
        except BaseException:  # Ctrl-C, perhaps after the call was made
            if gpu is not None:
                wait_for_stream(gpu, where.stream)
            raise
        if status:
            raise self._failure(status)
        if gpu is not None:
            wait_for_stream(gpu, where.stream)
        return LaunchedHandle(result) if later else result

    def _start(self, function: Callable[..., int], arguments: tuple[Any, ...], keep: Any, result: T) -> Handle[T]:
        """Give a call to the queue. Blocking calls then wait for those in it: the library keeps the order."""
        if self._queue is None:
            queue = CallQueue(self._told)
            self._queues.append(queue)
            self._queue = queue
        handle = Handle(self, self._queue, result)
        # Kept before the call is made: as soon as it is, an interrupt (Ctrl-C) may come, and it goes on.
        if open_group.groups and in_group():
            open_group.handles.append((handle, keep))
            open_group.told.append(self._told)
        else:
            handle.expect(keep)
        status = function(*arguments, self._handle, self._queue.stream)
        if status:
            self._queue.take_back()
            raise self._failure(status)
        return handle

    def _settle(self) -> None:
        """Wait for the asynchronous calls before something that must not run beside them."""
        if self._queue is not None:
            self._queue.settle()

    def _failure(self, result: int) -> Error:
        if self._handle is None:
            return _closed()
        error = failure(result)
        self._told.add(error.message)
        return error
