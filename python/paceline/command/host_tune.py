"""`paceline tune` on host memory: the times of one communicator's algorithms, and the model fitted to them.

  1. Calibration: every algorithm of every collective at a few sizes, as planned by the untuned model. From the times
     come the model's constants: start-up, step, bandwidth, reduction, copies, and what goes on side by side.
  2. Candidates: the same with the fitted model, at many sizes. From the second pass on also between two sizes of which
     another algorithm was the fastest, or where an algorithm's times bend; and, of long messages' fastest algorithms,
     shorter and longer chunks and, inside a node, both protocols.

A pass's time is the median of its calls, and what counts of several passes pass_times.py says. At the end of the first
two passes, which may be the only ones, what looks disturbed is measured again.
"""

from __future__ import annotations

import argparse
import itertools
import time
from array import array
from collections.abc import Iterator, Sequence
from math import log
from statistics import median
from typing import Any

from .. import tuning
from ..communicator import Communicator
from ..datatypes import DATA_TYPES
from .bench import algorithm_table
from .collectives import COLLECTIVES
from .measure import Effort, measure, settle
from .pass_times import PassTimes, apart
from .pattern import Pattern
from .progress import Progress
from .sizes import size_text
from .trial import HostBuffers, HostTrial

_CALIBRATION = [8, 1 << 10, 16 << 10, 256 << 10, 4 << 20]
_CANDIDATES = [8, 32, 64, *(1 << k for k in range(8, 24)), 32 << 20]
_VARIED = 64 << 10  # from this size on chunks and protocols are tried
_CHUNKS = (0.25, 0.5, 2, 4)  # times the algorithm's own
_PROTOCOLS = ("staged", "single_copy")
_MOST_VARIANTS = len(_CHUNKS) + 2  # of an algorithm, one by itself: one of the protocols is its own
_SHORTEST, _GRAIN = 4096, 256  # bytes: a chunk is at least, and a multiple of
_SETTLING = 0.2  # s, of short calls before anything is measured
_LEAST = 3  # calls in a pass: of long messages no more fit
_LONGEST = 30_000.0  # us; no longer calls are made, as of long messages on slow links: their times grow with the size
_BEND = 0.07  # of ln: how far from the middle of its neighbours a time may be, as a ratio to the formula's
_DISTURBED = 1.15  # by how much a time must be out of place for that
_WORTH = 1.05  # a change of algorithm that gains less than this is not looked into
LARGEST = _CANDIDATES[-1]
# In a setting that is not finished: PassTimes.rows(), and the model's constants of which the times say little.
_TIMES, _KEPT = "pass_times", "kept"


