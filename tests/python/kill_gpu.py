#!/usr/bin/env python3
"""kill -9 of a rank in the middle of a GPU collective, again and again.

    python tests/python/kill_gpu.py --kills 50

Each time: the ranks, a process a GPU, call collectives without a pause; one of them is killed; every other one must
report it within two seconds, naming the rank, and go on with those that are left (Communicator.shrink), with a right
result. Then a fresh process takes the place of the killed one, in a communicator of all.

Workers are forked from this process, which never uses a GPU itself, so that a kill costs one start of CUDA and no
start of Python. The last line is the verdict; exit code 0 if all went well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import socket
import statistics
import sys
import time
import traceback
from array import array
from typing import Any

import paceline
from paceline import _native
from paceline.command.collectives import COLLECTIVES
from paceline.cuda_driver import Gpu, Memory, Stream, device_count

LIMIT = 2.0  # s, for the report
PATIENCE = 60.0  # s, for everything else
FLOAT32, SUM, ROOT = 7, 0, 0
RING = "ring"  # every rank sends to the next and receives from the one before
# What the ranks do meanwhile, in a graph or not: the collective, and its elements, all ranks' parts together.
WORK = [
    ("all_reduce", 100),
    ("all_reduce", 16 << 20),
    ("broadcast", 4 << 20),
    ("all_gather", 1 << 20),
    ("reduce_scatter", 100),
    ("reduce_scatter", 8 << 20),
    ("reduce", 4 << 20),
    ("gather", 2 << 20),
    ("scatter", 2 << 20),
    ("all_to_all", 8 << 20),
    (RING, 2 << 20),
]
LARGEST = 16 << 20  # elements


class Failed(Exception):
    """What the test is about did not happen."""


# ---- A worker ----


class Worker:
    """A rank: does what the controller says, one line of JSON a command, until it is killed or told to end."""

    def __init__(self, gpu: int, commands: socket.socket) -> None:
        self._gpu, self._commands = Gpu(gpu), commands
        self._send, self._recv, self._stream = Memory(4 * LARGEST), Memory(4 * LARGEST), Stream()
        self._send.write((array("f", [1]) * LARGEST).tobytes())
        self._comm: paceline.Communicator | None = None

    def serve(self) -> None:
        for line in self._commands.makefile():
            command = json.loads(line)
            say(self._commands, getattr(self, "_" + command.pop("do"))(**command))

    def _identify(self) -> Any:
        return paceline.unique_id().hex()

    def _join(self, rank: int, size: int, identity: str) -> Any:
        begin = time.monotonic()
        self._comm = paceline.init(rank=rank, size=size, unique_id=bytes.fromhex(identity), timeout=30)
        self._call("all_reduce", 1000)
        self._finish("all_reduce", 1000)
        return time.monotonic() - begin

    def _work(self, collective: str, count: int, graph: bool) -> Any:
        """Until a call fails: how it failed, and when."""
        if collective != RING:
            count = COLLECTIVES[collective].count(4 * count, self._comm.size, 4)
        try:
            if graph:
                self._call(collective, count)
                self._finish(collective, count)
                with self._stream.capture() as captured:
                    for _ in range(5):
                        self._call(collective, count)
            say(self._commands, "working")
            while not select.select([self._commands], [], [], 0)[0]:  # the controller is there, and silent
                if graph:
                    captured.launch(self._stream)
                else:
                    self._call(collective, count)
                self._finish(collective, count)
        except paceline.Error as error:
            return {"kind": type(error).__name__, "text": str(error), "at": time.monotonic()}
        os._exit(1)

    def _go_on(self, dead: int) -> Any:
        """Without the dead rank: the seconds until the first call of those that are left has ended."""
        assert self._comm is not None
        begin = time.monotonic()
        survivors = self._comm.shrink([dead])
        ended, self._comm = self._comm, survivors
        self._call("all_reduce", 1000)
        self._finish("all_reduce", 1000)
        seconds = time.monotonic() - begin
        ended.close()
        return seconds

    def _leave(self) -> Any:
        assert self._comm is not None
        self._comm.close()
        return True

    def _call(self, collective: str, count: int) -> None:
        comm, library = self._comm, _native.library()
        send, recv, stream = self._send.address, self._recv.address, self._stream.handle
        if collective == RING:
            with paceline.group():
                after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
                library.paceSend(send, count, FLOAT32, after, comm._handle, stream)
                result = library.paceRecv(recv, count, FLOAT32, before, comm._handle, stream)
        else:
            kind = COLLECTIVES[collective]
            choices = [SUM] * kind.reduces + [ROOT] * kind.rooted
            result = getattr(library, kind.function)(send, recv, count, FLOAT32, *choices, comm._handle, stream)
        if result:
            raise comm._failure(result)

    def _finish(self, collective: str, count: int) -> None:
        """The call's end: an error, or a right result."""
        self._stream.synchronize()
        error = self._comm.get_async_error()
        if error is not None:
            raise error
        kind = COLLECTIVES.get(collective)
        if kind is not None and collective in ("reduce", "gather") and self._comm.rank != ROOT:
            return
        right = float(self._comm.size if kind is not None and kind.reduces else 1)
        last = count * (self._comm.size if kind is not None and kind.receives_all else 1) - 1
        found = [self._recv.read(4 * element, 4).cast("f")[0] for element in (0, last // 2, last)]
        if found != [right] * 3:
            raise paceline.InternalError(f"no error, and a wrong result: {found} instead of {right}")


def say(to: socket.socket, what: Any) -> None:
    to.sendall(json.dumps(what).encode() + b"\n")


# ---- The controller ----


class Process:
    """A forked worker, seen from the controller."""

    def __init__(self, gpu: int, others: list[Process]) -> None:
        self._socket, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._socket.close()
                for other in others:  # so that each sees when the controller is gone
                    other._socket.close()
                Worker(gpu, theirs).serve()
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        theirs.close()
        self._read = b""

    def ask(self, do: str, **arguments: Any) -> None:
        say(self._socket, {"do": do, **arguments})

    def answer(self, patience: float = PATIENCE) -> Any:
        """The next line that it says."""
        end = time.monotonic() + patience
        while b"\n" not in self._read:
            if not select.select([self._socket], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Failed(f"a worker (pid {self.pid}) says nothing for {patience:g} s")
            try:
                more = self._socket.recv(4096)
            except ConnectionError:
                more = b""
            if not more:
                raise Failed(f"a worker (pid {self.pid}) has ended by itself")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._socket.close()


def join(workers: list[Process]) -> float:
    """A communicator of these; the seconds that the slowest rank took, a first call included."""
    workers[0].ask("identify")
    identity = workers[0].answer()
    for rank, worker in enumerate(workers):
        worker.ask("join", rank=rank, size=len(workers), identity=identity)
    return max(worker.answer() for worker in workers)


def go_on(workers: list[Process], dead: int) -> float:
    for worker in workers:
        worker.ask("go_on", dead=dead)
    return max(worker.answer() for worker in workers)


def leave(workers: list[Process]) -> None:
    for worker in workers:
        worker.ask("leave")
    for worker in workers:
        worker.answer()


def kill_one(workers: list[Process], rng: random.Random) -> tuple[int, float]:
    """Kill a rank while all work; who it was, and the seconds until the last of the others had reported it."""
    collective, count = rng.choice(WORK)
    graph = rng.random() < 0.4
    what = f"{collective} of {count}{' in a graph' if graph else ''}"
    for worker in workers:
        worker.ask("work", collective=collective, count=count, graph=graph)
    for worker in workers:
        if (said := worker.answer()) != "working":
            raise Failed(f"{what} failed before anybody was killed: {said}")
    time.sleep(rng.random() * 0.05)
    victim = rng.randrange(len(workers))
    begin = time.monotonic()
    os.kill(workers[victim].pid, signal.SIGKILL)
    slowest = 0.0
    for rank, worker in enumerate(workers):
        if rank == victim:
            continue
        try:
            said = worker.answer(LIMIT + 5)
        except Failed as failed:
            raise Failed(f"rank {rank} did not report that rank {victim} was killed in {what}: {failed}") from None
        where = f"rank {victim} was killed in {what}; rank {rank} reported after {said['at'] - begin:.3f} s: {said}"
        if said["kind"] != "RemoteError" or f"rank {victim}" not in said["text"]:
            raise Failed(f"not who it was: {where}")
        if said["at"] - begin > LIMIT:
            raise Failed(f"too late: {where}")
        slowest = max(slowest, said["at"] - begin)
    return victim, slowest


def in_a_child(question: Any) -> int:
    """The answer of a process of its own (0..255): this one must not load CUDA before it forks."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os._exit(question())
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--ranks", type=int, help="default: a rank for each GPU")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    chosen = parser.parse_args()
    gpus = in_a_child(device_count)
    ranks = chosen.ranks or gpus
    if gpus == 0 or ranks < 2:
        parser.error(f"needs two ranks at least, and a GPU: here are {gpus} GPUs")
    rng, begin = random.Random(chosen.seed), time.monotonic()
    _native.library()  # once, for all workers
    workers: list[Process] = []
    reports: list[float] = []
    joins: list[float] = []
    shrinks: list[float] = []
    try:
        for rank in range(ranks):
            workers.append(Process(rank % gpus, workers))
        for number in range(chosen.kills):
            joins.append(join(workers))
            victim, report = kill_one(workers, rng)
            reports.append(report)
            workers[victim].kill()
            left = workers[:victim] + workers[victim + 1 :]
            shrinks.append(go_on(left, victim))
            leave(left)
            workers[victim] = Process(victim % gpus, left)
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {chosen.kills}", end="", file=sys.stderr, flush=True)
        verdict = "PASS"
    except Failed as failed:
        print(f"kill_gpu: kill {len(reports) + 1}: {failed}", file=sys.stderr)
        verdict = "FAIL"
    finally:
        for worker in workers:
            worker.kill()
    figures = ", ".join(
        f"{what} {statistics.median(times):.3f} s (slowest {max(times):.3f})"
        for what, times in (("report", reports), ("going on", shrinks), ("new communicator of all", joins))
        if times
    )
    print(
        f"kill_gpu: {verdict}: {len(reports)} of {chosen.kills} kills, {ranks} ranks on {gpus} GPUs, "
        f"{time.monotonic() - begin:.0f} s, seed {chosen.seed}: {figures}"
    )
    return 0 if verdict == "PASS" else 1


if __name__ == "__main__":
    sys.exit(main())
