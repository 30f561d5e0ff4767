"""The self-contained wheel of `make wheel`, in an empty virtual environment without a network."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    wheels = list((ROOT / "dist").glob("paceline-*.whl"))
    assert len(wheels) == 1, f"`make wheel` leaves one wheel in dist, found {wheels}"
    return wheels[0]


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it but the wheel."""
    where = tmp_path_factory.mktemp("empty")
    venv.create(where, with_pip=False)
    run(sys.executable, "-m", "pip", "--python", where / "bin/python", "install", "--no-index", "--no-deps", wheel)
    return where


def test_the_wheel_serves_every_python_of_this_platform(wheel: Path) -> None:
    python, abi, platform = wheel.stem.split("-")[2:]
    assert (python, abi) == ("py3", "none")
    assert platform.startswith("manylinux_2_")


def test_a_collective_of_two_ranks_runs_without_numpy(empty: Path) -> None:
    program = """
import array, paceline
with paceline.init() as comm:
    data = array.array("d", [comm.rank + 1.0] * 5)
    comm.all_reduce(data)
    assert data.tolist() == [3.0] * 5, data
"""
    run(empty / "bin/paceline", "run", "-n", 2, "--", empty / "bin/python", "-c", program)


def test_the_nccl_door_stands_on_the_wheels_own_library(empty: Path) -> None:
    program = "import ctypes; version = ctypes.c_int(); print(ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version)))"
    command = ("run", "-n", 1, "--nccl", "--", empty / "bin/python", "-c", program)
    assert run(empty / "bin/paceline", *command) == "0\n"


def test_the_header_and_the_type_marker_are_inside(empty: Path) -> None:
    (package,) = (empty / "lib").glob("python*/site-packages/paceline")
    assert (package / "include/paceline/paceline.h").is_file()
    assert (package / "py.typed").is_file()
