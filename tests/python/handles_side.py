"""What ranks of a Job do: asynchronous calls and groups, their handles, and what those tell."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy
import paceline
from errors_side import error_of


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
