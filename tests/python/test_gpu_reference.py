"""Every type and operation by every way of kernels, against a float64 reference: gpu_reference_side.py.

With a stand-in for the driver the host's engine is what is checked; needs two GPUs to be for real, but no torch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paceline import cuda_driver
from paceline.datatypes import DATA_TYPES
from paceline.errors import CudaError, Unsupported

MOVED_BY_ENGINES = ("broadcast", "all-gather", "gather", "scatter", "all-to-all")


def ranks_of(number: int, types: str, **environment: str) -> subprocess.CompletedProcess[str]:
    side = str(Path(__file__).with_name("gpu_reference_side.py"))
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "paceline",
            "run",
            "-n",
            str(number),
            "--timeout",
            "20",
            "--",
            sys.executable,
            side,
            types,
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_hosts_engine_is_within_the_bounds(fake_cuda: dict[str, str], ranks: int) -> None:
    done = ranks_of(ranks, "uint8,float8e5m2,bfloat16,float64", **fake_cuda)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 wrong, GPUs direct: False") == ranks


def test_a_wrong_bit_is_found(fake_cuda: dict[str, str]) -> None:
    done = ranks_of(2, "int64", **fake_cuda, FAKE_CUDA_WRONG="1")
    assert done.returncode == 1
    assert "1 of 16049 elements are wrong" in done.stdout


def gpus() -> int:
    try:
        return cuda_driver.device_count()
    except (Unsupported, CudaError):
        return 0


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("ranks", [2, 3, 4] if gpus() >= 4 else [2])
def test_every_type_and_operation_by_every_way(ranks: int) -> None:
    done = ranks_of(ranks, ",".join(DATA_TYPES), PACELINE_LOG="info")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count(" 0 wrong, GPUs direct: True") == ranks
    for name in MOVED_BY_ENGINES[ranks > 2 :]:
        assert re.search(rf"a graph's {name} of \d+ bytes goes by the copy engines", done.stderr), name
