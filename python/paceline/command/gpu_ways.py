"""Ways in which GPUs can run a collective, and the table of those that were fastest.

A way is what a row of a table says (docs/tuning.md). Which of them is possible the library knows; here are those that
are worth a try. Sizes are bytes of the call's count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt
from typing import Any

from .sizes import rounded_size_text

FOLDS = ("all_reduce", "reduce", "reduce_scatter")
MOVES = ("broadcast", "all_gather", "gather", "scatter", "all_to_all")
IN_PARTS = ("all_reduce", "reduce", "broadcast")  # those that more than two ranks can do in two steps
WORTH = 0.98  # a change is worth at least 2%: between equals what ran at the next smaller size stays

_KILO, _MEGA = 1 << 10, 1 << 20
_STRIP = 512  # bytes
BLOCKS = 32  # of a kernel at most, by default
_FEWER_BLOCKS = 24  # of long calls, whose stores to the peers hinder each other less so
_AT_ONCE = {"brief": 1, "wide": 2, "streaming": 1, "deep": 4}  # strips that a lane moves
_WARPS = 24  # of a block at most, which move strips
_WARPS_OF_TWO_RANKS = 16  # the same, but `streaming`
_IN_ROUNDS = ("streaming", "deep")
_LONG = 2 * _MEGA  # a piece of a call in rounds whose blocks lie in clusters
_GRAIN = 64  # bytes: sizes between two are multiples of it, so that all ways are possible

# What is tried from which size on, up to which.
_BRIEF = (0, 512 * _KILO)
_WIDE = (8 * _KILO, 2 * _MEGA)
_STREAMING = (128 * _KILO, 1 << 30)
_DEEP = (128 * _KILO, 64 * _MEGA)
_LARGE = (256 * _KILO, 1 << 62)
_DIRECT = (64 * _KILO, 1 << 62)
_ENGINES = (16 * _MEGA, 1 << 62)
_ALL_TO_ALL_TO = 8 * _MEGA  # one step of what can go in two


@dataclass(frozen=True)
class Way:
    """How a call is launched; numbers that are 0 are chosen by its size."""

    family: str
    steps: int = 1
    lanes: int = 0
    blocks: int = 0
    chunk: int = 0
    direct: bool = False  # in the users' buffers; else through the window
    pushed: bool = False  # what is folded so is pushed to who folds it; else loaded by it
    passed: bool = False  # what is folded so goes from rank to rank, if its sums are no wider than the type
    engines: bool = False  # what is moved so is, where a graph holds the call, moved by the copy engines

    def fields(self) -> dict[str, Any]:
        """As a row of a table has it.

        >>> Way("streaming", 2, lanes=8).fields()
        {'family': 'streaming', 'steps': 2, 'lanes': 8}
        """
        said = {"steps": self.steps if self.steps > 1 else 0, "lanes": self.lanes, "blocks": self.blocks}
        said |= {"chunk": self.chunk, "direct": self.direct, "pushed": self.pushed}
        said |= {"passed": self.passed, "engines": self.engines}
        return {"family": self.family, **{key: value for key, value in said.items() if value}}

    def means(self) -> str:
        """What moves the data in the users' buffers."""
        return "passed on" if self.passed else "pushed" if self.pushed else "copy engines" if self.engines else "direct"

    def __str__(self) -> str:
        if self.direct:
            return f"direct, {self.means()}" if self.pushed or self.passed else self.means()
        said = [f"{key} {value}" for key, value in self.fields().items() if key != "family"]
        return f"{self.family} ({', '.join(said)})" if said else self.family


# Measured times of one collective, microseconds: by size, then by way.
Times = Mapping[int, Mapping[Way, float]]


