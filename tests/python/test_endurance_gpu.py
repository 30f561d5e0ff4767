"""soak_gpu.py and kill_gpu.py: their own logic with a stand-in for the driver; where there are GPUs, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_jobs import gpus


def script(name: str, *words: str, timeout: float, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name(name)), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environment},
    )


def test_right_results_pass(fake_cuda: dict[str, str]) -> None:
    words = ["--gpus=3", "--seconds=3", "--seed=7", "--layout=processes", "--no-torch"]
    done = script("soak_gpu.py", *words, timeout=120, **fake_cuda, FAKE_CUDA_DEVICES="3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("soak_gpu: PASS: 3 GPUs, ")
    assert "seed 7" in done.stdout and " 0 episodes" not in done.stdout


def test_without_torch_it_fails_unless_told(fake_cuda: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    words = ["--gpus=2", "--seconds=1", "--seed=7"]
    done = script("soak_gpu.py", *words, timeout=120, **fake_cuda, PYTHONPATH=path)
    assert done.returncode == 1
    assert "soak_gpu: there is no torch: its products run beside the collectives; without: --no-torch" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("soak_gpu: FAIL (processes, thread): ")


def test_a_wrong_bit_fails_and_tells_its_episode(fake_cuda: dict[str, str]) -> None:
    words = ["--gpus=2", "--seconds=60", "--seed=7", "--layout=processes", "--no-torch"]
    done = script("soak_gpu.py", *words, timeout=120, **fake_cuda, FAKE_CUDA_WRONG="1")
    assert done.returncode == 1
    assert "soak_gpu: failed in seed 7 episode " in done.stderr and "1 elements are wrong" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("soak_gpu: FAIL (processes): ")


def test_a_killed_rank_is_named_and_replaced(fake_cuda: dict[str, str]) -> None:
    done = script("kill_gpu.py", "--kills=3", "--seed=1", timeout=120, **fake_cuda, FAKE_CUDA_DEVICES="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("kill_gpu: PASS: 3 of 3 kills, 3 ranks on 3 GPUs")


@pytest.mark.long
@pytest.mark.skipif(gpus() < 2, reason="needs two GPUs")
def test_ten_minutes_on_the_gpus_of_this_machine() -> None:
    done = script("soak_gpu.py", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(gpus() < 2, reason="needs two GPUs")
def test_fifty_kills_on_the_gpus_of_this_machine() -> None:
    done = script("kill_gpu.py", "--kills=50", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
