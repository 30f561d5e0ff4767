"""`paceline tune --device cuda`: measure in which way this machine's GPUs run each collective fastest.

Every way that is worth a try (gpu_ways.py) at 8 B to 1 GB, in CUDA graphs; then half way between two sizes of which
another way is the fastest, twice. All ranks force the same way by a profile of one row. A time is that of a batch of
calls on the slowest rank, the least over several batches in several passes: a disturbance only adds. Results are
checked bit for bit: of every way up to 32 MB, and of each way that gets into the table at its longest size.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections.abc import Iterable
from typing import Any

from .. import tuning
from ..communicator import Communicator
from ..cuda_driver import device_count
from ..datatypes import DATA_TYPES
from ..errors import Error, Unsupported
from . import gpu_ways
from .collectives import COLLECTIVES
from .gpu_trial import BATCHES, GpuTrial
from .gpu_ways import Way
from .pattern import Pattern
from .progress import Progress
from .sizes import size_text

LARGEST = 1 << 30
SECONDS = 120
TIMEOUT = 60  # s, of a call: a way that hangs is told soon
_SMALLEST, _FACTOR = 8, 2
_CALLS = ((64 << 10, 200), *BATCHES)  # of a batch: ranks do not begin one at the same time, which must not count
_BATCHES = 3  # of a way in a pass
_PASSES = 3
_HALVINGS = 2
_CHECKED = 32 << 20  # bytes: longer results take long to read back
_BUFFERS = 4  # of the longest message: inputs, send, recv, and room


def refuse_impossible(chosen: argparse.Namespace) -> None:
    """What can be told before any rank is started."""
    try:
        found = device_count()
    except Unsupported as error:
        chosen.parser.error(f"--device cuda: {error}")
    if found < 2:
        chosen.parser.error(f"--device cuda: this machine shows {found} GPU: there is nothing to tune")
    if chosen.transport != "all":
        chosen.parser.error("--transport is of the host's engine: leave it out with --device cuda")
    if any(count > found for count in chosen.ranks or []):
        chosen.parser.error(f"--device cuda: {max(chosen.ranks)} ranks need as many GPUs, this machine shows {found}")


def counts(chosen: argparse.Namespace) -> list[int]:
    """Numbers of ranks to measure."""
    found = device_count()
    wanted: list[int] = chosen.ranks or sorted({found, *(1 << k for k in range(1, 8) if 1 << k <= found)})
    return wanted


class GpuTuning:
    """The measuring of one communicator on GPUs. All ranks do the same and end with the same table."""

    def __init__(
        self, comm: Communicator, names: list[str], largest: int, seconds: float, free_bytes: int, graphs: bool = True
    ) -> None:
        self._comm, self._names, self._seconds, self._graphs = comm, names, seconds, graphs
        self._largest = largest
        while self._largest > _SMALLEST and self._most(array("q", [_BUFFERS * self._largest - free_bytes]))[0] > 0:
            self._largest //= _FACTOR
        self._machine: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """A setting for the profile."""
        table: list[dict[str, Any]] = []
        measured: list[dict[str, Any]] = []
        share = self._seconds / len(self._names)
        with Progress(len(self._names) * self._steps(), self._comm.rank == 0) as progress:
            for name in self._names:
                times = self._collective(name, time.monotonic() + share, progress)
                table += gpu_ways.rows(name, gpu_ways.choose(times))
                measured += gpu_ways.curves(name, times)
        tuning.use(self._comm, None)
        return {**self._machine, "measured": measured, "table": table}

    def _steps(self) -> int:
        return _PASSES * len(self._sizes())

    def _sizes(self) -> list[int]:
        """As commands count them."""
        found = [_SMALLEST]
        while found[-1] * _FACTOR <= self._largest:
            found.append(found[-1] * _FACTOR)
        return found if found[-1] == self._largest else [*found, self._largest]

    def _collective(self, name: str, end: float, progress: Progress) -> gpu_ways.Times:
        collective, dtype = COLLECTIVES[name], DATA_TYPES["float32"]
        most = collective.count(self._largest, self._comm.size, dtype.size)
        pattern = Pattern(dtype, "sum", self._comm.size)
        trial = GpuTrial(self._comm, collective, pattern, 0, most, self._graphs, _CALLS)
        if not self._machine:
            found = tuning.gpu_table(self._comm)  # there is one now: the trial has connected the GPUs
            self._machine = {key: found[key] for key in ("gpu", "link", "ranks", "blocks")}
        one = _Collective(trial, self._machine)
        one.make_buffers_known(most)
        counts = sorted({collective.count(size, self._comm.size, dtype.size) for size in self._sizes()})
        for number in range(_PASSES):
            late = number > 0 and self._late(end)
            for count in counts:
                progress.step(f"{self._comm.size} ranks: {name} {size_text(trial.bytes(count))}")
                if not late:
                    one.measure(
                        count, gpu_ways.candidates(name, self._comm.size, count * dtype.size, self._machine["blocks"])
                    )
        for _ in range(_HALVINGS):
            for nbytes, ways in gpu_ways.between(one.times).items():
                for _ in range(_PASSES):
                    one.measure(nbytes // dtype.size, ways)
        one.check_chosen()
        return one.times

    def _late(self, end: float) -> bool:
        """Whether some rank's time is up: all ranks say the same."""
        return self._most(array("q", [int(time.monotonic() > end)]))[0] != 0

    def _most(self, values: array[int]) -> array[int]:
        self._comm.all_reduce(values, op="max")
        return values


