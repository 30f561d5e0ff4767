"""PACELINE_STAGING: the smallest serves every collective, too much is an error."""

from __future__ import annotations

import os
import subprocess
import sys

from job import Job

NAMES = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"]


def test_the_smallest_serves_every_collective() -> None:
    with Job(3, PACELINE_STAGING="4K") as job:
        for name in NAMES:
            for count in (1, 1000, 100_001):
                job.run(
                    "collective",
                    name=name,
                    seed=count,
                    count=count,
                    dtype="int32",
                    op="sum",
                    root=1,
                    in_place=0,
                    asynchronous=False,
                )


def test_too_much_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import paceline; paceline.init()"],
        env=os.environ | {"PACELINE_STAGING": "9G", "PACELINE_RANK": "0", "PACELINE_SIZE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "PACELINE_STAGING=9G cannot be read: it takes bytes, at most 1G" in done.stderr, done.stderr
