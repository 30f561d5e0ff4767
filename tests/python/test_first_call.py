"""What the first call of a shape costs: its plan is made, its scratch memory found."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest
from job import Job
from paceline.command.collectives import COLLECTIVES

MOVING = [name for name in COLLECTIVES if name != "barrier"]


@pytest.fixture(scope="module")
def two_ranks() -> Iterator[Job]:
    with Job(2) as job:
        yield job


@pytest.mark.long  # a machine that does other things beside makes single calls slow
@pytest.mark.parametrize("bytes_each", [8, 64 << 10, 1 << 20, 8 << 20])
@pytest.mark.parametrize("name", MOVING)
def test_at_most_three_later_calls_and_200_us(two_ranks: Job, name: str, bytes_each: int) -> None:
    """Medians over shapes: one call says more about the machine than about the library."""
    times = two_ranks.run("first_calls", name=name, count=bytes_each // 4, shapes=7, later=10)
    first = statistics.median(max(calls) for calls in zip(*(firsts for firsts, _ in times), strict=True))
    later = statistics.median(max(calls) for calls in zip(*(others for _, others in times), strict=True))
    assert first <= 3 * later + 200e-6, f"first {first * 1e6:.0f} us, later {later * 1e6:.0f} us"
