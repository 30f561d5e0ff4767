"""Graphs of every collective, of barriers and of messages, replayed among eager calls: gpu_graphs_side.py.

With a stand-in for the driver the host's engine does the calls; needs two GPUs to be for real, but no torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paceline import cuda_driver
from paceline.errors import CudaError, Unsupported

SIDE = str(Path(__file__).with_name("gpu_graphs_side.py"))
CHECKED = {"fake": 108, "real": 168}  # results of a rank: without GPUs of the short calls alone


def ranks_of(number: int, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "paceline", "run", "-n", str(number), "--timeout", "20", "--", sys.executable, SIDE]
    its = {**os.environ, **environment}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=its)


def gpus() -> int:
    try:
        return cuda_driver.device_count()
    except (Unsupported, CudaError):
        return 0


def test_the_same_calls_on_the_hosts_engine(fake_cuda: dict[str, str]) -> None:
    done = ranks_of(2, **fake_cuda)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{CHECKED['fake']} results are right, GPUs direct: False") == 2


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("ranks", sorted({2, min(gpus(), 4)}) if gpus() >= 2 else [2])
def test_replays_among_eager_calls(ranks: int) -> None:
    done = ranks_of(ranks, PACELINE_LOG="info")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count(f"{CHECKED['real']} results are right, GPUs direct: True") == ranks
    if ranks == 2:
        assert "goes by the copy engines" in done.stderr
