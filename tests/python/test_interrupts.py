"""Interrupts (Ctrl-C) beside a C call: nothing of it may run in memory that is gone, and no group stays open."""

from __future__ import annotations

import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from ctypes import Array, c_void_p
from types import FrameType
from typing import Any

import numpy
import paceline
import pytest
from paceline import _native
from paceline.group import open_group


@pytest.fixture(autouse=True)
def sigint_interrupts() -> Iterator[None]:
    """Also where the tests were started in the background, which has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(call: Callable[..., int], when: str) -> Callable[..., int]:
    """A C call before or after which Ctrl-C comes, once."""
    due = iter([when])

    def call_and_interrupt(*arguments: Any) -> int:
        now = next(due, "")
        if now == "before":
            signal.raise_signal(signal.SIGINT)
        result = call(*arguments)
        if now == "after":
            signal.raise_signal(signal.SIGINT)
        return result

    return call_and_interrupt


def interrupt_at(event: str, function: str) -> None:
    """Have Ctrl-C come at the next "call" of a function of this name, before its first line, or at its "return"."""

    def interrupt(frame: FrameType, now: str, _: object) -> None:
        if (now, frame.f_code.co_name) == (event, function):
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)


def assert_works(comm: paceline.Communicator) -> None:
    sums = numpy.zeros(3)
    comm.all_reduce(numpy.ones(3), out=sums)
    assert sums.tolist() == [1, 1, 1]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["paceGroupStart", "paceGroupEnd"])
@pytest.mark.parametrize("depth", [1, 2])
def test_no_group_stays_open(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch, name: str, depth: int, when: str
) -> None:
    library = _native.library()

    def group_in_group(depth: int) -> None:
        with paceline.group():
            comm.all_reduce(numpy.ones(3))
            if depth > 1:
                group_in_group(depth - 1)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(library, name, interrupted(getattr(library, name), when))
        group_in_group(depth)
    assert_works(comm)
    group_in_group(depth)
    assert_works(comm)


def test_an_interrupted_group_in_a_group_keeps_the_outer_one_from_starting(comm: paceline.Communicator) -> None:
    x = numpy.ones(3)
    y = numpy.full(3, 5.0)
    with pytest.raises(paceline.InvalidUsage, match="its body raised KeyboardInterrupt"), paceline.group():
        comm.all_reduce(x, out=y)
        with pytest.raises(KeyboardInterrupt), paceline.group():
            signal.raise_signal(signal.SIGINT)
        comm.all_reduce(x, out=y)
        assert y.tolist() == [5, 5, 5]
    assert y.tolist() == [5, 5, 5]
    assert_works(comm)


BESIDE_THE_BODY = pytest.mark.parametrize(("event", "function"), [("return", "__enter__"), ("call", "__exit__")])


@BESIDE_THE_BODY
@pytest.mark.parametrize("outer", [False, True])
def test_no_group_stays_open_while_somebody_holds_the_interrupt(
    comm: paceline.Communicator, event: str, function: str, outer: bool
) -> None:
    """As `sys.last_traceback` does."""
    y = numpy.full(3, 5.0)
    with pytest.raises(KeyboardInterrupt) as held:
        interrupt_at(event, function)
        with paceline.group():
            comm.all_reduce(numpy.ones(3), out=y)
    assert y.tolist() == [5, 5, 5]
    if outer:
        with paceline.group():
            comm.all_reduce(numpy.ones(3), out=y)
        assert y.tolist() == [1, 1, 1]
    assert_works(comm)
    assert held.value.__traceback__ is not None  # to the end


@BESIDE_THE_BODY
def test_a_group_that_was_left_open_holds_up_no_end(monkeypatch: pytest.MonkeyPatch, event: str, function: str) -> None:
    monkeypatch.delenv("PACELINE_RANK", raising=False)
    comm = paceline.init()
    comm.all_reduce(numpy.ones(3), async_op=True).wait()  # it imports what it needs, under locks with an `__exit__`
    with pytest.raises(KeyboardInterrupt) as held:
        interrupt_at(event, function)
        with paceline.group():
            handle = comm.all_reduce(numpy.ones(3), async_op=True)
    comm.close()
    if function == "__exit__":
        with pytest.raises(paceline.InvalidUsage, match="was not started: it was interrupted"):
            handle.wait()
    assert held.value.__traceback__ is not None


def test_a_handle_of_a_group_that_was_left_open_says_so(comm: paceline.Communicator) -> None:
    comm.all_reduce(numpy.ones(3), async_op=True).wait()  # as above
    for ask in ("wait", "done"):
        with pytest.raises(KeyboardInterrupt) as held:
            interrupt_at("call", "__exit__")
            with paceline.group():
                handle = comm.all_reduce(numpy.ones(3), async_op=True)
        if ask == "wait":
            with pytest.raises(paceline.InvalidUsage, match="was not started: it was interrupted"):
                handle.wait()
        else:
            assert handle.done()
        assert held.value.__traceback__ is not None
        assert_works(comm)


LEFT_OPEN = """
import signal, sys, numpy, paceline
signal.signal(signal.SIGINT, signal.default_int_handler)
comm = paceline.init()
comm.all_reduce(numpy.ones(3), async_op=True).wait()
def interrupt(frame, event, _):
    if (event, frame.f_code.co_name) == ("call", "__exit__"):
        sys.setprofile(None)
        raise KeyboardInterrupt
