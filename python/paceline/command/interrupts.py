"""Ctrl-C while the library works or waits: Python's own handler would raise only when the call has ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_ends() -> Iterator[None]:
    """Ctrl-C ends the process inside, by the signal: for calls during which there is nothing to put in order.

    Where it is ignored (nohup, a shell's background job) it stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if before == signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