class HostTuning:
    """The measuring of one communicator. All ranks do the same and end with the same setting."""

    def __init__(self, comm: Communicator, chosen: argparse.Namespace, passes: int) -> None:
        """passes: for how many the time is."""
        largest, self._names = chosen.largest, chosen.collectives
        self._comm = comm
        self._end = time.monotonic() + chosen.seconds
        dtype = DATA_TYPES["float32"]
        self._candidates = [size for size in _CANDIDATES if size <= largest] or [largest]
        self._calibration = [size for size in _CALIBRATION if size <= largest] or [largest]
        self._trials = {}
        pattern, buffers = Pattern(dtype, "sum", comm.size), HostBuffers()
        for name in self._names:
            collective = COLLECTIVES[name]
            most = collective.count(self._candidates[-1], comm.size, dtype.size)
            self._trials[name] = HostTrial(comm, collective, pattern, 0, most, buffers)
        table = [row for row in algorithm_table() if not row["topology"]]
        self._algorithms = {name: [row["name"] for row in table if name in row["collectives"]] for name in self._names}
        rows = sum(map(len, self._algorithms.values())) * (len(self._calibration) + passes * len(self._candidates))
        varied = sum(size >= _VARIED for size in self._candidates)
        rows += passes * len(self._names) * varied * _MOST_VARIANTS
        # Warming up, the slow calls of long messages and what is measured again take longer than the timed calls.
        self._effort = Effort(seconds=min(0.05, max(0.002, 0.35 * chosen.seconds / rows)), least=_LEAST)
        self._passes = PassTimes()
        self._longest = 0  # chunk, bytes
        self._limit: dict[tuple[str, str], int] = {}  # of a collective's algorithm: the largest size for this pass

    def calibrate(self) -> dict[str, Any]:
        """A setting with the fitted model, and no times yet: for pass_after()."""
        tuning.use(self._comm, None)
        settle(self._trials[self._names[0]], _SETTLING)
        with self._progress(self._calibration) as progress:
            self._pass(self._calibration, progress)
            self._measure_disturbed(progress)
        fitted = tuning.setting(self._comm, self._times, fit=True)
        before = tuning.setting(self._comm, {}, fit=False)["model"]
        kept = [name for name, value in fitted["model"].items() if value == before[name]]
        return {**fitted, "passes": 0, "measured": [], "table": [], _TIMES: [], _KEPT: kept}

    def pass_after(self, before: dict[str, Any]) -> dict[str, Any]:
        """The setting, with the times of one more pass; finished() makes it one for a profile."""
        self._passes = PassTimes(before[_TIMES])
        self._longest = before["model"]["largest_chunk"]
        self._limit = {}
        tuning.use(self._comm, tuning.profile([{**finished(before), "measured": [], "table": []}]))
        # Found once, so that later passes measure them as often as all others.
        between = self._between() if before["passes"] == 1 else self._measured_between()
        settle(self._trials[self._names[0]], _SETTLING)
        with self._progress(self._candidates) as progress:
            self._pass(self._candidates, progress)
            if before["passes"] > 0:
                for (name, size), algorithms in between.items():
                    self._measure(name, size, algorithms, progress)
            if before["passes"] < 2:
                self._measure_disturbed(progress)
            if before["passes"] > 0:  # last, beside the algorithms themselves once more
                for name, size in itertools.product(self._names, self._candidates):
                    if size >= _VARIED:
                        self._variants(name, size, progress)
        found = tuning.setting(self._comm, self._times, fit=False)
        return {
            **found,
            "passes": before["passes"] + 1,
            "model_error": before["model_error"],
            _TIMES: self._passes.rows(),
            _KEPT: before[_KEPT],
        }

    @property
    def _times(self) -> tuning.Times:
        return self._passes.typical

    def time_is_up(self, needed: float) -> bool:
        """Whether rank 0 has not so many seconds left: all ranks say the same."""
        late = array("q", [int(time.monotonic() + needed > self._end)])
        self._comm.broadcast(late, root=0)
        return bool(late[0])

    def _progress(self, sizes: list[int]) -> Progress:
        return Progress(len(self._names) * len(sizes), self._comm.rank == 0)

    def _pass(self, sizes: list[int], progress: Progress) -> None:
        for name in self._names:
            for size in sizes:
                self._sizes(name, size, progress)

    def _sizes(self, name: str, size: int, progress: Progress) -> None:
        """One collective at one size, with each of its algorithms."""
        algorithms = [
            algorithm for algorithm in self._algorithms[name] if size <= self._limit.get((name, algorithm), size)
        ]
        self._measure(name, size, algorithms, progress)

    def _variants(self, name: str, size: int, progress: Progress) -> None:
        """One collective at one size, with its fastest algorithm run in other ways.

        A chunk that the formula says makes no difference cuts nothing otherwise; a time that is the same thing's would
        only give it one more chance to be lucky.
        """
        count = self._count(name, size)
        nbytes = count * self._trials[name].dtype.size
        times = {
            algorithm: self._times[name, algorithm][nbytes]
            for algorithm in self._algorithms[name]
            if nbytes in self._times.get((name, algorithm), {})
        }
        if not times:
            return
        fastest = min(times, key=lambda algorithm: times[algorithm])
        trial = self._trials[name]
        plan = trial.plan(count, fastest)
        longest = min(nbytes, self._longest)
        chunks = {int(plan.chunk_bytes * factor) // _GRAIN * _GRAIN for factor in _CHUNKS}
        runs = [f"{fastest} chunk={chunk}" for chunk in sorted(chunks) if _SHORTEST <= chunk <= longest]
        runs = [run for run in runs if trial.plan(count, run).predicted_us != plan.predicted_us]
        if plan.transport == "shm":
            runs += [f"{fastest} protocol={protocol}" for protocol in _PROTOCOLS if protocol != plan.protocol]
        self._comm.set_algorithm(None)
        if runs:  # beside the algorithm by itself: a pass is long, a machine changes
            self._measure(name, size, [fastest, *runs], progress)

    def _measure(
        self, name: str, size: int, algorithms: Sequence[str], progress: Progress, disturbed: bool = False
    ) -> None:
        progress.step(f"{self._comm.size} ranks: {name} {size_text(size)}")
        if not algorithms:
            return
        trial, count = self._trials[name], self._count(name, size)
        nbytes = count * trial.dtype.size
        self._comm.set_algorithm(None)
        known = {algorithm: self._times.get((name, algorithm), {}).get(nbytes) for algorithm in algorithms}
        rows = measure(trial, count, algorithms, self._effort, False, rounds=1, known_us=known)
        for algorithm, row in rows.items():
            self._passes.add((name, algorithm or row.algorithm), nbytes, row.time_us.median, disturbed)
            if row.time_us.median > _LONGEST:
                self._limit[name, row.algorithm] = size

    def _measure_disturbed(self, progress: Progress) -> None:
        found: dict[tuple[str, int], list[str]] = {}
        for (name, algorithm), points in self._times.items():
            if name in self._trials:
                factor = self._trials[name].collective.total_bytes(1, self._comm.size, 1)
                for size in disturbed(points):
                    found.setdefault((name, size * factor), []).append(algorithm)
        for (name, size), algorithms in found.items():
            self._measure(name, size, algorithms, progress, disturbed=True)

    def _count(self, name: str, size: int) -> int:
        trial = self._trials[name]
        return trial.collective.count(size, self._comm.size, trial.dtype.size)

    def _between(self) -> dict[tuple[str, int], list[str]]:
        """Sizes between two that were measured, and which algorithms to measure at them.

        All algorithms where another one is the fastest at the two; an algorithm by itself where its times bend: the
        formula explains one size otherwise than those before and after it. A quarter of the way to the longer one:
        most bends are just above a power of two (one more page, or chunk), and what follows is straight.
        """
        found: dict[tuple[str, int], list[str]] = {}
        for name in self._names:
            trial = self._trials[name]
            factor = trial.collective.total_bytes(1, self._comm.size, 1)
            element = trial.dtype.size
            curves = {
                algorithm: self._times[name, algorithm]
                for algorithm in self._algorithms[name]
                if (name, algorithm) in self._times
            }
            main = sorted({size for points in curves.values() for size in points} - {0})
            best = [min(curves, key=lambda each: curves[each].get(size, float("inf"))) for size in main]
            gaps = [
                (here, there, [*curves])
                for here, there, a, b in zip(main, main[1:], best, best[1:])
                if curves[a].get(there, float("inf")) > _WORTH * curves[b][there]
            ]
            for algorithm, points in curves.items():
                gaps += [(here, there, [algorithm]) for here, there in self._bends(name, algorithm, points)]
            for here, there, algorithms in gaps:
                if there - here > element:
                    known = found.setdefault((name, _a_quarter_on(here, there, element) * factor), [])
                    known += [algorithm for algorithm in algorithms if algorithm not in known]
        return found

    def _bends(self, name: str, algorithm: str, points: dict[int, float]) -> Iterator[tuple[int, int]]:
        """The pairs of sizes between which times are not well known from those at the two."""
        trial = self._trials[name]
        formula = {size: trial.plan(size // trial.dtype.size, algorithm).predicted_us for size in points}
        self._comm.set_algorithm(None)
        sizes = [size for size in sorted(points) if formula[size] > 0]
        ratios = [log(points[size] / formula[size]) for size in sizes]
        for i in range(1, len(sizes) - 1):
            if abs(ratios[i] - (ratios[i - 1] + ratios[i + 1]) / 2) > _BEND:
                yield sizes[i - 1], sizes[i]
                yield sizes[i], sizes[i + 1]

    def _measured_between(self) -> dict[tuple[str, int], list[str]]:
        """What _between() said, from the times of earlier passes."""
        found: dict[tuple[str, int], list[str]] = {}
        for (name, algorithm), points in self._times.items():
            factor = self._trials[name].collective.total_bytes(1, self._comm.size, 1)
            for size in sorted(points.keys() - self._counts(name)):
                if algorithm in self._algorithms[name]:
                    found.setdefault((name, size * factor), []).append(algorithm)
        return found

    def _counts(self, name: str) -> set[int]:
        trial = self._trials[name]
        size = trial.dtype.size
        return {trial.collective.count(each, self._comm.size, size) * size for each in self._candidates}


def _a_quarter_on(here: int, there: int, element: int) -> int:
    """A size between two that are more than an element apart, in bytes of whole elements.

    >>> _a_quarter_on(4096, 8192, 4), _a_quarter_on(4, 16, 4)
    (5120, 8)
    """
    return here + -(-(there - here) // (4 * element)) * element


def finished(found: dict[str, Any]) -> dict[str, Any]:
    """A setting for a profile, of one that passes go on from."""
    return {key: value for key, value in found.items() if key not in (_TIMES, _KEPT)}


def passes_apart(found: dict[str, Any]) -> float | None:
    """How far the passes that a setting was found in are from each other: the median of all times. None: one pass."""
    distances = apart(times for _, _, _, times in found[_TIMES])
    return median(distances) if distances else None


def disturbed(points: dict[int, float]) -> list[int]:
    """The sizes whose times are hardly right: longer ones took less, or shorter ones less by more than their length.

    >>> disturbed({1024: 5.0, 2048: 30.0, 4096: 8.0, 8192: 80.0})
    [2048, 8192]
    """
    sizes = sorted(points)
    found = []
    for i, size in enumerate(sizes):
        longer = min((points[other] for other in sizes[i + 1 :]), default=float("inf"))
        before = sizes[i - 1] if i > 0 else 0
        in_proportion = points[before] * size / before if before else float("inf")
        if points[size] > _DISTURBED * min(longer, in_proportion):
            found.append(size)
    return found
