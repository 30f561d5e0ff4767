"""Every wrong use is an error by name."""

from __future__ import annotations

import copy
import math
import os
import pickle
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import ml_dtypes
import numpy
import paceline
import pytest
from job import Job
from paceline import _native


def test_not_contiguous(comm: paceline.Communicator) -> None:
    with pytest.raises(paceline.InvalidArgument, match=r"not contiguous.*ascontiguousarray"):
        comm.all_reduce(numpy.ones((4, 4))[:, ::2])


@pytest.mark.parametrize("root", [-1, 1, 2**31 - 1, 2**32, 2**64, 0.5])
def test_root_out_of_range(comm: paceline.Communicator, root: int) -> None:
    for call in (comm.broadcast, comm.reduce, comm.gather, comm.scatter):
        with pytest.raises(paceline.InvalidArgument, match=f"root is {root}"):
            call(numpy.ones((1, 4)), root=root)
    with pytest.raises(paceline.InvalidArgument, match=f"root is {root}"):
        comm.explain("broadcast", 4, root=root)


@pytest.mark.parametrize("peer", [-1, 1, 2**32])
def test_peer_out_of_range(comm: paceline.Communicator, peer: int) -> None:
    for call in (comm.send, comm.recv):
        with pytest.raises(paceline.InvalidArgument, match=f"peer is {peer}"):
            call(numpy.ones(4), peer)


def test_a_rank_may_be_any_whole_number_type(comm: paceline.Communicator) -> None:
    assert comm.broadcast(numpy.ones(4), root=numpy.int64(0))[0] == 1


@pytest.mark.parametrize(("color", "key"), [(2**31, 0), (2**32, 0), (-1, 0), (0, 2**31), (0, -(2**31) - 1)])
def test_split_takes_no_number_that_c_would_cut(comm: paceline.Communicator, color: int, key: int) -> None:
    with pytest.raises(paceline.InvalidArgument, match="must be from"):
        comm.split(color, key)


def test_a_scalar_that_the_type_cannot_hold(comm: paceline.Communicator) -> None:
    for kind, scalar in ((numpy.int8, 300), (numpy.uint8, -1), (numpy.int32, 0.9), (numpy.float16, 1e6),
                         (ml_dtypes.float8_e4m3fn, 500), (ml_dtypes.float8_e5m2, 1e6)):  # fmt: skip
        with pytest.raises(paceline.InvalidArgument, match="cannot hold"):
            comm.all_reduce(numpy.ones(4, kind), op=paceline.premulsum(scalar))


def test_an_operation_that_was_not_called(comm: paceline.Communicator) -> None:
    with pytest.raises(paceline.InvalidArgument, match=r"write its call, as premulsum\(scalar\)"):
        comm.all_reduce(numpy.ones(4), op=paceline.premulsum)  # type: ignore[call-overload]
    with pytest.raises(paceline.InvalidArgument, match="op is the function partial: write its call"):
        comm.all_reduce(numpy.ones(4), op=partial(max))  # type: ignore[call-overload]


def test_both_zeros_are_scalars(comm: paceline.Communicator) -> None:
    for dtype in (numpy.float64, ml_dtypes.float8_e5m2):
        for scalar in (0.0, -0.0, 0.0):
            product = comm.all_reduce(numpy.ones(4, dtype), op=paceline.premulsum(scalar))
            assert numpy.signbit(product.astype(float)).tolist() == [math.copysign(1, scalar) < 0] * 4


@pytest.mark.parametrize("timeout", [math.nan, "5"])
def test_a_timeout_of_a_wait_that_is_none(comm: paceline.Communicator, timeout: Any) -> None:
    handle = comm.all_reduce(numpy.ones(4), async_op=True)
    with pytest.raises(paceline.InvalidArgument, match=f"timeout is {timeout!r}: give seconds"):
        handle.wait(timeout)
    for seconds in (math.inf, numpy.float32(5), -1):
        handle.wait(seconds)


