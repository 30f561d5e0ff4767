"""What the ranks of a Job do: each function is called on every rank with the same arguments."""

from __future__ import annotations

import array
import hashlib
import os
import signal
import sys
import time
import warnings
from typing import Any

import numpy
import paceline
from paceline import tuning
from paceline.arrays import numpy_dtype

ROWS = {"all_gather", "gather"}  # out has a row for each rank
PARTS = {"reduce_scatter", "scatter", "all_to_all"}  # x has one


def inputs(comm: Any, seed: int, shape: tuple[int, ...], dtype: str, whole: bool) -> list[numpy.ndarray[Any, Any]]:
    """Every rank's input, the same on every rank: small whole numbers, or any floats."""
    random = numpy.random.default_rng(seed)
    least = 0 if dtype.startswith("u") or "float8" in dtype else -2
    most = 1 if dtype == "float8e5m2" else 2
    element = numpy_dtype(dtype)
    if whole:
        return [random.integers(least, most, shape, endpoint=True).astype(element) for _ in range(comm.size)]
    return [random.standard_normal(shape).astype(element) for _ in range(comm.size)]


def reduced(arrays: list[Any], op: str) -> Any:
    """The reduction in float64 or, for whole numbers, in int64."""
    wide = numpy.int64 if arrays[0].dtype.kind in "iu" else numpy.float64
    stacked = numpy.stack([each.astype(wide) for each in arrays])
    if op == "avg":
        return numpy.trunc(stacked.sum(0) / len(arrays)) if wide is numpy.int64 else stacked.mean(0)
    if op == "premulsum":
        return 2 * stacked.sum(0)
    functions: dict[str, Any] = {"sum": stacked.sum, "prod": stacked.prod, "max": stacked.max, "min": stacked.min}
    return functions[op](0)


def misaligned(values: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """A copy that begins one element after the start of its memory."""
    memory = numpy.empty(values.size + 1, values.dtype)
    memory[1:] = values.reshape(-1)
    return memory[1:].reshape(values.shape)


def collective(
    comm: Any, name: str, seed: int, count: int, dtype: str, op: str, root: int, in_place: int, asynchronous: bool
) -> str:
    """Run one collective, compare it with NumPy, and return a digest of this rank's result.

    `in_place` has a bit for each rank that works in place.
    """
    root %= comm.size
    here = bool(in_place >> comm.rank & 1)
    whole = op != "sum" or dtype not in ("float32", "float64")
    shape = (comm.size, count) if name in PARTS else (count,)
    everyone = inputs(comm, seed, shape, dtype, whole)
    x = misaligned(everyone[comm.rank])
    operator = paceline.premulsum(2) if op == "premulsum" else op
    arguments: dict[str, Any] = {"async_op": True} if asynchronous else {}
    if name in ("all_reduce", "reduce", "reduce_scatter"):
        arguments["op"] = operator
    if name in ("broadcast", "reduce", "gather", "scatter"):
        arguments["root"] = root
    if name == "scatter":
        arguments["out"] = numpy.empty(count, x.dtype)
    elif here and name == "all_gather":
        arguments["out"] = numpy.empty((comm.size, count), x.dtype)
        arguments["out"][comm.rank] = x
        x = arguments["out"][comm.rank]
    elif here and name == "reduce_scatter":
        arguments["out"] = x[comm.rank]
    elif here and name == "all_to_all":
        arguments["out"] = x
    elif not here and name in ("all_reduce", "reduce"):
        arguments["out"] = numpy.empty_like(x)

    result = getattr(comm, name)(x, **arguments)
    if asynchronous:
        result = result.wait()

    if name in ("reduce", "gather") and comm.rank != root:
        assert result is None
        return ""
    expected = expectation(comm, name, everyone, op, root)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    assert result.dtype == x.dtype
    if whole and op != "avg":
        numpy.testing.assert_array_equal(result.astype(numpy.float64), expected.astype(numpy.float64))
    else:
        tolerance = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2}.get(dtype, 0.13)
        numpy.testing.assert_allclose(
            result.astype(numpy.float64), expected.astype(numpy.float64), tolerance, tolerance
        )
    if not here:
        numpy.testing.assert_array_equal(x, x if name == "broadcast" else everyone[comm.rank])
    return hashlib.sha256(result.tobytes()).hexdigest()


