"""A rank that does not come, leaves or aborts, by every way of kernels, eagerly and in graphs: gpu_endings_side.py.

With a stand-in for the driver the host's engine does the calls; needs two GPUs to be for real, but no torch.
"""

from __future__ import annotations

import pytest
from gpu_jobs import gpus, run_side

SIDE = "gpu_endings_side.py"
ENDINGS = 4
WAYS = {"eager": 5, "graph": 6}


def test_the_hosts_engine_ends_so(fake_cuda: dict[str, str]) -> None:
    done = run_side(SIDE, 2, "eager", "short", **fake_cuda)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": well") == ENDINGS


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("mode", WAYS)
def test_the_stream_ends_and_the_error_names_the_rank(mode: str) -> None:
    done = run_side(SIDE, 2, mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": well") == ENDINGS * WAYS[mode]
