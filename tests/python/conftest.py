from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paceline
import pytest
from hypothesis import settings
from job import Job

# A profile of this machine would change what the tests expect to run; those of tuning name theirs.
os.environ.setdefault("PACELINE_TUNING", "off")
# Ranks of this process that share a GPU wait for each other there, so their streams must not share a queue to it.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

settings.register_profile("quiet", database=None, deadline=None)
settings.load_profile("quiet")


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    """Jobs of several sizes."""
    with Job(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def three() -> Iterator[Job]:
    with Job(3) as started:
        yield started


@pytest.fixture
def comm(monkeypatch: pytest.MonkeyPatch) -> Iterator[paceline.Communicator]:
    """A communicator of one rank, in this process."""
    monkeypatch.delenv("PACELINE_RANK", raising=False)
    with paceline.init() as one:
        yield one


@pytest.fixture
def nobody() -> Iterator[None]:
    """Permissions bind this process."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables under which a process finds the stand-in for the CUDA driver, fake_cuda_driver.c."""
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).with_name("fake_cuda_driver.c")
    compiler = [os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compiler, "-o", folder / "libcuda.so.1", source], check=True, timeout=60)
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_LEAKS": "1"}