def expectation(comm: Any, name: str, everyone: list[Any], op: str, root: int) -> Any:
    if name in ("all_reduce", "reduce"):
        return reduced(everyone, op)
    if name == "reduce_scatter":
        return reduced(everyone, op)[comm.rank]
    if name == "broadcast":
        return everyone[root]
    if name == "scatter":
        return everyone[root][comm.rank]
    if name == "all_to_all":
        return numpy.stack([each[comm.rank] for each in everyone])
    return numpy.stack(everyone)


# ---- Asynchronous calls, groups, splits ----


def many_async(comm: Any, calls: int) -> None:
    """Results of calls that were started together; a blocking call in between keeps its place."""
    arrays = [numpy.full(100, number, numpy.int64) for number in range(calls)]
    handles = [comm.all_reduce(x, async_op=True) for x in arrays]
    last = comm.all_reduce(arrays[-1])  # after the queued call on the same array
    assert last[0] == (calls - 1) * comm.size**2, last[0]
    for number, handle in enumerate(handles):
        x = handle.wait()
        assert handle.done()
        if number < calls - 1:
            assert (x == number * comm.size).all()


def forgotten_handle(comm: Any) -> int:
    """A call goes on when nobody keeps its handle or its array."""
    total = numpy.zeros(1, numpy.int64)
    for _ in range(200):
        comm.all_reduce(numpy.ones(1000, numpy.float64), async_op=True)
    comm.all_reduce(numpy.ones(1, numpy.int64), out=total)
    return int(total[0])


def wait_with_timeout(comm: Any) -> str:
    """Rank 0's call is under way while the others have not called yet."""
    beside = comm.split(0)
    x = numpy.ones(4)
    if comm.rank:
        beside.barrier()
        comm.all_reduce(x)
        beside.close()
        return "called late"
    handle = comm.all_reduce(x, async_op=True)
    done = handle.done()
    try:
        handle.wait(timeout=0.02)
    except paceline.Timeout as error:
        message = str(error)
    beside.barrier()
    handle.wait(timeout=10)
    beside.close()
    assert x[0] == comm.size
    return f"{done}: {message}"


def wait_for_the_first_alone(comm: Any) -> bool:
    """Rank 0's second call waits for ranks that wait for rank 0 elsewhere: only its first may be waited for."""
    beside = comm.split(0)
    first, second = numpy.ones(4), numpy.ones(4)
    handle = comm.all_reduce(first, async_op=True)
    later = comm.all_reduce(second, async_op=True) if comm.rank == 0 else None
    handle.wait()
    under_way = later is not None and not later.done()
    beside.barrier()
    if later is None:
        comm.all_reduce(second)
    else:
        later.wait()
    beside.close()
    assert second[0] == comm.size
    return under_way


def handles_tell_their_own_errors(comm: Any) -> None:
    """What went wrong in one call is no error of those before and behind it, also after the end."""
    part = comm.split(0)
    x, y = numpy.ones(4), numpy.ones(4)
    before = part.all_reduce(x, async_op=True)
    wrong = part.send(x, part.rank, async_op=True)  # to itself, without the other side
    behind = part.all_reduce(y, async_op=True)
    assert behind.wait()[0] == comm.size
    assert error_of(wrong.wait)[0] == "Mismatch"
    part.close()
    assert before.wait()[0] == comm.size
    assert behind.wait()[0] == comm.size
    assert error_of(wrong.wait)[0] == "Mismatch"


def wait_after_close(comm: Any) -> list[str]:
    """Closing waits for the calls; their handles still know how they ended."""
    well, fails = comm.split(0), comm.split(0)
    x = numpy.ones(4)
    handle = well.all_reduce(x, async_op=True)
    well.close()
    assert handle.done() and handle.wait()[0] == comm.size
    failing = fails.all_reduce(x, async_op=True) if comm.rank else None
    if comm.rank == 0:
        fails.abort()
    told = error_of(fails.close)  # nobody has waited
    fails.close()
    if failing is None:
        return told
    assert error_of(failing.wait) == told
    return told


