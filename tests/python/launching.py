"""What the tests of `paceline run` have in common."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "paceline", *words]


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command("run", *words), capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


def printed_by(program: str) -> str:
    """What a Python program says that starts ranks itself."""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return done.stdout


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def heed_signals() -> None:
    """For a new child: the tests may run where these are ignored, in the background or under nohup."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(alive, pids))
