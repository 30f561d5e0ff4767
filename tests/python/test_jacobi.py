"""examples/jacobi.c: a C program finds the same temperatures on any number of ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paceline._native import library_path

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "cc")

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no C compiler: {COMPILER}")


@pytest.fixture(scope="module")
def jacobi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, compiled as C99 without a warning, with the library that the tests use."""
    program = tmp_path_factory.mktemp("jacobi") / "jacobi"
    library = library_path().resolve()
    words = [COMPILER, "-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(ROOT / "include")]
    words += [str(ROOT / "examples" / "jacobi.c"), "-o", str(program), str(library), f"-Wl,-rpath,{library.parent}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return program


def printed(program: Path, ranks: int, points: int) -> dict[str, float]:
    words = [sys.executable, "-m", "paceline", "run", "-n", str(ranks), "--", str(program), str(points)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}
    assert found.pop("ranks") == ranks
    return found


@pytest.mark.parametrize("points", [20, 3], ids=["uneven blocks", "a rank without rows"])
def test_any_number_of_ranks_finds_the_same_temperatures(jacobi: Path, points: int) -> None:
    one = printed(jacobi, 1, points)
    assert 0 < one["residual"] <= 1e-8
    assert one["mean"] == pytest.approx(0.25, abs=1e-5)  # the exact solution's, by symmetry
    for ranks in (2, 4):
        several = printed(jacobi, ranks, points)
        assert several["checksum"] == pytest.approx(one["checksum"], rel=1e-12, abs=0)
        assert several["iterations"] == one["iterations"]
        assert several["residual"] == one["residual"]


def test_an_error_ends_the_program_with_its_sentence(jacobi: Path) -> None:
    words = ["sh", "-c", 'exec "$0" $((50 + PACELINE_RANK))', str(jacobi)]
    command = [sys.executable, "-m", "paceline", "run", "-n", "2", "--", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "paceGroupEnd(): mismatched calls: " in done.stderr
