"""The output of a job's ranks through their launcher, with the rank's number before each line: `paceline run --tag`.

A pipe for each rank and stream, read in the launcher's loop: no rank waits for another one's output. What a rank has
written is in its pipe when it ends, so that `finish` has the rest of it.
"""

from __future__ import annotations

import os

_AT_ONCE = 1 << 16  # bytes, as many as a pipe holds; a line that is longer is written in pieces


class TaggedOutput:
    """Pipes of ranks, by the descriptors that the launcher reads."""

    def __init__(self) -> None:
        self._pipes: dict[int, tuple[int, bytes, bytes]] = {}  # where to, the tag, and the beginning of a line

    def pipe(self, rank: int, to: int) -> int:
        """A pipe whose lines go to this descriptor. Returns its end for the rank, which the launcher closes."""
        ours, theirs = os.pipe()  # neither is inherited
        os.set_blocking(ours, False)
        self._pipes[ours] = to, b"[%d] " % rank, b""
        return theirs

    def descriptors(self) -> list[int]:
        """Of the pipes that are open."""
        return list(self._pipes)

    def copy(self, descriptor: int) -> bool:
        """Write the lines that have come. Returns whether there may be more: False closes the pipe."""
        data = _read(descriptor)
        return data is None or self._pass_on(descriptor, data)

    def finish(self) -> None:
        """Write what the pipes hold when the ranks have ended, and close them: others may still write into them."""
        for descriptor in self.descriptors():
            data = _read(descriptor)
            if data is None or self._pass_on(descriptor, data):
                self._pass_on(descriptor, b"")

    def _pass_on(self, descriptor: int, data: bytes) -> bool:
        """Write the lines that this ends; b"" ends them all. Returns whether the pipe is still open."""
        to, tag, begun = self._pipes[descriptor]
        *lines, rest = (begun + data).split(b"\n")
        if rest and (not data or len(rest) >= _AT_ONCE):
            lines, rest = [*lines, rest], b""
        self._pipes[descriptor] = to, tag, rest
        if _write(to, b"".join(tag + line + b"\n" for line in lines)) and data:
            return True
        self._close(descriptor)
        return False

    def _close(self, descriptor: int) -> None:
        del self._pipes[descriptor]
        os.close(descriptor)


def _read(descriptor: int) -> bytes | None:
    """What has come; b"": the last that could write has gone; None: nothing has come."""
    try:
        return os.read(descriptor, _AT_ONCE)
    except BlockingIOError:
        return None


def _write(to: int, data: bytes) -> bool:
    """Whether somebody reads it."""
    try:
        while data:
            data = data[os.write(to, data) :]
    except OSError:
        return False
    return True