def test_unknown_operation_and_type(comm: paceline.Communicator) -> None:
    with pytest.raises(paceline.InvalidArgument, match=r"no operation 'mean'.*avg"):
        comm.all_reduce(numpy.ones(4), op="mean")  # type: ignore[call-overload]
    with pytest.raises(paceline.InvalidArgument, match=r"op is of ndarray.*out="):
        comm.all_reduce(numpy.ones(4), numpy.ones(4))  # type: ignore[call-overload]
    for dtype in ("float31", [1], None, bool):
        with pytest.raises(paceline.InvalidArgument, match=f"no type {re.escape(repr(dtype))}: take one of int8"):
            comm.explain("all_reduce", 1, dtype)


@pytest.mark.parametrize(
    ("op", "hint"),
    [
        (numpy.add, 'op is the function add: say op="sum"'),
        (sum, 'op is the function sum: say op="sum"'),
        (numpy.maximum, 'op is the function maximum: say op="max"'),
        ("SUM", "no operation 'SUM': did you mean 'sum'"),
        ("mean", "no operation 'mean': did you mean 'avg'"),
    ],
)
def test_an_operation_by_another_name(comm: paceline.Communicator, op: Any, hint: str) -> None:
    with pytest.raises(paceline.InvalidArgument, match=hint):
        comm.all_reduce(numpy.ones(4), op=op)


def test_explain_takes_numpys_types(comm: paceline.Communicator) -> None:
    for dtype in (numpy.float64, numpy.dtype("f8"), "float64", float):
        assert comm.explain("all_reduce", 1000, dtype) == comm.explain("all_reduce", 1000, "float64")
    assert comm.explain("all_reduce", 1000, ml_dtypes.bfloat16) == comm.explain("all_reduce", 1000, "bfloat16")


def test_a_communicator_is_not_copied(comm: paceline.Communicator) -> None:
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(paceline.InvalidUsage, match=r"have each process call paceline.init\(\)"):
            make(comm)


def test_errors_say_pythons_names() -> None:
    with pytest.raises(paceline.InvalidArgument, match=r"no unique id: make it with paceline.unique_id\(\) in one"):
        paceline.init(rank=0, size=1, unique_id=bytes(128))


def test_out_of_another_size_or_type(comm: paceline.Communicator) -> None:
    with pytest.raises(
        paceline.InvalidArgument, match="out has 5 elements of float64, but the result has 4 of float64"
    ):
        comm.all_reduce(numpy.ones(4), out=numpy.ones(5))
    with pytest.raises(paceline.InvalidArgument, match="out has 4 elements of int64, but the result has 4 of float64"):
        comm.all_reduce(numpy.ones(4), out=numpy.ones(4, numpy.int64))


def test_parts_that_do_not_divide(three: Job) -> None:
    for name in ("reduce_scatter", "all_to_all"):
        for found in three.run("wrong_parts", name=name):
            assert found[0] == "InvalidArgument" and "do not divide into 3" in found[1]


def test_scatter_needs_out_elsewhere(three: Job) -> None:
    assert [found[0] for found in three.run("scatter_without_out")] == ["no error", *["InvalidArgument"] * 2]


def test_after_close(comm: paceline.Communicator) -> None:
    comm.close()
    comm.close()
    for call in (
        comm.barrier,
        comm.abort,
        comm.get_async_error,
        lambda: comm.all_reduce(numpy.ones(1)),
        lambda: comm.barrier(async_op=True),
        lambda: comm.split(0),
        lambda: comm.set_algorithm(None),
    ):
        with pytest.raises(paceline.InvalidUsage, match="closed"):
            call()
    assert repr(comm) == "<paceline.Communicator, closed>"


def test_a_close_that_fails_in_a_group_can_be_made_again(comm: paceline.Communicator) -> None:
    x = numpy.ones(3)
    with paceline.group():
        handle = comm.all_reduce(x, async_op=True)
        with pytest.raises(paceline.InvalidUsage, match="end the group first"):
            comm.close()
    assert handle.wait() is x
    queue = handle._queue
    comm.close()
    assert queue.stream is None  # its thread has ended


def test_calls_after_the_end_raise_its_error_again(comm: paceline.Communicator) -> None:
    comm.abort()
    for call in (comm.barrier, lambda: comm.all_reduce(numpy.ones(4))):
        with pytest.raises(paceline.Aborted) as raised:
            call()
        assert str(raised.value) == str(comm.get_async_error())
    with pytest.raises(paceline.InvalidArgument, match="root is 5"):
        comm.broadcast(numpy.ones(4), root=5)


