"""Every type and operation by every way of kernels, against a float64 reference: gpu_reference_side.py.

With a stand-in for the driver the host's engine is what is checked; needs two GPUs to be for real, but no torch.
"""

from __future__ import annotations

import re

import pytest
from gpu_jobs import gpus, run_side
from paceline.datatypes import DATA_TYPES

SIDE = "gpu_reference_side.py"
MOVED_BY_ENGINES = ("broadcast", "all-gather", "gather", "scatter", "all-to-all")


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_hosts_engine_is_within_the_bounds(fake_cuda: dict[str, str], ranks: int) -> None:
    done = run_side(SIDE, ranks, "uint8,float8e5m2,bfloat16,float64", **fake_cuda, seconds=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 wrong, GPUs direct: False") == ranks


def test_a_wrong_bit_is_found(fake_cuda: dict[str, str]) -> None:
    done = run_side(SIDE, 2, "int64", **fake_cuda, FAKE_CUDA_WRONG="1", seconds=240)
    assert done.returncode == 1
    assert "1 of 16049 elements are wrong" in done.stdout


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("ranks", [2, 3, 4] if gpus() >= 4 else [2])
def test_every_type_and_operation_by_every_way(ranks: int) -> None:
    done = run_side(SIDE, ranks, ",".join(DATA_TYPES), PACELINE_LOG="info", seconds=240)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count(" 0 wrong, GPUs direct: True") == ranks
    for name in MOVED_BY_ENGINES[ranks > 2 :]:
        assert re.search(rf"a graph's {name} of \d+ bytes goes by the copy engines", done.stderr), name
