"""Long calls of four communicators at once, in crossed order, beside other kernels: gpu_crowd_side.py.

With a stand-in for the driver it is their own logic that is tested; needs two GPUs to be for real, and torch for
kernels beside.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paceline import cuda_driver
from paceline.errors import CudaError, Unsupported

SIDE = str(Path(__file__).with_name("gpu_crowd_side.py"))
# Streams that share a queue to the GPU wait for each other, so calls in crossed order need one each.
QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}


def ranks_of(number: int, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "paceline", "run", "-n", str(number), "--timeout", "10", "--", sys.executable, SIDE]
    its = {**os.environ, **QUEUES, **environment}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=its)


def gpus() -> int:
    try:
        return cuda_driver.device_count()
    except (Unsupported, CudaError):
        return 0


def test_the_same_calls_on_the_hosts_engine(fake_cuda: dict[str, str]) -> None:
    done = ranks_of(2, **fake_cuda)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("GPUs direct: False") == 2


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("ranks", sorted({2, min(gpus(), 4)}) if gpus() >= 2 else [2])
def test_four_communicators_fit_together(ranks: int) -> None:
    done = ranks_of(ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("GPUs direct: True") == ranks
