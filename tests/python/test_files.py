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
from paceline.cli import main
from paceline.command.files import input_text, output_file, write_json


def test_an_input_without_end_is_refused() -> None:
    with pytest.raises(OSError, match="longer than 64 MiB"):
        input_text("/dev/zero")


def test_a_full_disk_is_told_with_the_files_name() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_json("/dev/full", {"rows": []})


def test_text_is_written_in_any_locale(tmp_path: Path) -> None:
    program = f"from paceline.command.files import write_text; write_text({str(tmp_path / 'file')!r}, {'nöde'!a})"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert (tmp_path / "file").read_bytes() == "nöde".encode()


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


@pytest.mark.parametrize(
    ("words", "names", "said"),
    [
        (["bench", "all_reduce", "-n", "2"], {"--json": "x.json", "--trace": "x.json"}, "--json and --trace"),
        (["tune"], {"--output": "x.json", "--json": "./x.json"}, "--output and --json"),
        (["topo"], {"--nccl-xml-out": "old.xml", "--json": "link.xml"}, "--json and --nccl-xml-out"),
        (["topo"], {"--json": "old.xml", "--nccl-xml-out": "hard.xml"}, "--json and --nccl-xml-out"),
        (
            ["predict", "all_reduce", "--preset", "dgx1-v100"],
            {"--plot": "x.svg", "--link-plot": "x.svg"},
            "--plot and --link-plot",
        ),
    ],
)
def test_two_options_that_name_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], names: dict[str, str], said: str
) -> None:
    (tmp_path / "old.xml").touch()
    (tmp_path / "link.xml").symlink_to("old.xml")
    (tmp_path / "hard.xml").hardlink_to(tmp_path / "old.xml")
    with pytest.raises(SystemExit, match="2"):
        main([*words, *(word for option, name in names.items() for word in (option, f"{tmp_path}/{name}"))])
    assert f"{said} write one file, '{tmp_path}/" in capsys.readouterr().err


def test_a_folder_that_has_gone_is_told_by_who_writes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["tune", "-n", "2", "--output", "profile.json"]) == 1
    assert "paceline tune: no profile can be saved in profile.json" in capsys.readouterr().err


def test_two_options_may_name_one_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "--preset", "dgx1-v100", "--json", "/dev/null", "--nccl-xml-out", "/dev/null"]) == 0