def untold_error(comm: Any, leave: str) -> list[str]:
    """A mismatch of asynchronous calls whose handles nobody keeps, and how the program learns it."""
    beside = comm.split(0)
    handle = beside.all_reduce(numpy.ones(3 if comm.rank else 4), async_op=True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if leave == "with":

            def call() -> None:
                with beside:
                    pass

        elif leave == "exception":

            def call() -> None:
                with beside:
                    while not handle.done():
                        time.sleep(0.01)
                    raise paceline.Error("the body's own")

        elif leave == "told by a call":

            def call() -> None:
                assert error_of(beside.barrier)[0] == "Mismatch"
                beside.close()

        elif leave == "told by a group":

            def call() -> None:
                assert error_of(lambda: in_a_group(beside.barrier))[0] == "Mismatch"
                beside.close()

        elif leave == "told by a wait":

            def call() -> None:
                assert error_of(handle.wait)[0] == "Mismatch"
                beside.close()

        else:

            def call() -> None:
                beside._finalizer()

        kind, _ = error_of(call)
    return [kind, *(str(each.message) for each in warned)]


def in_a_group(call: Any) -> None:
    with paceline.group():
        call()


def exception_beside_a_call(comm: Any) -> list[Any]:
    """Rank 0 raises while its asynchronous call waits for the last rank, which comes only when that has been told."""
    beside = comm.split(0)
    begun = time.monotonic()
    if comm.rank:
        while comm.rank == comm.size - 1 and beside.get_async_error() is None:
            time.sleep(0.01)
        return [*error_of(lambda: beside.all_reduce(numpy.ones(3))), time.monotonic() - begun]
    try:
        with beside:
            beside.all_reduce(numpy.ones(3), async_op=True)
            raise KeyError("a defect of the program")
    except KeyError:
        return ["KeyError", "", time.monotonic() - begun]


def exit_beside_a_call(comm: Any) -> list[Any]:
    """sys.exit() is no failure: what was begun ends well."""
    beside, x = comm.split(0), numpy.ones(3)
    try:
        with beside:
            beside.all_reduce(x, async_op=True)
            sys.exit()
    except SystemExit:
        return [float(each) for each in x]


def exchange_in_ring(comm: Any) -> list[float]:
    outgoing, incoming = numpy.full(3, comm.rank, numpy.float32), numpy.empty(3, numpy.float32)
    with comm.group():
        comm.recv(incoming, (comm.rank - 1) % comm.size)
        comm.send(outgoing, (comm.rank + 1) % comm.size)
    return [float(value) for value in incoming]


def async_in_group(comm: Any) -> None:
    first, second = numpy.ones(10), numpy.ones(10)
    with paceline.group():
        handle = comm.all_reduce(first, async_op=True)
        assert not handle.done()
        try:
            handle.wait()
        except paceline.InvalidUsage as error:
            assert "after it" in str(error)
        else:
            raise AssertionError("wait inside the group")
        comm.all_reduce(second)
    assert second[0] == comm.size
    handle.wait()
    assert first[0] == comm.size


def group_with_error(comm: Any) -> None:
    """Nothing of a group is started when its body raises, its handles say so, and the communicator works on."""
    x, y = numpy.ones(2), numpy.ones((4, 4))
    for expected in (KeyError, paceline.InvalidArgument):
        try:
            with comm.group():
                handle = comm.all_reduce(x, async_op=True)
                comm.all_reduce(x)
                if expected is KeyError:
                    raise KeyError("the program's own")
                comm.all_reduce(y[:, ::2])
        except expected:
            pass
        else:
            raise AssertionError("no error")
        assert (x == 1).all()
        assert handle.done()
        assert error_of(handle.wait) == [
            "InvalidUsage",
            f"the group was not started: its body raised {expected.__name__}",
        ]
    comm.all_reduce(x)
    assert (x == comm.size).all()


def refused_group(comm: Any) -> None:
    """Rank 0 makes one group more, with a call that is refused: the others wait for the next."""
    x, y = numpy.ones(2), numpy.ones((4, 4))
    if comm.rank == 0:
        try:
            with comm.group():
                comm.all_reduce(x)
                assert error_of(lambda: comm.all_reduce(y[:, ::2]))[0] == "InvalidArgument"
        except paceline.InvalidArgument as error:
            assert "not contiguous" in str(error)
        else:
            raise AssertionError("no error")
    with comm.group():
        comm.all_reduce(x)
    assert (x == comm.size).all()


def split(comm: Any) -> None:
    """Even and odd ranks, in reversed order; one rank stays out."""
    part = comm.split(comm.rank % 2, key=-comm.rank)
    members = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2][::-1]
    assert (part.rank, part.size) == (members.index(comm.rank), len(members))
    x = numpy.full(5, comm.rank, numpy.int32)
    part.all_reduce(x)
    assert (x == sum(members)).all()
    part.close()
    rest = comm.split(None if comm.rank == 0 else 7)
    assert (rest is None) == (comm.rank == 0)
    if rest is not None:
        with rest:
            assert rest.size == comm.size - 1
            rest.barrier()


