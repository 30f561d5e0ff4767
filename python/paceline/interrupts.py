"""Signals while the library waits. Python runs their handlers between its own steps only; so waits make such steps.

Where a handler raises, as that of Ctrl-C does, the call that waits ends, and with it the communicator, on every rank;
the caller gets what the handler has raised.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from ctypes import CFUNCTYPE, c_int

_raised: list[BaseException] = []


def _steps() -> Iterator[int]:
    """Each is 1 if a handler has raised in it, else 0.

    A generator: it goes on inside its `try`, where a function may be interrupted before it.
    """
    ends = 0
    while True:
        try:
            while True:
                yield ends
                ends = 0
        except GeneratorExit:
            raise
        except BaseException as raised:
            _raised.append(raised)
            ends = 1


_waiting = _steps()
next(_waiting)
# What paceSetInterrupted is given.
step = CFUNCTYPE(c_int)(_waiting.__next__)


def raise_pending() -> None:
    """Raise what a handler has raised while this thread's call waited, if one has."""
    if _raised and threading.current_thread() is threading.main_thread():
        raise _raised.pop(0)
