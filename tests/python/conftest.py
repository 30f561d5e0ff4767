from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from job import Job

# A profile of this machine would change what the tests expect to run; those of tuning name theirs.
os.environ.setdefault("PACELINE_TUNING", "off")

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
