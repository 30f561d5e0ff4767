"""`paceline bench`: measure collectives, in nccl-tests' columns."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .. import _native
from ..communicator import Communicator
from ..cuda_driver import Gpu, device_count
from ..datatypes import DATA_TYPES, OPERATIONS
from ..errors import InvalidArgument, Unsupported
from ..launch import launch_self
from ..trace import merge_events
from ..tuning import fields
from . import bench_table, plot
from .collectives import COLLECTIVES, Collective, collective_name
from .files import output_file, picture_file, write_json, write_text
from .gpu_trial import GpuTrial
from .measure import Effort, Row, measure
from .pattern import Pattern
from .progress import Progress
from .sizes import not_negative, positive, ranks_text, sizes
from .started import join, started_size
from .trial import HostTrial, Trial

_DEFAULT_SIZES = "8,64,512,4K,32K,256K,2M,16M,64M"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        allow_abbrev=False,
        help="measure collectives, in nccl-tests' columns",
        description="Measure collectives. Each time is that of a call's slowest rank; median, minimum and maximum are "
        "over calls. Sizes mean what they mean in nccl-tests: all ranks' parts together where each rank has a part. "
        "Starts RANKS ranks on this machine, or joins the job when started by torchrun, mpirun, srun or paceline run.",
        epilog="example: paceline bench all_reduce broadcast -n 4 --sizes 8:64M:x8 --algorithm all --check",
    )
    add = parser.add_argument
    add("collectives", nargs="+", type=collective_name, metavar="COLLECTIVE", choices=[*COLLECTIVES, "all"],
        help=f"{', '.join(COLLECTIVES)}, or all")  # fmt: skip
    add("-n", "--ranks", type=positive,
        help="how many ranks to start (default: one for each CPU, at least 2; cuda: each GPU)")  # fmt: skip
    add("--size", "--sizes", dest="sizes", type=sizes, default=sizes(_DEFAULT_SIZES), metavar="LIST",
        help=f"bytes, as 8,64K,1M or 8:64M:x8 (default: {_DEFAULT_SIZES})")  # fmt: skip
    add(
        "--dtype",
        choices=DATA_TYPES,
        default="float32",
        metavar="T",
        help=f"{', '.join(DATA_TYPES)} (default: float32)",
    )
    add("--op", choices=[*OPERATIONS, "premulsum"], default="sum", metavar="O",
        help=f"{', '.join(OPERATIONS)}, premulsum (default: sum)")  # fmt: skip
    add("--root", type=int, default=0, metavar="R", help="root of broadcast, reduce, gather and scatter (default: 0)")
    add("--algorithm", metavar="NAME",
        help="force one, as ring or 'knomial radix=4'; all: every one that applies, side by side "
        "(default: chosen)")  # fmt: skip
    add("--device", choices=["cpu", "cuda"], default="cpu",
        help="whose memory; cuda: a node's ranks use its GPUs in turn (default: cpu)")  # fmt: skip
    add("--graph", action="store_true", help="with --device cuda: time calls in CUDA graphs, not launched one by one")
    add("--check", action="store_true", help="check a result of every row bit for bit; exit code 1 if any is wrong")
    add("--iterations", type=positive, metavar="N", help="timed calls a row (default: as many as fit into 0.25 s)")
    add("--warmup", type=not_negative, metavar="N", help="calls before them (default: by time)")
    add("--json", type=output_file, metavar="F", help="write the rows to this file")
    add("--plot", type=picture_file, metavar="F",
        help="draw latency and bandwidth against size to this file (needs matplotlib)")  # fmt: skip
    add("--trace", type=output_file, metavar="F",
        help="record what each rank's steps did when, for Perfetto (5 calls a row)")  # fmt: skip
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    _refuse_impossible(chosen)
    on_gpus = chosen.device == "cuda"
    if started_size(chosen.parser, [chosen.ranks] if chosen.ranks else []) is None:
        ranks = chosen.ranks or (device_count() if on_gpus else max(2, len(os.sched_getaffinity(0))))
        if not 0 <= chosen.root < ranks:
            chosen.parser.error(f"--root {chosen.root} is none of {ranks_text(ranks)}")
        return launch_self(chosen.words, ranks, "paceline bench")
    with join() as comm:
        if not on_gpus:
            return _Bench(comm, chosen, HostTrial, "cpu").run()
        with Gpu(comm.node_rank % device_count()) as gpu:
            device = f"cuda, {gpu.name}, {'in graphs' if chosen.graph else 'eager'}"
            return _Bench(comm, chosen, partial(GpuTrial, graphs=chosen.graph), device).run()


def _refuse_impossible(chosen: argparse.Namespace) -> None:
    """What can be told before any rank is started."""
    if chosen.device == "cuda":
        try:
            found = device_count()
        except Unsupported as error:
            chosen.parser.error(f"--device cuda: {error}")
        if found == 0:
            chosen.parser.error("--device cuda: this machine shows no GPU")
        if chosen.trace:
            chosen.parser.error("--trace shows the steps of the host's engine: leave --device cuda out")
    elif chosen.graph:
        chosen.parser.error("--graph needs --device cuda")
    if chosen.plot and plot.missing():
        chosen.parser.error(str(plot.missing()))
    if chosen.algorithm not in (None, "all"):
        _refuse_unknown(chosen)


def _refuse_unknown(chosen: argparse.Namespace) -> None:
    """An algorithm, however it is to run, that there is not or that serves nothing asked for."""
    table = algorithm_table()
    try:
        name = fields(chosen.algorithm)["algorithm"]
    except InvalidArgument as error:
        chosen.parser.error(f"--algorithm: {error}")
    names = [row["name"] for row in table]
    if name not in names:
        chosen.parser.error(f"there is no algorithm {name!r}: take one of {', '.join(names)}, or all")
    asked = set(COLLECTIVES if "all" in chosen.collectives else chosen.collectives)
    serving = [row["name"] for row in table if asked & set(row["collectives"])]
    if name not in serving:
        chosen.parser.error(
            f"{name} does not serve {' or '.join(dict.fromkeys(chosen.collectives))}: take one of "
            f"{', '.join(serving)}, or all"
        )


def algorithm_table() -> list[dict[str, Any]]:
    """The library's table of algorithms: name, sentence, collectives, measured, radix and topology (it has one)."""
    found: list[dict[str, Any]] = json.loads(_native.library().paceDescribe(b"algorithms"))
    return found


