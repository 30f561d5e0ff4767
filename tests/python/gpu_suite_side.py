"""A rank of sanitize_gpu.py: every collective with every type and family of kernels, each call once, checked.

python gpu_suite_side.py float32,int8
"""

from __future__ import annotations

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


def _in_a_graph(way: dict[str, Any]) -> bool:
    return "engines" in way  # which work in graphs alone


def main() -> None:
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    comm = paceline.init()
    side = Side(gpu, [comm], max(LARGEST * comm.size, LONG_MESSAGE), slots=1)
    done = 0
    for episode, call in calls(sys.argv[1].split(","), comm.size):
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
    stream = Stream()
    if _native.library().paceBarrier(comm._handle, stream.handle):
        raise SystemExit("the barrier failed")
    stream.synchronize()
    direct = comm.gpus_direct()
    comm.close()
    print(f"rank {os.environ['PACELINE_RANK']}: {done} calls are right, GPUs direct: {direct}", flush=True)


if __name__ == "__main__":
    main()
