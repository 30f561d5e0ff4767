"""What make's targets run, by a shell that only writes down what it is asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
SHELL = '#!/bin/sh\necho "PACELINE_TEST_LONG=$PACELINE_TEST_LONG $*" >> "$MAKE_TEST_COMMANDS"\n'


def commands(target: str, folder: Path) -> list[str]:
    shell, written = folder / "shell", folder / "commands"
    shell.write_text(SHELL)
    shell.chmod(0o755)
    made = subprocess.run(
        ["make", "-C", MAKEFILE.parent, "--no-print-directory", target, f"SHELL={shell}"],
        env={"PATH": "/usr/bin:/bin", "MAKE_TEST_COMMANDS": str(written)},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return written.read_text().splitlines()


@pytest.mark.parametrize(
    ("target", "asked", "options"), [("long", "1", "--timeout 3600"), ("test", "", "--parallel 3 --timeout 600")]
)
def test_long_runs_the_long_tests_of_cpp_too(tmp_path: Path, target: str, asked: str, options: str) -> None:
    ran = [line for line in commands(target, tmp_path) if "ctest" in line]
    assert len(ran) == 1
    assert ran[0].startswith(f"PACELINE_TEST_LONG={asked} ") and ran[0].endswith(f"-on-failure {options}")
