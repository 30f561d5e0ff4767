"""The output of a job's ranks through their launcher, with the rank's number before each line: `paceline run --tag`."""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_AT_ONCE = 1 << 16  # bytes that are read at once; a line that is longer is written in pieces
_MOST_WAITING = 1 << 18  # bytes that wait for a reader before the ranks do
_LOOK_AGAIN = 0.1  # s: a signal does not end a wait for a reader


@dataclass
class _Target:
    """What the launcher writes to: its standard output or standard error."""

    descriptor: int
    waiting: bytearray = field(default_factory=bytearray)  # lines that its reader has had no room for
    gone: bool = False  # nobody reads it
    polled: bool = False  # whether the launcher's loop is told when there is room
    holds_ranks: bool = False  # whether so much waits that its pipes are not read


@dataclass
class _Source:
    """A rank's standard output or standard error: the end of a pipe that the launcher reads."""

    descriptor: int
    target: _Target
    tag: bytes
    begun: bytes = b""  # a line whose end has not come


class TaggedOutput:
    """The pipes of ranks, and those of their lines that wait for who reads the launcher's output.

    All in the launcher's loop, which never waits here. Each rank has a pipe for each of its streams, so that no rank
    waits for another one's output. The loop polls them (`watch`) and calls `turn` with what is ready: the lines of a
    pipe join those that wait for the launcher's own stream, and of these as many are written as there is room for.
    While many wait, the pipes of that stream are not read, and the ranks wait, as without a launcher in between. Once
    nobody reads it any more, its pipes are closed.

    What a rank has written is in its pipes when it ends; `finish` passes that on.
    """

    def __init__(self) -> None:
        self._poll: select.poll | None = None  # the loop's, while there is one
        self._sources: dict[int, _Source] = {}  # by descriptors, as the targets
        self._targets = {number: _Target(number, gone=not _is_open(number)) for number in (1, 2)}
        if _is_same_file(1, 2):  # then lines of the two must not mix
            self._targets[2] = self._targets[1]

    def pipe(self, rank: int, to: int) -> int:
        """A pipe whose lines go to standard output (1) or standard error (2). Returns its end for the rank.

        The caller closes that.
        """
        ours, theirs = os.pipe()  # neither is inherited
        os.set_blocking(ours, False)
        self._sources[ours] = _Source(ours, self._targets[to], b"[%d] " % rank)
        return theirs

    def watch(self, poll: select.poll) -> None:
        """Have the loop's poll tell of what `turn` is to be called for, from now on."""
        self._poll = poll
        for descriptor in self._sources:
            poll.register(descriptor, select.POLLIN)
        for target in self._targets.values():
            self._adjust(target)

    def turn(self, descriptor: int) -> None:
        """Go on with what the poll has found ready."""
        source = self._sources.get(descriptor)
        if source is not None and not source.target.holds_ranks:
            data = _read(descriptor, _AT_ONCE)
            if data is not None:
                self._take(source, data)
        elif source is None and descriptor in self._targets:  # else it was closed since the poll
            self._write(self._targets[descriptor])

    def say(self, line: str) -> None:
        """Write the launcher's own line to standard error, behind those of the ranks."""
        target = self._targets[2]
        target.waiting += line.encode(errors="replace") + b"\n"
        self._write(target)

    def finish(self, patience: Callable[[], float | None]) -> int:
        """Pass on what the pipes hold when the ranks have ended, and close them: others may still write into them.

        Args:
            patience: for how many seconds a reader may take nothing before the rest is given up; None: for ever.

        Returns:
            How many bytes were given up.
        """
        self._poll = None
        for source in list(self._sources.values()):
            data = _read(source.descriptor, _held_by(source.descriptor))
            if data:
                self._take(source, data)
            if source.descriptor in self._sources:
                self._take(source, b"")
        targets = {target.descriptor: target for target in self._targets.values()}
        taken_at = time.monotonic()
        while waiting := sum(len(target.waiting) for target in targets.values()):
            limit = patience()
            if limit is not None and time.monotonic() >= taken_at + limit:
                break
            room = select.poll()
            for target in targets.values():
                if target.waiting:
                    room.register(target.descriptor, select.POLLOUT)
            for descriptor, _ in room.poll(1000 * _LOOK_AGAIN):
                self._write(targets[descriptor])
            if sum(len(target.waiting) for target in targets.values()) < waiting:
                taken_at = time.monotonic()
        return waiting

    def _take(self, source: _Source, data: bytes) -> None:
        """Let the lines that this ends wait, and write what there is room for; b"" ends the stream."""
        *lines, rest = (source.begun + data).split(b"\n")
        if rest and (not data or len(rest) >= _AT_ONCE):
            lines, rest = [*lines, rest], b""
        source.begun = rest
        source.target.waiting += b"".join(source.tag + line + b"\n" for line in lines)
        if not data:
            self._close(source)
        self._write(source.target)

    def _write(self, target: _Target) -> None:
        """Write what the target has room for."""
        while target.waiting and not target.gone and _has_room(target.descriptor):
            try:
                # No more at once, since a pipe that has room has it for so much: else this would wait.
                written = os.write(target.descriptor, target.waiting[: select.PIPE_BUF])
                del target.waiting[:written]
            except BlockingIOError:  # not now
                break
            except OSError:
                target.gone = True
        if target.gone:
            target.waiting.clear()
            for source in [source for source in self._sources.values() if source.target is target]:
                self._close(source)
        self._adjust(target)

    def _adjust(self, target: _Target) -> None:
        """Have the loop told of room for what waits, and of what ranks write unless too much does."""
        if self._poll is None:
            return
        waits = bool(target.waiting)
        if waits != target.polled:
            target.polled = waits
            if waits:
                self._poll.register(target.descriptor, select.POLLOUT)
            else:
                self._poll.unregister(target.descriptor)
        full = len(target.waiting) >= _MOST_WAITING
        if full != target.holds_ranks:
            target.holds_ranks = full
            for source in self._sources.values():
                if source.target is target and full:
                    self._poll.unregister(source.descriptor)
                elif source.target is target:
                    self._poll.register(source.descriptor, select.POLLIN)

    def _close(self, source: _Source) -> None:
        if self._poll is not None and not source.target.holds_ranks:
            self._poll.unregister(source.descriptor)
        del self._sources[source.descriptor]
        os.close(source.descriptor)


def _read(descriptor: int, most: int) -> bytes | None:
    """What has come; b"": the last that could write has gone; None: nothing has come."""
    try:
        return os.read(descriptor, most)
    except BlockingIOError:
        return None


def _held_by(pipe: int) -> int:
    """How many bytes are in it: up to a million and more, if a rank has asked for that (F_SETPIPE_SZ)."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _has_room(descriptor: int) -> bool:
    """Whether a write goes on at once, or fails."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _is_same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False
