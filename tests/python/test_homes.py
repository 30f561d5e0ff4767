"""With more ranks than CPUs the ranks of a communicator are on all CPUs alike, also where it has some of the job's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

RANK = """
import ctypes, os
import numpy as np, paceline

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
comm = paceline.init()
current_cpu = ctypes.CDLL(None).sched_getcpu
for ranks in ([0, 1, 2, 3], [0, 2, 4, 6], list(range(8))):
    part = comm.split(0 if comm.rank in ranks else 1)
    x = np.ones(1 << 14, dtype=np.float32)
    cpus = np.zeros(400, dtype=np.int32)
    if comm.rank in ranks:
        for i in range(len(cpus)):
            part.all_reduce(x)
            cpus[i] = current_cpu()
        both = part.all_gather(cpus).reshape(part.size, -1)
        even = [list(column).count(column[0]) == part.size // 2 for column in both.T]
        assert sum(even) > len(even) / 2, (ranks, both.T)
    comm.barrier()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a single CPU")
def test_parts_of_a_job_have_homes_on_all_cpus() -> None:
    command = [sys.executable, "-m", "paceline", "run", "-n", "8", "--", sys.executable, "-c", RANK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
