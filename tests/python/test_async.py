"""Asynchronous calls, groups and splits."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy
import paceline
import pytest
from job import Job
from paceline import _native
from paceline.arrays import OnGpu


def test_calls_end_in_order_and_blocking_calls_keep_their_place(three: Job) -> None:
    three.run("many_async", calls=50)


def test_arrays_live_as_long_as_their_call(three: Job) -> None:
    assert three.run("forgotten_handle") == [3, 3, 3]


def test_wait_gives_up_and_can_be_called_again(three: Job) -> None:
    first, *others = three.run("wait_with_timeout")
    assert first == "False: the call is still under way after 0.02 s"
    assert others == ["called late"] * 2


def test_wait_is_for_one_call_and_not_for_later_ones(three: Job) -> None:
    assert three.run("wait_for_the_first_alone") == [True, False, False]


def test_handles_of_a_closed_communicator_know_how_their_call_ended(three: Job) -> None:
    assert [found[:1] for found in three.run("wait_after_close")] == [["no error"], ["Aborted"], ["Aborted"]]


def test_a_communicator_tells_the_error_that_no_wait_has_told_as_it_closes(three: Job) -> None:
    assert three.run("untold_error", leave="with") == [["Mismatch"]] * 3


@pytest.mark.parametrize("leave", ["told by a call", "told by a wait", "told by a group"])
def test_a_communicator_tells_no_error_twice_as_it_closes(three: Job, leave: str) -> None:
    assert three.run("untold_error", leave=leave) == [["no error"]] * 3


@pytest.mark.parametrize(("leave", "raised"), [("exception", "Error"), ("finalizer", "no error")])
def test_where_the_error_of_a_call_cannot_be_raised_it_is_a_warning(three: Job, leave: str, raised: str) -> None:
    for kind, warned in three.run("untold_error", leave=leave):
        assert kind == raised
        assert re.match(r"an asynchronous call that nobody waited for failed: Mismatch: rank \d called", warned)


def test_a_warning_that_is_an_error_keeps_no_exception_from_its_way() -> None:
    program = """
import sys, time, numpy, paceline
comm = paceline.init()

def with_untold_error():
    beside = comm.split(0)
    beside.abort()
    handle = beside.all_reduce(numpy.ones(3), async_op=True)
    while not handle.done():
        time.sleep(0.01)
    beside._told.clear()  # as of another rank's abort
    return beside

try:
    with with_untold_error():
        raise KeyError
except KeyError as error:
    print(error.__context__)
