"""Long calls of four communicators at once, in crossed order, beside other kernels: gpu_crowd_side.py.

With a stand-in for the driver it is their own logic that is tested; needs two GPUs to be for real, and torch for
kernels beside.
"""

from __future__ import annotations

import pytest
from gpu_jobs import gpus, run_side

SIDE = "gpu_crowd_side.py"
# Streams that share a queue to the GPU wait for each other, so calls in crossed order need one each.
QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}


def test_the_same_calls_on_the_hosts_engine(fake_cuda: dict[str, str]) -> None:
    done = run_side(SIDE, 2, **QUEUES, **fake_cuda, timeout=10)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("GPUs direct: False") == 2


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("ranks", sorted({2, min(gpus(), 4)}) if gpus() >= 2 else [2])
def test_four_communicators_fit_together(ranks: int) -> None:
    done = run_side(SIDE, ranks, **QUEUES, timeout=10)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("GPUs direct: True") == ranks
