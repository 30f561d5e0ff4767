"""bench/all_gpu.py: steps share the time, and each gets a verdict, whatever becomes of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bench_script import BENCH, load

SCRIPT = BENCH / "all_gpu.py"


@pytest.fixture(scope="module")
def all_gpu() -> Any:
    return load("all_gpu")


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def alive(group: str) -> bool:
    """Whether a process of this group is more than a zombie."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, its_group = (each / "stat").read_text().rpartition(") ")[2].split()[:3]
                if its_group == group and state != "Z":
                    return True
    return False


def test_a_verdict_says_how_a_step_ended(all_gpu: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert all_gpu.run(python("print('first'); print('last')"), log, 30, dict(os.environ)).startswith("well, ")
    assert all_gpu.last_line(log) == "last"
    assert all_gpu.run(python("raise SystemExit(3)"), log, 30, dict(os.environ)).startswith("exit code 3, ")
    assert all_gpu.last_line(log) == ""
    assert all_gpu.run([str(tmp_path / "nothing")], log, 30, dict(os.environ)).startswith("cannot be started")


def test_a_step_that_does_not_end_is_ended_with_its_children(all_gpu: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = "import os, time\nif os.fork() == 0: time.sleep(60)\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    assert all_gpu.run(python(child), log, 1, dict(os.environ)) == "ended after 1 s"
    group = all_gpu.last_line(log)
    end = time.monotonic() + 10
    while alive(group) and time.monotonic() < end:
        time.sleep(0.01)
    assert not alive(group)


def test_steps_that_are_not_there_are_named(tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), str(tmp_path / "results"), "--gpus", "2"]
    done = subprocess.run([*words, "--steps", "tune,magic"], capture_output=True, text=True, check=False)
    assert (done.returncode, "no step magic: there are machine, tune" in done.stderr) == (2, True)
    done = subprocess.run([*words, "--steps", "nccl"], capture_output=True, text=True, check=False)
    assert (done.returncode, "needs --nccl-tests" in done.stderr) == (2, True)


def test_every_step_has_a_log_and_a_verdict(tmp_path: Path) -> None:
    """Without GPUs its steps fail, each by itself."""
    folder = tmp_path / "results"
    words = [sys.executable, str(SCRIPT), str(folder), "--gpus", "2", "--seconds", "60", "--steps", "tune,kills"]
    hidden = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=hidden, timeout=120)
    assert done.returncode == 1
    assert "all_gpu: FAIL (tune, kills): 2 GPUs" in done.stdout
    assert {each.name for each in folder.iterdir()} >= {"tune.log", "kills.log"}
