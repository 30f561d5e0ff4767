"""What the library says about itself opens the CUDA driver only where it is about GPUs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

DESCRIBES = """
import sys
from paceline import _native
print(_native.library().paceDescribe(sys.argv[1].encode()).decode())
"""


def described(which: str) -> tuple[str, bool]:
    """The text, and whether the loader was asked for the driver, be there one or not."""
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBES, which],
        env={**os.environ, "LD_DEBUG": "files"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "libpaceline" in done.stderr
    return done.stdout, "libcuda.so" in done.stderr


@pytest.mark.parametrize("which", ["algorithms", "configuration"])
def test_tables_open_no_driver(which: str) -> None:
    text, opened = described(which)
    assert text.startswith("[")
    assert not opened


def test_the_build_opens_the_driver_where_it_has_cuda() -> None:
    text, opened = described("build")
    assert opened == ('"runtime":null' not in text)
