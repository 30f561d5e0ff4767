"""Graphs of every collective, of barriers and of messages, replayed among eager calls: gpu_graphs_side.py.

With a stand-in for the driver the host's engine does the calls; needs two GPUs to be for real, but no torch.
"""

from __future__ import annotations

import pytest
from gpu_jobs import gpus, run_side

SIDE = "gpu_graphs_side.py"
CHECKED = {"fake": 108, "real": 168}  # results of a rank: without GPUs of the short calls alone


def test_the_same_calls_on_the_hosts_engine(fake_cuda: dict[str, str]) -> None:
    done = run_side(SIDE, 2, **fake_cuda)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{CHECKED['fake']} results are right, GPUs direct: False") == 2


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("ranks", sorted({2, min(gpus(), 4)}) if gpus() >= 2 else [2])
def test_replays_among_eager_calls(ranks: int) -> None:
    done = run_side(SIDE, ranks, PACELINE_LOG="info")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count(f"{CHECKED['real']} results are right, GPUs direct: True") == ranks
    if ranks == 2:
        assert "goes by the copy engines" in done.stderr
