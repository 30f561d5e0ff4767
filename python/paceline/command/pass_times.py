"""The times that several passes of measuring have found, and what counts of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import geometric_mean, median
from typing import Any

from .. import tuning

_Place = tuple[str, str, int]  # collective, algorithm, bytes
_HELD_UP = 3  # times the passes' median


def typical(times_us: Sequence[float]) -> float:
    """What counts of the times of several passes: their mean; of two the shorter, for the other may be disturbed.

    >>> typical([4.0, 1.0, 2.0]), typical([1.5, 1.0])
    (2.0, 1.0)
    """
    return _mean(times_us) if len(times_us) > 2 else min(times_us)


def _mean(times_us: Sequence[float]) -> float:
    """The geometric mean of the passes that were not held up.

    Where calls take one of two times, as long as a group of ranks lives, it says how often they took which; the median
    of a few passes is one of the two by luck, and so is the least (docs/notes/predictions.md, Which time counts).

    >>> _mean([8.0, 2.0]), _mean([8.0, 2.0, 4.0, 100.0])
    (4.0, 4.0)
    """
    return geometric_mean(time for time in times_us if time <= _HELD_UP * median(times_us))


def _measured(times_us: Sequence[float | None]) -> list[float]:
    return [time for time in times_us if time is not None]


def apart(runs: Iterable[Sequence[float | None]]) -> list[float]:
    """How far what counts of every other pass is from what counts of the rest, of each of these runs' times.

    >>> found = apart([[1.0, 2.0], [10.0, 8.0, 10.0, 8.0], [3.0], [None, 4.0, 4.0]])
    >>> [round(each, 3) for each in found]
    [0.5, 0.25, 0.0]
    """
    measured = map(_measured, runs)
    return [abs(_mean(times[::2]) / _mean(times[1::2]) - 1) for times in measured if len(times) > 1]


class PassTimes:
    """Microseconds of runs, (collective, algorithm as Communicator.set_algorithm takes it), by bytes of their counts.

    A way to run an algorithm, "ring chunk=65536", is not measured in each pass, and a pass may be slower than another:
    what counts of it is the algorithm's own time, times the median of what the way took of that in the same passes; of
    the shorter time, if the pass has two of the algorithm.

    >>> times = PassTimes()
    >>> for us in (5.0, 8.0):
    ...     times = PassTimes(times.rows())  # a new pass
    ...     times.add(("broadcast", "direct"), 1024, us)
    >>> times.add(("broadcast", "direct"), 1024, 2.0)  # in the last pass once more
    >>> times.add(("broadcast", "direct chunk=512"), 1024, 3.0)
    >>> times.typical
    {('broadcast', 'direct'): {1024: 4.0}, ('broadcast', 'direct chunk=512'): {1024: 6.0}}
    >>> times.rows()
    [['broadcast', 'direct', 1024, [5.0, 4.0]], ['broadcast', 'direct chunk=512', 1024, [None, 6.0]]]
    """

    def __init__(self, rows: Iterable[list[Any]] = ()) -> None:
        """`rows`: those of an earlier pass, rows() of it."""
        self.typical: tuning.Times = {}  # us, by run and bytes
        self._passes: dict[_Place, list[float | None]] = {}
        self._ways: dict[_Place, set[str]] = {}  # to run an algorithm
        self._shortest: dict[_Place, float] = {}  # of this pass
        for name, algorithm, nbytes, times in rows:
            self._passes[name, algorithm, nbytes] = list(times)
        self._pass = max(map(len, self._passes.values()), default=0)  # counted from 0: this one
        for place in self._passes:
            self._count(*place)

    def add(self, run: tuple[str, str], nbytes: int, us: float, disturbed: bool = False) -> None:
        """A time that this pass has found; of two the pass's is their mean, or if one was disturbed the shorter."""
        name, algorithm = run
        place, own_place = (name, algorithm, nbytes), (name, algorithm.split()[0], nbytes)
        own_us = self._of_this_pass(own_place)
        if place != own_place and own_us is not None:
            us *= own_us / self._shortest[own_place]
        self._shortest[place] = min(us, self._shortest.get(place, us))
        before = self._of_this_pass(place)
        if before is not None:
            us = min(before, us) if disturbed else sqrt(before * us)
        times = self._passes.setdefault(place, [])
        times[self._pass :] = []
        times += [None] * (self._pass - len(times))
        times.append(us)
        self._count(*place)

    def _of_this_pass(self, place: _Place) -> float | None:
        times = self._passes.get(place, [])
        return times[self._pass] if len(times) > self._pass else None

    def rows(self) -> list[list[Any]]:
        """[collective, algorithm, bytes, [us of each pass, None where it was not measured]], for the next pass."""
        return [[*place, times] for place, times in self._passes.items()]

    def _count(self, name: str, algorithm: str, nbytes: int) -> None:
        place, own_place = (name, algorithm, nbytes), (name, algorithm.split()[0], nbytes)
        us = typical(_measured(self._passes[place]))
        own = self._passes.get(own_place, [])
        if place != own_place:
            self._ways.setdefault(own_place, set()).add(algorithm)
            shares = [time / by_itself for time, by_itself in zip(self._passes[place], own) if time and by_itself]
            if shares:
                us = median(shares) * typical(_measured(own))
        self.typical.setdefault((name, algorithm), {})[nbytes] = us
        for way in self._ways.get(place, ()):
            self._count(name, way, nbytes)
