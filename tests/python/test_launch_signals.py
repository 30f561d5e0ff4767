"""`paceline run`: signals, and what of a job is left when it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from launching import alive, command, heed_signals, printed_by, run, wait_until_gone


@contextmanager
def job_of_two(
    *program: str, grace: float = 10, terminal: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A running `paceline run -n 2` and the process ids that its ranks print.

    terminal: in whose foreground it runs, without reading from it or writing to it.
    """
    words = command("run", "-n", "2", "--grace", str(grace), "--", *program)

    def begin() -> None:
        heed_signals()
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=begin,
    ) as job:
        try:
            assert job.stdout is not None
            yield job, [int(job.stdout.readline()) for _ in range(2)]
        finally:
            job.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on(number: signal.Signals) -> None:
    program = (
        f"import os, signal, sys, time; signal.signal({int(number)}, lambda *_: sys.exit(11)); "
        "os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"
    )
    with job_of_two(sys.executable, "-c", program) as (job, pids):
        job.send_signal(number)
        assert job.wait(10) == 11
        wait_until_gone(pids)


def test_ctrl_c_reaches_a_rank_once_wherever_its_output_goes() -> None:
    """From the terminal: passed on as well, it would be there before the signal that the launcher gets next."""
    program = (
        "import os, signal; signal.alarm(60)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR1])\n"
        "os.write(1, b'%d\\n' % os.getpid()); signal.sigwait([signal.SIGINT]); os.write(1, b'here\\n')\n"
        "signal.sigwait([signal.SIGUSR1]); twice = signal.SIGINT in signal.sigpending()\n"
        "os.write(1, b'twice\\n' if twice else b'once\\n')"
    )
    keyboard, terminal = os.openpty()
    with job_of_two(sys.executable, "-c", program, terminal=terminal) as (job, _):
        assert job.stdout is not None
        job.send_signal(signal.SIGSTOP)  # until the ranks have got theirs
        os.waitid(os.P_PID, job.pid, os.WSTOPPED)
        os.write(keyboard, b"\x03")
        assert [job.stdout.readline() for _ in range(2)] == ["here\n"] * 2
        job.send_signal(signal.SIGUSR1)
        job.send_signal(signal.SIGCONT)
        assert [job.stdout.readline() for _ in range(2)] == ["once\n"] * 2
        assert job.wait(10) == 128 + signal.SIGINT
    os.close(terminal)
    os.close(keyboard)


STUBBORN = ("sh", "-c", "trap '' INT TERM; echo $$; while :; do sleep 0.1; done")


def test_a_second_signal_ends_ranks_that_a_first_one_did_not() -> None:
    with job_of_two(*STUBBORN, grace=0.3) as (job, pids):
        job.send_signal(signal.SIGINT)
        time.sleep(0.8)
        assert job.poll() is None
        for _ in range(2):  # the first one may have come at once with the one before
            job.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                job.wait(2)
                break
        assert job.wait(10) == 128 + signal.SIGKILL
        wait_until_gone(pids)
        assert job.stderr is not None
        assert job.stderr.read() == (
            "paceline run: rank 0, 1 still there 0.3 s after a second signal (SIGINT): SIGTERM\n"
            "paceline run: rank 0, 1 still there 0.6 s after a second signal (SIGINT): SIGKILL\n"
        )


