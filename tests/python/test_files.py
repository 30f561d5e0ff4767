"""Files on the command line: what cannot be written at the end is an error at the beginning."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paceline.command.files import output_file


def test_a_file_in_a_folder_that_is_there(tmp_path: Path) -> None:
    assert output_file(str(tmp_path / "rows.json")) == str(tmp_path / "rows.json")
    assert output_file("rows.json") == "rows.json"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/rows.json", "there is no folder"),
        ("", "is a folder"),
        ("file/rows.json", "there is no folder"),
        (300 * "x", "cannot be written: File name too long"),
    ],
)
def test_a_file_that_cannot_be_written(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        output_file(str(tmp_path / name))


@pytest.mark.parametrize("name", ["new.json", "old.json"])
def test_a_file_that_one_may_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "old.json").touch()
    refused = tmp_path if name == "new.json" else tmp_path / name
    monkeypatch.setattr(os, "access", lambda path, _: path != refused)
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written: Permission denied"):
        output_file(str(tmp_path / name))


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
