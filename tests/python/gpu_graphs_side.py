"""A rank of test_gpu_graphs.py: every collective, barriers and messages in graphs that are replayed among eager calls.

By the kernels that are chosen, at sizes of each kind of them, the copy engines' too. Every result is checked exactly.
Where the GPUs do not reach each other there are no graphs: what would be in one is called instead.
"""

from __future__ import annotations

import os
import sys
import time
from array import array

import paceline
from paceline import _native
from paceline.command.collectives import COLLECTIVES, Collective
from paceline.cuda_driver import Gpu, Memory, Stream, device_count
from paceline.datatypes import DATA_TYPES
from soak_plan import EVERYONE, KINDS, RING, Call, Episode
from soak_side import Side

FLOAT32 = DATA_TYPES["float32"]
ROUNDS = 3
# Bytes of a call's count; of the last, it is the copy engines that move what a graph holds.
ENGINES_MOVE = [COLLECTIVES[name] for name in ("broadcast", "gather", "scatter")]
SIZES: dict[int, list[Collective]] = {1000: KINDS, 150_016: KINDS, 24 << 20: KINDS, 128 << 20: ENGINES_MOVE}
SHORT = 1 << 20  # bytes: where there are no graphs, longer ones would tell nothing
MESSAGES = (1000, 5_000_000)  # elements: by strips, and longer ones
LATE = 0.4  # s, that a rank comes late to a barrier


def collectives(side: Side) -> int:
    """How many results were checked."""
    comm, checked = side.teams[0], 0
    side.barrier(0)  # the first call connects the GPUs, which no graph can hold
    side.finish()
    for number, (nbytes, kinds) in enumerate(SIZES.items()):
        if nbytes > SHORT and not comm.gpus_direct():
            break
        captured, eager = (
            [_call(comm, kind, nbytes, place, slot + place) for place, kind in enumerate(kinds)]
            for slot in (0, len(kinds))
        )
        side.begin(Episode(number, FLOAT32, "sum"), captured + eager)
        if comm.gpus_direct():
            with side.capture(0) as graph:
                _make(side, captured)
            side.keep(0, graph)
        for _ in range(ROUNDS if nbytes < max(SIZES) else 1):
            for call in captured + eager:
                side.prepare(call)
            if comm.gpus_direct():
                side.replay(0)
            else:
                _make(side, captured)
            _make(side, eager)
            side.finish()
            checked += sum(side.check(call) >= 0 for call in captured + eager)
    return checked


def _call(comm: paceline.Communicator, kind: Collective, nbytes: int, place: int, slot: int) -> Call:
    in_place = EVERYONE if kind is not RING and slot % 3 == 1 else 0
    return Call(
        0, kind, kind.count(nbytes, comm.size, FLOAT32.size), slot % comm.size, in_place, place, (0, 0), slot, 0
    )


def _make(side: Side, calls: list[Call]) -> None:
    for call in calls:
        with paceline.group():
            side.make(call)
        side.barrier(0)


def messages(comm: paceline.Communicator) -> None:
    """A message alone, in a graph, among eager ones back."""
    for count in MESSAGES:
        mine, stream = Memory(4 * count), Stream()
        taken = Memory(4 * count)
        mine.write(array("f", [comm.rank + 1]).tobytes() * count)
        _message(comm, 1, count, mine, taken, stream)
        with stream.capture() as graph:
            _message(comm, 0, count, mine, taken, stream)
        for _ in range(ROUNDS):
            taken.fill(0, 4 * count, stream)
            graph.launch(stream)
            _message(comm, 1, count, mine, taken, stream)
            stream.synchronize()
            _raise_error(comm)
            if bytes(taken.read()) != array("f", [2 - comm.rank]).tobytes() * count:
                raise SystemExit(f"rank {comm.rank}: a message of {count} elements is wrong")


def _message(comm: paceline.Communicator, sender: int, count: int, mine: Memory, taken: Memory, stream: Stream) -> None:
    library, end = _native.library(), (comm._handle, stream.handle)
    if comm.rank == sender:
        result = library.paceSend(mine.address, count, FLOAT32.number, 1 - sender, *end)
    else:
        result = library.paceRecv(taken.address, count, FLOAT32.number, sender, *end)
    if result:
        raise comm._failure(result)


def late_barrier(comm: paceline.Communicator) -> None:
    """A barrier in a graph ends when the last rank has come."""
    stream = Stream()
    with stream.capture() as graph:
        if _native.library().paceBarrier(comm._handle, stream.handle):
            raise SystemExit("the barrier failed")
    for late in range(comm.size):
        comm.barrier()
        begin = time.monotonic()
        if comm.rank == late:
            time.sleep(LATE)
        graph.launch(stream)
        stream.synchronize()
        _raise_error(comm)
        if time.monotonic() - begin < 0.8 * LATE:
            raise SystemExit(f"rank {comm.rank} did not wait for rank {late} in a barrier")


def _raise_error(comm: paceline.Communicator) -> None:
    error = comm.get_async_error()
    if error is not None:
        raise error


def main() -> None:
    gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
    comm = paceline.init()
    side = Side(gpu, [comm], max(SIZES) * comm.size, slots=2 * len(KINDS))
    checked = collectives(side)
    direct = comm.gpus_direct()
    if direct:
        late_barrier(comm)
        if comm.size == 2:
            messages(comm)
    comm.close()
    sys.stdout.write(f"rank {os.environ['PACELINE_RANK']}: {checked} results are right, GPUs direct: {direct}\n")


if __name__ == "__main__":
    main()
