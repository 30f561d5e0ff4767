"""What an episode of the soak does: random calls on several communicators, the same on every rank.

Two of three episodes make their calls on GPU memory by a table of random ways (docs/tuning.md), the others by the
communicators' own.

A team is a communicator that every rank is in. Its calls are made on two streams, or some of them are captured and
replayed among the others, then all on one stream: the order of a graph beside other streams is the caller's to keep.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from paceline.command.collectives import COLLECTIVES, Collective
from paceline.command.pattern import PERIOD
from paceline.datatypes import DATA_TYPES, OPERATIONS, DataType

LARGEST = 64 << 20  # bytes of a call's buffers
USUAL = 4 << 20  # of all but a few
EVERYONE = -1  # all bits
SLOTS = 18  # calls of an episode at most: each has its buffers

RING = Collective("ring", "", False, False)  # every rank sends to the next and receives from the one before
KINDS = [each for each in COLLECTIVES.values() if each.name != "barrier"] + [RING]


@dataclass(frozen=True)
class Call:
    """One call of a team."""

    team: int
    collective: Collective
    count: int
    root: int
    in_place: int  # a bit for each rank that works in place
    shift: int  # where in their tables the ranks' inputs begin, elements
    offsets: tuple[int, int]  # of input and output in their buffers, elements
    slot: int
    stream: int  # of the team's two


@dataclass(frozen=True)
class Action:
    """Calls to be made, captured as a graph, or, where there are none, the replay of the team's graph."""

    team: int
    what: str  # "call", "capture" or "replay"
    calls: tuple[Call, ...]


@dataclass
class Episode:
    """All of it, in the order in which every rank goes through it."""

    number: int
    dtype: DataType
    op: str
    actions: list[Action] = field(default_factory=list)
    table: list[dict[str, Any]] = field(default_factory=list)  # rows; none: the communicator's own

    def calls(self) -> list[Call]:
        return [call for action in self.actions for call in action.calls]

    def __str__(self) -> str:
        lines = [f"episode {self.number}: {self.dtype.name} {self.op}"]
        lines += [f"  {row}" for row in self.table]
        for action in self.actions:
            lines.append(f"  team {action.team} {action.what} " + "; ".join(map(_text, action.calls)))
        return "\n".join(lines)


def _text(call: Call) -> str:
    return (
        f"{call.collective.name} of {call.count}, root {call.root}, {_who(call.in_place)}"
        f"at {call.offsets}, stream {call.stream}"
    )


def _who(in_place: int) -> str:
    return "" if in_place == 0 else "in place, " if in_place == EVERYONE else f"ranks {in_place:#b} in place, "


def episode(seed: int, number: int, sizes: list[int], graphs: bool) -> Episode:
    """The number-th episode of a seed. `sizes`: of each team, how many ranks it has."""
    rng = random.Random(f"{seed}/{number}")
    made = Episode(number, DATA_TYPES[rng.choice(list(DATA_TYPES))], rng.choice([*OPERATIONS, "premulsum"]))
    if rng.random() < 2 / 3:
        made.table = [_row(rng, kind) for kind in KINDS if kind is not RING]
    slots = iter(range(SLOTS))
    queues = []
    for team, ranks in enumerate(sizes):
        budget = rng.randint(1, SLOTS // len(sizes))
        as_graph = graphs and rng.random() < 0.4
        streams = 1 if as_graph else 2
        calls = [_call(rng, team, ranks, made.dtype, next(slots), rng.randrange(streams)) for _ in range(budget)]
        if as_graph:
            captured = tuple(calls[: rng.randint(1, budget)])
            queue = [Action(team, "capture", captured), *(Action(team, "replay", ()) for _ in range(rng.randint(1, 4)))]
            for call in calls[len(captured) :]:
                queue.insert(rng.randint(1, len(queue)), Action(team, "call", (call,)))
        else:
            queue = [Action(team, "call", (call,)) for call in calls]
        queues.append(queue)
    while queues:  # in any order of the teams, but each in its own
        queue = rng.choice(queues)
        made.actions.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return made


def _row(rng: random.Random, kind: Collective) -> dict[str, Any]:
    return {
        "collective": kind.name,
        "from": 0,
        "family": rng.choice(["brief", "wide", "streaming", "deep", "large"]),
        "steps": rng.choice([1, 2]),
        "direct": rng.random() < 0.4,
        "pushed": rng.random() < 0.5,
        "passed": rng.random() < 0.4,
        "engines": rng.random() < 0.5,
        "lanes": rng.choice([0, 0, 1, 3, 8, 16]),
        "blocks": rng.choice([0, 0, 2, 7, 32]),
        "chunk": rng.choice([0, 0, 4096, 16384]),
    }


def _call(rng: random.Random, team: int, ranks: int, dtype: DataType, slot: int, stream: int) -> Call:
    collective = rng.choice(KINDS)
    largest = LARGEST if rng.random() < (0.15 if collective is RING else 0.04) else USUAL
    total = min(int(2 ** rng.uniform(0, largest.bit_length() - 1)) + rng.randrange(64), largest)
    return Call(
        team,
        collective,
        collective.count(total, ranks, dtype.size),
        rng.randrange(ranks),
        0 if collective is RING else rng.choice([0, 0, 0, EVERYONE, EVERYONE, rng.randrange(1 << ranks)]),
        rng.randrange(PERIOD),
        rng.choice([(0, 0), (0, 0), (8, 8), (1, 0), (0, 3), (1, 1)]),
        slot,
        stream,
    )
