"""What the tests on GPUs have in common: how many GPUs there are, and a side's ranks as processes, one a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paceline import cuda_driver
from paceline.errors import CudaError, Unsupported


def gpus() -> int:
    """GPUs that there are; 0 without a driver."""
    try:
        return cuda_driver.device_count()
    except (Unsupported, CudaError):
        return 0


def run_side(
    side: str, ranks: int, *words: str, timeout: int = 20, seconds: int = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the ranks of a script of this folder to their end. timeout: of their calls, s."""
    script = str(Path(__file__).with_name(side))
    command = [sys.executable, "-m", "paceline", "run", "-n", str(ranks), "--timeout", str(timeout), "--",
               sys.executable, script, *words]  # fmt: skip
    its = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=its)
