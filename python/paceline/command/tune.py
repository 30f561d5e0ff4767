"""`paceline tune`: measure this machine, fit the cost model to it, and find the fastest algorithms.

host_tune.py measures one number of ranks over one transport, gpu_tune.py GPUs. Ranks are started anew for each of
several passes, since where the kernel puts them matters as much as anything.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _native, interpreter, tuning
from ..communicator import Communicator
from ..cuda_driver import Gpu, device_count
from ..errors import Error, Unsupported
from ..launch import launch
from . import gpu_tune, host_tune
from .collectives import COLLECTIVES, collective_name
from .files import output_file, output_name, write_json
from .sizes import positive, rounded_size_text
from .sizes import size as parse_size
from .started import join, started_size

_PASSES = 5  # for so many the time is divided: how long a call is measured in one
_MOST_PASSES = 20  # as long as there is time
_TRANSPORTS = {"shm": "shm", "loopback": "tcp"}  # as profiles call it: PACELINE_TRANSPORT
_BUDGET = 150.0  # s, of measuring; with the starting of ranks it stays under three minutes
_GRACE = 0.1  # of it
_DISTURBED = 3.0  # times its share: a pass that takes longer was held up
_DOUBTFUL = 0.25  # passes that are so far apart were disturbed, too: 1 to 8% is usual
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
    add(
        "--output",
        type=output_name,
        metavar="F",
        help="the regular file to write (default: where communicators look for it)",
    )
    add("--seconds", type=positive, metavar="S",
        help=f"time to measure (default: {_BUDGET:.0f}; cuda: {gpu_tune.SECONDS})")  # fmt: skip
    add("--largest", type=parse_size, metavar="BYTES", help="longest message (default: 32M; cuda: 1G)")
    add("--json", type=output_file, metavar="F", help="write what was found to this file")
    add("--setting", metavar="F", help=argparse.SUPPRESS)
    parser.set_defaults(job=job, parser=parser)


def _counts(text: str) -> list[int]:
    return list(dict.fromkeys(positive(item) for item in text.split(",")))


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(map(collective_name, text.split(","))))
    for name in names:
        if name not in _COLLECTIVES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_COLLECTIVES)}")
    return names


def job(chosen: argparse.Namespace) -> int:
    on_gpus = chosen.device == "cuda"
    chosen.seconds = chosen.seconds or (gpu_tune.SECONDS if on_gpus else int(_BUDGET))
    if chosen.largest is None:
        chosen.largest = gpu_tune.LARGEST if on_gpus else host_tune.LARGEST
    elif chosen.largest == 0:
        chosen.parser.error("messages of 0 bytes have nothing to tune: give --largest at least 1")
    size = started_size(chosen.parser, chosen.ranks or [])
    started = size is not None
    if size == 1 or 1 in (chosen.ranks or []):
        chosen.parser.error("a collective among 1 rank is a copy: there is nothing to tune")
    if on_gpus:
        gpu_tune.refuse_impossible(chosen)
        return _measure_gpus(chosen) if started else _job_of_gpus(chosen)
    if started:
        return _measure(chosen)
    jobs, path = _jobs(chosen), _path(chosen)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    end = time.monotonic() + chosen.seconds
    taken: dict[tuple[str, int], float] = {}  # s
    for number in range(_MOST_PASSES):
        # Many ranks take longest: if the time is too short for all, fewer ranks fill what is left of it.
        for transport, ranks, seconds in sorted(jobs, key=lambda each: -each[1]):
            before = found.get((transport, ranks))
            begin = time.monotonic()
            # The second pass looks where the first has not, and may take a little longer; later ones make times surer.
            grace = _GRACE * chosen.seconds if number == 1 else 0.0
            # What took much longer than its share was disturbed, and needs a second pass more than others.
            needed = min(taken.get((transport, ranks), 0.0), _DISTURBED * seconds / _PASSES)
            if before is not None and begin + needed > end + grace:
                continue
            found[transport, ranks] = _launch(chosen, transport, ranks, seconds / _PASSES, before)
            taken[transport, ranks] = time.monotonic() - begin
    _finish(chosen, path, [found[transport, ranks] for transport, ranks, _ in jobs])
    print(_what_of_gpus(), end="")
    return 0


def _what_of_gpus() -> str:
    """What to do for this machine's GPUs, where there are several."""
    try:
        gpus = device_count()
    except Unsupported:
        gpus = 0
    return f"# not its {gpus} GPUs: paceline tune --device cuda\n" if gpus > 1 else ""


def _job_of_gpus(chosen: argparse.Namespace) -> int:
    path = _path(chosen)
    counts = gpu_tune.counts(chosen)
    found = []
    for ranks in counts:
        found.append(_launch(chosen, "cuda", ranks, chosen.seconds / len(counts), None))
        print(gpu_tune.report(found[-1]), flush=True)
    _finish(chosen, path, [], found)
    return 0


def _finish(
    chosen: argparse.Namespace, path: Path, found: Sequence[dict[str, Any]], gpus: Sequence[dict[str, Any]] = ()
) -> None:
    """Show what was found on CPUs, and save all of it."""
    for one in found:
        _show(one)
    settings = [host_tune.finished(one) for one in found]
    _save(path, settings, gpus)
    if chosen.json:
        seen = [{"kept": one["kept"], "passes_apart": host_tune.passes_apart(one)} for one in found]
        document = {
            "version": _native.version(),
            "host": socket.gethostname(),
            "device": chosen.device,
            "output": str(path),
            "settings": [{**setting, **more} for setting, more in zip(settings, seen, strict=True)],
            "gpus": list(gpus),
        }
        write_json(chosen.json, document)


