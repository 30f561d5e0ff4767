#!/usr/bin/env python3
"""The soak: random collectives on GPU memory for minutes, every result checked exactly.

    python tests/python/soak_gpu.py --gpus 4 --seconds 600

Half the time the ranks are processes with a GPU each, half the time one thread with all GPUs (paceline.init_all). An
episode makes random calls (collective, size, type, operation, root, in place or not, odd addresses) on three
communicators and six streams at once, some of them captured into CUDA graphs and replayed among the others, while
torch's matrix products run beside them: without torch it fails, unless --no-torch says so. soak_plan.py says what an
episode does, soak_side.py how a rank does it.

The seed is printed; an episode that failed is run again with --seed S --first N. The last line is the verdict; the exit
code is 0 if all went well. An episode that does not end within a minute and a half ends the soak, which then tells
every thread's place.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import subprocess
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import Any

import paceline
from paceline.cuda_driver import Gpu, device_count
from paceline.launch import launch
from soak_plan import Episode, episode
from soak_side import Side

TIMEOUT = 30  # s, of the communicators
PATIENCE = 90  # s, that an episode may take


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, help="default: all of this machine")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--first", type=int, default=0, metavar="EPISODE", help="begin with this one")
    parser.add_argument("--layout", choices=["processes", "thread", "both"], default="both")
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--no-torch", action="store_true", help="no other work beside the collectives")
    return parser.parse_args()


class Watchdog:
    """Ends the process, and says where it was, when an episode does not end."""

    def __init__(self) -> None:
        self._now: object = "the beginning"
        self._since = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def begins(self, what: object) -> None:
        self._now, self._since = what, time.monotonic()

    def _watch(self) -> None:
        while time.monotonic() - self._since < PATIENCE:
            time.sleep(1)
        print(f"soak_gpu: no end after {PATIENCE} s of {self._now}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(3)


class OtherWork:
    """torch's matrix products on a stream of their own, whose result must stay the same."""

    def __init__(self, gpu: int) -> None:
        import torch

        self._torch = torch
        torch.cuda.set_device(gpu)
        self._stream = torch.cuda.Stream()
        with torch.cuda.stream(self._stream):
            self._a, self._b = (torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            self._right = self._a @ self._b
        self._result = self._right
        self._stream.synchronize()

    def begin(self, products: int) -> None:
        with self._torch.cuda.stream(self._stream):
            for _ in range(products):
                self._result = self._a @ self._b

    def finish(self) -> None:
        self._stream.synchronize()
        assert self._torch.equal(self._result, self._right), "a matrix product beside the collectives is wrong"


def other_work(gpus: list[int]) -> list[OtherWork]:
    try:
        return [OtherWork(gpu) for gpu in gpus]
    except ImportError as error:
        raise SystemExit(f"soak_gpu: {error}: its products run beside the collectives; without: --no-torch") from None


class Soak:
    """The ranks of this process: one, or all of them."""

    def __init__(self, chosen: argparse.Namespace, sides: list[Side], others: list[OtherWork]) -> None:
        self._chosen, self._sides, self._others = chosen, sides, others
        self._sizes = [team.size for team in sides[0].teams]
        self._delays = random.Random(os.getpid())  # another on every rank: they come early or late
        self.counts = {"episodes": 0, "calls": 0, "replays": 0, "bytes": 0}

    def run(self, number: int, watchdog: Watchdog) -> None:
        plan = episode(self._chosen.seed, number, self._sizes, not self._chosen.no_graphs)
        watchdog.begins(plan)
        try:
            self._go_through(plan)
        except BaseException:
            print(f"soak_gpu: failed in seed {self._chosen.seed} {plan}", file=sys.stderr, flush=True)
            raise

    def _go_through(self, plan: Episode) -> None:
        for side in self._sides:
            side.begin(plan, plan.calls())
        for work in self._others:
            work.begin(self._delays.randrange(100))
        for action in plan.actions:
            if self._delays.random() < 0.1:
                time.sleep(self._delays.random() * 0.002)
            if action.what == "replay":
                for side in self._sides:
                    side.replay(action.team)
                continue
            with contextlib.ExitStack() as captures:
                graphs: list[Any] = []
                if action.what == "capture":
                    graphs = [captures.enter_context(side.capture(action.team)) for side in self._sides]
                for call in action.calls:
                    for side in self._sides:
                        side.prepare(call)
                    with paceline.group():
                        for side in self._sides:
                            side.make(call)
            for side, graph in zip(self._sides, graphs):
                side.keep(action.team, graph)
        for side in self._sides:
            side.finish()
        for work in self._others:
            work.finish()
        for call in plan.calls():
            self.counts["bytes"] += sum(side.check(call) for side in self._sides)
        self.counts["episodes"] += 1
        self.counts["calls"] += len(plan.calls())
        self.counts["replays"] += sum(action.what == "replay" for action in plan.actions)


def soak(chosen: argparse.Namespace, sides: list[Side], others: list[OtherWork]) -> str:
    """Episodes until the time is up; what was done."""
    watchdog, soaking = Watchdog(), Soak(chosen, sides, others)
    world = sides[0].teams[0]
    end = time.monotonic() + chosen.seconds
    goes_on = array("q", [1])
    number = chosen.first
    while goes_on[0]:
        soaking.run(number, watchdog)
        number += 1
        goes_on[0] = int(time.monotonic() < end)
        if len(sides) == 1:  # all ranks stop together
            world.broadcast(goes_on, root=0)
    done = soaking.counts
    return (
        f"seed {chosen.seed}, {done['episodes']} episodes, {done['calls']} calls, {done['replays']} replays, "
        f"{done['bytes'] / 1e9:.1f} GB checked on {'a' if len(sides) == 1 else 'every'} rank, "
        f"{'beside' if others else 'without'} torch's products"
    )


def as_process(chosen: argparse.Namespace) -> str:
    """This process is a rank."""
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    others = [] if chosen.no_torch else other_work([gpu.number])
    gpu.use()
    comm = paceline.init(timeout=TIMEOUT)
    backwards = comm.split(0, -comm.rank)
    parts = comm.split(comm.rank * 2 // comm.size if comm.size % 2 == 0 and comm.size > 2 else 0, comm.rank)
    assert backwards is not None and parts is not None
    teams = [comm, backwards, parts]
    done = soak(chosen, [Side(gpu, teams)], others)
    for team in reversed(teams):
        team.close()
    return done if comm.rank == 0 else ""


def as_thread(chosen: argparse.Namespace) -> str:
    """This thread is all ranks."""
    gpus = [Gpu(number) for number in range(chosen.gpus)]
    others = [] if chosen.no_torch else other_work([gpu.number for gpu in gpus])
    numbers = [gpu.number for gpu in gpus]
    world = paceline.init_all(numbers)
    backwards = paceline.init_all(numbers[::-1])[::-1]
    half = len(numbers) // 2
    if half * 2 == len(numbers) and half > 1:
        parts = paceline.init_all(numbers[:half]) + paceline.init_all(numbers[half:])
    else:
        parts = paceline.init_all(numbers)
    sides = [Side(gpu, list(teams)) for gpu, teams in zip(gpus, zip(world, backwards, parts))]
    return soak(chosen, sides, others)


def main() -> int:
    chosen = arguments()
    layout = chosen.layout
    if layout == "thread" or "PACELINE_RANK" in os.environ:
        done = as_process(chosen) if "PACELINE_RANK" in os.environ else as_thread(chosen)
        if done:
            who = "a process a GPU" if layout == "processes" else "one thread, all GPUs"
            print(f"soak_gpu: {who}: {done}", flush=True)
        return 0
    gpus = chosen.gpus or device_count()
    layouts = ["processes", "thread"] if layout == "both" else [layout]
    begin = time.monotonic()
    codes = {}
    for each in layouts:
        words = [f"--gpus={gpus}", f"--seconds={chosen.seconds / len(layouts)}", f"--seed={chosen.seed}"]
        words += [f"--first={chosen.first}", f"--layout={each}"]
        words += ["--no-graphs"] * chosen.no_graphs + ["--no-torch"] * chosen.no_torch
        command = [sys.executable, str(Path(__file__).resolve()), *words]
        if each == "processes":
            codes[each] = launch(command, gpus, program="soak_gpu")
        else:
            codes[each] = subprocess.call(command)
    failed = [each for each, code in codes.items() if code]
    seconds = time.monotonic() - begin
    verdict = f"FAIL ({', '.join(failed)})" if failed else "PASS"
    print(f"soak_gpu: {verdict}: {gpus} GPUs, {seconds:.0f} s, seed {chosen.seed}, layouts: {', '.join(layouts)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
