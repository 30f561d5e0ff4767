"""What ranks of a Job do: collectives and messages whose results are compared with NumPy."""

from __future__ import annotations

import array
import hashlib
from typing import Any

import numpy
import paceline
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


def barrier(comm: Any) -> None:
    comm.barrier()


def exchange_in_ring(comm: Any) -> list[float]:
    outgoing, incoming = numpy.full(3, comm.rank, numpy.float32), numpy.empty(3, numpy.float32)
    with comm.group():
        comm.recv(incoming, (comm.rank - 1) % comm.size)
        comm.send(outgoing, (comm.rank + 1) % comm.size)
    return [float(value) for value in incoming]


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


def premulsum_of_rank(comm: Any) -> float:
    """Each rank gives its own scalar; more of them than are kept."""
    for scale in range(40):
        x = numpy.ones(3, numpy.float64)
        comm.all_reduce(x, op=paceline.premulsum((comm.rank + 1) * (scale + 1)))
        assert (x == (scale + 1) * comm.size * (comm.size + 1) / 2).all(), x
    return float(x[0])


def torch_tensors(comm: Any) -> None:
    import torch

    x = torch.full((3, 4), comm.rank + 1, dtype=torch.bfloat16)
    comm.all_reduce(x)
    assert (x == comm.size * (comm.size + 1) // 2).all()
    gathered = comm.all_gather(torch.tensor([comm.rank]), async_op=True).wait()
    assert gathered.tolist() == [[rank] for rank in range(comm.size)]
