"""Files on the command line: what cannot be written at the end is an error at the beginning."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from paceline.command.files import input_text, output_file, write_json


def test_an_input_without_end_is_refused() -> None:
    with pytest.raises(OSError, match="longer than 64 MiB"):
        input_text("/dev/zero")


def test_a_full_disk_is_told_with_the_files_name() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_json("/dev/full", {"rows": []})


def test_a_file_in_a_folder_that_is_there(tmp_path: Path) -> None:
    assert output_file(str(tmp_path / "rows.json")) == str(tmp_path / "rows.json")
    assert output_file("rows.json") == "rows.json"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/rows.json", "there is no folder"),
        ("", "names no file"),
        ("file/rows.json", "there is no folder"),
        (300 * "x", "cannot be written: File name too long"),
    ],
)
def test_a_file_that_cannot_be_written(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        output_file(str(tmp_path / name) if name else "")


@pytest.fixture
def nobody() -> Iterator[None]:
    """Permissions bind this process."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """That one may only read, as the file in it."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        (made / "old.json").touch(0o444)
        made.chmod(0o555)
        yield made
        made.chmod(0o755)


@pytest.mark.parametrize("name", ["new.json", "old.json"])
def test_a_file_that_one_may_not_write(folder: Path, nobody: None, name: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written: Permission denied"):
        output_file(str(folder / name))


def test_why_a_file_cannot_be_written_is_said(tmp_path: Path) -> None:
    program = tmp_path / "sleep"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as running:
        try:
            with pytest.raises(argparse.ArgumentTypeError, match="cannot be written: Text file busy"):
                output_file(str(program))
        finally:
            running.kill()
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written: "):
        output_file("/proc/rows.json")  # where nobody may make a file


def test_a_link_to_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "here.json").symlink_to("new.json")
    (tmp_path / "nowhere.json").symlink_to("none/new.json")
    output_file(str(tmp_path / "here.json"))
    with pytest.raises(argparse.ArgumentTypeError, match=f"there is no folder '{tmp_path}/none'"):
        output_file(str(tmp_path / "nowhere.json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.json", "nowhere.json"]


def test_trying_a_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    for name in ("old.json", "new.json", "pipe"):
        output_file(str(tmp_path / name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.json", "pipe"]
    assert (tmp_path / "old.json").read_text() == "{}"


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "all_reduce", "-n", "2", "--plot"],
        ["bench", "all_reduce", "-n", "2", "--trace"],
        ["explain", "all_reduce", "--json"],
        ["predict", "all_reduce", "-n", "2", "--link-plot"],
        ["topo", "--plot"],
        ["doctor", "--json"],
        ["env", "nccl", "--json"],
    ],
)
def test_commands_say_so_at_once(tmp_path: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "paceline", *words, str(tmp_path / "none" / "file")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "there is no folder" in done.stderr
    assert done.stdout == ""
