"""A rank that does not come, leaves or aborts, by every way of kernels, eagerly and in graphs: gpu_endings_side.py.

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

SIDE = str(Path(__file__).with_name("gpu_endings_side.py"))
ENDINGS = 4
WAYS = {"eager": 5, "graph": 6}


def two_ranks(*chosen: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "paceline", "run", "-n", "2", "--timeout", "20", "--", sys.executable, SIDE, *chosen]
    its = {**os.environ, **environment}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=its)


def gpus() -> int:
    try:
        return cuda_driver.device_count()
    except (Unsupported, CudaError):
        return 0


def test_the_hosts_engine_ends_so(fake_cuda: dict[str, str]) -> None:
    done = two_ranks("eager", "short", **fake_cuda)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": well") == ENDINGS


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("mode", WAYS)
def test_the_stream_ends_and_the_error_names_the_rank(mode: str) -> None:
    done = two_ranks(mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": well") == ENDINGS * WAYS[mode]
