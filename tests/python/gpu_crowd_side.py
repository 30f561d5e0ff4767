"""A rank of test_gpu_crowd.py: long calls of four communicators at once, which every other rank makes in reverse order.

Each has a stream; a kernel waits for its like on the other GPUs, so all four must fit on a GPU together. By several
ways of kernels, beside torch's matrix products where torch is there; every result is checked exactly. Where the GPUs do
not reach each other calls block, so all ranks make them in the same order.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import paceline
from paceline.command.collectives import COLLECTIVES
from paceline.cuda_driver import Gpu, device_count
from paceline.datatypes import DATA_TYPES
from soak_gpu import OtherWork
from soak_plan import Call, Episode
from soak_side import Side

COMMUNICATORS = 4
FLOAT32 = DATA_TYPES["float32"]
LONG, MIDDLE = 32 << 20, 1 << 20  # bytes of all ranks' parts: what begins alone, and with the end of the call before
KINDS = ("all_reduce", "all_to_all", "broadcast", "reduce_scatter")
ROUNDS, PRODUCTS = 20, 300
LOOKS = 4  # calls until all ranks know the buffers
LOADED = {"family": "streaming", "direct": True}
# Rows of the table, for every collective; None: by the communicators' own; a name: the schedule of that algorithm.
WAYS: dict[str, dict[str, Any] | str | None] = {
    "as chosen": None,
    "through the window": {"family": "large"},
    "by strips": {"family": "streaming"},
    "loaded": LOADED,
    "passed on": {**LOADED, "pushed": True, "passed": True},
    "schedules": "ring",
}


def teams_of(world: paceline.Communicator) -> list[paceline.Communicator]:
    others = [world.split(0, sign * world.rank) for sign in (1, -1, 1)]
    return [world, *(comm for comm in others if comm is not None)]


def calls(teams: list[paceline.Communicator], number: int, nbytes: int) -> list[Call]:
    """One of each communicator: now all the same collective, now four different ones."""
    made = []
    for team, comm in enumerate(teams):
        kind = COLLECTIVES[KINDS[(team + number) % len(KINDS) if number else 0]]
        count = kind.count(nbytes, comm.size, FLOAT32.size)
        made.append(Call(team, kind, count, comm.size - 1, 0, team, (0, 0), team, 0))
    return made


def at_once(side: Side, other: OtherWork | None, episode: Episode, chosen: list[Call]) -> None:
    rank, crossed = side.teams[0].rank, side.teams[0].gpus_direct()
    side.begin(episode, chosen)
    for _ in range(LOOKS if crossed else 1):
        for call in chosen:
            side.prepare(call)
            side.make(call)
        side.finish()
    side.teams[0].barrier()
    if other is not None:
        other.begin(PRODUCTS)
    for _ in range(ROUNDS if crossed else 1):
        for call in chosen[::-1] if crossed and rank % 2 else chosen:
            side.make(call)
    side.finish()
    if other is not None:
        other.finish()
    for call in chosen:
        side.check(call)


def products(gpu: Gpu) -> OtherWork | None:
    try:
        import torch
    except ImportError:
        return None
    return OtherWork(gpu.number) if torch.cuda.is_available() else None


def main() -> None:
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    other = products(gpu)
    gpu.use()
    teams = teams_of(paceline.init())
    side = Side(gpu, teams, LONG, slots=COMMUNICATORS)
    for team in range(COMMUNICATORS):  # the first call connects the GPUs
        side.barrier(team)
    side.finish()
    begin, direct = time.monotonic(), teams[0].gpus_direct()
    for name, way in WAYS.items():
        rows = [{"collective": kind, "from": 0, **way} for kind in KINDS] if isinstance(way, dict) else []
        for team in teams:
            team.set_algorithm(way if isinstance(way, str) else None)
        for number, nbytes in enumerate((LONG, LONG, MIDDLE) if direct else (MIDDLE,)):
            try:
                at_once(side, other, Episode(number, FLOAT32, "sum", table=rows), calls(teams, number, nbytes))
            except (paceline.Error, AssertionError) as error:
                where = f"rank {teams[0].rank}: {name}, {nbytes} bytes"
                raise SystemExit(f"{where}: {type(error).__name__}: {error}") from None
    seconds = time.monotonic() - begin
    for team in teams[::-1]:
        team.close()
    beside = "without" if other is None else "beside"
    what = f"{len(WAYS)} ways in {seconds:.1f} s, {beside} torch's products, GPUs direct: {direct}"
    sys.stdout.write(f"rank {os.environ['PACELINE_RANK']}: {what}\n")


if __name__ == "__main__":
    main()
