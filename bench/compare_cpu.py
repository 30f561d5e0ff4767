#!/usr/bin/env python3
"""Compare Paceline with other libraries on this machine's CPUs: every library in the same run, timed the same way.

    python bench/compare_cpu.py --ranks 2,4 --collectives all_reduce,broadcast --sizes 8,64K,1M

Each collective and number of ranks is measured in rounds; in each round every library runs once over all sizes, in
turn, so that a change of the machine's speed meets all of them. Figures are medians over all calls of all rounds of
the slowest rank's time (timing.h). Ratio = the peer's time divided by Paceline's: above 1 Paceline is faster.
"""

from __future__ import annotations

import argparse
import mmap
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TextIO

import peers
from name_list import name_list
from paceline.command.files import output_file, write_json
from paceline.command.sizes import sizes
from peers import Library, Paceline, Unavailable

COLLECTIVES = [
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "send_recv",
]
ROW_SECONDS = 2.0  # of timed calls for one library and size, over all rounds


def calls_for(size: int) -> int:
    """Timed calls in one round: enough for a median of small calls, few enough for large ones."""
    return max(7, min(400, (256 << 20) // max(size, 1)))


def stop(processes: Iterable[subprocess.Popen[str]]) -> None:
    """End what still runs, politely first: launchers then clean up their ranks and shared memory."""
    processes = list(processes)
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal_number)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and any(process.poll() is None for process in processes):
            time.sleep(0.01)


def run_group(library: Library, ranks: int, arguments: list[str], timeout: float) -> tuple[str, str]:
    """Run one group of processes; returns its standard output and, where it failed, why."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.NamedTemporaryFile() as meeting,
    ):
        meeting.truncate(mmap.PAGESIZE)
        together = {"BENCH_MEETING": meeting.name} if ranks <= peers.cpus() else {}  # timing.h
        processes = [
            subprocess.Popen(
                rank.command,
                env={**os.environ, **together, **rank.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                preexec_fn=os.setpgrp,  # no session: each rank would be scheduled apart (docs/notes/cpu.md, Sessions)
            )
            for rank in library.ranks(ranks, arguments)
        ]
        failure = ""
        deadline = time.monotonic() + timeout
        try:
            while any(process.poll() is None for process in processes) and not failure:
                if any(process.returncode for process in processes):
                    deadline = min(deadline, time.monotonic() + 5)  # the others learn of it, then it ends
                if time.monotonic() > deadline:
                    failure = f"did not end within {timeout:g} s"
                time.sleep(0.005)
        finally:
            if any(process.poll() is None for process in processes):
                stop(processes)
        codes = [process.returncode for process in processes]
        if any(codes):
            failure = failure or f"exit code {next(code for code in codes if code)}"
        return read_all(out), f"{failure}: {last_lines(read_all(err))}" if failure else ""


def read_all(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def last_lines(text: str, count: int = 3) -> str:
    return " | ".join(line.strip() for line in text.splitlines() if line.strip()).strip()[-200 * count :]


@dataclass
class Figures:
    """One library's calls of one collective, number of ranks and size."""

    times_us: list[float] = field(default_factory=list)  # the slowest rank's own time
    spans_us: list[float] = field(default_factory=list)  # from the first rank's start to the last rank's end
    wrong: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.times_us)

    def fields(self, prefix: str) -> dict[str, Any]:
        return {
            f"{prefix}_us": self.median,
            f"{prefix}_min_us": min(self.times_us),
            f"{prefix}_max_us": max(self.times_us),
            f"{prefix}_span_us": statistics.median(self.spans_us) if self.spans_us else None,
            f"{prefix}_calls": len(self.times_us),
            f"{prefix}_wrong": self.wrong,
        }


