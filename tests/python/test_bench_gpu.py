"""`paceline bench --device cuda`: with a stand-in for the driver, so on any machine; and for real where there is a GPU.

The stand-in's device memory is host memory, so the host's engine does the collectives. What is tested is everything
around them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_jobs import gpus
from paceline import cuda_driver
from paceline.command.collectives import COLLECTIVES
from paceline.errors import Unsupported

SHORT = ["--iterations", "1", "--warmup", "0"]
Paceline = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def with_fake_driver(fake_cuda: dict[str, str]) -> Paceline:
    """Runs `paceline` with the stand-in as libcuda.so.1."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "paceline", *words]
        variables = {**os.environ, **fake_cuda, **environment}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=variables)

    return run


def test_every_collective_on_device_memory(with_fake_driver: Paceline, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    words = ["bench", "all", "--device", "cuda", "-n", "2", "--sizes", "0,1000", "--root", "1", "--check", *SHORT]
    done = with_fake_driver(*words, "--json", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert "cuda, fake GPU 0, eager" in done.stdout.splitlines()[0]
    document = json.loads(out.read_text())
    assert (document["device"], document["graphs"], document["ranks"]) == ("cuda", False, 2)
    assert {row["collective"] for row in document["rows"]} == set(COLLECTIVES)
    for row in document["rows"]:
        assert row["wrong"] == 0, row
        assert 0 < row["time_us"]["min"] <= row["time_us"]["median"] <= row["time_us"]["max"]


def test_a_rank_for_each_gpu(with_fake_driver: Paceline) -> None:
    done = with_fake_driver("bench", "barrier", "--device", "cuda", *SHORT, FAKE_CUDA_DEVICES="3")
    assert done.returncode == 0, done.stderr
    assert ": 3 ranks" in done.stdout


def test_every_algorithm_on_device_memory(with_fake_driver: Paceline, tmp_path: Path) -> None:
    out = tmp_path / "all.json"
    words = ["bench", "all_reduce", "--device", "cuda", "-n", "2", "--sizes", "2M", "--algorithm", "all", *SHORT]
    done = with_fake_driver(*words, "--dtype", "bfloat16", "--op", "premulsum", "--check", "--json", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    names = [row["algorithm"] for row in rows]
    assert len(set(names)) == len(names) >= 5
    assert [row["wrong"] for row in rows] == [0] * len(rows)
    assert sum(row["chosen"] for row in rows) == 1


def test_a_graph_that_does_nothing_is_found_out(with_fake_driver: Paceline) -> None:
    words = ["bench", "all_reduce", "--device", "cuda", "--graph", "-n", "2", "--sizes", "2M", *SHORT]
    done = with_fake_driver(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "in graphs" in done.stdout.splitlines()[0]
    done = with_fake_driver(*words, "--check")
    assert done.returncode == 1
    assert int(done.stdout.splitlines()[-1].split()[-1]) > 1000


@pytest.mark.parametrize(
    ("words", "devices", "reason"),
    [
        ([], "0", "--device cuda: this machine shows no GPU"),
        (["--trace", "f"], "2", "--trace shows the steps of the host's engine"),
        (["--root", "2"], "2", "--root 2 is none of 2 ranks"),
    ],
)
def test_wrong_usage(with_fake_driver: Paceline, words: list[str], devices: str, reason: str) -> None:
    done = with_fake_driver("bench", "all_reduce", "--device", "cuda", *words, FAKE_CUDA_DEVICES=devices)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_a_buffer_that_does_not_fit(with_fake_driver: Paceline) -> None:
    done = with_fake_driver("bench", "all_reduce", "--device", "cuda", "-n", "1", "--sizes", "1K", FAKE_CUDA_FULL="1")
    assert done.returncode == 1
    assert "cuMemAlloc_v2: out of memory (2)" in done.stderr


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_LIBRARY", "libcuda-of-nobody.so.1")
    cuda_driver._driver.cache_clear()
    with pytest.raises(Unsupported, match=r"there is no NVIDIA driver: libcuda-of-nobody\.so\.1"):
        cuda_driver.device_count()


@pytest.mark.skipif(gpus() == 0, reason="no GPU")
@pytest.mark.parametrize("mode", [[], ["--graph"]])
def test_on_the_gpus_of_this_machine(tmp_path: Path, mode: list[str]) -> None:
    out = tmp_path / "bench.json"
    words = ["bench", "all", "--device", "cuda", "--sizes", "8,64K,2M,32M", "--check", "--json", str(out), *mode]
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert {row["collective"] for row in rows} == set(COLLECTIVES)
    assert {(row["wrong"], row["algorithm"], row["transport"]) for row in rows} == {(0, "exchange", "gpu")}


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("mode", [[], ["--graph"]])
def test_every_algorithm_on_the_gpus_of_this_machine(tmp_path: Path, mode: list[str]) -> None:
    out = tmp_path / "all.json"
    words = ["bench", "all", "--device", "cuda", "--algorithm", "all", "--sizes", "64K,2M", "--check", *SHORT, *mode]
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *words, "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    assert {(row["wrong"], row["transport"]) for row in rows} == {(0, "gpu")}
    for name in set(COLLECTIVES) - {"barrier"}:
        ran = {row["algorithm"] for row in rows if row["collective"] == name}
        assert "exchange" in ran and len(ran) >= 3, (name, ran)
        assert ("ring" if name in ("all_reduce", "all_gather", "reduce_scatter") else "direct") in ran, (name, ran)