def moves(comm: Any, dtype: Any) -> None:
    """Elements of a type that is not reduced; the same from every rank, and as many."""
    kind = numpy.dtype([tuple(field) for field in dtype] if isinstance(dtype, list) else dtype)
    n = comm.size
    random = numpy.random.default_rng(3)
    full = random.integers(0, 2 if kind.kind == "b" else 100, (n, n, 5 * kind.itemsize), numpy.uint8).view(kind)
    x, rows = full[comm.rank], full[comm.rank][0]
    assert comm.broadcast(rows.copy(), root=n - 1).tobytes() == full[n - 1][0].tobytes()
    for result, expected in (
        (comm.all_gather(rows), full[:, 0]),
        (comm.all_gather(rows, async_op=True).wait(), full[:, 0]),
        (comm.gather(rows), full[:, 0] if comm.rank == 0 else None),
        (comm.scatter(x if comm.rank == 0 else None, out=numpy.empty(5, kind)), full[0][comm.rank]),
        (comm.all_to_all(x), full[:, comm.rank]),
    ):
        if expected is None:
            assert result is None
        else:
            assert (result.dtype, result.shape) == (kind, expected.shape)
            assert result.tobytes() == expected.tobytes()
    received = numpy.empty(5, kind)
    with comm.group():
        comm.send(rows, (comm.rank + 1) % n)
        comm.recv(received, (comm.rank - 1) % n)
    assert received.tobytes() == full[(comm.rank - 1) % n][0].tobytes()
    with numpy.testing.assert_raises_regex(paceline.InvalidArgument, "are not supported"):
        comm.all_reduce(rows)
    with numpy.testing.assert_raises_regex(paceline.InvalidArgument, "but the result has"):
        comm.all_gather(rows, out=numpy.empty(1, kind))
    if n > 1:
        with numpy.testing.assert_raises_regex(paceline.InvalidArgument, "equal parts"):
            comm.all_to_all(numpy.empty(n + 1, kind))


def buffers(comm: Any) -> None:
    """Memory without NumPy."""
    numbers = array.array("i", [comm.rank, 1])
    comm.all_reduce(numbers)
    assert list(numbers) == [sum(range(comm.size)), comm.size]
    text = bytearray(b"from root" if comm.rank == 0 else bytes(9))
    comm.broadcast(text)
    assert text == b"from root"
    received = bytearray(comm.size)
    comm.all_gather(bytes([comm.rank]), out=memoryview(received))
    assert list(received) == list(range(comm.size))


def own_memory(comm: Any) -> None:
    """Arrays of paceline.empty: zero, aligned, reduced, and kept by their views alone."""
    for count in (0, 1, 1000, 300_000):
        x = paceline.empty(count, "float32")
        assert x.shape == (count,) and not x.any() and x.ctypes.data % 4096 == 0
        x += comm.rank
        comm.all_reduce(x)
        assert (x == sum(range(comm.size))).all()
    view = paceline.empty((10, 10), "float64")[5:]
    view[:] = 1
    comm.all_reduce(view)
    assert (view == comm.size).all()


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