class _Bench:
    """One rank's part of the bench. All ranks do the same; rank 0 shows and writes."""

    def __init__(
        self, comm: Communicator, chosen: argparse.Namespace, make_trial: Callable[..., Trial], device: str
    ) -> None:
        if not 0 <= chosen.root < comm.size:
            raise InvalidArgument(f"--root {chosen.root} is none of {ranks_text(comm.size)}")
        self._comm, self._chosen, self._make_trial = comm, chosen, make_trial
        names = list(COLLECTIVES) if "all" in chosen.collectives else list(dict.fromkeys(chosen.collectives))
        self._collectives = [COLLECTIVES[name] for name in names]
        self._dtype = DATA_TYPES[chosen.dtype]
        self._pattern = Pattern(self._dtype, chosen.op, comm.size)
        self._title = bench_table.title(_native.version(), comm.size, socket.gethostname(), device)
        calls = chosen.iterations or (5 if chosen.trace else None)
        self._effort = Effort(calls, chosen.warmup)
        self._rows: list[Row] = []

    def run(self) -> int:
        self._show(self._title)
        if self._chosen.trace:
            with tempfile.TemporaryDirectory() as folder:
                mine = str(Path(folder) / "trace.json")
                with self._comm.trace(mine):
                    self._measure_all()
                self._write_trace(Path(mine).read_bytes())
        else:
            self._measure_all()
        if self._comm.rank == 0:
            self._write_results()
        return 1 if any(row.wrong for row in self._rows) or not self._asked_ran(self._rows) else 0

    def _measure_all(self) -> None:
        parts = sum(len(self._counts(each)) * len(self._candidates(each)) for each in self._collectives)
        with Progress(parts * (1 if self._chosen.algorithm != "all" else 3), self._comm.rank == 0) as progress:
            for collective in self._collectives:
                counts = self._counts(collective)
                trial = self._make_trial(self._comm, collective, self._pattern, self._chosen.root, max(counts))
                progress.clear()
                self._show(bench_table.heading(collective.name))
                for count in counts:
                    check = self._chosen.check
                    rows = [
                        *measure(
                            trial, count, self._candidates(collective), self._effort, check, progress.step
                        ).values()
                    ]
                    progress.clear()
                    for row in rows:
                        self._show(bench_table.line(row, self._chosen.algorithm == "all"))
                    self._rows.extend(rows)
                self._tell_of_others(collective)

    def _tell_of_others(self, collective: Collective) -> None:
        """A forced algorithm may not serve the collective, or so many ranks."""
        rows = [row for row in self._rows if row.collective == collective.name]
        if self._comm.rank == 0 and not self._asked_ran(rows):
            name = self._chosen.algorithm.partition(" ")[0]
            why = f"does not serve {collective.name} on {ranks_text(self._comm.size)}"
            if "PACELINE_TOPOLOGY" not in os.environ and any(
                row["topology"] for row in algorithm_table() if row["name"] == name
            ):
                why = "goes by a topology, and none is known (PACELINE_TOPOLOGY)"
            print(f"# {name} {why}: others ran", file=sys.stderr)

    def _asked_ran(self, rows: list[Row]) -> bool:
        """Whether some row is of the algorithm that was asked for, if one was."""
        asked = self._chosen.algorithm
        return asked in (None, "all") or any(row.algorithm == asked.partition(" ")[0] for row in rows)

    def _counts(self, collective: Collective) -> list[int]:
        if collective.name == "barrier":
            return [0]
        counts = (collective.count(size, self._comm.size, self._dtype.size) for size in self._chosen.sizes)
        return list(dict.fromkeys(counts))  # small sizes may come to the same

    def _candidates(self, collective: Collective) -> list[str | None]:
        if self._chosen.algorithm != "all":
            return [self._chosen.algorithm]
        names: list[str | None] = [row["name"] for row in algorithm_table() if collective.name in row["collectives"]]
        return [None, *names] if self._chosen.device == "cuda" else names  # GPUs choose what is in no table

    def _show(self, text: str) -> None:
        if self._comm.rank == 0:
            print(text, flush=True)

    def _write_results(self) -> None:
        if self._chosen.json:
            document = {
                "version": _native.version(),
                "host": socket.gethostname(),
                "device": self._chosen.device,
                "graphs": self._chosen.graph,
                "ranks": self._comm.size,
                "rows": [row.to_json() for row in self._rows],
            }
            write_json(self._chosen.json, document)
        if self._chosen.plot:
            plot.draw(self._rows, self._title.removeprefix("# "), self._chosen.plot)

    def _write_trace(self, mine: bytes) -> None:
        """Gather every rank's events on rank 0, which may be on another node, and write them as one."""
        comm = self._comm
        lengths = array("q", bytes(8 * comm.size))
        comm.all_gather(array("q", [len(mine)]), out=lengths)
        longest = max(lengths)
        everyone = bytearray(longest * comm.size) if comm.rank == 0 else None
        comm.gather(mine.ljust(longest), out=everyone)
        if everyone is not None:
            texts = (everyone[rank * longest : (rank + 1) * longest] for rank in range(comm.size))
            write_text(self._chosen.trace, json.dumps(merge_events(json.loads(text) for text in texts)))
            print(f"# trace: {self._chosen.trace}, open it in https://ui.perfetto.dev", file=sys.stderr)
