"""sanitize_gpu.py: its verdicts, with stand-ins for compute-sanitizer and the driver; for real where both are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paceline import _native
from sanitize_gpu import sanitizer, verdict

SCRIPT = str(Path(__file__).with_name("sanitize_gpu.py"))
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACES = "========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)\n"
# Each algorithm once for each collective but the barrier that it serves, and three messages in graphs.
ALGORITHMS = json.loads(_native.library().paceDescribe(b"algorithms"))
FORCED = 3 + sum(len(set(row["collectives"]) - {"barrier"}) for row in ALGORITHMS)
# Writes a log for its rank, and runs the program that it is given.
STAND_IN = """#!/bin/sh
while [ "$1" != "$PYTHON" ]; do
  case "$1" in --log-file) log=$(echo "$2" | sed "s/%p/$$/");; esac
  shift
done
echo "========= ERROR SUMMARY: $FOUND errors" >"$log"
exec "$@"
"""


@pytest.mark.parametrize(
    ("logs", "code", "said"),
    [
        ([CLEAN, CLEAN], 0, "clean"),
        ([CLEAN, CLEAN.replace("0 errors", "1 error")], 86, "1 errors"),
        ([CLEAN, RACES], 86, "2 errors"),
        ([RACES.replace("3 hazards", "0 hazards").replace("2 errors", "0 errors")] * 2, 0, "clean"),
        ([CLEAN], 0, "gave no summary (exit code 0)"),
        (["========= Error: Device not supported\n"], 1, "gave no summary (exit code 1): Error: Device not supported"),
        ([CLEAN, CLEAN], 1, "found no errors, but the program failed with exit code 1"),
        ([], -1, "did not end within 60 s"),
    ],
)
def test_verdicts(logs: list[str], code: int, said: str) -> None:
    assert verdict(logs, code, 2, 60) == said


@pytest.mark.parametrize(
    ("types", "calls", "found", "code", "said"),
    [
        ("bfloat16", 129, "0", 0, "memcheck: clean"),
        ("forced", FORCED, "0", 0, "memcheck: clean"),
        ("bfloat16", 129, "2", 1, "memcheck: 4 errors"),
    ],
)
def test_the_suite_runs_under_a_tool(
    fake_cuda: dict[str, str], tmp_path: Path, types: str, calls: int, found: str, code: int, said: str
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(STAND_IN)
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--tools=memcheck", f"--types={types}", f"--logs={tmp_path}/logs"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **fake_cuda, "PATH": path, "PYTHON": sys.executable, "FOUND": found},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert done.stdout.count(f": {calls} calls are right") == 2


@pytest.mark.long
@pytest.mark.skipif(
    sanitizer() is None or not Path("/dev/nvidiactl").exists(), reason="no GPU, or no compute-sanitizer"
)
def test_the_tools_are_content() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