def candidates(collective: str, ranks: int, nbytes: int, blocks: int = BLOCKS) -> list[Way]:
    """The ways to try at a size. blocks: of a kernel that moves short messages at most."""

    def fits(limits: tuple[int, int]) -> bool:
        return limits[0] <= nbytes <= limits[1]

    in_parts = ranks > 2 and collective in IN_PARTS
    one_step = not in_parts or nbytes <= _ALL_TO_ALL_TO
    ways: list[Way] = []
    if fits(_BRIEF):
        ways += _short("brief", 1, nbytes, ranks, blocks)
    for steps, piece in ((1, nbytes), (2, nbytes // ranks)):
        if not (one_step if steps == 1 else in_parts):
            continue
        if steps == 1 and fits(_WIDE):
            ways += _short("wide", steps, piece, ranks, blocks)
        if fits(_STREAMING) or (fits(_WIDE) and not any(way.steps == steps for way in ways)):
            ways += _short("streaming", steps, piece, ranks, blocks)
        if steps == 1 and collective in MOVES and fits(_DEEP):
            ways += _short("deep", steps, piece, ranks, blocks)
        if fits(_LARGE):
            chunks = (0, 8 * _KILO, 16 * _KILO, 32 * _KILO)
            ways += [Way("large", steps, chunk=chunk) for chunk in chunks[: 4 if ranks == 2 else 3]]
            ways.append(Way("large", steps, blocks=BLOCKS // 2))
    if fits(_DIRECT) and nbytes % 16 == 0:
        # Where not all ranks see the buffers, the kernel after it does the work; else that one ends at once.
        family = "streaming" if nbytes <= 8 * _MEGA else "large"
        ways.append(Way(family, direct=True))
        if collective in FOLDS:
            if ranks > 2:
                ways.append(Way(family, direct=True, pushed=True))
            ways.append(Way(family, direct=True, passed=True))
        elif collective in MOVES and not in_parts and fits(_ENGINES):
            ways.append(Way(family, direct=True, engines=True))
    return ways


def _short(family: str, steps: int, piece: int, ranks: int, blocks: int) -> list[Way]:
    """With few or many lanes in a block, of which each has a warp for every other rank."""
    strips, at_once = -(-piece // _STRIP), _AT_ONCE[family]
    warps = _WARPS_OF_TWO_RANKS if ranks == 2 and family != "streaming" else _WARPS
    most = max(1, warps // (ranks - 1))
    ways = []
    # Rounds by all warps, and by fewer, which hinder each other less.
    many = {most}
    if family == "streaming" and ranks == 2:
        many |= {lanes * BLOCKS // blocks for lanes in (18, 20, 22)}
    elif family == "streaming":
        many |= {max(1, part * most // 8) for part in (5, 6, 7)}
    for lanes in sorted({1, 2, 4, 8} | many):
        room = lanes * blocks * at_once
        if lanes > most or (lanes > 1 and lanes // 2 >= strips):
            continue
        if family not in _IN_ROUNDS and strips > room:
            continue  # all of its strips are moved at once
        if family in _IN_ROUNDS and strips > 4 * room and lanes not in many:
            continue  # so many rounds that more lanes are faster
        # All, or as many as a strip each needs, or as are enough for rounds: the library chooses.
        spread = family in _IN_ROUNDS and lanes == most
        ways.append(Way(family, steps, 0 if spread else lanes))
    if family in _IN_ROUNDS and piece > _LONG:
        ways += [Way(family, steps, lanes, _FEWER_BLOCKS) for lanes in sorted({-(-5 * most // 6), most})]
    return ways


def through_window(way: Way) -> Way:
    """The same where not all ranks see the buffers."""
    return replace(way, direct=False, pushed=False, passed=False, engines=False)


def choose(times: Times) -> dict[int, Way]:
    """Of each size, the fastest way through the window, and with it whether to go direct, and how."""
    chosen: dict[int, Way] = {}
    last: Way | None = None
    for nbytes in sorted(times):
        window = {through_window(way): time for way, time in times[nbytes].items() if not way.direct}
        best = min(window, key=lambda way: window[way])
        if last is not None and WORTH * window.get(through_window(last), float("inf")) <= window[best]:
            best = through_window(last)
        direct = {way.means(): time for way, time in times[nbytes].items() if way.direct}
        worth = 1 if last is not None and last.direct else WORTH
        goes = bool(direct) and min(direct.values()) < worth * window[best]
        never = float("inf")
        engines = goes and direct.get("copy engines", never) < direct.get("direct", never)
        # What is pushed or passed on takes more multiprocessors from what else goes on. What is passed on is pushed or
        # loaded where its sums are wider than the type: whichever is faster.
        worth = 1 if last is not None and last.pushed else WORTH
        pushed = goes and direct.get("pushed", never) < worth * direct.get("direct", never)
        worth = 1 if last is not None and last.passed else WORTH
        other = min(direct.get("direct", never), direct.get("pushed", never))
        passed = goes and direct.get("passed on", never) < worth * other
        last = replace(best, direct=goes, pushed=pushed, passed=passed, engines=engines)
        chosen[nbytes] = last
    return chosen


def rows(collective: str, chosen: Mapping[int, Way]) -> list[dict[str, Any]]:
    """The rows of a table: a way counts from half way between two sizes on, as sizes go: by their ratio."""
    found: list[dict[str, Any]] = []
    sizes = sorted(chosen)
    for before, nbytes in pairwise([0, *sizes]):
        if not found or chosen[nbytes] != chosen[before]:
            begin = isqrt(before * nbytes) if found else 0
            found.append({"collective": collective, "from": begin, **chosen[nbytes].fields()})
    return found


def curves(collective: str, times: Times) -> list[dict[str, Any]]:
    """What was measured, as files have it."""
    ways = dict.fromkeys(way for nbytes in sorted(times) for way in times[nbytes])
    return [
        {
            "collective": collective,
            **way.fields(),
            "points": [[nbytes, round(times[nbytes][way], 3)] for nbytes in sorted(times) if way in times[nbytes]],
        }
        for way in ways
    ]


def between(times: Times) -> dict[int, list[Way]]:
    """Sizes half way between two of which another way is the fastest, and the ways that meet there."""
    chosen = choose(times)
    found: dict[int, list[Way]] = {}
    for low, high in pairwise(sorted(chosen)):
        middle = isqrt(low * high) // _GRAIN * _GRAIN
        if chosen[low] == chosen[high] or not low < middle < high:
            continue
        ways = {through_window(chosen[low]), through_window(chosen[high])}
        ways |= {way for size in (low, high) for way in times[size] if way.direct}
        found[middle] = sorted(ways, key=repr)  # in the same order on all ranks
    return found


def summary(table: Sequence[Mapping[str, Any]]) -> str:
    """A collective's rows for people."""
    parts = []
    for row, after in zip(table, [*table[1:], None], strict=True):
        way = Way(**{key: value for key, value in row.items() if key not in ("collective", "from")})
        below = "" if after is None else f" below {rounded_size_text(after['from'])}"
        direct = way.means() + ", or " if way.direct else ""
        parts.append(f"{direct}{through_window(way)}{below}")
    return ", then ".join(parts)