def test_a_rank_that_ends_by_the_signal_hurries_no_other() -> None:
    program = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM]); "
        "os.write(1, b'%d\\n' % os.getpid()); signal.sigwait([signal.SIGINT]); "
        "sys.exit(9 if os.environ['PACELINE_RANK'] == '1' or signal.sigtimedwait([signal.SIGTERM], 5) else 0)"
    )
    with job_of_two(sys.executable, "-c", program, grace=3) as (job, _):
        job.send_signal(signal.SIGINT)
        assert job.wait(20) == 9
        assert job.stderr is not None and job.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("end", "how", "code"),
    [
        ("kill -SEGV $$", "was killed by SIGSEGV (signal 11)", 139),
        ("kill -KILL $$", "was killed by SIGKILL (signal 9)", 137),
        ("exit 3", "exited with code 3", 3),
    ],
)
def test_a_failure_after_a_signal_that_the_ranks_survived(
    tmp_path: Path, number: signal.Signals, end: str, how: str, code: int
) -> None:
    go = tmp_path / "go"
    program = (
        f"trap 'echo got it' HUP TERM INT; echo $$; while ! test -e {go}; do sleep 0.05; done; "
        f"test $PACELINE_RANK = 0 || {{ {end}; }}; trap '' TERM; while :; do sleep 0.1; done"
    )
    with job_of_two("sh", "-c", program, grace=0.5) as (job, pids):
        job.send_signal(number)
        assert job.stdout is not None
        assert [job.stdout.readline() for _ in range(2)] == ["got it\n"] * 2
        time.sleep(0.8)  # longer than for which an end is an answer to the signal
        go.touch()
        assert job.wait(10) == code
        wait_until_gone(pids)
        assert job.stderr is not None
        lines = job.stderr.read().splitlines()
        assert lines[0].startswith("paceline run: rank 1 (pid ") and lines[0].endswith(how)
        assert "paceline run: rank 0 still there 0.5 s after the failure: SIGTERM" in lines


@pytest.mark.parametrize("end", ["trap - TERM; kill -TERM $$", "exit 143"])
def test_a_rank_may_take_long_to_end_by_the_signal(end: str) -> None:
    program = (
        "trap 'sleep 0.5; done=1' TERM; echo $$; while test -z \"$done\"; do sleep 0.05; done; "
        f"test $PACELINE_RANK = 0 && {{ {end}; }}; sleep 1; exit 0"
    )
    with job_of_two("sh", "-c", program, grace=0.1) as (job, _):
        job.terminate()
        assert job.wait(10) == 143
        assert job.stderr is not None and job.stderr.read() == ""


def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    """As timeout(1) sends it: to the program, and to its group."""
    with job_of_two(*STUBBORN, grace=0) as (job, _):
        for _ in range(2):
            job.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        assert job.poll() is None


def test_ranks_do_not_outlive_a_killed_launcher() -> None:
    with job_of_two("sh", "-c", "echo $$; exec sleep 60") as (job, pids):
        job.kill()
        wait_until_gone(pids)


def test_what_a_rank_has_started_ends_with_a_job_that_is_ended() -> None:
    with job_of_two("sh", "-c", "sleep 60 & echo $!; wait") as (job, pids):
        job.terminate()
        assert job.wait(10) == 128 + signal.SIGTERM
        wait_until_gone(pids)


def test_a_job_that_was_ended_may_get_other_signals_too() -> None:
    """The ranks end well: exit code and end of what they have started are those of the signal that ended the job."""
    program = "trap 'echo one' TERM; trap 'exit 0' USR1; sleep 60 & echo $!; while :; do wait; done"
    with job_of_two("sh", "-c", program) as (job, pids):
        assert job.stdout is not None
        job.terminate()
        assert [job.stdout.readline() for _ in range(2)] == ["one\n"] * 2
        job.send_signal(signal.SIGUSR1)
        assert job.wait(10) == 128 + signal.SIGTERM
        wait_until_gone(pids)


def test_other_children_of_the_launching_process_live_on() -> None:
    program = (
        "import subprocess; from paceline.launch import launch\n"
        "other = subprocess.Popen(['sleep', '60'])\n"
        "print(launch(['sh', '-c', 'sleep 60 & exit 3'], 1), other.poll())\n"
        "other.kill()"
    )
    assert printed_by(program) == "3 None\n"


def test_what_a_rank_has_started_may_outlive_a_job_that_ended_well() -> None:
    done = run("-n", "1", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
    assert alive(int(done.stdout))
    os.kill(int(done.stdout), signal.SIGKILL)


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    words = ["nohup", *command("run", "-n", "1", "--", "sh", "-c", "kill -HUP $PPID; kill -HUP $$; echo here")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
