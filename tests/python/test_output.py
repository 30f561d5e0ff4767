"""What people see: tables and --help, against golden files (PACELINE_GOLDEN=write rewrites them)."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from paceline.command.bench_table import heading, line, title
from paceline.command.doctor import Check, table
from paceline.command.measure import Row, Times

GOLDEN = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("PACELINE_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


ROWS = [
    Row("all_reduce", 8, 2, "float32", "sum", None, "one_shot", "shm", 8, 0, Times(3.214, 2.9, 88.1), 0.00249, 0.0037,
        0, True),
    Row("all_reduce", 67108864, 16777216, "bfloat16", "premulsum", None, "pipelined_chain", "shm", 524288, 0,
        Times(20123.4, 19000.25, 123456.7), 3.335, 5.002, 12, False),
    Row("broadcast", 4096, 1024, "float32", None, 3, "knomial", "shm+tcp", 4096, 4, Times(12, 11, 13), 0.341, 0.341,
        None, True),
]  # fmt: skip


def test_bench_table() -> None:
    parts = [title("1.2.3", 4, "node-a", "cpu"), heading("all_reduce"), *(line(row, True) for row in ROWS)]
    check("bench.txt", "\n".join(parts) + "\n")


def test_bench_columns_stay_in_place() -> None:
    lines = heading("all_reduce").splitlines()[2:] + [line(row, False) for row in ROWS]
    ends = [[match.end() for match in re.finditer(r"\S+", text)] for text in (lines[2], lines[3])]
    assert ends[0][:5] == ends[1][:5] and ends[0][6:] == ends[1][6:]


def test_doctor_table() -> None:
    checks = [
        Check("library", "ok", "version 1.2.3, /opt/lib/libpaceline.so"),
        Check("/dev/shm", "warn", "64M bytes, 60M free", "mount it larger"),
        Check("loopback", "fail", "127.0.0.1: refused", "ip link set lo up"),
    ]
    check("doctor.txt", table(checks) + "\n")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse lays its text out differently in each version")
@pytest.mark.parametrize(
    "words", [[], ["bench"], ["run"], ["topo"], ["predict"], ["tune"], ["explain"], ["env"], ["doctor"]]
)
def test_help(words: list[str]) -> None:
    environment = {**os.environ, "COLUMNS": "120"}
    shown = subprocess.run(
        [sys.executable, "-m", "paceline", *words, "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    check(f"help-{'-'.join(words) or 'paceline'}.txt", shown.stdout)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["doctor", "--help"], ["--version"], ["topo", "--preset", "hgx-h200"]])
def test_a_full_disk_is_told_in_a_line(words: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        shown = subprocess.run(
            [sys.executable, "-m", "paceline", *words],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert shown.returncode == 1
    assert re.fullmatch(r"paceline( topo)?: \[Errno 28\] No space left on device\n", shown.stderr)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [["--help"], ["doctor", "--help"], ["topo", "--preset", "hgx-h200"], ["explain", "all_reduce", "-n", "3"]],
)
def test_a_reader_that_goes_is_no_failure_to_tell(words: list[str], unbuffered: str) -> None:
    command = [sys.executable, "-m", "paceline", *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize(
    "words", [("topo", "--preset", "hgx-h200"), ("bench", "barrier", "-n", "2"), ("explain", "barrier", "-n", "2")]
)
def test_without_standard_error(words: tuple[str, ...]) -> None:
    command = ["sh", "-c", 'exec "$0" "$@" 2>&-', sys.executable, "-m", "paceline", *words]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


def test_what_is_for_standard_error_is_not_in_the_output_without_it() -> None:
    command = ["sh", "-c", 'exec "$0" "$@" 2>&-', sys.executable, "-m", "paceline", "topo", "--file", "/nowhere"]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (shown.returncode, shown.stdout) == (1, "")


def test_without_a_library_the_package_has_no_version_and_can_be_looked_into() -> None:
    program = "import inspect, paceline; inspect.getmembers(paceline); print(hasattr(paceline, '__version__'))"
    environment = os.environ | {"PACELINE_LIBRARY": "/nowhere"}
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert shown.stdout == "False\n"


def test_what_several_ranks_say_at_once_are_lines() -> None:
    """A line is one write, here to a socket that keeps writes apart."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    said = []
    command = [sys.executable, "-m", "paceline", "bench", "barrier", "-n", "2"]
    environment = {**os.environ, "PACELINE_TOPOLOGY": "none.json"}
    with ours, theirs:
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, timeout=60, check=False)
        with suppress(BlockingIOError):
            while True:
                said.append(ours.recv(1 << 16).decode())
    said = [*filter(None, said)]
    assert len(said) == 4 and all(re.fullmatch(r"paceline bench: .*\n", line) for line in said), said


def test_an_unknown_option_shows_the_usage_of_its_command() -> None:
    command = [sys.executable, "-m", "paceline", "doctor", "--jsn", "f.json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 2
    assert shown.stderr.startswith("usage: paceline doctor ")
    assert "paceline doctor: error: unrecognized arguments: --jsn f.json" in shown.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("topo", "--file", ""), "argument --file: '' names no file"),
        (("topo", "--json", ""), "argument --json: '' names no file"),
        (("predict", "all_reduce", "--profile", ""), "argument --profile: '' names no file"),
        (("predict", "all_reduce", "--preset", "rx1", "--transport", ""), "--transport goes with --profile"),
        (("tune", "--output", ""), "argument --output: '' names no file"),
        (("run", "-n", "2", "--", ""), "no program"),
        (("run", "-n", "2", "--address", "", "--", "true"), "argument --address: '' is no address"),
    ],
)
def test_empty_arguments(words: tuple[str, ...], told: str) -> None:
    command = [sys.executable, "-m", "paceline", *words]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.returncode, told in shown.stderr) == (2, True), shown.stderr


def test_collectives_may_be_written_as_in_the_manual() -> None:
    command = [sys.executable, "-m", "paceline", "explain", "all-reduce", "-n", "1", "--size", "8"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("# all_reduce on 1 rank\n")