def _save(path: Path, settings: Sequence[dict[str, Any]], gpus: Sequence[dict[str, Any]] = ()) -> None:
    for reason in tuning.merge(path, settings, gpus):
        print(f"paceline tune: {path} had a damaged part, which is left out: {reason}", file=sys.stderr)
    print(f"# written: {path}")


def _path(chosen: argparse.Namespace) -> Path:
    """The file to write. Before the measuring, which takes minutes, it is an error that it cannot be written."""
    path = chosen.output
    if path is None and not (path := tuning.tuning_file()["path"]):
        if tuning.is_off():
            raise Error("PACELINE_TUNING=off: give --output, or set it to the file to write")
        raise Error(f"{tuning.NO_FOLDER}: give --output, or set PACELINE_TUNING to the file to write")
    return tuning.saving_place(Path(path))


def _path_of_rank(chosen: argparse.Namespace, comm: Communicator) -> Path | None:
    """As `_path`, of rank 0 of a job that was started for the measuring; None: this rank saves no profile."""
    return _path(chosen) if comm.rank == 0 and not chosen.setting else None


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
) -> dict[str, Any]:
    """One pass of a setting; `before`: what earlier passes found, for it to go on from.

    Raises SystemExit with the exit code of the ranks where it is none of success: they have said why.
    """
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
        command = interpreter.paceline(*words)
        # Else the kernel's choice of CPUs is measured, another one in each pass; more ranks than CPUs are seldom bound.
        bind = transport != "cuda" and ranks <= len(os.sched_getaffinity(0))
        if code := launch(command, ranks, program="paceline tune", environment=environment, bind=bind):
            raise SystemExit(code)
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def _measure(chosen: argparse.Namespace) -> int:
    """One rank's part of a setting."""
    with join() as comm:
        path = _path_of_rank(chosen, comm)
        one = host_tune.HostTuning(comm, chosen, 1 if chosen.setting else _PASSES)
        if chosen.setting:
            before = Path(chosen.setting)
            found = one.pass_after(json.loads(before.read_text()) if before.exists() else one.calibrate())
        else:
            found = one.calibrate()
            taken = 0.0
            for number in range(_MOST_PASSES):
                if number and one.time_is_up(taken if number > 1 else 0.0):
                    break
                begin = time.monotonic()
                found = one.pass_after(found)
                taken = time.monotonic() - begin
        comm.barrier()  # before the file is written anew: every rank has read it
        if comm.rank == 0 and chosen.setting:
            Path(chosen.setting).write_text(json.dumps(found))
        elif path is not None:
            _finish(chosen, path, [found])
        comm.barrier()
    return 0


def _measure_gpus(chosen: argparse.Namespace) -> int:
    """One rank's part of a table."""
    with join(timeout=gpu_tune.TIMEOUT) as comm, Gpu(comm.node_rank % device_count()) as gpu:
        if comm.size > device_count():
            raise Error(f"{comm.size} ranks need as many GPUs: this machine shows {device_count()}")
        path = _path_of_rank(chosen, comm)
        one = gpu_tune.GpuTuning(comm, chosen.collectives, chosen.largest, chosen.seconds, gpu.free_bytes())
        found = one.run()
        if comm.rank == 0 and chosen.setting:
            Path(chosen.setting).write_text(json.dumps(found))
        elif path is not None:
            print(gpu_tune.report(found))
            _finish(chosen, path, [], [found])
        comm.barrier()
    return 0


def _show(found: dict[str, Any]) -> None:
    """Print what was found, and whether it is to be trusted."""
    apart = host_tune.passes_apart(found)
    print(_report(found, apart))
    if apart is not None and apart > _DOUBTFUL:
        print(
            f"paceline tune: {found['ranks']} ranks over {found['transport']}: the passes are {apart:.0%} apart: "
            "other programs had these CPUs, or the machine has just started; tune again when it is quiet",
            file=sys.stderr,
        )


def _report(found: dict[str, Any], apart: float | None) -> str:
    """What was found, for people."""
    passes = "1 pass" if apart is None else f"{found['passes']} passes, {apart:.0%} apart"
    model = found["model"]
    constants = {
        "start_us": f"start {model['start_us']:.2f} us",
        "call_us": f"call {model['call_us']:.2f} us",
        "step_us": f"step {model['step_us']:.3f} us",
        "bandwidth_gbs": f"{model['bandwidth_gbs']:.2f} GB/s between ranks",
        "reduce_gbs": f"{model['reduce_gbs']:.2f} GB/s folded",
        "copy_gbs": f"{model['copy_gbs']:.2f} GB/s copied",
        "duplex": f"{100 * model['duplex']:.0f}% both ways at once",
    }
    told = ", ".join(f"{text} (kept)" if key in found["kept"] else text for key, text in constants.items())
    lines = [
        f"# {found['ranks']} ranks over {found['transport']}: {told} "
        f"(model error {100 * found['model_error']:.0f}%; {passes})"
    ]
    for name in _COLLECTIVES:
        rows = [row for row in found["table"] if row["collective"] == name]
        if not rows:
            continue
        parts = [f"{_run(row)}{' below ' + rounded_size_text(row['below']) if 'below' in row else ''}" for row in rows]
        lines.append(f"  {name:<15} {', then '.join(parts)}")
    return "\n".join(lines)


def _run(row: dict[str, Any]) -> str:
    """What runs, by a row of the table."""
    ways = [f"chunks of {rounded_size_text(row['chunk'])}"] if "chunk" in row else []
    ways += [str(row["protocol"]).replace("_", " ")] if "protocol" in row else []
    return f"{row['algorithm']} ({', '.join(ways)})" if ways else str(row["algorithm"])