sys.setprofile(interrupt)
with paceline.group():
    comm.all_reduce(numpy.ones(3), async_op=True)
"""


def test_a_program_that_ends_with_an_open_group_leaves_in_peace() -> None:
    command = [sys.executable, "-m", "paceline", "run", "-n", "1", "--", sys.executable, "-c", LEFT_OPEN]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.stderr.count("Traceback") == 1, run.stderr
    assert "KeyboardInterrupt" in run.stderr


def test_a_group_is_entered_once(comm: paceline.Communicator) -> None:
    group = paceline.group()
    with pytest.raises(paceline.InvalidUsage, match="has been entered before"), group, group:
        pass
    assert_works(comm)
    with pytest.raises(paceline.InvalidUsage, match="has been entered before"), group:
        pass
    assert_works(comm)


@BESIDE_THE_BODY
@pytest.mark.parametrize("calls_follow", [False, True])
def test_an_outer_group_does_not_start_after_an_inner_one_was_interrupted(
    comm: paceline.Communicator, event: str, function: str, calls_follow: bool
) -> None:
    y = numpy.full(3, 5.0)
    with pytest.raises(paceline.InvalidUsage, match="was not started: it was interrupted"), paceline.group():
        with pytest.raises(KeyboardInterrupt) as held:
            interrupt_at(event, function)
            with paceline.group():
                comm.all_reduce(numpy.ones(3), out=y)
        if calls_follow:
            comm.all_reduce(numpy.ones(3), out=y)
    assert y.tolist() == [5, 5, 5]
    assert_works(comm)
    assert held.value.__traceback__ is not None


def test_a_group_may_be_entered_in_any_way(comm: paceline.Communicator) -> None:
    @contextmanager
    def suspended() -> Iterator[None]:
        with paceline.group():
            yield

    y = numpy.full(3, 5.0)
    with suspended():
        comm.all_reduce(numpy.ones(3), out=y)
        assert y.tolist() == [5, 5, 5]
    assert y.tolist() == [1, 1, 1]
    y = numpy.full(3, 5.0)
    group = paceline.group()
    with group:
        assert hasattr(group, "__exit__")
        comm.all_reduce(numpy.ones(3), out=y)
        assert y.tolist() == [5, 5, 5]
    assert y.tolist() == [1, 1, 1]
    y = numpy.full(3, 5.0)
    with ExitStack() as stack:
        group = paceline.group()
        assert hasattr(group, "__exit__")
        stack.enter_context(group)
        assert hasattr(group, "__exit__")
        comm.all_reduce(numpy.ones(3), out=y)
        assert y.tolist() == [5, 5, 5]
    assert y.tolist() == [1, 1, 1]


@pytest.mark.parametrize("first", [None, KeyboardInterrupt(), paceline.Error("the GPU is lost")])
@pytest.mark.parametrize("failing", [False, True])
def test_a_group_keeps_its_memory_until_every_stream_was_waited_for(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch, first: BaseException | None, failing: bool
) -> None:
    """Also one that fails, of which some calls may have begun, and where the first of the waits raises something."""
    streams = {(0, 10), (1, 20), (1, 30)}
    x = numpy.ones(3)
    alive = weakref.ref(x)
    due = [first] if first is not None else []
    waited = set()

    def wait_for_stream(gpu: int, stream: int) -> None:
        assert alive() is not None
        if due:
            raise due.pop()
        waited.add((gpu, stream))

    monkeypatch.setattr(sys.modules["paceline.group"], "wait_for_stream", wait_for_stream)
    if isinstance(first, KeyboardInterrupt):
        raised = pytest.raises(KeyboardInterrupt)
    elif failing:
        raised = pytest.raises(paceline.InvalidArgument)
    else:
        raised = pytest.raises(paceline.Error, match="is lost") if first else nullcontext()
    with raised, paceline.group():
        comm.all_reduce(x)
        open_group.awaited.update(streams)
        if failing:
            end = _native.library().paceGroupEnd
            monkeypatch.setattr(_native.library(), "paceGroupEnd", lambda: end() or 4)
        del x
    assert len(waited) == len(streams) - isinstance(first, paceline.Error)
    assert alive() is None
    assert_works(comm)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_memory_of_a_call_stays_while_it_may_run(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    x = numpy.ones(3)
    alive = weakref.ref(x)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(comm, "_all_reduce", interrupted(comm._all_reduce, when))
        comm.all_reduce(x, async_op=True)
    del x
    if when == "after":  # it was begun
        assert alive() is not None
    comm.all_reduce(numpy.ones(3), async_op=True).wait()  # which ends after it
    assert alive() is None


def test_a_call_that_fails_its_checks_holds_no_memory(comm: paceline.Communicator) -> None:
    x = numpy.ones(8)
    alive = weakref.ref(x)
    with pytest.raises(paceline.InvalidArgument, match="overlap"):
        comm.all_reduce(x[:6], out=x[2:], async_op=True)
    del x
    assert alive() is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_handles_of_an_interrupted_group(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    library = _native.library()
    x = numpy.ones(3)
    alive = weakref.ref(x)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(library, "paceGroupEnd", interrupted(library.paceGroupEnd, when))
        with paceline.group():
            handle = comm.all_reduce(x, async_op=True)
    del x
    if when == "before":
        with pytest.raises(paceline.InvalidUsage, match="was not started: its body raised KeyboardInterrupt"):
            handle.wait()
    else:
        assert alive() is not None
        assert handle.wait() is alive()
    assert_works(comm)


def test_a_wait_that_was_interrupted_can_be_called_again(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = comm.all_reduce(numpy.ones(3), async_op=True)
    handle.wait()
    comm.abort()
    handle = comm.all_reduce(numpy.ones(3), async_op=True)
    queue = handle._queue
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(queue, "_result", interrupted(queue._result, "after"))
        handle.wait()
    with pytest.raises(paceline.Aborted):
        handle.wait()


@pytest.mark.parametrize("way", ["init", "init by id", "init_all", "split", "shrink"])
def test_a_communicator_that_nobody_gets_is_left(
    comm: paceline.Communicator, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Else the other ranks would wait for this one in vain."""
    library = _native.library()
    identity = paceline.unique_id()
    join, destroy = library.paceCommInitEnvironment, library.paceCommDestroy
    made: list[int] = []
    left: list[int] = []

    def join_all(pointers: Any, count: int, _: object) -> int:  # needs no GPU
        for i in range(count):
            pointer = c_void_p()
            join(pointer, None)
            pointers[i] = pointer.value
        return 0

    def noted(call: Callable[..., int], which: int) -> Callable[..., int]:
        def call_and_note(*arguments: Any) -> int:
            result = call(*arguments)
            pointers = arguments[which]
            made.extend(pointers if isinstance(pointers, Array) else [pointers.value])
            return result

        return interrupted(call_and_note, "after")

    def destroy_and_note(handle: int) -> int:
        left.append(handle)
        return int(destroy(handle))

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(library, "paceCommDestroy", destroy_and_note)
        patch.setattr(library, "paceCommInitEnvironment", noted(join, 0))
        patch.setattr(library, "paceCommInitRankConfig", noted(library.paceCommInitRankConfig, 0))
        patch.setattr(library, "paceCommInitAll", noted(join_all, 0))
        patch.setattr(library, "paceCommSplit", noted(library.paceCommSplit, 3))
        patch.setattr(library, "paceCommShrink", noted(library.paceCommShrink, 3))
        if way == "init":
            paceline.init()
        elif way == "init by id":
            paceline.init(rank=0, size=1, unique_id=identity)
        elif way == "init_all":
            paceline.init_all([0, 1])
        elif way == "shrink":
            comm.shrink([])
        else:
            comm.split(0)
    assert len(made) == (2 if way == "init_all" else 1)
    assert left == made
    assert_works(comm)


def test_closing_again_after_an_interrupt_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_RANK", raising=False)
    library = _native.library()
    comm = paceline.init()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(library, "paceCommDestroy", interrupted(library.paceCommDestroy, "after"))
        comm.close()
    comm.close()
    assert repr(comm) == "<paceline.Communicator, closed>"


def test_closing_again_after_an_interrupted_wait_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_RANK", raising=False)
    library = _native.library()
    comm = paceline.init()
    handle = comm.all_reduce(numpy.ones(3), async_op=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(handle._queue, "_wait", interrupted(handle._queue._wait, "after"))
        comm.close()
    left = []
    with monkeypatch.context() as patch:
        destroy = library.paceCommDestroy
        patch.setattr(library, "paceCommDestroy", lambda comm: left.append(comm) or destroy(comm))
        comm.close()
    assert len(left) == 1
    assert handle.wait().tolist() == [1, 1, 1]