beside = with_untold_error()  # to the end
"""
    words = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "None\n"
    said = (
        "RuntimeWarning: an asynchronous call that nobody waited for failed: Aborted: rank 0 aborted the communicator\n"
    )
    assert done.stderr == 2 * said


def test_a_wait_beside_a_close_takes_its_word(comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = comm.split(0)
    assert beside is not None
    well = beside.all_reduce(numpy.ones(3), async_op=True)
    queue = well._queue
    while queue._wait(queue.stream, 1, 1):  # not by the handle, which would know it
        pass
    beside.abort()
    failed = beside.all_reduce(numpy.ones(3), async_op=True)
    result = queue._result

    def close_and_ask(*arguments: Any) -> int:
        monkeypatch.setattr(queue, "_result", result)
        beside.close()
        return int(result(*arguments))  # of a stream that is no more

    monkeypatch.setattr(queue, "_result", close_and_ask)
    with pytest.raises(paceline.Aborted):
        failed.wait()
    assert well.wait().tolist() == [1, 1, 1]


@pytest.mark.parametrize("launches", [False, True])
def test_an_exception_does_not_wait_for_kernels(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch, launches: bool
) -> None:
    beside = comm.split(0)
    assert beside is not None
    aborted = []
    abort = _native.library().paceCommAbort
    monkeypatch.setattr(_native.library(), "paceCommAbort", lambda handle: aborted.append(handle) or abort(handle))
    x = numpy.ones(3)
    with pytest.raises(KeyError), beside:
        if launches:
            beside._call(lambda *_: 0, (), OnGpu(x, stream=1), x, async_op=True)  # where there is a GPU
        raise KeyError
    assert len(aborted) == launches


def test_an_exception_does_not_wait_for_the_asynchronous_calls_of_its_block(three: Job) -> None:
    first, *others = three.run("exception_beside_a_call")
    assert first[0] == "KeyError"
    assert [kind for kind, _, _ in others] == ["Aborted"] * 2
    assert max(seconds for _, _, seconds in (first, *others)) < 8  # the timeout is 20 s


def test_a_handle_shows_its_state(comm: paceline.Communicator) -> None:
    with paceline.group():
        handle = comm.all_reduce(numpy.ones(3), async_op=True)
        assert repr(handle) == "<paceline.Handle, under way>"
    handle.wait()
    assert repr(handle) == "<paceline.Handle, ended>"


def test_sys_exit_waits_for_the_asynchronous_calls_of_its_block(three: Job) -> None:
    assert three.run("exit_beside_a_call") == [[3.0] * 3] * 3


def test_handles_tell_the_errors_of_their_own_calls(three: Job) -> None:
    three.run("handles_tell_their_own_errors")


def test_sends_and_receives_of_a_group_in_any_order(three: Job) -> None:
    assert three.run("exchange_in_ring") == [[2.0] * 3, [0.0] * 3, [1.0] * 3]


def test_asynchronous_and_blocking_calls_in_one_group(three: Job) -> None:
    three.run("async_in_group")


def test_a_group_that_raises_starts_nothing(three: Job) -> None:
    three.run("group_with_error")


def test_a_rank_whose_group_was_refused_has_taken_no_part(three: Job) -> None:
    three.run("refused_group")


@pytest.mark.parametrize(
    "refused",
    [
        lambda comm, x: comm.all_reduce(numpy.ones((4, 4))[:, ::2]),
        lambda comm, x: comm.all_reduce(x, op="nonsense"),
        lambda comm, x: comm.all_reduce(x, out=numpy.ones(4)),
        lambda comm, x: comm.all_reduce(numpy.ones(3, numpy.int8), op=paceline.premulsum(300)),
        lambda comm, x: comm.reduce_scatter(x),
        lambda comm, x: comm.scatter(),
        lambda comm, x: comm.broadcast(x, root=1),
        lambda comm, x: comm.send(x, 1),
        lambda comm, x: comm.send(x, 0.5, async_op=True),
        lambda comm, x: comm.recv(bytes(4), 0),
    ],
)
def test_a_group_starts_nothing_after_a_refused_call(
    comm: paceline.Communicator, refused: Callable[[paceline.Communicator, Any], object]
) -> None:
    x = numpy.ones(3)
    y = numpy.zeros(3)
    with pytest.raises(paceline.InvalidArgument) as raised, paceline.group():
        handle = comm.all_reduce(x, out=y, async_op=True)
        with pytest.raises(paceline.InvalidArgument) as first:
            refused(comm, x)
        comm.all_reduce(x, out=y)
    assert raised.value is first.value
    with pytest.raises(paceline.InvalidArgument) as told:
        handle.wait()
    assert told.value is first.value
    assert y.tolist() == [0, 0, 0]
    with paceline.group():
        comm.all_reduce(x, out=y)
    assert y.tolist() == [1, 1, 1]


def test_a_group_starts_nothing_after_a_call_that_had_no_memory(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its result, which is made before C has the call."""

    def no_memory(*_: object) -> None:
        raise MemoryError

    x, y = numpy.ones(3), numpy.zeros(3)
    monkeypatch.setattr(numpy, "empty", no_memory)
    with pytest.raises(paceline.InvalidUsage, match="was not started: a call raised MemoryError"), paceline.group():
        comm.all_reduce(x, out=y)
        with pytest.raises(MemoryError):
            comm.all_gather(x)
    assert y.tolist() == [0, 0, 0]


