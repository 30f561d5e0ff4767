"""Ctrl-C while a command loads, or its library call works or waits: the process ends by it, without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from launching import command, heed_signals
from paceline import interpreter
from paceline.launch import rank_environment


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def listens(process: subprocess.Popen[bytes]) -> bool:
    here = Path(f"/proc/{process.pid}")
    rows = [line.split() for line in (here / "net" / "tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    with suppress(FileNotFoundError):  # one that was closed meanwhile
        return any(str(descriptor.readlink()) in sockets for descriptor in (here / "fd").iterdir())
    return False


def assert_ends_by_interrupt(
    words: list[str], is_busy: Callable[[subprocess.Popen[bytes]], bool], environment: dict[str, str] | None = None
) -> None:
    with subprocess.Popen(
        command(*words),
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_signals,
    ) as process:
        try:
            while not is_busy(process):
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=10)
        finally:
            process.kill()
    assert (process.returncode, errors) == (-signal.SIGINT, b"")


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "all_reduce", "--preset", "rx2", "--nodes", "1024", "--sizes", "64M"],
        ["topo", "--preset", "dgx-a100", "--nodes", "8"],
    ],
    ids=lambda words: words[0],
)
def test_what_is_simulated_or_searched(words: list[str]) -> None:
    assert_ends_by_interrupt(words, lambda process: cpu_seconds(process) > 0.4)


@pytest.mark.parametrize(
    "words", [["explain", "all_reduce"], ["bench", "all_reduce"], ["tune"]], ids=lambda words: words[0]
)
def test_a_rank_that_waits_for_the_others(words: list[str]) -> None:
    environment = {**rank_environment(2), "PACELINE_RANK": "0", "PACELINE_JOIN_TIMEOUT": "60"}
    assert_ends_by_interrupt(words, listens, environment)


@pytest.mark.parametrize(
    ("program", "module"),
    [(command("--version"), "argparse"), (interpreter.paceline("--version"), "dataclasses")],
    ids=["command", "rank"],
)
def test_what_is_still_loading(tmp_path: Path, program: list[str], module: str) -> None:
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    done = subprocess.run(
        program, env=environment, capture_output=True, timeout=60, check=False, preexec_fn=heed_signals
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
