"""bench/host_cost_gpu.py: its rows with a stand-in for the driver; where there are two GPUs, for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench_script import BENCH
from gpu_jobs import gpus


def document(path: Path, **environment: str) -> dict[str, Any]:
    words = [sys.executable, str(BENCH / "host_cost_gpu.py"), "--batches", "2", "--json", str(path)]
    its = {**os.environ, **environment}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=its)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    assert len(done.stdout.splitlines()) == 1 + len(found["rows"])
    for row in found["rows"]:
        assert 0 <= row["us"]["min"] <= row["us"]["median"] <= row["us"]["max"], row
    return found


def test_rows_from_c(fake_cuda: dict[str, str], tmp_path: Path) -> None:
    found = document(tmp_path / "cost.json", **fake_cuda)
    assert found["gpus_direct"] is False
    assert [row["from"] for row in found["rows"]] == ["C"] * 8
    assert {row["call"] for row in found["rows"]} == {"empty kernel", "all_reduce", "all_gather", "broadcast"}


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
def test_rows_from_c_and_from_python(tmp_path: Path) -> None:
    found = document(tmp_path / "cost.json")
    print(found)
    assert found["gpus_direct"] is True
    assert {row["from"] for row in found["rows"]} >= {"C", "Python"}
    # Behind a closed gate no call waits for the GPU.
    assert max(row["us"]["median"] for row in found["rows"]) < 1000
