"""What Paceline has in /dev/shm."""

from __future__ import annotations

import time
from pathlib import Path


def shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").glob("paceline*")}


def assert_nothing_left(before: set[str]) -> None:
    """In /dev/shm; other jobs of this machine may have something there for a moment."""
    new = shared_memory() - before
    deadline = time.monotonic() + 10
    while new and time.monotonic() < deadline:
        time.sleep(0.05)
        new &= shared_memory()
    assert not new
