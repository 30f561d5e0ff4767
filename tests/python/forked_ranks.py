"""Ranks for tests that end them badly: milliseconds to start, since each is forked from one process that has imported
everything already. No rank outlives the tests.

What they run are the functions of fault_side.py; each is called as function(line, **arguments) and may talk to the test
over its line before it returns its result.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

from paceline.launch import rank_environment

_context = multiprocessing.get_context("forkserver")
# With __main__, which each rank would else import again.
_context.set_forkserver_preload(["__main__", "numpy", "paceline"])

# Starting a process looks at all others' ends, too: two threads that read one's exit code at once lose it.
_processes_lock = threading.Lock()

_PR_SET_PDEATHSIG = 1


class Line:
    """A rank's line to the test."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def tell(self, what: Any) -> None:
        self._pipe.send(("told", what))

    def hear(self) -> Any:
        """What the test says to this rank next."""
        return self._pipe.recv()


class Ended(AssertionError):
    """A rank ended without a result, or raised; the message says how."""


class ForkedRanks:
    """`size` ranks that run a function of fault_side.

    Args:
        each: of a rank's number, the environment variables that it has for itself.
        environment: what all ranks have.
    """

    def __init__(
        self,
        size: int,
        function: str,
        arguments: Mapping[str, Any] | None = None,
        each: Callable[[int], Mapping[str, str]] = lambda _: {},
        **environment: str,
    ) -> None:
        shared = rank_environment(size) | {"PACELINE_TIMEOUT": "20"} | environment
        self.size = size
        self._pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            mine, theirs = _context.Pipe()
            variables = shared | {"PACELINE_RANK": str(rank)} | dict(each(rank))
            process = _context.Process(target=_be, args=(theirs, variables, function, dict(arguments or {})))
            with _processes_lock:
                process.start()
            theirs.close()
            self._pipes.append(mine)
            self.processes.append(process)

    def pid(self, rank: int) -> int:
        number = self.processes[rank].pid
        assert number is not None
        return number

    def told(self, rank: int, seconds: float = 60) -> Any:
        """The next thing that the rank tells, or its result."""
        pipe = self._pipes[rank]
        if not pipe.poll(seconds):
            raise Ended(f"rank {rank} hangs: nothing within {seconds} s")
        try:
            kind, what = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise Ended(f"rank {rank} crashed: exit code {self.exit_code(rank, 10)}") from None
        if kind == "raised":
            raise Ended(f"rank {rank}: {what}")
        return what

    def all_told(self, seconds: float = 60) -> list[Any]:
        return [self.told(rank, seconds) for rank in range(self.size)]

    def say(self, rank: int, what: Any) -> None:
        """To a rank that listens, or has ended: what it has told by then, or that it crashed, told() says."""
        with contextlib.suppress(BrokenPipeError):
            self._pipes[rank].send(what)

    def signal(self, rank: int, number: signal.Signals) -> float:
        """Send it, and return when (time.monotonic(), the same clock in all processes)."""
        moment = time.monotonic()
        os.kill(self.pid(rank), number)
        return moment

    def exit_code(self, rank: int, seconds: float = 20) -> int | None:
        """None: it has not ended by then."""
        wait([self.processes[rank].sentinel], seconds)
        with _processes_lock:
            return self.processes[rank].exitcode

    def __enter__(self) -> ForkedRanks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()  # reaches stopped ones too
        for rank, (process, pipe) in enumerate(zip(self.processes, self._pipes, strict=True)):
            self.exit_code(rank)
            with _processes_lock:
                process.join()
                process.close()
            pipe.close()


def _be(pipe: Connection, variables: dict[str, str], function: str, arguments: dict[str, Any]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for name in [name for name in os.environ if name.startswith("PACELINE_") and name != "PACELINE_LIBRARY"]:
        del os.environ[name]
    os.environ.update({"PACELINE_TUNING": "off"} | variables)
    import fault_side

    try:
        answer = ("returned", getattr(fault_side, function)(Line(pipe), **arguments))
    except BaseException:
        answer = ("raised", traceback.format_exc())
    pipe.send(answer)
