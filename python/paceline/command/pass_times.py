"""The times that several passes of measuring have found, and what counts of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from .. import tuning


def typical(times_us: Sequence[float]) -> float:
    """What counts of the times of several passes: the median; of two the shorter, for the other may be disturbed.

    Unlike the least it does not depend on how often one has looked, and where a machine moves the CPUs about it comes
    out the same twice as well in a second run (docs/tuning.md).

    >>> typical([3.0, 1.0, 2.0]), typical([4.0, 1.0, 2.0, 3.0]), typical([1.5, 1.0])
    (2.0, 2.5, 1.0)
    """
    return median(times_us) if len(times_us) > 2 else min(times_us)


def apart(runs: Iterable[Sequence[float]]) -> list[float]:
    """How far what counts of every other pass is from what counts of the rest, of each of these runs' times.

    >>> apart([[1.0, 2.0], [10.0, 8.0, 10.0, 8.0], [3.0]])
    [0.5, 0.25]
    """
    return [abs(typical(times[::2]) / typical(times[1::2]) - 1) for times in runs if len(times) > 1]


class PassTimes:
    """Microseconds of runs, (collective, algorithm as Communicator.set_algorithm takes it), by bytes of their counts.

    >>> times = PassTimes()
    >>> for us in (5.0, 7.0, 6.0):
    ...     times = PassTimes(times.rows())  # a new pass
    ...     times.add(("broadcast", "direct"), 1024, us)
    >>> times.add(("broadcast", "direct"), 1024, 4.0)  # in the last pass once more
    >>> times.typical
    {('broadcast', 'direct'): {1024: 5.0}}
    >>> times.rows()
    [['broadcast', 'direct', 1024, [5.0, 7.0, 4.0]]]
    """

    def __init__(self, rows: Iterable[list[Any]] = ()) -> None:
        """`rows`: those of an earlier pass, rows() of it."""
        self.typical: tuning.Times = {}  # us, by run and bytes
        self._passes: dict[tuple[str, str, int], list[float]] = {}
        self._new: set[tuple[str, str, int]] = set()  # what this pass has measured
        for name, algorithm, nbytes, times in rows:
            self._passes[name, algorithm, nbytes] = list(times)
            self.typical.setdefault((name, algorithm), {})[nbytes] = typical(times)

    def add(self, run: tuple[str, str], nbytes: int, us: float) -> None:
        """A time that this pass has found; of several the shortest is the pass's."""
        place = (*run, nbytes)
        times = self._passes.setdefault(place, [])
        if place in self._new:
            us = min(us, times.pop())
        self._new.add(place)
        times.append(us)
        self.typical.setdefault(run, {})[nbytes] = typical(times)

    def rows(self) -> list[list[Any]]:
        """[collective, algorithm, bytes, [us of each pass]], for the next pass."""
        return [[*place, times] for place, times in self._passes.items()]