@pytest.mark.parametrize("op", ["sum", paceline.premulsum(2)], ids=str)
@pytest.mark.parametrize("later", [False, True])
def test_a_group_starts_nothing_after_a_call_on_a_closed_communicator(
    comm: paceline.Communicator, later: bool, op: str | paceline.PreMulSum
) -> None:
    closed = comm.split(0)
    assert closed is not None
    closed.close()
    x, y = numpy.ones(3), numpy.zeros(3)
    with pytest.raises(paceline.Error, match=r"NULL|closed"), paceline.group():
        comm.all_reduce(x, out=y)
        with pytest.raises(paceline.InvalidUsage, match="closed"):
            closed.all_reduce(y, op, async_op=later)
    assert y.tolist() == [0, 0, 0]


def test_split_by_color_and_key(three: Job) -> None:
    three.run("split")


def test_explain_is_the_same_on_every_rank(three: Job) -> None:
    plans = three.run("explain")
    assert plans[0] == plans[1] == plans[2]
    algorithm, transport, protocol, chunk_bytes, channels, predicted = plans[0]
    assert algorithm and (transport, protocol) == ("shm", "staged")
    assert chunk_bytes > 0 and channels >= 1 and predicted > 0


def test_threads_that_wait_at_once_let_go_of_no_call_that_runs(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    comm.abort()
    first, second = (comm.all_reduce(numpy.ones(3), async_op=True) for _ in range(2))
    queue = first._queue
    x = numpy.ones(3)
    alive = weakref.ref(x)
    queue.expect(x)  # as of a call that goes on
    del x
    result = queue._result

    def result_beside_a_wait(*arguments: Any) -> int:
        monkeypatch.setattr(queue, "_result", result)
        other = Thread(target=queue.wait, args=(second._mark, -1))
        other.start()
        other.join()
        return int(result(*arguments))

    monkeypatch.setattr(queue, "_result", result_beside_a_wait)
    for handle in (first, second):
        with pytest.raises(paceline.Aborted):
            handle.wait()
    assert alive() is not None


@pytest.mark.parametrize(
    "leave",
    [
        "comm.close(); print('well')",
        "with comm: print('well')",
        "with comm: print('well'); raise KeyError",
        "print('well'); sys.exit(0)",
    ],
)
def test_a_forked_child_can_close_its_copy_of_a_communicator_with_calls(leave: str) -> None:
    """They have ended, but nobody has waited for them; the parent can, as before."""
    program = f"""
import os, sys, time, numpy, paceline
comm = paceline.init()
handle = comm.all_reduce(numpy.ones(3), async_op=True)
while comm._queue._wait(comm._queue.stream, 1, 0):  # not by the handle, which would know it
    time.sleep(0.01)
if os.fork() == 0:
    try:
        {leave}
    except KeyError:
        pass
    os._exit(0)
os.wait()
print(handle.wait())
comm.close()
"""
    done = subprocess.run([sys.executable, "-uc", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("well\n[1. 1. 1.]\n", "")


def test_a_forked_child_cannot_wait_for_the_calls_of_its_parent() -> None:
    program = """
import os, numpy, paceline
comm = paceline.init()
known, handle = (comm.all_reduce(numpy.ones(3), async_op=True) for _ in range(2))
known.wait()
if os.fork() == 0:
    print(known.wait(), handle.done())
    for end in (lambda: None, comm.close):
        end()
        try:
            handle.wait()
        except paceline.InvalidUsage as error:
            print(error)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-uc", program], capture_output=True, text=True, timeout=60, check=True)
    refused = "the call is of the process that forked this one, where alone it can be waited for"
    assert done.stdout.splitlines() == ["[1. 1. 1.] True", refused, refused], done.stderr


@pytest.mark.parametrize("leave", ["drop", "close"])
def test_a_communicator_whose_error_was_raised_goes_when_it_is_dropped(comm: paceline.Communicator, leave: str) -> None:
    def use() -> weakref.ref[paceline.Communicator]:
        beside = comm.split(0)
        assert beside is not None
        beside.abort()
        handle = beside.all_reduce(numpy.ones(3), async_op=True)
        if leave == "close":
            beside._told.clear()  # as of another rank's abort
        with pytest.raises(paceline.Aborted):
            handle.wait() if leave == "drop" else beside.close()
        return weakref.ref(beside)

    dropped = use()
    gc.collect()
    assert dropped() is None