class _Collective:
    """Measured times of one collective."""

    def __init__(self, trial: GpuTrial, machine: dict[str, Any]) -> None:
        self._trial, self._machine = trial, machine
        self.times: dict[int, dict[Way, float]] = {}  # us, by bytes of the count

    def make_buffers_known(self, count: int) -> None:
        """To all ranks, so that calls that can go direct do."""
        self._force(Way("large", direct=True))
        self._trial.run(count, 1)

    def measure(self, count: int, ways: Iterable[Way]) -> None:
        for way in ways:
            self._force(way)
            times = self._trial.run(count, _BATCHES)
            self._trial.comm.all_reduce(times, op="max")
            found = self.times.setdefault(count * self._trial.dtype.size, {})
            if way not in found and self._trial.bytes(count) <= _CHECKED:
                self._check(count, way)
            found[way] = min(found.get(way, float("inf")), min(times) / 1000)

    def check_chosen(self) -> None:
        """The results of the longest calls by what goes into the table."""
        longest = {}
        for nbytes, way in gpu_ways.choose(self.times).items():
            longest[way] = longest[gpu_ways.through_window(way)] = nbytes // self._trial.dtype.size
        for way, count in longest.items():
            if self._trial.bytes(count) > _CHECKED:
                self._force(way)
                self._trial.run(count, 1)
                self._check(count, way)

    def _force(self, way: Way) -> None:
        row = {"collective": self._trial.collective.name, "from": 0, **way.fields()}
        tuning.use(self._trial.comm, tuning.profile([], [{**self._machine, "table": [row]}]))

    def _check(self, count: int, way: Way) -> None:
        wrong = self._trial.wrong(count)
        if wrong:
            name, nbytes = self._trial.collective.name, self._trial.bytes(count)
            raise Error(f"{name} of {nbytes} bytes, {way}: {wrong} elements are wrong")


def report(setting: dict[str, Any]) -> str:
    """What was found, for people. Sizes are bytes of the call's count."""
    lines = [f"# {setting['ranks']} x {setting['gpu']}, {setting['link'] or 'unknown link'}"]
    for name in COLLECTIVES:
        rows = [row for row in setting["table"] if row["collective"] == name]
        if rows:
            lines.append(f"  {name:<15} {gpu_ways.summary(rows)}")
    return "\n".join(lines)
