#!/usr/bin/env python3
"""Run NVIDIA's nccl-tests, as they are, on Paceline's libnccl.so.2: are the results right, and are they faster?

    python bench/nccl_tests.py DIRECTORY --gpus 2 --json nccl_tests.json
    python bench/nccl_tests.py DIRECTORY --gpus 2 --quick              # within 90 s

DIRECTORY holds nccl-tests' programs, built for NCCL 2.28 or later: NAME_perf, and NAME_perf_mpi for one process a GPU
under mpirun (those built with MPI=1 NAME_SUFFIX=_mpi).

First every program with `-c 1`: all types and operations, 8 B to 1 GB, in and out of place; one thread for all GPUs, a
thread a GPU and a process a GPU; one by one and in CUDA graphs. Then their times on Paceline and on NCCL, in turn;
shown is the fastest of the rounds, and the ratio NCCL / Paceline. NCCL_DEBUG's line in the output proves who served.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from paceline.command.files import output_file
from paceline.door import describe_nccl, nccl_environment

# Program, and the service of Paceline's that it asks for (plugins/nccl/services.h).
PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "gather": "gather",
    "scatter": "scatter",
    "alltoallv": "send_recv",
    "hypercube": "send_recv",
}
WAYS = ("one thread", "threads", "processes")
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0"}
EVERYTHING = ("-d", "all", "-o", "all")
ONE_GIGABYTE = ("-b", "8", "-e", "1G", "-f", "8")


@dataclass(frozen=True)
class Case:
    program: str
    way: str
    graph: bool
    options: tuple[str, ...]
    purpose: str  # "check", or "time"

    def __str__(self) -> str:
        return f"{self.program}, {self.way}, {'graph' if self.graph else 'stream'}, {' '.join(self.options)}"


@dataclass
class Row:
    """A line of nccl-tests' table."""

    bytes: int
    type: str
    operation: str
    root: int
    microseconds: tuple[float, float]  # out of place, in place
    wrong: tuple[int | None, int | None]  # None: nccl-tests does not look


@dataclass
class Run:
    case: Case
    library: str
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    trouble: str = ""  # empty: the program ended well, and was served by whom it should be
    excused: int = 0  # rows that are wrong on NCCL too

    @property
    def wrong(self) -> int:
        return sum(count or 0 for row in self.rows for count in row.wrong)


def checks(quick: bool) -> Iterator[Case]:
    """What is checked, the widest first."""
    few = ("-n", "1", "-w", "0", "-c", "1")
    for program in PROGRAMS:
        sizes = ("-b", "8", "-e", "2M", "-f", "8") if quick else ONE_GIGABYTE
        yield Case(program, "one thread", False, (*EVERYTHING, *sizes, *few), "check")
    for program in PROGRAMS:
        yield Case(program, "threads", True, (*ONE_GIGABYTE, *few), "check")
    for program in ["all_reduce", "alltoall", "sendrecv"] if quick else PROGRAMS:
        yield Case(program, "processes", False, (*ONE_GIGABYTE, *few), "check")
    if quick:
        return
    for program in PROGRAMS:
        yield Case(program, "threads", False, (*EVERYTHING, "-b", "8", "-e", "16M", "-f", "8", *few), "check")
        yield Case(program, "processes", True, (*EVERYTHING, "-b", "8", "-e", "16M", "-f", "8", *few), "check")
        yield Case(program, "one thread", True, (*ONE_GIGABYTE, *few), "check")
    for program in ("broadcast", "reduce", "gather", "scatter"):
        yield Case(program, "one thread", False, ("-r", "-1", "-b", "8", "-e", "16M", "-f", "8", *few), "check")
    yield Case("all_reduce", "threads", False, ("-p", "1", *ONE_GIGABYTE, *few), "check")  # made by their own threads
    yield Case("all_reduce", "threads", False, ("-u", "1", *ONE_GIGABYTE, *few), "check")  # not aligned
    yield Case("all_reduce", "threads", False, ("-m", "4", *ONE_GIGABYTE, *few), "check")  # several calls in a group
    for registered in ("1", "2"):  # buffers, windows
        yield Case("all_reduce", "threads", False, ("-R", registered, *ONE_GIGABYTE, *few), "check")


def timings(quick: bool) -> Iterator[Case]:
    many = ("-n", "20", "-w", "2", "-c", "0")
    sizes = ("-b", "8", "-e", "256M", "-f", "32") if quick else ONE_GIGABYTE
    for program in ["all_reduce"] if quick else PROGRAMS:
        for graph in (True, False):
            yield Case(program, "threads", graph, (*sizes, *many), "time")
    if not quick:
        yield Case("all_reduce", "processes", False, (*sizes, *many), "time")