def premulsum_of_rank(comm: Any) -> float:
    """Each rank gives its own scalar; more of them than are kept."""
    for scale in range(40):
        x = numpy.ones(3, numpy.float64)
        comm.all_reduce(x, op=paceline.premulsum((comm.rank + 1) * (scale + 1)))
        assert (x == (scale + 1) * comm.size * (comm.size + 1) / 2).all(), x
    return float(x[0])


def trace(comm: Any, path: str) -> None:
    with comm.trace(path):
        comm.all_reduce(numpy.ones(1000, numpy.float32))


def torch_tensors(comm: Any) -> None:
    import torch

    x = torch.full((3, 4), comm.rank + 1, dtype=torch.bfloat16)
    comm.all_reduce(x)
    assert (x == comm.size * (comm.size + 1) // 2).all()
    gathered = comm.all_gather(torch.tensor([comm.rank]), async_op=True).wait()
    assert gathered.tolist() == [[rank] for rank in range(comm.size)]


# ---- Errors ----


def error_of(call: Any) -> list[str]:
    try:
        call()
    except paceline.Error as error:
        return [type(error).__name__, str(error)]
    return ["no error", ""]


def mismatch(comm: Any) -> list[str]:
    """Rank 0 calls with another count."""
    return error_of(lambda: comm.all_reduce(numpy.ones(5 if comm.rank == 0 else 4)))


def broadcast_from_next(comm: Any) -> list[str]:
    """Every rank waits for another root."""
    return error_of(lambda: comm.broadcast(numpy.ones(4), root=(comm.rank + 1) % comm.size))


def abort_from_thread(comm: Any) -> list[str]:
    """Rank 0 aborts while the others wait for it."""
    if comm.rank == 0:
        time.sleep(0.2)
        comm.abort()
        return error_of(lambda: comm.barrier())
    found = error_of(lambda: comm.barrier())
    assert comm.get_async_error() is not None
    return found


def async_failure(comm: Any) -> list[str]:
    """Rank 0 aborts; the others learn it from their handles."""
    if comm.rank == 0:
        time.sleep(0.2)
        comm.abort()
        return []
    x = numpy.ones(4)
    first, second = comm.all_reduce(x, async_op=True), comm.all_reduce(x, async_op=True)
    found = error_of(first.wait)
    assert error_of(second.wait)[0] == found[0]
    return found


def wrong_parts(comm: Any, name: str) -> list[str]:
    return error_of(lambda: getattr(comm, name)(numpy.ones(4), out=numpy.ones(4)))


def scatter_without_out(comm: Any) -> list[str]:
    """The other ranks call again, rightly, so that root's call ends."""
    found = error_of(lambda: comm.scatter(numpy.arange(comm.size) if comm.rank == 0 else None))
    if comm.rank:
        assert comm.scatter(out=numpy.empty(1, numpy.int64))[0] == comm.rank
    return found


def barrier(comm: Any) -> None:
    comm.barrier()


def try_barrier(comm: Any) -> list[str]:
    return error_of(comm.barrier)


def die_or_wait(comm: Any, victim: int) -> list[str]:
    if comm.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return error_of(comm.barrier)


def go_on(comm: Any, dead: int | None, gone: list[int]) -> list[Any]:
    """Rank `dead` kills itself, those `gone` do not go on, the others do: who is missing, as they are told; a sum."""
    if comm.rank == dead:
        os.kill(os.getpid(), signal.SIGKILL)
    told = None
    try:
        comm.barrier()
    except paceline.Error as error:
        told = error.rank
    if comm.rank in gone:
        return [told]
    with comm.shrink(gone) as rest:
        return [told, rest.rank, rest.size, int(rest.all_reduce(numpy.full(1000, rest.rank + 1))[0])]


# ---- First calls ----


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
