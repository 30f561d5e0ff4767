"""Ranks that were started without standard streams: what is printed there goes nowhere, not into what ranks share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launching import run

PROGRAM = """
import os, sys, numpy, paceline

with paceline.init() as comm:
    x = paceline.empty(1000)
    x[:] = 1
    for _ in range(5):
        for stream in (1, 2):
            try:
                os.write(stream, b"a line that nobody reads")
            except OSError:
                pass
        comm.all_reduce(x, op="max")
    with open(f"{sys.argv[1]}/{comm.rank}", "w") as file:
        file.write(str((x == 1).all()))
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_what_is_printed_reaches_no_connection_and_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    monkeypatch.setenv("PACELINE_TRANSPORT", transport)
    closed = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-']
    done = run("-n", "2", "--", *closed, sys.executable, "-c", PROGRAM, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["True", "True"]
