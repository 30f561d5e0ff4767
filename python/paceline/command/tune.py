"""`paceline tune`: measure this machine, fit the cost model to it, and find the fastest algorithms.

For each transport and number of ranks, all ranks together:
  1. Calibration: every algorithm of every collective at a few sizes, as planned by the untuned model. From the times
     come the model's constants: start-up, step, bandwidth, reduction, copies, and what goes on side by side.
  2. Candidates: the same with the fitted model, at many sizes. From the second pass on also half way between two sizes
     of which another algorithm was the fastest, or where an algorithm's times bend; and, of long messages' fastest
     algorithms, shorter and longer chunks and, inside a node, both protocols.
Ranks are started anew for each of several passes, since where the kernel puts them matters as much as anything. A time
is the least of the passes' medians: a disturbance only adds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from math import log, sqrt
from pathlib import Path
from typing import Any

from .. import tuning
from ..communicator import Communicator
from ..cuda_driver import Gpu, device_count
from ..datatypes import DATA_TYPES
from ..errors import Error
from ..joining import init
from ..launch import launch, launched_size
from . import gpu_tune
from .bench import algorithm_table
from .collectives import COLLECTIVES
from .measure import Effort, measure, settle
from .pattern import Pattern
from .progress import Progress
from .sizes import positive, size_text
from .sizes import size as parse_size
from .trial import HostTrial

_CALIBRATION = [8, 1 << 10, 16 << 10, 256 << 10, 4 << 20]
_CANDIDATES = [8, 32, 64, *(1 << k for k in range(8, 24)), 32 << 20]
_VARIED = 64 << 10  # from this size on chunks and protocols are tried
_CHUNKS = (0.25, 0.5, 2, 4)  # times the algorithm's own
_PROTOCOLS = ("staged", "single_copy")
_SHORTEST, _GRAIN = 4096, 256  # bytes: a chunk is at least, and a multiple of
_PASSES = 5
_SETTLING = 0.2  # s, of short calls before anything is measured
_LEAST = 3  # calls in a pass: of long messages no more fit
_TRANSPORTS = {"shm": "shm", "loopback": "tcp"}  # as profiles call it: PACELINE_TRANSPORT
_BUDGET = 150.0  # s, of measuring; with the starting of ranks it stays under three minutes
_GRACE = 0.1  # of it
_LONGEST = 30_000.0  # us; no longer calls are made, as of long messages on slow links: their times grow with the size
_BEND = 0.12  # of ln: how far from the middle of its neighbours a time may be, as a ratio to the formula's
_WORTH = 1.05  # a change of algorithm that gains less than this is not looked into
_COLLECTIVES = [name for name in COLLECTIVES if name != "barrier"]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "tune",
        allow_abbrev=False,
        help="measure this machine and save what is fastest",
        description="Measure every algorithm on this machine, fit the cost model to it, and save both: communicators "
        "on this machine then choose by what was measured. Takes less than three minutes. Started by torchrun, mpirun, "
        "srun or `paceline run` it measures the job as it is. With --device cuda it measures in which way the GPUs run "
        "each collective fastest, and saves that.",
        epilog="example: paceline tune -n 2,4",
    )
    add = parser.add_argument
    add("-n", "--ranks", type=_counts, metavar="LIST",
        help="numbers of ranks (default: 2, 4, ... up to the CPUs; cuda: the GPUs)")  # fmt: skip
    add("--collectives", type=_names, default=_COLLECTIVES, metavar="LIST", help="what to measure (default: all)")
    add("--transport", choices=[*_TRANSPORTS, "all"], default="all", help="what to measure (default: all)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="whose memory (default: cpu)")
    add("--output", metavar="F", help="the file to write (default: where communicators look for it)")
    add("--seconds", type=positive, metavar="S",
        help=f"time to measure (default: {_BUDGET:.0f}; cuda: {gpu_tune.SECONDS})")  # fmt: skip
    add("--largest", type=parse_size, metavar="BYTES", help="longest message (default: 32M; cuda: 1G)")
    add("--setting", metavar="F", help=argparse.SUPPRESS)
    parser.set_defaults(job=job, parser=parser)


def _counts(text: str) -> list[int]:
    return [positive(item) for item in text.split(",")]


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in _COLLECTIVES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_COLLECTIVES)}")
    return names


def job(chosen: argparse.Namespace) -> int:
    on_gpus = chosen.device == "cuda"
    chosen.seconds = chosen.seconds or (gpu_tune.SECONDS if on_gpus else int(_BUDGET))
    chosen.largest = chosen.largest or (gpu_tune.LARGEST if on_gpus else _CANDIDATES[-1])
    if 1 in (chosen.ranks or []):
        chosen.parser.error("a collective among 1 rank is a copy: there is nothing to tune")
    if on_gpus:
        gpu_tune.refuse_impossible(chosen)
        return _measure_gpus(chosen) if launched_size() is not None else _job_of_gpus(chosen)
    if launched_size() is not None:
        return _measure(chosen)
    jobs, path = _jobs(chosen), _path(chosen)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    end = time.monotonic() + chosen.seconds
    taken: dict[tuple[str, int], float] = {}  # s
    for number in range(_PASSES):
        # Many ranks take longest: if the time is too short for all, fewer ranks fill what is left of it.
        for transport, ranks, seconds in sorted(jobs, key=lambda each: -each[1]):
            before = found.get((transport, ranks))
            begin = time.monotonic()
            # The second pass looks where the first has not, and may take a little longer; later ones make times surer.
            grace = _GRACE * chosen.seconds if number == 1 else 0.0
            if before is not None and begin + taken[transport, ranks] > end + grace:
                continue
            setting = _launch(chosen, transport, ranks, seconds / _PASSES, before)
            if setting is None:
                return 1
            found[transport, ranks] = setting
            taken[transport, ranks] = time.monotonic() - begin
    settings = [found[transport, ranks] for transport, ranks, _ in jobs]
    for setting in settings:
        print(_report(setting))
    tuning.merge(path, settings)
    print(f"# written: {path}")
    return 0


def _job_of_gpus(chosen: argparse.Namespace) -> int:
    path = _path(chosen)
    counts = gpu_tune.counts(chosen)
    found = []
    for ranks in counts:
        setting = _launch(chosen, "cuda", ranks, chosen.seconds / len(counts), None)
        if setting is None:
            return 1
        found.append(setting)
        print(gpu_tune.report(setting), flush=True)
    tuning.merge(path, [], found)
    print(f"# written: {path}")
    return 0


def _path(chosen: argparse.Namespace) -> Path:
    path = chosen.output or tuning.tuning_file()["path"]
    if not path:
        raise Error("PACELINE_TUNING=off: give --output, or set it to the file to write")
    return Path(path)


def _jobs(chosen: argparse.Namespace) -> list[tuple[str, int, float]]:
    """Transport, ranks and seconds of each."""
    cpus = len(os.sched_getaffinity(0))
    counts = chosen.ranks or sorted({2, *(1 << k for k in range(1, 20) if 1 << k <= cpus), cpus} - {1})
    transports = list(_TRANSPORTS) if chosen.transport == "all" else [chosen.transport]
    # Loopback is for trying TCP out; more ranks of it would take the time of what jobs run on.
    pairs = [
        (transport, ranks)
        for transport in transports
        for ranks in counts
        if chosen.ranks or transport == "shm" or ranks <= 4
    ]
    return [(transport, ranks, chosen.seconds / len(pairs)) for transport, ranks in pairs]


def _launch(
    chosen: argparse.Namespace, transport: str, ranks: int, seconds: float, before: dict[str, Any] | None
) -> dict[str, Any] | None:
    """One pass of a setting; `before`: what earlier passes found, for it to go on from. None: a rank failed."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "setting.json"
        if before is not None:
            result.write_text(json.dumps(before))
        words = ["tune", "--setting", str(result), "--seconds", str(max(1, round(seconds)))]
        words += ["--largest", str(chosen.largest), "--collectives", ",".join(chosen.collectives)]
        if transport == "cuda":
            words += ["--device", "cuda"]
            environment = dict(os.environ, PACELINE_TUNING="off")
        else:
            environment = dict(os.environ, PACELINE_TRANSPORT=_TRANSPORTS[transport])
        command = [sys.executable, "-m", "paceline", *words]
        if launch(command, ranks, program="paceline tune", environment=environment) != 0:
            return None
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def _measure(chosen: argparse.Namespace) -> int:
    """One rank's part of a setting."""
    with init() as comm:
        one = Tuning(comm, chosen, 1 if chosen.setting else _PASSES)
        if chosen.setting:
            path = Path(chosen.setting)
            found = one.pass_after(json.loads(path.read_text()) if path.exists() else one.calibrate())
        else:
            found = one.calibrate()
            for number in range(_PASSES):
                if number and one.time_is_up():
                    break
                found = one.pass_after(found)
        comm.barrier()  # before the file is written anew: every rank has read it
        if comm.rank == 0 and chosen.setting:
            Path(chosen.setting).write_text(json.dumps(found))
        elif comm.rank == 0:
            path = _path(chosen)
            tuning.merge(path, [found])
            print(_report(found))
            print(f"# written: {path}")
        comm.barrier()
    return 0


