"""The scripts of bench/ measure for minutes: what they are to write must be possible at the beginning."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench_script import BENCH


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("compare_cpu", ["--json", "/nonexistent/f.json"]),
        ("compare_gpu", ["--json", "/nonexistent/f.json"]),
        ("compare_gpu", ["--plot", "/nonexistent/f.svg"]),
        ("report_gpu", ["gpu.json", "--plot", "/nonexistent/f.svg"]),
        ("host_cost_gpu", ["--json", "/nonexistent/f.json"]),
        ("nccl_tests", ["/usr/bin", "--json", "/nonexistent/f.json"]),
        ("prediction", ["--json", "/nonexistent/f.json"]),
        ("prediction", ["--times", "/nonexistent/f.json"]),
        ("chain_order", ["--json", "/nonexistent/f.json"]),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_once(script: str, words: list[str]) -> None:
    done = subprocess.run([sys.executable, BENCH / f"{script}.py", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert f"argument {words[-2]}: '{words[-1]}' cannot be written: there is no folder '/nonexistent'" in done.stderr
