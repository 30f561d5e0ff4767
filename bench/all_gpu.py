#!/usr/bin/env python3
"""All that a machine with several GPUs is asked, in one go: for a machine that one has for some minutes.

    python bench/all_gpu.py RESULTS --seconds 560
    python bench/all_gpu.py RESULTS --steps tune,compare --nccl-tests DIRECTORY

    machine   what it is: GPUs, driver, how they are linked
    tune      `paceline tune --device cuda`: the table of this number of GPUs, by which the next steps go
    compare   compare_gpu.py in CUDA graphs: beside NCCL and torch's symmetric memory
    suite     the tests that need GPUs (tests/python/test_gpu*.py)
    kills     kill_gpu.py: ranks are killed in the middle of collectives
    nccl      nccl_tests.py --quick on Paceline's libnccl.so.2, where --nccl-tests says where its programs are
    eager     compare_gpu.py without graphs
    soak      soak_gpu.py: random calls, every result checked

In this order, each in its share of the time that is left; what does not end in it is ended. RESULTS gets a log of each
step, and what steps write: tuned.json, compare.json, eager.json, nccl.json. The last lines are a verdict a step; exit
code 0 if all went well. Needs torch, pytest and the package installed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compare_gpu import WITHOUT_MULTICAST

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Step:
    name: str
    share: float  # of the time, beside those of the other steps
    words: Callable[[argparse.Namespace, float], list[str]]  # the command, if it has so many seconds


def _script(folder: str, name: str, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / folder / name), *words]


def _compare(mode: str, name: str) -> Callable[[argparse.Namespace, float], list[str]]:
    def words(chosen: argparse.Namespace, seconds: float) -> list[str]:
        result = str(chosen.results / f"{name}.json")
        its = ["--gpus", str(chosen.gpus), "--modes", mode, "--seconds", f"{0.9 * seconds:.0f}", "--json", result]
        return _script("bench", "compare_gpu.py", *its)

    return words


def _tune(chosen: argparse.Namespace, seconds: float) -> list[str]:
    words = [sys.executable, "-m", "paceline", "tune", "--device", "cuda", "-n", str(chosen.gpus)]
    # It measures in so many seconds; ends of steps between sizes and checks come on top.
    return [*words, "--seconds", f"{0.6 * seconds:.0f}", "--output", str(chosen.results / "tuned.json")]


def _nccl(chosen: argparse.Namespace, seconds: float) -> list[str]:
    words = ["--gpus", str(chosen.gpus), "--quick", "--json", str(chosen.results / "nccl.json")]
    return _script("bench", "nccl_tests.py", str(chosen.nccl_tests), *words)


STEPS = [
    Step("machine", 0.01, lambda chosen, seconds: ["nvidia-smi", "topo", "-m"]),
    Step("tune", 0.26, _tune),
    Step("compare", 0.24, _compare("graph", "compare")),
    Step("suite", 0.18, lambda chosen, seconds: [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                                                 *map(str, sorted((ROOT / "tests/python").glob("test_gpu*.py")))]),
    Step("kills", 0.06, lambda chosen, seconds: _script("tests/python", "kill_gpu.py", "--kills", "20")),
    Step("nccl", 0.15, _nccl),
    Step("eager", 0.1, _compare("eager", "eager")),
    Step("soak", 0.1, lambda chosen, seconds: _script("tests/python", "soak_gpu.py", "--gpus", str(chosen.gpus),
                                                      "--seconds", f"{0.8 * seconds:.0f}")),
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a folder, made if it is not there")
    parser.add_argument("--gpus", type=int, help="default: all of this machine")
    parser.add_argument("--seconds", type=float, default=900, help="for all steps together (default: 900)")
    parser.add_argument("--steps", help="these only, by their names, in the order above")
    parser.add_argument("--nccl-tests", type=Path, metavar="DIRECTORY", help="nccl-tests' programs (nccl_tests.py)")
    chosen = parser.parse_args()
    names = [step.name for step in STEPS]
    wanted = (
        chosen.steps.split(",") if chosen.steps else [name for name in names if name != "nccl" or chosen.nccl_tests]
    )
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no step {', '.join(unknown)}: there are {', '.join(names)}")
    if "nccl" in wanted and chosen.nccl_tests is None:
        parser.error("the step nccl needs --nccl-tests")
    chosen.steps = [step for step in STEPS if step.name in wanted]
    chosen.results = chosen.results.absolute()
    return chosen


def run(command: list[str], log: Path, seconds: float, environment: dict[str, str]) -> str:
    """How it went."""
    begin = time.monotonic()
    with log.open("wb") as out:
        try:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, start_new_session=True
            )
        except OSError as error:
            return f"cannot be started: {error}"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"ended after {seconds:.0f} s"
    return f"{'well' if code == 0 else f'exit code {code}'}, {time.monotonic() - begin:.0f} s"


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def main() -> int:
    chosen = arguments()
    if chosen.gpus is None:
        from paceline.cuda_driver import device_count
        from paceline.errors import Unsupported

        try:
            chosen.gpus = device_count()
        except Unsupported:
            chosen.gpus = 0
    if chosen.gpus < 2:
        print(f"all_gpu: needs two GPUs at least: here are {chosen.gpus}", file=sys.stderr)
        return 2
    chosen.results.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **WITHOUT_MULTICAST, "PYTHONUNBUFFERED": "1"}
    end = time.monotonic() + chosen.seconds
    verdicts: dict[str, str] = {}
    for number, step in enumerate(chosen.steps):
        seconds = (end - time.monotonic()) * step.share / sum(each.share for each in chosen.steps[number:])
        log = chosen.results / f"{step.name}.log"
        tuned = chosen.results / "tuned.json"
        its = environment | ({"PACELINE_TUNING": str(tuned)} if tuned.exists() and step.name != "suite" else {})
        verdicts[step.name] = run(step.words(chosen, seconds), log, max(1.0, seconds), its)
        print(f"{step.name:8} {verdicts[step.name]}: {last_line(log)[:200]}", flush=True)
    wrong = [name for name, verdict in verdicts.items() if not verdict.startswith("well")]
    print(f"all_gpu: {'PASS' if not wrong else 'FAIL (' + ', '.join(wrong) + ')'}: {chosen.gpus} GPUs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