def _measure_gpus(chosen: argparse.Namespace) -> int:
    """One rank's part of a table."""
    with init(timeout=gpu_tune.TIMEOUT) as comm, Gpu(comm.node_rank % device_count()) as gpu:
        if comm.size > device_count():
            raise Error(f"{comm.size} ranks need as many GPUs: this machine shows {device_count()}")
        one = gpu_tune.GpuTuning(comm, chosen.collectives, chosen.largest, chosen.seconds, gpu.free_bytes())
        found = one.run()
        if comm.rank == 0 and chosen.setting:
            Path(chosen.setting).write_text(json.dumps(found))
        elif comm.rank == 0:
            path = _path(chosen)
            tuning.merge(path, [], [found])
            print(gpu_tune.report(found))
            print(f"# written: {path}")
        comm.barrier()
    return 0


class Tuning:
    """The measuring of one communicator. All ranks do the same and end with the same setting."""

    def __init__(self, comm: Communicator, chosen: argparse.Namespace, passes: int) -> None:
        largest, self._names = chosen.largest, chosen.collectives
        self._comm = comm
        self._end = time.monotonic() + chosen.seconds
        dtype = DATA_TYPES["float32"]
        self._candidates = [size for size in _CANDIDATES if size <= largest] or [largest]
        self._calibration = [size for size in _CALIBRATION if size <= largest] or [largest]
        self._trials = {}
        for name in self._names:
            collective = COLLECTIVES[name]
            most = collective.count(self._candidates[-1], comm.size, dtype.size)
            self._trials[name] = HostTrial(comm, collective, Pattern(dtype, "sum", comm.size), 0, most)
        table = algorithm_table()
        self._algorithms = {name: [row["name"] for row in table if name in row["collectives"]] for name in self._names}
        rows = sum(map(len, self._algorithms.values())) * (len(self._calibration) + passes * len(self._candidates))
        varied = sum(size >= _VARIED for size in self._candidates)
        rows += passes * len(self._names) * varied * (len(_CHUNKS) + len(_PROTOCOLS))
        # Warming up and the slow calls of long messages take about as long as the timed calls.
        self._effort = Effort(seconds=min(0.05, max(0.002, 0.4 * chosen.seconds / rows)), least=_LEAST)
        self._times: tuning.Times = {}
        self._longest = 0  # chunk, bytes
        self._limit: dict[tuple[str, str], int] = {}  # of a collective's algorithm: the largest size for this pass

    def calibrate(self) -> dict[str, Any]:
        """A setting with the fitted model, and no times yet."""
        tuning.use(self._comm, None)
        settle(self._trials[self._names[0]], _SETTLING)
        with self._progress(self._calibration) as progress:
            self._pass(self._calibration, progress)
        fitted = tuning.setting(self._comm, self._times, fit=True)
        self._times = {}
        return {**fitted, "passes": 0, "measured": [], "table": []}

    def pass_after(self, before: dict[str, Any]) -> dict[str, Any]:
        """The setting, with the times of one more pass."""
        self._times = {(row["collective"], tuning.algorithm(row)): dict(row["points"]) for row in before["measured"]}
        self._longest = before["model"]["largest_chunk"]
        self._limit = {}
        tuning.use(self._comm, tuning.profile([{**before, "measured": [], "table": []}]))
        # Found once, so that later passes measure them as often as all others.
        between = self._between() if before["passes"] == 1 else self._measured_between()
        settle(self._trials[self._names[0]], _SETTLING)
        with self._progress(self._candidates) as progress:
            self._pass(self._candidates, progress)
            if before["passes"] > 0:
                for (name, size), algorithms in between.items():
                    self._measure(name, size, algorithms, progress)
                for name, size in itertools.product(self._names, self._candidates):
                    if size >= _VARIED:
                        self._variants(name, size, progress)
        found = tuning.setting(self._comm, self._times, fit=False)
        return {**found, "passes": before["passes"] + 1, "model_error": before["model_error"]}

    def time_is_up(self) -> bool:
        """Whether rank 0's time is: all ranks say the same."""
        late = array("q", [int(time.monotonic() > self._end)])
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
        """One collective at one size, with its fastest algorithm run in other ways."""
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
        plan = self._trials[name].plan(count, fastest)
        longest = min(nbytes, self._longest)
        chunks = {int(plan.chunk_bytes * factor) // _GRAIN * _GRAIN for factor in _CHUNKS}
        ways = [f"chunk={chunk}" for chunk in sorted(chunks) if _SHORTEST <= chunk <= longest]
        if plan.transport == "shm":
            ways += [f"protocol={protocol}" for protocol in _PROTOCOLS]
        self._measure(name, size, [f"{fastest} {way}" for way in ways], progress)

    def _measure(self, name: str, size: int, algorithms: Sequence[str], progress: Progress) -> None:
        progress.step(f"{self._comm.size} ranks: {name} {size_text(size)}")
        if not algorithms:
            return
        trial, count = self._trials[name], self._count(name, size)
        nbytes = count * trial.dtype.size
        self._comm.set_algorithm(None)
        for algorithm, row in measure(trial, count, algorithms, self._effort, False, rounds=1).items():
            points = self._times.setdefault((name, algorithm or row.algorithm), {})
            points[nbytes] = min(points.get(nbytes, row.time_us.median), row.time_us.median)
            if row.time_us.median > _LONGEST:
                self._limit[name, row.algorithm] = size

    def _count(self, name: str, size: int) -> int:
        trial = self._trials[name]
        return trial.collective.count(size, self._comm.size, trial.dtype.size)

    def _between(self) -> dict[tuple[str, int], list[str]]:
        """Sizes half way between two that were measured, and which algorithms to measure at them.

        All algorithms where another one is the fastest at the two; an algorithm by itself where its times bend: the
        formula explains one size otherwise than those before and after it.
        """
        found: dict[tuple[str, int], list[str]] = {}
        for name in self._names:
            trial = self._trials[name]
            factor = trial.collective.total_bytes(1, self._comm.size, 1)
            curves = {
                algorithm: self._times[name, algorithm]
                for algorithm in self._algorithms[name]
                if (name, algorithm) in self._times
            }
            main = sorted({size for points in curves.values() for size in points} - {0})
            best = [min(curves, key=lambda each: curves[each].get(size, float("inf"))) for size in main]
            for here, there, a, b in zip(main, main[1:], best, best[1:]):
                if curves[a].get(there, float("inf")) > _WORTH * curves[b][there]:
                    found[name, int(sqrt(here * there)) * factor] = [*curves]
            for algorithm, points in curves.items():
                for here, there in self._bends(name, algorithm, points):
                    algorithms = found.setdefault((name, int(sqrt(here * there)) * factor), [])
                    if algorithm not in algorithms:
                        algorithms.append(algorithm)
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


def _report(found: dict[str, Any]) -> str:
    """What was found, for people."""
    model = found["model"]
    lines = [
        f"# {found['ranks']} ranks over {found['transport']}: start {model['start_us']:.2f} us, "
        f"step {model['step_us']:.3f} us, {model['bandwidth_gbs']:.2f} GB/s between ranks, "
        f"{model['reduce_gbs']:.2f} GB/s folded, {model['copy_gbs']:.2f} GB/s copied, "
        f"{100 * model['duplex']:.0f}% both ways at once (model error {100 * found['model_error']:.0f}%)"
    ]
    for name in _COLLECTIVES:
        rows = [row for row in found["table"] if row["collective"] == name]
        if not rows:
            continue
        parts = [f"{_run(row)}{' below ' + _rounded(row['below']) if 'below' in row else ''}" for row in rows]
        lines.append(f"  {name:<15} {', then '.join(parts)}")
    return "\n".join(lines)


def _run(row: dict[str, Any]) -> str:
    """What runs, by a row of the table."""
    ways = [f"chunks of {_rounded(row['chunk'])}"] if "chunk" in row else []
    ways += [str(row["protocol"]).replace("_", " ")] if "protocol" in row else []
    return f"{row['algorithm']} ({', '.join(ways)})" if ways else str(row["algorithm"])


def _rounded(nbytes: int) -> str:
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.3g}{unit}"
    return f"{nbytes}B"
