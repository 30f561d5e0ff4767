"""A rank on a GPU whose calls go by tables of the test's making.

show             prints the table that it goes by
extremes         tables that no measurement would make: every result is right
engines          every collective that only moves data, by the copy engines, in graphs: every result is right
recaptured       graphs by the copy engines on ever new memory, which is given back
crossed          graphs by the copy engines that the ranks capture in different orders: replayed, an error says so
different FIELD  another table on every rank: the next call is an error that says so
"""

from __future__ import annotations

import json
import sys
from itertools import product
from typing import Any

from gpu_tables import go_by
from paceline import Communicator, _native, init, tuning
from paceline.command.collectives import COLLECTIVES
from paceline.command.gpu_trial import GpuTrial
from paceline.command.gpu_ways import MOVES
from paceline.command.pattern import Pattern
from paceline.cuda_driver import Gpu, Memory, Stream, device_count
from paceline.datatypes import DATA_TYPES
from paceline.errors import Error

FAMILIES = ("brief", "streaming", "deep", "large")
FOLDINGS = (None, "loaded", "pushed", "passed")
NUMBERS = (0, 1, 7, 255)
COUNTS = (1, 1023, 1024, 20_001, 300_000)  # elements of float32
MOST = max(COUNTS)
LONG = 16 << 20  # elements


def use(comm: Communicator, name: str, way: dict[str, Any]) -> None:
    go_by(comm, [{"collective": name, "from": 0, **way}])


def trial_of(comm: Communicator, name: str, graphs: bool = False, most: int = MOST) -> GpuTrial:
    """Two calls a batch, launched one by one or as a graph."""
    pattern, rooted = Pattern(DATA_TYPES["float32"], "sum", comm.size), COLLECTIVES[name].rooted
    batches = ((1 << 62, 2),)
    return GpuTrial(comm, COLLECTIVES[name], pattern, comm.size - 1 if rooted else 0, most, graphs, batches)


def extremes(comm: Communicator) -> None:
    tried = 0
    for name in COLLECTIVES:
        if name == "barrier":
            continue
        trial = trial_of(comm, name)
        for number, (family, steps, direct) in enumerate(product(FAMILIES, (1, 2), FOLDINGS)):
            # Lanes, blocks and chunks in other combinations for each.
            lanes, blocks = NUMBERS[number % 4], NUMBERS[(number // 2 + 1) % 4]
            chunk = (0, 1, 5000, 2**32 - 1)[(number + 2) % 4]
            way = {"family": family, "steps": steps, "lanes": lanes, "blocks": blocks, "chunk": chunk}
            way |= {"direct": direct is not None, "pushed": direct == "pushed", "passed": direct == "passed"}
            use(comm, name, way)
            for count in COUNTS:
                trial.run(count, 1)
                tried += 1
                if trial.wrong(count):
                    raise SystemExit(f"{name} of {count} elements is wrong by {way}")
    if comm.rank == 0:
        print(f"{tried} runs, all right")


def engines(comm: Communicator) -> None:
    for name in MOVES:
        trial = trial_of(comm, name, graphs=True)
        use(comm, name, {"family": "large", "direct": True, "engines": True})
        for count in COUNTS:
            trial.run(count, 2)
            if trial.wrong(count):
                raise SystemExit(f"{name} of {count} elements is wrong by the copy engines")


def recaptured(comm: Communicator, gpu: Gpu) -> None:
    """Graphs on ever new memory: what earlier ones have loaded from is given back."""
    free: list[int] = []
    for number in range(14):
        trial = trial_of(comm, "all_gather", graphs=True, most=LONG)
        if number == 0:
            use(comm, "all_gather", {"family": "large", "direct": True, "engines": True})
        trial.run(LONG, 2)
        if trial.wrong(LONG):
            raise SystemExit("a graph on new memory is wrong")
        del trial
        comm.barrier()
        free.append(gpu.free_bytes())
    if free[3] - free[-1] > 4 * 4 * LONG:
        raise SystemExit(f"rank {comm.rank}: {free[3] - free[-1]} bytes of GPU memory were not given back")


def crossed(comm: Communicator) -> None:
    trial_of(comm, "all_gather")  # its first call connects the GPUs
    use(comm, "all_gather", {"family": "large", "direct": True, "engines": True})
    count, function = MOST, _native.library().paceAllGather
    stream, graphs = Stream(), {}
    memories = [Memory(4 * count * (comm.size + 1)) for _ in range(2)]
    for which in (0, 1) if comm.rank == 0 else (1, 0):
        send = memories[which].address
        with stream.capture() as graphs[which]:
            function(send, send + 4 * count, count, DATA_TYPES["float32"].number, comm._handle, stream.handle)
    graphs[0].launch(stream)
    stream.synchronize()
    error = comm.get_async_error()
    if error is None:
        raise SystemExit(f"rank {comm.rank}: no error")
    print(error)


def different(comm: Communicator, field: str) -> None:
    trial = trial_of(comm, "all_reduce")
    way: dict[str, Any] = {"family": "brief", "lanes": 2}
    if comm.rank == 1:
        way[field] = {"lanes": 4, "direct": True, "family": "large"}[field]
    use(comm, "all_reduce", way)
    try:
        trial.run(20_000, 1)
    except Error as error:
        print(error)
        return
    raise SystemExit(f"rank {comm.rank}: no error")


def main(what: str, *rest: str) -> None:
    comm = init()
    with Gpu(comm.node_rank % device_count()) as gpu:
        if what == "show":
            trial_of(comm, "all_reduce")
            # One write a line: two ranks share the pipe.
            sys.stdout.write(json.dumps(tuning.gpu_table(comm)) + "\n")
        elif what == "extremes":
            extremes(comm)
        elif what == "engines":
            engines(comm)
        elif what == "recaptured":
            recaptured(comm, gpu)
        elif what == "crossed":
            crossed(comm)
        else:
            different(comm, *rest)


if __name__ == "__main__":
    main(*sys.argv[1:])
