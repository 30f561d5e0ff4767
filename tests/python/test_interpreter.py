"""The Pythons that commands start look for no module in the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import paceline
import pytest
from paceline import interpreter

PACKAGES = Path(paceline.__file__).parents[1]
SHADOWED = ("secrets", "json", "array", "ctypes", "numpy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, with modules that have other modules' names."""
    where = tmp_path / "user"
    where.mkdir()
    for name in SHADOWED:
        (where / f"{name}.py").write_text(f"raise SystemExit('{name}.py of the current folder')\n")
    return where


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command as an installation has it: a script of some other folder."""
    script = tmp_path / "paceline-command"
    script.write_text("import sys\nfrom paceline.cli import main\nsys.exit(main())\n")
    return [sys.executable, str(script)]


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "barrier", "-n", "2", "--size", "0"),
        ("tune", "-n", "2", "--seconds", "1", "--largest", "64", "--transport", "shm", "--collectives", "broadcast",
         "--output", "profile.json"),
        ("doctor",),
    ],
)  # fmt: skip
def test_commands_run_no_module_of_the_current_folder(folder: Path, command: list[str], words: tuple[str, ...]) -> None:
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert "of the current folder" not in done.stdout + done.stderr
    assert "could not add" not in done.stdout
    assert done.returncode == 0 or words == ("doctor",), done.stderr


def test_the_folder_of_the_package_stays_where_it_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PACKAGES)
    program = interpreter.python("import paceline, sys; print(paceline.__file__, *sys.argv[1:])", "a", "b")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{paceline.__file__} a b\n", done.stderr


def test_a_path_without_the_current_folder_stays_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PYTHONSAFEPATH of Python 3.11 makes it."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONPATH", str(PACKAGES))
    program = interpreter.python("import sys; print(sys.path[0])")
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{PACKAGES}\n", done.stderr