def test_an_error_has_the_sentence_of_its_own_call(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another thread's call on the communicator fails before it is raised."""
    all_reduce = comm._all_reduce

    def fail_elsewhere() -> None:
        with pytest.raises(paceline.InvalidArgument, match="nonsense"):
            comm.set_algorithm("nonsense")

    def all_reduce_and_fail_elsewhere(*arguments: Any) -> int:
        result = all_reduce(*arguments)
        other = Thread(target=fail_elsewhere)
        other.start()
        other.join()
        return int(result)

    monkeypatch.setattr(comm, "_all_reduce", all_reduce_and_fail_elsewhere)
    x = numpy.ones(8)
    with pytest.raises(paceline.InvalidArgument, match="overlap"):
        comm.all_reduce(x[:6], out=x[2:])


def test_unknown_algorithm(comm: paceline.Communicator) -> None:
    with pytest.raises(paceline.InvalidArgument, match="nonsense"):
        comm.set_algorithm("nonsense")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"timeout": 0}, "timeout is 0: give seconds, above 0 and up to 1e"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": float("inf")}, "timeout is inf"),
        ({"timeout": 10**400}, "timeout is 1000"),
        ({"timeout": "5"}, "timeout is '5'"),
        ({"chunk_bytes": 0}, "chunk_bytes is 0: it must be from 1 to"),
        ({"chunk_bytes": -1}, "chunk_bytes is -1"),
        ({"chunk_bytes": 2**64 + 5}, "chunk_bytes is 18446744073709551621"),
        ({"chunk_bytes": 1.5}, "chunk_bytes is 1.5: give a whole number"),
        ({"algorithm": b"ring"}, "algorithm is b'ring': give a str"),
        ({"algorithm": "ring\0x"}, r"algorithm is 'ring\\x00x': it has a NUL character"),
        ({"algorithm": "\udcff"}, r"algorithm is '\\udcff': it has a character without an encoding"),
    ],
)
def test_options_that_c_would_take_for_others(
    comm: paceline.Communicator, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(paceline.InvalidArgument, match=reason):
        paceline.init(**options)
    if "chunk_bytes" not in options:
        with pytest.raises(paceline.InvalidArgument, match=reason):
            comm.split(0, **options)


def test_a_join_waits_as_long_as_it_is_told() -> None:
    begun = time.monotonic()
    with pytest.raises(paceline.Timeout, match="rank 1"):
        paceline.init(rank=0, size=2, unique_id=paceline.unique_id(), join_timeout=0.3)
    assert time.monotonic() - begun < 5
    with pytest.raises(paceline.InvalidArgument, match="join_timeout is 0"):
        paceline.init(join_timeout=0)


def test_options_may_be_numpys() -> None:
    identity = paceline.unique_id()

    def join(rank: int) -> paceline.Communicator:
        options: dict[str, Any] = {"timeout": numpy.float32(0.3), "chunk_bytes": numpy.int64(4096)}
        return paceline.init(rank=rank, size=2, unique_id=identity, **options)

    with ThreadPoolExecutor(2) as threads:
        one, silent = threads.map(join, range(2))
    with one, silent:
        assert one.explain("all_reduce", 1 << 20).chunk_bytes == 4096
        begun = time.monotonic()
        with pytest.raises(paceline.Timeout, match="rank 1"):
            one.all_reduce(numpy.ones(4))
        assert 0.25 < time.monotonic() - begun < 5


def test_names_that_are_no_text(comm: paceline.Communicator) -> None:
    with pytest.raises(paceline.InvalidArgument, match="algorithm is 5: give a str"):
        comm.set_algorithm(5)  # type: ignore[arg-type]
    with pytest.raises(paceline.InvalidArgument, match="collective is None: give a str"):
        comm.explain(None, 1)  # type: ignore[arg-type]
    with pytest.raises(paceline.InvalidArgument, match=r"collective is 'all_reduce\\x00': it has a NUL character"):
        comm.explain("all_reduce\0", 1)


def test_incomplete_identity() -> None:
    with pytest.raises(paceline.InvalidArgument, match="go together"):
        paceline.init(rank=0)
    with pytest.raises(paceline.InvalidArgument, match="128 bytes, this has 3"):
        paceline.init(rank=0, size=1, unique_id=b"abc")
    for identity in ("text", 5, [1]):
        with pytest.raises(paceline.InvalidArgument, match=r"unique_id is of .*: give the bytes"):
            paceline.init(rank=0, size=1, unique_id=identity)  # type: ignore[arg-type]
    paceline.init(rank=0, size=1, unique_id=memoryview(paceline.unique_id())).close()  # type: ignore[arg-type]


def test_wrong_options_leave_the_unique_id_as_it_is() -> None:
    identity = paceline.unique_id()
    with pytest.raises(paceline.InvalidArgument, match="nonsense"):
        paceline.init(rank=0, size=1, unique_id=identity, algorithm="nonsense")
    with pytest.raises(paceline.InvalidArgument, match="size is"):
        paceline.init(rank=0, size=2**32 + 1, unique_id=identity)
    paceline.init(rank=0, size=1, unique_id=identity).close()


def test_a_unique_id_leaves_no_socket_behind() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        paceline.init(rank=0, size=1, unique_id=paceline.unique_id()).close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_one_rank_with_a_unique_id() -> None:
    with paceline.init(rank=0, size=1, unique_id=paceline.unique_id()) as comm:
        assert (comm.rank, comm.size, comm.node_rank, comm.node_size) == (0, 1, 0, 1)


def test_mismatched_counts_name_both_ranks() -> None:
    with Job(2) as two:
        for kind, message in two.run("mismatch"):
            assert kind == "Mismatch"
            assert "rank 0" in message and "rank 1" in message


@pytest.mark.parametrize("function", ["abort_from_thread", "async_failure"])
def test_abort_reaches_every_rank(function: str) -> None:
    with Job(3) as three:
        three.run("barrier")
        began = time.monotonic()
        found = three.run(function)
        assert {kind for kind, _ in found[1:]} == {"Aborted"}
        assert time.monotonic() - began < 2


def test_survivors_name_the_dead_rank() -> None:
    with Job(3) as three:
        three.run("barrier")
        three.start("die_or_wait", victim=1)
        three.ranks[1].wait()
        began = time.monotonic()
        for survivor in (0, 2):
            kind, message = three.result_of(survivor)
            assert kind == "RemoteError"
            assert "rank 1" in message
        assert time.monotonic() - began < 2


def test_a_stopped_rank_is_named_within_the_timeout() -> None:
    with Job(3, PACELINE_TIMEOUT="1") as three:
        three.run("barrier")
        os.kill(three.ranks[2].pid, signal.SIGSTOP)
        try:
            three.start("try_barrier")
            for survivor in (0, 1):
                kind, message = three.result_of(survivor)
                assert kind == "Timeout"
                assert "rank 2" in message
        finally:
            os.kill(three.ranks[2].pid, signal.SIGKILL)


def test_every_code_has_its_class() -> None:
    kinds = {kind.code: kind for kind in paceline.Error.__subclasses__()}
    assert sorted(kinds) == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert issubclass(paceline.Timeout, TimeoutError) and issubclass(paceline.InvalidArgument, ValueError)
    error = paceline.Timeout("rank 3 did not answer")
    assert (str(error), error.code, error.message) == ("rank 3 did not answer", 8, "rank 3 did not answer")


def test_a_communicator_whose_leaving_fails_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """C has given its handle up; to use it once more would be to use memory that is gone."""
    beside = paceline.init()
    destroy = _native.library().paceCommDestroy
    left: list[int] = []

    def destroy_and_fail(handle: int) -> int:
        left.append(handle)
        destroy(handle)
        return paceline.Mismatch.code

    with monkeypatch.context() as patch:
        patch.setattr(beside._library, "paceCommDestroy", destroy_and_fail)
        with pytest.raises(paceline.Mismatch):
            beside.close()
        beside.close()
    assert len(left) == 1
    assert repr(beside) == "<paceline.Communicator, closed>"
