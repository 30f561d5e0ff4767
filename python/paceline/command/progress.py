"""A progress bar on standard error, for a person who watches; nothing otherwise."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType


class Progress:
    """`with Progress(total) as progress: ... progress.step("what comes now")`."""

    def __init__(self, total: int, shown: bool = True) -> None:
        self._total, self._done = max(total, 1), 0
        self._shown = shown and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def step(self, what: str) -> None:
        """One part is done, `what` is next."""
        self._show(what)
        self._done += 1

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """One part, done inside, that says nothing itself: from its first second on its time is shown."""
        begin, ended = time.monotonic(), threading.Event()

        def show() -> None:
            while not ended.wait(1):
                self._show(f"{what}, {time.monotonic() - begin:.0f} s")

        clock = threading.Thread(target=show, daemon=True)
        if self._shown:
            clock.start()
        try:
            yield
        finally:
            ended.set()
            if self._shown:
                clock.join()
            self._done += 1
            self.clear()

    def _show(self, what: str) -> None:
        if self._shown:
            filled = 30 * self._done // self._total
            line = f"[{'#' * filled:30}] {what}"[: _columns() - 1]  # a second line would stay
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for a line of output."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.clear()


def _columns() -> int:
    """The terminal's; 80 where it does not say, as a serial line."""
    with suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80
