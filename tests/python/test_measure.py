"""How rows are timed: what is no call of a program's is in no time."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any, cast

import pytest
from paceline.command.collectives import COLLECTIVES
from paceline.command.measure import Effort, measure
from paceline.command.trial import Trial
from paceline.datatypes import DATA_TYPES

PLANNING, CALL = 5_000_000, 20_000  # ns


class FakeTrial:
    """A trial whose calls take a known time: the first with an algorithm makes its plan."""

    def __init__(self) -> None:
        self.collective, self.dtype, self.root = COLLECTIVES["all_gather"], DATA_TYPES["float32"], 0
        self.comm = SimpleNamespace(size=2, set_algorithm=self._set_algorithm, all_reduce=lambda *_, **__: None)
        self.pattern = SimpleNamespace(op="sum")
        self._planned, self._algorithm = False, "ring"
        self.walked = 0  # bytes

    def _set_algorithm(self, name: str | None) -> None:
        self._planned, self._algorithm = False, (name or "ring").split()[0]

    def bytes(self, count: int) -> int:
        return 8 * count

    def plan(self, count: int, algorithm: str | None) -> Any:
        self._set_algorithm(algorithm)
        return SimpleNamespace(algorithm=self._algorithm, transport="shm", chunk_bytes=4 * count, radix=0)

    def repeat(self, count: int, calls: int) -> None:
        self.walked += 4 * count * calls

    def run(self, count: int, calls: int) -> array[int]:
        times = array("q", [CALL] * calls)
        if calls and not self._planned:
            times[0] += PLANNING
            self._planned = True
        return times


@pytest.mark.parametrize("algorithms", [["ring"], ["ring", "direct"], [None, "direct", "bruck chunk=4096"]])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("effort", [Effort(iterations=1), Effort(iterations=3), Effort(seconds=1e-9), Effort(3, 1)])
def test_no_time_has_the_making_of_a_plan(algorithms: list[str | None], rounds: int, effort: Effort) -> None:
    rows = measure(cast(Trial, FakeTrial()), 1000, algorithms, effort, False, rounds=rounds)
    assert len(rows) == len(algorithms)
    for row in rows.values():
        assert (row.time_us.median, row.time_us.max) == (CALL / 1000, CALL / 1000)


@pytest.mark.parametrize(
    "algorithms", [["ring", "ring chunk=4096"], ["ring chunk=4096", "ring"], [None, "ring chunk=1"]]
)
def test_an_algorithm_and_a_way_to_run_it_are_two_rows(algorithms: list[str | None]) -> None:
    rows = measure(cast(Trial, FakeTrial()), 1000, algorithms, Effort(iterations=1), False)
    assert list(rows) == algorithms


def test_the_chosen_algorithm_is_not_measured_twice() -> None:
    rows = measure(cast(Trial, FakeTrial()), 1000, [None, "ring", "direct"], Effort(iterations=1), False)
    assert list(rows) == [None, "direct"]


@pytest.mark.parametrize("count", [64 << 10, 1 << 20])
def test_staging_has_been_walked_before_a_time_counts(count: int) -> None:
    trial = FakeTrial()
    measure(cast(Trial, trial), count, ["ring", "direct"], Effort(seconds=1e-9), False, rounds=1)
    assert trial.walked >= 2 * (2 << 20)
    trial = FakeTrial()
    measure(cast(Trial, trial), count, ["ring"], Effort(iterations=3, warmup=1), False)
    assert trial.walked == 0  # who says how many calls to warm up with means these
