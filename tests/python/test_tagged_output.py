"""`paceline run --tag`: the ranks' output through their launcher."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from typing import IO

import pytest
from launching import command, printed_by, run


def test_tagged_lines() -> None:
    program = (
        "import os, sys; r = os.environ['PACELINE_RANK']; print('a' * 100_000); print('out', r); "
        "sys.stderr.write('no end ' + r); sys.exit(int(r))"
    )
    done = run("-n", "2", "--tag", "--", sys.executable, "-c", program)
    assert done.returncode == 1
    for rank in "01":
        mine = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        assert "".join(line[4:] for line in mine[:-1]) == "a" * 100_000
        assert mine[-1] == f"[{rank}] out {rank}"
        assert f"[{rank}] no end {rank}\n" in done.stderr


def test_tagged_lines_come_as_they_are_written_and_no_rank_waits_for_another() -> None:
    """Rank 0 says nothing until all is read from rank 1, which writes more than a pipe holds."""
    program = (
        "import os, sys, time\n"
        "if os.environ['PACELINE_RANK'] == '1':\n"
        "    for _ in range(5000): print('x' * 100)\n"
        "    print('done')\n"
        "time.sleep(60)"
    )
    words = command("run", "-n", "2", "--tag", "--", sys.executable, "-c", program)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert {job.stdout.readline() for _ in range(5000)} == {f"[1] {'x' * 100}\n"}
        assert job.stdout.readline() == "[1] done\n"
        job.terminate()


def test_what_outlives_the_ranks_does_not_keep_a_tagging_launcher() -> None:
    begun = time.monotonic()
    done = run("-n", "1", "--tag", "--", "sh", "-c", "setsid timeout 20 yes & setsid sleep 20 & printf ended >&2")
    assert (done.stderr, done.returncode) == ("[0] ended\n", 0)
    assert time.monotonic() - begun < 10


def test_all_that_ended_ranks_have_written_is_tagged() -> None:
    program = "import os; os.write(1, b'x' * 999 + b'\\n'); os.write(1, (b'y' * 999 + b'\\n') * 64); os._exit(0)"
    for _ in range(10):
        done = run("-n", "2", "--tag", "--", sys.executable, "-c", program)
        assert sorted(len(line) for line in done.stdout.splitlines()) == [1003] * 130


def tagged(*words: str) -> list[str]:
    return command("run", "--tag", *words)


def wait_until_full(output: IO[bytes] | None) -> None:
    """Until the pipe holds all that it can, and some more has come for it."""
    assert output is not None
    deadline = time.monotonic() + 30
    while int.from_bytes(fcntl.ioctl(output, termios.FIONREAD, bytes(4)), sys.byteorder) < 60_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)


def test_a_failure_is_noticed_also_when_nobody_reads_and_its_grace_is_kept() -> None:
    program = "test $PACELINE_RANK = 1 || { sleep 1; exit 3; }; exec yes"
    words = tagged("-n", "2", "--grace", "0.3", "--", "sh", "-c", program)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        assert job.wait(30) == 3
        said = job.stderr.read()
    assert "rank 1 still there 0.3 s after the failure: SIGTERM" in said
    assert said.endswith("bytes of the ranks' output are lost, since nobody reads them\n")


def test_two_signals_end_a_job_that_nobody_reads() -> None:
    with subprocess.Popen(tagged("-n", "2", "--grace", "1000", "--", "yes"), stdout=subprocess.PIPE) as job:
        wait_until_full(job.stdout)
        job.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(1.5)
        job.terminate()
        assert job.wait(10) == 128 + signal.SIGTERM


def test_output_of_a_job_that_ended_well_waits_for_its_reader() -> None:
    words = tagged("-n", "2", "--grace", "0", "--", "seq", "200000")
    with subprocess.Popen(words, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        time.sleep(2.5)
        assert len(job.stdout.read().splitlines()) == 2 * 200_000
        assert job.wait(10) == 0


def test_a_reader_that_goes_is_noticed() -> None:
    """The ranks learn it as they would without a launcher in between: by SIGPIPE."""
    with subprocess.Popen(tagged("-n", "1", "--", "yes"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None and job.stderr is not None
        time.sleep(0.5)
        job.stdout.close()
        assert job.wait(10) == 128 + signal.SIGPIPE
        assert b"was killed by SIGPIPE" in job.stderr.read()


def test_all_of_a_pipe_that_a_rank_has_enlarged_is_tagged() -> None:
    program = "import fcntl, os; fcntl.fcntl(1, 1031, 1 << 19); os.write(1, b'x' * 9 + b'\\n' * 400_000); os._exit(0)"
    assert len(run("-n", "1", "--tag", "--", sys.executable, "-c", program).stdout.splitlines()) == 400_000


def test_standard_output_that_does_not_block_is_no_reader_that_has_gone() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with (
        subprocess.Popen(tagged("-n", "2", "--", "seq", "30000"), stdout=theirs) as job,
        os.fdopen(ours, "rb") as output,
    ):
        os.close(theirs)
        time.sleep(1)
        assert len(output.read().splitlines()) == 2 * 30_000
        assert job.wait(10) == 0


def test_lines_of_both_streams_are_whole_where_these_are_one() -> None:
    program = "import os\nfor _ in range(200):\n    for stream in (1, 2): os.write(stream, b'x' * 6000 + b'\\n')"
    words = tagged("-n", "2", "--", sys.executable, "-c", program)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=True)
    assert sorted(done.stdout.splitlines()) == ["[0] " + "x" * 6000] * 400 + ["[1] " + "x" * 6000] * 400


def test_standard_output_may_be_closed_under_a_launcher_that_tags() -> None:
    words = ["sh", "-c", 'exec "$@" >&-', "sh", *tagged("-n", "1", "--", "sh", "-c", "echo out; echo error >&2")]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stderr.startswith("[0] error\n"), done.stderr


def test_a_launcher_that_cannot_open_a_pipe_leaves_none_behind() -> None:
    program = """
import errno, os
from paceline.launch import launch
pipe, opened = os.pipe, []

def pipe_or_not():
    if len(opened) == 4:  # the first rank's two and one of subprocess, and the second rank's first
        raise OSError(errno.EMFILE, "no more")
    opened.append(pipe())
    return opened[-1]

before = os.listdir("/proc/self/fd")
os.pipe = pipe_or_not
print(launch(["true"], 2, tag=True), len(os.listdir("/proc/self/fd")) - len(before))
"""
    assert printed_by(program) == "1 0\n"