def command_of(case: Case, directory: Path, gpus: int, variables: dict[str, str]) -> list[str]:
    graph = ["-G", "3"] if case.graph else []
    if case.way == "processes":
        exported = [word for name in variables for word in ("-x", name)]
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        mpirun += ["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", "-np", str(gpus), *exported]
        return [*mpirun, str(directory / f"{case.program}_perf_mpi"), "-g", "1", *graph, *case.options]
    split = ["-t", str(gpus), "-g", "1"] if case.way == "threads" else ["-t", "1", "-g", str(gpus)]
    return [str(directory / f"{case.program}_perf"), *split, *graph, *case.options]


def variables_of(library: str, nccl: str) -> dict[str, str]:
    """The variables under which a program runs on "paceline" or on "nccl"."""
    folder = str(Path(nccl).parent)
    found = os.environ.get("LD_LIBRARY_PATH", "")
    variables = {**WITHOUT_MULTICAST, "LD_LIBRARY_PATH": f"{folder}:{found}" if found else folder}
    if library == "paceline":
        variables |= {**nccl_environment(), "PACELINE_NCCL_LIBRARY": nccl, "NCCL_DEBUG": "VERSION"}
    return variables


def parse(output: str) -> list[Row]:
    """The table: size count type redop root, then time algbw busbw #wrong out of place and in place.

    hypercube_perf leaves redop empty.

    >>> parse("  8   2  float  sum  -1  12.34  0.00  0.00  0  11.05  0.00  0.00  N/A")
    [Row(bytes=8, type='float', operation='sum', root=-1, microseconds=(12.34, 11.05), wrong=(0, None))]
    >>> parse("  64  8  float  -1  55.86  0.00  0.00  0  8.47  0.03  0.03  0")
    [Row(bytes=64, type='float', operation='', root=-1, microseconds=(55.86, 8.47), wrong=(0, 0))]
    """
    rows = []
    for line in output.splitlines():
        words = line.split()
        if len(words) == 12:
            words.insert(3, "")
        if len(words) != 13 or not words[0].isdigit() or not words[1].isdigit():
            continue
        wrong = tuple(None if word == "N/A" else int(float(word)) for word in (words[8], words[12]))
        times = (float(words[5]), float(words[9]))
        rows.append(Row(int(words[0]), words[2], words[3], int(words[4]), times, (wrong[0], wrong[1])))
    return rows


def why_not_served(output: str, case: Case) -> str:
    """Empty: Paceline's library says that it served the program's calls, and no communicator became NCCL's."""
    said = re.search(r"\[paceline\] NCCL INFO Paceline [^\n]*: Paceline serves ([^;\n]*); NCCL the rest", output)
    if said is None:
        return "no line of Paceline's in the output: its library was not loaded, or handed all calls to NCCL"
    if PROGRAMS[case.program] not in said.group(1).split(", "):
        return f"forwarded: Paceline served {said.group(1)}"
    handed = re.search(r"\[paceline\] NCCL INFO [^\n]*NCCL serves all its calls[^\n]*", output)
    return handed.group(0) if handed else ""


def run(case: Case, library: str, chosen: argparse.Namespace) -> Run:
    variables = variables_of(library, chosen.nccl)
    begin = time.monotonic()
    done = Run(case, library)
    program = subprocess.Popen(
        command_of(case, chosen.directory, chosen.gpus, variables),
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that mpirun's ranks end with it
    )
    try:
        output, _ = program.communicate(timeout=chosen.timeout)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        output, _ = program.communicate()
        done.trouble = f"not done after {chosen.timeout:g} s"
    done.seconds = time.monotonic() - begin
    done.rows = parse(output)
    if not done.trouble and (program.returncode != 0 or not done.rows):
        done.trouble = f"exit status {program.returncode}, {len(done.rows)} rows"
    if not done.trouble and library == "paceline":
        done.trouble = why_not_served(output, case)
    if done.trouble or done.wrong:
        print("\n".join(f"    | {line}" for line in output.splitlines()[-25:]), flush=True)
    return done


def excuse(done: Run, chosen: argparse.Namespace) -> None:
    """What is wrong on NCCL too is nccl-tests' fault: its inputs for mulsum of float8 e5m2 on 4 ranks, for one."""
    theirs = {(row.bytes, row.type, row.operation, row.root): row for row in run(done.case, "nccl", chosen).rows}
    for row in done.rows:
        other = theirs.get((row.bytes, row.type, row.operation, row.root))
        if other is not None and any(row.wrong) and any(other.wrong):
            row.wrong = (None, None)
            done.excused += 1


def show_check(done: Run) -> None:
    state = done.trouble or (f"{done.wrong} WRONG" if done.wrong else "right")
    print(f"{done.seconds:5.1f} s  {len(done.rows):5} rows  {state:8} {done.case}", flush=True)


