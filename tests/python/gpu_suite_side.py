"""A rank of sanitize_gpu.py: every collective with every type and family of kernels, each call once, checked.

    python gpu_suite_side.py float32,int8,forced

`forced` is no type: the schedule of each algorithm, forced, and barriers and messages in a graph.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import paceline
from paceline import _native
from paceline.cuda_driver import Gpu, Stream, device_count
from paceline.datatypes import DATA_TYPES, OPERATIONS
from soak_plan import EVERYONE, KINDS, RING, Call, Episode
from soak_side import Side

# Bytes of a part, and by which kernels it goes: a table says, so that all are there whatever is fastest.
WAYS: dict[int, dict[str, Any]] = {
    8: {"family": "brief"},
    5000: {"family": "brief", "lanes": 2},
    60_000: {"family": "streaming", "steps": 2, "lanes": 3},
    700_000: {"family": "streaming", "steps": 2},
    200_016: {"family": "wide"},
    300_016: {"family": "streaming"},
    250_016: {"family": "deep"},
    1_200_016: {"family": "deep"},
    4_500_000: {"family": "large", "steps": 2, "direct": True},
    4_500_016: {"family": "large", "steps": 2},
    4_500_032: {"family": "large", "direct": True, "pushed": True},
    4_500_048: {"family": "large", "direct": True, "pushed": True, "passed": True},
    4_500_064: {"family": "large", "direct": True, "engines": True},
}
PIECES = tuple(WAYS)
LARGEST = 5_000_000
LONG_MESSAGE = 17_000_000  # which does not go by strips
FORCED = "forced"
SCHEDULED = 20_001  # bytes of a part
MESSAGES = (5000, 300_016, LONG_MESSAGE)  # bytes, of a graph


def calls(types: list[str], ranks: int) -> Iterator[tuple[Episode, Call]]:
    """All operations at two sizes of all-reduce, the other collectives with one of them."""
    number = 0
    for dtype in (DATA_TYPES[name] for name in types):
        for op in [*OPERATIONS, "premulsum"]:
            for kind in KINDS:
                if op != "sum" and kind.name != "all_reduce":
                    continue
                pieces = PIECES if op == "sum" else PIECES[1:4]
                if kind is RING and dtype.name == types[0]:
                    pieces += (LONG_MESSAGE,)
                for piece in pieces:
                    way = WAYS.get(piece, {})
                    if _in_a_graph(way) and (kind.reduces or kind is RING or dtype.name != types[0]):
                        continue
                    number += 1
                    offsets = (1, 3) if number % 2 else (0, 0)
                    root, in_place = number % ranks, EVERYONE if kind.function != "" and number % 3 == 0 else 0
                    count = max(1, piece // dtype.size)
                    rows = [] if kind is RING else [{"collective": kind.name, "from": 0, **way}]
                    yield Episode(number, dtype, op, table=rows), Call(0, kind, count, root, in_place, 0, offsets, 0, 0)


def forced(ranks: int) -> Iterator[tuple[str, Episode, Call]]:
    """Every algorithm once for each collective that it serves, in one type or another."""
    types = list(DATA_TYPES.values())
    number = 0
    for row in json.loads(_native.library().paceDescribe(b"algorithms")):
        for kind in KINDS:
            if kind.name in row["collectives"]:
                dtype, in_place = types[number % len(types)], EVERYONE if number % 3 == 0 else 0
                count = SCHEDULED // dtype.size
                call = Call(0, kind, count, number % ranks, in_place, 0, ((0, 0), (1, 3))[number % 2], 0, 0)
                yield row["name"], Episode(number, dtype, "sum"), call
                number += 1


def by_schedules(side: Side) -> int:
    """How many calls are right."""
    comm, done = side.teams[0], 0
    for algorithm, episode, call in forced(comm.size):
        comm.set_algorithm(algorithm)
        side.begin(episode, [call])
        side.prepare(call)
        side.make(call)
        side.finish()
        side.check(call)
        done += 1
    comm.set_algorithm(None)
    return done


def barriers_and_messages(side: Side) -> int:
    """Barriers and messages; how many of these are right. They share one buffer, so a graph has one."""
    done = 0
    for number, nbytes in enumerate(MESSAGES):
        episode = Episode(number, DATA_TYPES["float32"], "sum")
        call = Call(0, RING, nbytes // 4, 0, 0, number, (0, 0), 0, 0)
        side.begin(episode, [call])
        side.prepare(call)
        with side.capture(0) as graph:
            side.barrier(0)
            with paceline.group():
                side.make(call)
            side.barrier(0)
        side.keep(0, graph)
        side.replay(0)
        side.finish()
        side.check(call)
        done += 1
    return done


def _in_a_graph(way: dict[str, Any]) -> bool:
    return "engines" in way  # which work in graphs alone


def main() -> None:
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    comm = paceline.init()
    side = Side(gpu, [comm], max(LARGEST * comm.size, LONG_MESSAGE), slots=1)
    done = 0
    chosen = sys.argv[1].split(",")
    for episode, call in calls([name for name in chosen if name != FORCED], comm.size):
        side.begin(episode, [call])
        side.prepare(call)
        if any(map(_in_a_graph, episode.table)):
            with side.capture(0) as graph:
                side.make(call)
            side.keep(0, graph)
            side.replay(0)
        else:
            with paceline.group():
                side.make(call)
        side.finish()
        side.check(call)
        done += 1
    if FORCED in chosen:
        side.barrier(0)  # connects the GPUs, which no graph can hold
        done += by_schedules(side) + barriers_and_messages(side)
    stream = Stream()
    if _native.library().paceBarrier(comm._handle, stream.handle):
        raise SystemExit("the barrier failed")
    stream.synchronize()
    direct = comm.gpus_direct()
    comm.close()
    print(f"rank {os.environ['PACELINE_RANK']}: {done} calls are right, GPUs direct: {direct}", flush=True)


if __name__ == "__main__":
    main()
