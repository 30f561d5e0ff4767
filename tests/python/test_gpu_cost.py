"""What a communicator on GPUs may cost: time to make it, time of its first call, device memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_jobs import gpus

FIGURES = {"first call of all", "first call of 8 B", "first call of 1 MB", "first call of 16 MB", "creation", "bytes"}


def cost(ranks: int, **environment: str) -> dict[str, Any]:
    side = str(Path(__file__).with_name("gpu_cost_side.py"))
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "run", "-n", str(ranks), "--", sys.executable, side],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.skipif(gpus() > 0, reason="without a GPU, on a stand-in for the driver")
def test_the_figures_are_taken(fake_cuda: dict[str, str]) -> None:
    figures = cost(2, **fake_cuda)
    assert figures.pop("gpus direct") is False and figures.pop("bytes") == 0
    assert set(figures) == FIGURES - {"bytes"}
    assert min(figures.values()) > 0


@pytest.mark.skipif(gpus() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("ranks", sorted({2, max(2, gpus())}))
def test_a_communicator_is_cheap(ranks: int) -> None:
    figures = cost(ranks)
    print(figures)
    assert figures["gpus direct"] is True
    assert figures["creation"] < 0.5
    assert 0 < figures["bytes"] < 64 << 20
    slow = {name: value for name, value in figures.items() if name.startswith("first call") and value > 1e-3}
    assert slow == {}
