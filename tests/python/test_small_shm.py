"""A /dev/shm that is too small for the usual staging, as in a container, gets less of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHECK = """
import numpy as np, paceline
comm = paceline.init()
x = np.full(300_000, comm.rank + 1.0, dtype=np.float32)
comm.all_reduce(x)
assert (x == 3).all(), x[:4]
"""


def on_shm_of(size: str, **settings: str) -> subprocess.CompletedProcess[str]:
    program = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    command = [sys.executable, "-m", "paceline", "run", "-n", "2", "--", sys.executable, "-c", CHECK]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", program, "sh", *command],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(autouse=True)
def root() -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespaces here")


@pytest.mark.parametrize("size", ["64m", "6m", "3m"])
def test_less_staging_where_there_is_less_room(size: str) -> None:
    done = on_shm_of(size)
    assert done.returncode == 0, done.stderr


def test_no_room_at_all_is_an_error_that_says_so() -> None:
    done = on_shm_of("200k")
    assert done.returncode != 0
    assert "/dev/shm is too small" in done.stderr, done.stderr


def test_what_the_user_asks_for_is_not_made_less() -> None:
    done = on_shm_of("6m", PACELINE_STAGING="4M")
    assert done.returncode != 0
    assert "/dev/shm is too small" in done.stderr, done.stderr
