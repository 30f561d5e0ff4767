"""Signals while calls wait for other ranks: their handlers run at once, and one that raises ends the wait."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from paceline.launch import rank_environment

# A rank's program: `signal_soon()` sends itself what Ctrl-C does, `after(seconds)` comes late to a call.
BEGIN = """
import os, signal, threading, time
import numpy as np
import paceline

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
begin = time.monotonic()

def signal_soon(seconds=0.5):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

def at_once(seconds):
    return seconds < 1.5

x = np.ones(4)
"""
IN_A_CALL = """
comm = paceline.init()
comm.barrier()
if comm.rank == 0:
    signal_soon()
    try:
        {call}
        print("it ended")
    except KeyboardInterrupt:
        print("interrupted", at_once(time.monotonic() - begin))
else:
    time.sleep(1.5)
try:
    {call}
    print("it ended")
except paceline.Aborted as error:
    print(error.rank, error)
comm.close()
"""


def outputs(program: str, ranks: int = 2, **environment: str) -> list[list[str]]:
    """The lines that each rank writes."""
    # Unbuffered: what a rank prints comes before what is said of its end.
    always = {"PACELINE_TIMEOUT": "60", "PYTHONUNBUFFERED": "1"}
    shared = {**os.environ, **rank_environment(ranks), **always, **environment}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", BEGIN + program],
            env={**shared, "PACELINE_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    return [one.communicate(timeout=60)[0].splitlines() for one in started]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    ("call", "described"),
    [
        ("comm.all_reduce(x)", "all-reduce #2 of 4 float64, sum"),
        ("comm.barrier()", "barrier #2"),
        ("comm.split(0)", "split #2"),
    ],
)
def test_an_interrupt_ends_the_call_and_the_communicator_on_every_rank(
    call: str, described: str, transport: str
) -> None:
    program = IN_A_CALL.format(call=call)
    said = f"0 rank 0 was interrupted in {described}"
    assert outputs(program, PACELINE_TRANSPORT=transport) == [["interrupted True", said], [said]]


def test_a_handler_that_does_not_raise_runs_and_the_call_goes_on() -> None:
    program = """
comm = paceline.init()
comm.barrier()
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(time.monotonic() - begin))
if comm.rank == 0:
    signal_soon()
    comm.all_reduce(x)
    print(at_once(seen[0]), x[0])
else:
    time.sleep(2)
    comm.all_reduce(x)
comm.close()
"""
    assert outputs(program) == [["True 2.0"], []]


def test_a_handler_may_use_the_library() -> None:
    program = """
comm = paceline.init()
comm.barrier()

def handle(*_):
    try:
        comm.barrier()
    except paceline.InvalidUsage as error:
        print(error)
    with paceline.init(rank=0, size=1, unique_id=paceline.unique_id()) as other:
        other.barrier()
    comm.abort()

signal.signal(signal.SIGINT, handle)
if comm.rank == 0:
    signal_soon()
else:
    time.sleep(1.5)
try:
    comm.all_reduce(x)
except paceline.Aborted as error:
    print(error)
comm.close()
"""
    aborted = "rank 0 aborted the communicator"
    first, other = outputs(program)
    assert "another thread" in first[0]
    assert [first[1:], other] == [[aborted], [aborted]]


def test_an_interrupted_wait_for_an_asynchronous_call_leaves_it_under_way() -> None:
    program = """
comm = paceline.init()
comm.barrier()
if comm.rank == 0:
    signal_soon()
    handle = comm.all_reduce(x, async_op=True)
    try:
        handle.wait()
    except KeyboardInterrupt:
        print("interrupted", at_once(time.monotonic() - begin))
    print(handle.wait()[0])
else:
    time.sleep(2)
    comm.all_reduce(x)
comm.close()
"""
    assert outputs(program) == [["interrupted True", "2.0"], []]


BEHIND = """
comm = paceline.init()
comm.barrier()
if comm.rank == 0:
    signal_soon()
    try:
        comm.all_reduce(x, async_op=True)
        with paceline.group():
            comm.barrier()
            {beside}
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - begin < 7)
else:
    time.sleep(8)
comm.close()
"""


@pytest.mark.parametrize("beside", ["pass", "comm.all_reduce(x, async_op=True)"])
def test_an_interrupt_ends_a_call_that_waits_for_asynchronous_ones(beside: str) -> None:
    assert outputs(BEHIND.format(beside=beside))[0][0] == "interrupted True"


def test_an_interrupt_is_told_by_what_waited_for_asynchronous_calls() -> None:
    """Also by what does nothing that the end of the communicator would hinder."""
    program = """
comm = paceline.init()
comm.barrier()
if comm.rank == 0:
    comm.all_reduce(x, async_op=True)
    signal_soon()
    try:
        comm.set_algorithm(None)
        print("not told")
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - begin < 7)
else:
    time.sleep(8)
comm.close()
"""
    assert outputs(program)[0][0] == "interrupted True"


@pytest.mark.parametrize("rank", [0, 1])
def test_an_interrupt_ends_the_wait_for_ranks_that_have_yet_to_come(rank: int) -> None:
    program = f"""
if os.environ["PACELINE_RANK"] == "2":
    os._exit(0)
if os.environ["PACELINE_RANK"] == "{rank}":
    signal_soon(1)
try:
    paceline.init()
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 4)
except paceline.Aborted as error:
    print(error.rank, str(error).endswith("it was interrupted"))
"""
    said = outputs(program, 3)
    assert said[rank] == ["interrupted True"]
    assert said[1 - rank] == [f"{rank} True"]


def test_an_interrupt_does_not_wait_for_the_timeout_of_a_late_rank() -> None:
    """No matter whether it comes through the terminal to all ranks at once."""
    begin = time.monotonic()
    program = """
comm = paceline.init()
comm.barrier()
signal_soon()
try:
    comm.recv(x, 1 - comm.rank)
except (KeyboardInterrupt, paceline.Aborted) as error:
    print(type(error).__name__)
comm.close()
"""
    said = outputs(program)
    assert time.monotonic() - begin < 30
    assert ["KeyboardInterrupt"] in said
