"""Long calls in GPU memory that is mapped piece by piece, which has no CUDA IPC handles. Most need two GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_jobs import gpus
from mapped_memory import BY_DESCRIPTOR, MappedMemory
from paceline import cuda_driver

SIDE = str(Path(__file__).with_name("mapped_memory_side.py"))
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


if gpus() < 1:
    pytest.skip("no GPU", allow_module_level=True)

needs_two = pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")


def test_the_driver_tells_pieces_apart() -> None:
    """What src/cuda/memory/virtual_memory.cc builds upon."""
    with cuda_driver.Gpu(0) as gpu:
        memory = MappedMemory(gpu, 30 << 20)
        seen = set()
        for number, (begin, length) in enumerate(memory.pieces):
            for offset in (begin, begin + length - 1):
                found = memory.attributes(offset)
                assert found["piece"] == memory.address + begin and found["piece bytes"] == length
                assert found["range"] == memory.address and found["range bytes"] > memory.nbytes
                assert found["handle types"] & BY_DESCRIPTOR
                assert found["block id"] != 0
            before = (found["block id"], found["buffer id"])
            memory.renew(number)
            after = memory.attributes(begin)
            seen |= {before, (after["block id"], after["buffer id"])}
        assert len(seen) == 2 * len(memory.pieces)
        memory.free()


def direct_calls(mode: str, ranks: int, **environment: str) -> list[int]:
    """What each process counts."""
    run = [sys.executable, "-m", "paceline", "run", "-n", str(ranks), "--"] if ranks > 1 else []
    done = subprocess.run(
        [*run, sys.executable, SIDE, mode],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [int(count) for count in re.findall(r"direct calls: (\d+)", done.stdout)]
    assert len(counts) == ranks
    return counts


@needs_two
@pytest.mark.parametrize("ranks", sorted({2, gpus()}))
def test_pieces_come_and_go(ranks: int) -> None:
    counts = direct_calls("pieces", ranks)
    assert counts[0] > 20 and set(counts) == {counts[0]}


@needs_two
def test_memory_that_cannot_be_shared_goes_through_the_window() -> None:
    assert direct_calls("unshared", 2) == [0, 0]


@needs_two
def test_nothing_goes_direct_when_it_is_turned_off() -> None:
    assert direct_calls("unshared", 2, PACELINE_GPU_DIRECT="off") == [0, 0]


@needs_two
@pytest.mark.parametrize("ranks", sorted({2, gpus()}))
def test_torchs_expandable_segments(ranks: int) -> None:
    pytest.importorskip("torch")
    assert min(direct_calls("torch", ranks, **EXPANDABLE)) > 20


@needs_two
@pytest.mark.parametrize("ranks", sorted({2, gpus()}))
def test_graphs_of_new_tensors_go_direct(ranks: int) -> None:
    pytest.importorskip("torch")
    assert direct_calls("graphs", ranks) >= [36] * ranks
