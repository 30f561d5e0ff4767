"""A rank of test_gpu_endings.py: rank 1 does not come to a call, or leaves or aborts instead, by each way of kernels.

    python gpu_endings_side.py eager            # or graph
    python gpu_endings_side.py eager short      # one way only

The others' streams must end in time, with an error that names rank 1. Each case has a communicator of its own. Rank 0
prints a line for each; the exit code is 1 if one is not as it should be.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from typing import Any

import paceline
from gpu_tables import go_by
from paceline import _native
from paceline.command.collectives import COLLECTIVES
from paceline.cuda_driver import Gpu, Memory, Stream, device_count

FLOAT32, SUM, ROOT = 7, 0, 0
MISSING = 1  # the rank that does not come
TIMEOUT = 1.0  # s
PAUSE = 0.2  # s, until the missing rank leaves or aborts
SOON = 2.0  # s, for what is told at once, and behind a timeout
LOOKS = 4  # calls until all ranks know the buffers
LARGEST = 1 << 20  # elements
LOADED = {"family": "streaming", "direct": True}
# The collective, its elements, and the row of the table by which it goes; none: the schedule of a forced algorithm.
WAYS: dict[str, tuple[str, int, dict[str, Any] | None]] = {
    "short": ("all_reduce", 1000, {"family": "brief"}),
    "long": ("all_reduce", LARGEST, {"family": "large"}),
    "loaded": ("all_reduce", LARGEST, LOADED),
    "passed on": ("all_reduce", LARGEST, {**LOADED, "pushed": True, "passed": True}),
    "copy engines": ("all_gather", LARGEST, {**LOADED, "engines": True}),
    "schedule": ("all_reduce", LARGEST, None),
}
# What the others get, and whether it says who and why.
ENDINGS: dict[str, tuple[type[paceline.Error], str]] = {
    "timeout": (paceline.Timeout, r"rank 1 .*(did not come to|has not entered) all-"),
    "leave": (paceline.RemoteError, r"rank 1 .*left before all-"),
    "abort": (paceline.Aborted, r"rank 1"),
    "own abort": (paceline.Aborted, r""),
}


class Case:
    """A communicator whose next call rank 1 does not make."""

    def __init__(
        self, world: paceline.Communicator, memory: tuple[Memory, Memory, Stream], way: str, graph: bool
    ) -> None:
        identity = bytearray(paceline.unique_id() if world.rank == 0 else bytes(128))
        world.broadcast(identity)
        self._world, self._way = world, way
        self._send, self._recv, self._stream = memory
        self.comm = paceline.init(TIMEOUT, rank=world.rank, size=world.size, unique_id=bytes(identity))
        self._call()  # connects the GPUs
        row = WAYS[way][2]
        if row is None:
            self.comm.set_algorithm("ring")
        elif self.comm.gpus_direct():
            go_by(self.comm, [{"collective": WAYS[way][0], "from": 0, **row}])
        self._graph = None
        for _ in range(LOOKS):
            self._call()
            self._finish()
        if graph:
            with self._stream.capture() as self._graph:
                self._call()
            self._graph.launch(self._stream)
            self._finish()

    def end(self, ending: str) -> str:
        """What is wrong with how it ends; empty: nothing."""
        self._world.barrier()
        trouble = ""
        if self.comm.rank == MISSING:
            time.sleep(PAUSE)
            if ending == "abort":
                self.comm.abort()
            elif ending == "leave":
                self._close()
        else:
            trouble = self._wait(ending)
        self._world.barrier()
        self._close()
        return trouble

    def _close(self) -> None:
        with contextlib.suppress(paceline.Error):  # the host's engine tells the leaver what it has not called
            self.comm.close()

    def _wait(self, ending: str) -> str:
        kind, text = ENDINGS[ending]
        if ending == "own abort":
            threading.Timer(PAUSE, self.comm.abort).start()
        begin, error = time.monotonic(), None
        try:
            if self._graph is None:
                self._call()
            else:
                self._graph.launch(self._stream)
            self._finish()
        except paceline.Error as raised:
            error = raised
        seconds = time.monotonic() - begin
        least, most = (0.9 * TIMEOUT, TIMEOUT + SOON) if ending == "timeout" else (PAUSE / 2, PAUSE + SOON)
        if not isinstance(error, kind) or not re.search(text, str(error)):
            return f"ended with {type(error).__name__}: {error}"
        return "" if least < seconds < most else f"ended after {seconds:.2f} s, not within {least:g} to {most:g}"

    def _call(self) -> None:
        name, count, _ = WAYS[self._way]
        kind, comm = COLLECTIVES[name], self.comm
        arguments: list[Any] = [self._send.address, self._recv.address, count, FLOAT32]
        arguments += [SUM] * kind.reduces + [ROOT] * kind.rooted
        result = getattr(_native.library(), kind.function)(*arguments, comm._handle, self._stream.handle)
        if result:
            raise comm._failure(result)

    def _finish(self) -> None:
        self._stream.synchronize()
        error = self.comm.get_async_error()
        if error is not None:
            raise error


def main(mode: str, *ways: str) -> int:
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    world = paceline.init()
    memory = (Memory(4 * LARGEST), Memory(4 * LARGEST * world.size), Stream())
    # What a process does once may take longer than TIMEOUT.
    if _native.library().paceBarrier(world._handle, memory[2].handle):
        raise SystemExit("the barrier failed")
    memory[2].synchronize()
    wrong = 0
    for way in ways or WAYS:
        if mode == "eager" and way == "copy engines":
            continue  # which work in graphs alone
        for ending in ENDINGS:
            gpu.use()
            trouble = Case(world, memory, way, mode == "graph").end(ending)
            wrong += bool(trouble)
            if trouble or world.rank == 0:
                sys.stdout.write(f"rank {world.rank}: {mode}, {way}, {ending}: {trouble or 'well'}\n")
                sys.stdout.flush()
    world.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