@dataclass
class Comparison:
    """One collective at one number of ranks: figures by library's name and bytes."""

    collective: str
    ranks: int
    figures: dict[str, dict[int, Figures]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, output: str) -> None:
        for line in output.splitlines():
            words = line.split()
            if len(words) > 3 and words[0] in ("row", "span"):
                figures = self.figures.setdefault(name, {}).setdefault(int(words[1]), Figures())
                figures.wrong += int(words[2])
                (figures.times_us if words[0] == "row" else figures.spans_us).extend(map(float, words[3:]))

    def too_slow(self, name: str, size: int, cap: float) -> bool:
        """Whether a call of this size or a smaller one has lasted longer than the cap: it is not asked for again."""
        rows = self.figures.get(name, {})
        return any(row.median > cap * 1e6 for smaller, row in rows.items() if smaller <= size)

    def measure(self, libraries: list[Library], sizes: list[int], rounds: int, timeout: float) -> None:
        cap = ROW_SECONDS / rounds
        for number in range(rounds):
            shift = number % len(libraries)
            for library in libraries[shift:] + libraries[:shift]:
                wanted = [size for size in sizes if not self.too_slow(library.name, size, cap)]
                if library.name in self.failures or not wanted:
                    continue
                show(f"{self.collective}, {self.ranks} ranks, round {number + 1} of {rounds}: {library.name}")
                arguments = [self.collective, f"{cap:g}", *(f"{size}:{calls_for(size)}" for size in wanted)]
                output, failure = run_group(library, self.ranks, arguments, timeout)
                self.add(library.name, output)
                if failure:
                    self.failures[library.name] = failure
        show("")

    def table(self, names: list[str]) -> Iterable[str]:
        """Lines for people, under headline(): medians, each peer's ratio, and the ratio of the fastest peer."""
        for size in sorted({size for rows in self.figures.values() for size in rows}):
            line = f"{self.collective:<14}{self.ranks:>5}{size:>10}"
            ours = self.figures.get("paceline", {}).get(size)
            best: tuple[float, str] | None = None
            for name in names:
                row = self.figures.get(name, {}).get(size)
                peer = name != "paceline"
                if row is None:
                    line += f"{'-':>{width(name)}}{'':>19}" + " " * 6 * peer
                    continue
                line += f"{row.median:>{width(name)}.1f}{min(row.times_us):>9.1f}{max(row.times_us):>10.1f}"
                if peer:
                    line += f"{row.median / ours.median:>5.2f}x" if ours else " " * 6
                    if not name.startswith("paceline"):
                        best = min(best or (row.median, name), (row.median, name))
            if best:
                line += f"  {best[1]}" + (f" {best[0] / ours.median:.2f}x" if ours else "")
            wrong = [name for name in names if self.wrong(name, size)]
            yield line + (f"  WRONG RESULT: {', '.join(wrong)}" if wrong else "")
        for name, failure in self.failures.items():
            yield f"  {name} failed: {failure}"

    def wrong(self, name: str, size: int) -> bool:
        row = self.figures.get(name, {}).get(size)
        return row is not None and row.wrong > 0

    def rows(self) -> Iterable[dict[str, Any]]:
        ours = self.figures.get("paceline", {})
        for name, by_size in self.figures.items():
            for size, row in sorted(by_size.items()):
                if name == "paceline":
                    continue
                us = ours.get(size)
                yield {
                    "collective": self.collective,
                    "bytes": size,
                    "ranks": self.ranks,
                    "peer": name,
                    **row.fields("peer"),
                    **(us.fields("paceline") if us else {"paceline_us": None}),
                    "ratio": row.median / us.median if us else None,
                }


def width(name: str) -> int:
    return max(13, len(name) + 5)


def headline(names: list[str]) -> str:
    head = f"{'collective':<14}{'ranks':>5}{'bytes':>10}"
    for name in names:
        head += f"{name + ' us':>{width(name)}}     [min      max]" + " " * 6 * (name != "paceline")
    return head + "  fastest peer"


def show(text: str) -> None:
    """Progress, when a person watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def available(libraries: list[Library]) -> tuple[list[Library], dict[str, str]]:
    ready, skipped = [], {}
    for library in libraries:
        try:
            library.prepare()
            ready.append(library)
        except Unavailable as reason:
            skipped[library.name] = str(reason)
            print(f"without {library.name}: {reason}", file=sys.stderr)
    return ready, skipped


def options() -> argparse.Namespace:
    def ranks(text: str) -> list[int]:
        counts = [int(count) for count in text.split(",")]
        if min(counts) < 2:
            raise argparse.ArgumentTypeError("at least 2 ranks")
        return counts

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=ranks, default=[2, 4, 8], metavar="N,...", help="default: 2,4,8")
    parser.add_argument("--collectives", type=name_list(COLLECTIVES), default=COLLECTIVES, metavar="NAME,...")
    parser.add_argument("--sizes", type=sizes, default=sizes("8,1K,64K,1M,8M,64M"), metavar="BYTES,...")
    known = ", ".join(peers.TABLE)
    parser.add_argument(
        "--peers",
        type=name_list(list(peers.TABLE)),
        default=list(peers.DEFAULT),
        metavar="NAME,...",
        help=f"of {known}",
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each library (default: 3)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one library's turn (default: 300)")
    parser.add_argument("--library", metavar="PATH", help="libpaceline.so to measure; default: the installed package's")
    parser.add_argument("--without-paceline", action="store_true", help="measure the peers alone")
    parser.add_argument(
        "--memalloc", action="store_true", help="also measure Paceline with buffers of paceMemAlloc, as one more peer"
    )
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the rows there")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    wanted: list[Library] = [peers.TABLE[name]() for name in chosen.peers]
    if not chosen.without_paceline:
        wanted.insert(0, Paceline(chosen.library))
        if chosen.memalloc:
            wanted.insert(1, Paceline(chosen.library, memalloc=True))
    libraries, skipped = available(wanted)
    names = [library.name for library in libraries]
    if "paceline" in skipped or not names:
        return 1

    comparisons = []
    for collective in chosen.collectives:
        print(headline(names))
        measured = [0] if collective == "barrier" else sorted(set(chosen.sizes))
        for ranks in chosen.ranks:
            comparison = Comparison(collective, ranks)
            comparison.measure(libraries, measured, max(1, chosen.rounds), chosen.timeout)
            comparisons.append(comparison)
            print("\n".join(comparison.table(names)), flush=True)

    if chosen.json:
        document = {
            "host": platform.node(),
            "cpus": peers.cpus(),
            "skipped": skipped,
            "failures": [
                {"collective": one.collective, "ranks": one.ranks, "library": name, "why": why}
                for one in comparisons
                for name, why in one.failures.items()
            ],
            "rows": [row for one in comparisons for row in one.rows()],
        }
        write_json(chosen.json, document)
    wrong = any(row.wrong for one in comparisons for rows in one.figures.values() for row in rows.values())
    return 1 if wrong or any("paceline" in one.failures for one in comparisons) else 0


if __name__ == "__main__":
    sys.exit(main())
