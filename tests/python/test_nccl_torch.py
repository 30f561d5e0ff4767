"""An unmodified PyTorch program on two GPUs: on Paceline, on NCCL behind it, and on both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paceline.door import nccl_environment


def gpus() -> int:
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count() if torch.version.cuda else 0


@pytest.mark.skipif(gpus() < 2, reason="needs torch and two GPUs")
@pytest.mark.parametrize("forward", ["", "all", "all_reduce", "broadcast,send_recv"])
def test_every_collective_of_torch(forward: str) -> None:
    program = Path(__file__).parent / "nccl_torch_side.py"
    ranks = gpus()
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(program)],
        env={**os.environ, **nccl_environment(), "PACELINE_NCCL_FORWARD": forward},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank ")) == [
        f"rank {rank} is well" for rank in range(ranks)
    ]
