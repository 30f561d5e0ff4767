"""Ranks have the pages of their shared memory from the beginning: no call waits for the kernel to map one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, numpy as np, paceline
comm = paceline.init()
x, y = np.ones(65536, dtype=np.float32), np.zeros(65536, dtype=np.float32)
comm.all_reduce(x, out=y)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for count in (300, 5000, 65536):
    for _ in range(30):
        comm.all_reduce(x[:count], out=y[:count])
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
assert faults < 20, faults  # without: 60 and more
"""


@pytest.mark.skipif(
    tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (5, 14), reason="the kernel is older than 5.14"
)
def test_calls_meet_no_new_pages_of_shared_memory() -> None:
    command = [sys.executable, "-m", "paceline", "run", "-n", "4", "--", sys.executable, "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
