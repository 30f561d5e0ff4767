#!/usr/bin/env python3
"""compute-sanitizer over the kernels: memcheck, racecheck, synccheck and initcheck, a verdict for each.

    python tests/python/sanitize_gpu.py

Every tool watches two ranks, each in a process of its own, so that kernels which wait for each other run at the same
time also where a tool runs a process's kernels one by one; each rank should have a GPU of its own. gpu_suite_side.py is
what they do. The logs stay in --logs. Exit code 0 if all tools are content.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paceline.datatypes import DATA_TYPES

TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
PLACES = ["local/cuda*/bin", "local/cuda*/compute-sanitizer"]  # in /usr
ERRORS = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) error")
FAILED = 86  # exit code for what a tool has found


def sanitizer() -> str | None:
    found = shutil.which("compute-sanitizer")
    others = [path for place in PLACES for path in sorted(Path("/usr").glob(f"{place}/compute-sanitizer"))]
    return found or next((str(path) for path in others if path.is_file() and os.access(path, os.X_OK)), None)


def verdict(logs: list[str], code: int, ranks: int, seconds: float) -> str:
    """What the logs of a tool's ranks come to: "clean", or what is wrong."""
    counts = [max(map(int, filter(None, found))) for log in logs for found in ERRORS.findall(log)]
    if sum(counts) > 0:
        return f"{sum(counts)} errors"
    if code == -1:
        return f"did not end within {seconds:g} s"
    if len(counts) < ranks:
        lines = [line.strip("= ") for log in logs for line in log.splitlines() if "SUMMARY" not in line]
        reasons = [line for line in lines if "rror" in line or "support" in line]
        return f"gave no summary (exit code {code}){': ' + reasons[0] if reasons else ''}"
    return "clean" if code == 0 else f"found no errors, but the program failed with exit code {code}"


def run(tool: str, program: str, words: argparse.Namespace) -> str:
    side = str(Path(__file__).with_name("gpu_suite_side.py"))
    watched = [program, "--tool", tool, "--error-exitcode", str(FAILED), "--log-file", f"{words.logs}/{tool}-%p.log"]
    watched += ["--report-api-errors", "no"] if tool == "memcheck" else []  # what is asked may be refused
    ranks = [sys.executable, "-m", "paceline", "run", "-n", str(words.ranks), "--timeout", str(words.seconds), "--"]
    process = subprocess.Popen([*ranks, *watched, sys.executable, side, words.types], start_new_session=True)
    try:
        code = process.wait(words.seconds)
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        with contextlib.suppress(ProcessLookupError):  # a tool may leave its program behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    logs = [path.read_text(errors="replace") for path in sorted(Path(words.logs).glob(f"{tool}-*.log"))]
    return verdict(logs, code, words.ranks, words.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--types",
        default=",".join([*DATA_TYPES, "forced"]),
        help="data types, and forced: the schedules of forced algorithms, and graphs (default: all)",
    )
    parser.add_argument("--seconds", type=float, default=600, help="for each tool (default: 600)")
    parser.add_argument("--logs", default=tempfile.gettempdir() + "/paceline-sanitize", help="folder for the logs")
    words = parser.parse_args()
    program = sanitizer()
    if program is None:
        parser.error("there is no compute-sanitizer: it comes with NVIDIA's CUDA toolkit")
    shutil.rmtree(words.logs, ignore_errors=True)
    Path(words.logs).mkdir(parents=True)
    verdicts = {}
    for tool in words.tools.split(","):
        begin = time.monotonic()
        verdicts[tool] = run(tool, program, words)
        print(f"sanitize_gpu: {tool}: {verdicts[tool]} ({time.monotonic() - begin:.0f} s)", flush=True)
    clean = all(each == "clean" for each in verdicts.values())
    print(f"sanitize_gpu: {'PASS' if clean else 'FAIL'}: {words.ranks} ranks, logs in {words.logs}")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
