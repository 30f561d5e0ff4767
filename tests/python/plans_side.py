"""What ranks of a Job do: how their calls run, what they were predicted to take, and take."""

from __future__ import annotations

import time
from typing import Any

import numpy
from collectives_side import PARTS, ROWS
from paceline import tuning


def explain(comm: Any) -> list[Any]:
    comm.set_algorithm(None)
    plan = comm.explain("all_reduce", 1 << 20, "float32")
    return [plan.algorithm, plan.transport, plan.protocol, plan.chunk_bytes, plan.channels, plan.predicted_us]


def links_measured(comm: Any) -> bool:
    found: bool = comm.links_measured()
    return found


def set_algorithm(comm: Any, algorithm: str | None) -> None:
    comm.set_algorithm(algorithm)


def ran(comm: Any, name: str, count: int) -> str:
    """What such a call runs, with what is forced now."""
    found: str = comm.explain(name, count, "float32").algorithm
    return found


def rings_of_parts(comm: Any) -> dict[str, Any]:
    """Ranks 0 and 3, and 1 and 2, by themselves: what they run, and what comes of it."""
    part = comm.split(min(comm.rank, 3 - comm.rank))
    part.set_algorithm("rings")
    x = numpy.full(1001, comm.rank, numpy.float32)
    part.all_reduce(x)
    assert (x == x[0]).all()
    algorithm = part.explain("all_reduce", 1001, "float32").algorithm
    part.close()
    return {"algorithm": algorithm, "sum": float(x[0])}


def algorithm_for(comm: Any, name: str, count: int) -> str:
    comm.set_algorithm(None)
    found: str = comm.explain(name, count, "float32").algorithm
    return found


def predicted_seconds(comm: Any, name: str, count: int) -> float:
    comm.set_algorithm(None)
    predicted: float = comm.explain(name, count, "float32").predicted_us
    return predicted / 1e6


def fitted_model(comm: Any) -> dict[str, float]:
    """What `paceline tune` would keep of these times, which no link has."""
    times = {("all_reduce", "ring"): {1024: 7.0, 65536: 8.0}, ("broadcast", "knomial"): {1024: 5.0, 65536: 5.5}}
    model: dict[str, float] = tuning.setting(comm, times, fit=True)["model"]
    return model


def chosen_by_profile_of(comm: Any, transport: str) -> str:
    """The algorithm by which an all-reduce has run, with a profile for this transport that says recursive_doubling."""
    model = {"start_us": 2.0, "step_us": 0.1, "bandwidth_gbs": 5.0, "reduce_gbs": 5.0, "write_gbs": 50.0,
             "copy_gbs": 5.0, "duplex": 0.5, "multicast_share": 0.0, "switching_us": 0.0, "sharing": 1,
             "largest_chunk": 65536}  # fmt: skip
    row = {"collective": "all_reduce", "from": 0, "algorithm": "recursive_doubling", "chunk": 1024}
    setting = {"transport": transport, "ranks": comm.size, "model": model, "model_error": 0.1, "measured": [],
               "table": [row]}  # fmt: skip
    tuning.use(comm, tuning.profile([setting]))
    x = numpy.ones(1000, numpy.float32)
    assert (comm.all_reduce(x) == comm.size).all()
    chosen: str = comm.explain("all_reduce", x.size).algorithm
    tuning.use(comm, None)
    return chosen


def seconds_of(comm: Any, name: str, count: int, algorithm: str | None) -> float:
    """The slowest rank's time of a collective of `count` float32, the median of five calls."""
    x = numpy.ones((comm.size, count) if name in PARTS else count, numpy.float32)
    times = numpy.empty(5)
    comm.set_algorithm(algorithm)
    getattr(comm, name)(x)
    for call in range(times.size):
        comm.barrier()
        begin = time.perf_counter()
        getattr(comm, name)(x)
        times[call] = time.perf_counter() - begin
    comm.set_algorithm(None)
    comm.all_reduce(times, op="max")
    return float(numpy.median(times))


def first_calls(comm: Any, name: str, count: int, shapes: int, later: int) -> tuple[list[float], list[float]]:
    """Seconds of the first call of each of `shapes` shapes of about `count` elements, and of `later` calls of each."""
    firsts, others = [], []
    for shape in range(shapes):
        each = count + 16 * shape
        x = numpy.ones((comm.size, each) if name in PARTS else each, numpy.float32)
        arguments: dict[str, Any] = {}
        if name in ROWS:
            arguments["out"] = numpy.ones((comm.size, each), numpy.float32)
        elif name in PARTS:
            arguments["out"] = numpy.ones_like(x if name == "all_to_all" else x[0])
        for call in range(1 + later):
            comm.barrier()
            begin = time.perf_counter()
            getattr(comm, name)(x, **arguments)
            (firsts if call == 0 else others).append(time.perf_counter() - begin)
    return firsts, others


def trace(comm: Any, path: str, count: int = 1000, calls: int = 1) -> None:
    with comm.trace(path):
        for _ in range(calls):
            comm.all_reduce(numpy.ones(count, numpy.float32))
