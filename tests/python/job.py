"""A job of ranks that stay alive and run what a test asks: real processes, and milliseconds a case.

Each rank is `python worker.py`; the functions that it can run are those of the sides that it imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from paceline.launch import rank_environment

WORKER = Path(__file__).parent / "worker.py"


class RankFailed(AssertionError):
    """A rank raised; its traceback is the message."""


class Job:
    def __init__(self, size: int, **environment: str) -> None:
        self.size = size
        shared = dict(os.environ) | rank_environment(size) | {"PACELINE_TIMEOUT": "20"} | environment
        self.ranks = [
            subprocess.Popen(
                self.command(rank),
                env=shared | {"PACELINE_RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def command(self, rank: int) -> list[str]:
        """What starts a rank."""
        return [sys.executable, str(WORKER)]

    def start(self, function: str, **arguments: Any) -> None:
        """Have every rank call <function>(comm, **arguments)."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(json.dumps([function, arguments]) + "\n")
            rank.stdin.flush()

    def result_of(self, number: int) -> Any:
        """What one rank's call returned."""
        rank = self.ranks[number]
        assert rank.stdout is not None
        line = rank.stdout.readline()
        answer = json.loads(line) if line else {"raised": f"it ended: {rank.wait()}"}
        if "raised" in answer:
            raise RankFailed(f"rank {number}: {answer['raised']}")
        return answer["returned"]

    def results(self) -> list[Any]:
        """What every rank's call returned; all are read before one raises, so that the job can go on."""
        results, failures = [], []
        for number in range(self.size):
            try:
                results.append(self.result_of(number))
            except RankFailed as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return results

    def run(self, function: str, **arguments: Any) -> list[Any]:
        self.start(function, **arguments)
        return self.results()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            assert rank.stdin is not None and rank.stdout is not None
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(20)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()
            if rank.stdout is not None:
                rank.stdout.close()