@dataclass
class Comparison:
    case: Case
    bytes: int
    place: str
    paceline_us: float
    nccl_us: float

    @property
    def ratio(self) -> float:
        return self.nccl_us / self.paceline_us


def compare(case: Case, chosen: argparse.Namespace) -> tuple[list[Run], list[Comparison]]:
    """Both libraries in turn; of each the fastest of its rounds."""
    runs = [run(case, library, chosen) for _ in range(chosen.rounds) for library in ("paceline", "nccl")]
    fastest: dict[tuple[str, int, str], float] = {}
    for done in runs:
        for row in done.rows:
            for place, microseconds in zip(("out of place", "in place"), row.microseconds):
                key = (done.library, row.bytes, place)
                fastest[key] = min(microseconds, fastest.get(key, microseconds))
    found = [
        Comparison(case, size, place, ours, fastest["nccl", size, place])
        for (library, size, place), ours in fastest.items()
        if library == "paceline" and ("nccl", size, place) in fastest and ours > 0
    ]
    print(case)
    for one in found:
        if one.place == "out of place":
            print(f"{one.bytes:>12} B  {one.paceline_us:10.2f} us  NCCL {one.nccl_us:10.2f} us  {one.ratio:5.2f}")
    sys.stdout.flush()
    return runs, found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="with nccl-tests' programs")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="fewer types, programs and rounds; at most 85 s")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--no-times", action="store_true", help="check only")
    parser.add_argument("--no-checks", action="store_true", help="time only")
    parser.add_argument("--rounds", type=int, help="of the times (default: 3, with --quick 1)")
    parser.add_argument("--seconds", type=float, help="begin nothing after this time (default: none, with --quick 85)")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one program")
    parser.add_argument("--nccl", help="NCCL's own libnccl.so.2 (default: the one that Paceline finds)")
    parser.add_argument("--json", metavar="F", type=output_file)
    chosen = parser.parse_args()
    chosen.directory = chosen.directory.resolve()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    chosen.seconds = chosen.seconds or (85 if chosen.quick else float("inf"))
    if chosen.nccl is None:
        real = describe_nccl()["real"]
        chosen.nccl = real["path"] if real else parser.error("no NCCL found: give it by --nccl")
    return chosen


def wanted(case: Case, chosen: argparse.Namespace) -> bool:
    if case.way == "processes" and shutil.which("mpirun") is None:
        return False
    return case.program in chosen.programs.split(",") and case.way in chosen.ways.split(",")


def main() -> int:
    chosen = arguments()
    end = time.monotonic() + chosen.seconds
    runs: list[Run] = []
    compared: list[Comparison] = []
    left_out = 0
    cases = [*(() if chosen.no_checks else checks(chosen.quick)), *(() if chosen.no_times else timings(chosen.quick))]
    for case in cases:
        if not wanted(case, chosen) or time.monotonic() > end:
            left_out += 1
        elif case.purpose == "check":
            runs.append(run(case, "paceline", chosen))
            if runs[-1].wrong:
                excuse(runs[-1], chosen)
            show_check(runs[-1])
        else:
            timed, found = compare(case, chosen)
            runs += timed
            compared += found
        if chosen.json:
            document = {"gpus": chosen.gpus, "nccl": chosen.nccl, "runs": [asdict(done) for done in runs]}
            document["times"] = [{**asdict(one), "ratio": one.ratio} for one in compared]
            Path(chosen.json).write_text(json.dumps(document, indent=1))
    return verdict(runs, compared, left_out)


def verdict(runs: list[Run], compared: list[Comparison], left_out: int) -> int:
    rows = sum(len(done.rows) for done in runs if done.case.purpose == "check")
    wrong = sum(done.wrong for done in runs)
    failed = [done for done in runs if done.trouble]
    excused = sum(done.excused for done in runs)
    good = not wrong and not failed and bool(runs)
    print(f"\n{'PASS' if good else 'FAIL'}: {len(runs)} runs, {rows} rows checked, {wrong} wrong elements, ", end="")
    print(f"{len(failed)} runs failed, {left_out} cases left out, {excused} rows wrong on NCCL too")
    for done in failed:
        print(f"  {done.library}: {done.case}: {done.trouble}")
    slower = [one for one in compared if one.ratio < 0.97]
    if compared:
        print(f"TIMES: {len(compared) - len(slower)} of {len(compared)} as fast as NCCL's or faster (within 3%)")
    for one in sorted(slower, key=lambda one: one.ratio)[:20]:
        print(f"  {one.ratio:.2f}  {one.bytes} B {one.place}: {one.case}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
