"""Ranks that call different things: an error that names both, within a second, on every transport."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import pytest
from forked_ranks import ForkedRanks
from launching import run

# What one rank calls, and what the others call.
PAIRS = [
    ("all_reduce", "broadcast"),
    ("all_reduce", "barrier"),
    ("reduce_scatter", "all_to_all"),
    ("all_gather", "all_reduce"),
    ("gather", "scatter"),
    ("reduce", "gather"),
    ("all_reduce", "all_reduce of 5"),
    ("all_reduce", "all_reduce of none"),
    ("all_reduce of 500000", "all_reduce of 500001"),
    ("all_reduce", "all_reduce of 500000"),
    ("all_reduce", "all_reduce of int32"),
    ("all_reduce", "all_reduce max"),
    ("broadcast", "broadcast of none"),
    ("broadcast", "broadcast from last"),
    ("reduce", "reduce to last"),
    ("gather", "gather to last"),
    ("scatter", "scatter from last"),
]


def cases(size: int) -> list[list[list[str]]]:
    made = []
    for one, others in PAIRS:
        for odd in (0, size - 1):
            for pair in ((one, others), (others, one)):
                made.append([[pair[0] if rank == odd else pair[1]] for rank in range(size)])
    made.append([["broadcast from next"] for _ in range(size)])  # nobody sends
    made.append([["broadcast from me"] for _ in range(size)])  # everybody sends
    if size == 2:
        made += [[["send"], ["recv of 5"]], [["send"], ["recv of int32"]], [["send"], ["recv of none"]]]
    return made


def outcomes_of(tried: list[list[list[str]]], size: int, environment: dict[str, str]) -> list[list[dict[str, Any]]]:
    """By rank, how each case ended there."""
    with ForkedRanks(size, "mismatches", {"cases": tried}, **environment) as job:
        outcomes: list[list[dict[str, Any]]] = job.all_told(120)
    return outcomes


def names_two_ranks(found: dict[str, Any]) -> bool:
    named = re.match(r"rank (\d) called (.+), but rank (\d) (called|is) ", found["message"])
    return found["kind"] == "Mismatch" and named is not None and named[1] != named[3]


# The barriers that follow come by another way than what is left of a wrong call, or by the same; and each rank hears
# in them from the one that called it.
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("transport", "barrier"), [("shm", "fan"), ("shm", "central"), ("tcp", "fan")])
def test_mismatched_calls_are_named(transport: str, barrier: str, size: int) -> None:
    tried = cases(size)
    # Rank 0's first call ends without a message, and in the second it waits for the others.
    tried.append([["broadcast of none", "broadcast from last"], *[["broadcast"] for _ in range(size - 1)]])
    environment = {"PACELINE_TRANSPORT": transport, "PACELINE_ALGORITHM": barrier, "PACELINE_TIMEOUT": "5"}
    by_rank = outcomes_of(tried, size, environment)
    wrong = [
        f"{case}, rank {rank}: {found[number]}"
        for number, case in enumerate(tried)
        for rank, found in enumerate(by_rank)
        if not names_two_ranks(found[number])
    ]
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong)
    late = [case for number, case in enumerate(tried) if max(found[number]["after"] for found in by_rank) > 1]
    if late:  # where the machine stood still, it is not as slow again
        for found in outcomes_of(late, size, environment):
            assert all(names_two_ranks(each) and each["after"] <= 1 for each in found), (late, found)


def is_mismatch_of(found: dict[str, Any], one: int, other: int) -> bool:
    named = re.match(r"rank (\d) called .+, but rank (\d) called ", found["message"])
    return found["kind"] == "Mismatch" and named is not None and {named[1], named[2]} == {str(one), str(other)}


def test_a_rank_that_called_something_else_is_named_while_a_third_is_waited_for() -> None:
    """The all-reduce waits for rank 0 first, which returned from the broadcast without a message for rank 1.

    It meets rank 2's message, or what rank 0 has said while it waited for that.
    """
    calls = ["broadcast from last", "all_reduce", "broadcast from last"]
    environment = {"PACELINE_TRANSPORT": "shm", "PACELINE_ALGORITHM": "one_shot", "PACELINE_TIMEOUT": "5"}
    with ForkedRanks(3, "call_and_compute", {"calls": calls}, **environment) as job:
        found = job.told(1)
        assert found["seconds"] < 3, found
        for rank in (0, 2):
            job.say(rank, "go on")
        for told in (found, job.told(0), job.told(2)):
            assert is_mismatch_of(told, 1, 2) or is_mismatch_of(told, 1, 0), told


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    "calls",
    [["send of none", "recv"], ["all_reduce of none", "all_reduce"], ["broadcast of none", "broadcast"]],
)
def test_a_call_of_no_elements_is_named_while_its_rank_computes(calls: list[str], transport: str) -> None:
    environment = {"PACELINE_TRANSPORT": transport, "PACELINE_TIMEOUT": "5"}
    with ForkedRanks(2, "call_and_compute", {"calls": calls}, **environment) as job:
        found = job.told(1)
        assert is_mismatch_of(found, 1, 0) and found["seconds"] < 3, found
        job.say(0, "go on")
        assert is_mismatch_of(job.told(0), 1, 0)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_receive_from_a_rank_inside_a_collective_is_a_mismatch(transport: str) -> None:
    calls = ["recv from next", "all_reduce", "all_reduce"]
    environment = {"PACELINE_TRANSPORT": transport, "PACELINE_ALGORITHM": "one_shot", "PACELINE_TIMEOUT": "5"}
    with ForkedRanks(3, "call_and_compute", {"calls": calls}, **environment) as job:
        for found in job.all_told():
            assert is_mismatch_of(found, 0, 1) and found["seconds"] < 3, found


def test_a_receive_of_a_group_is_a_mismatch_while_an_earlier_one_is_waited_for() -> None:
    """Rank 1 waits for rank 0 first, which is late; rank 2 is in a collective, whose messages lie on its board."""
    calls = ["nothing", "recv from 0 and 2", "all_reduce"]
    environment = {"PACELINE_TRANSPORT": "shm", "PACELINE_ALGORITHM": "one_shot", "PACELINE_TIMEOUT": "5"}
    with ForkedRanks(3, "call_and_compute", {"calls": calls}, **environment) as job:
        for rank in (1, 2):
            found = job.told(rank)
            assert is_mismatch_of(found, 1, 2) and found["seconds"] < 3, found
        job.say(0, "go on")
        assert is_mismatch_of(job.told(0), 1, 2)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    "call",
    [
        "comm.broadcast(bytearray(8), root=comm.rank)",
        "comm.scatter(bytearray(16), out=bytearray(8), root=comm.rank)",
        "comm.broadcast(bytearray(8), root=0) if comm.rank == 0 else comm.gather(bytearray(8), root=0)",
    ],
)
def test_ranks_that_have_only_given_are_told_between_their_calls(call: str, transport: str) -> None:
    """None of them hears of it in the call, which ends well on both. Then they compute."""
    program = f"""
import time
import paceline

comm = paceline.init()
comm.barrier()
{call}
begin = time.monotonic()
while (error := comm.get_async_error()) is None and time.monotonic() < begin + 10:
    time.sleep(0.02)
assert time.monotonic() < begin + 2, error  # a second, and what a busy machine takes
print(type(error).__name__ + " " + str(error) + "\\n", end="")
try:
    comm.barrier()
except paceline.Mismatch as again:
    assert str(again) == str(error)
comm.close()
"""
    done = run("-n", "2", "--", sys.executable, "-c", program, env={**os.environ, "PACELINE_TRANSPORT": transport})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.match(r"Mismatch rank (\d) called .* #2 .*, but rank (?!\1)\d called .* #2 ", line), lines


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_rank_that_comes_late_to_the_same_calls_is_no_mismatch(transport: str) -> None:
    program = """
import time
import paceline

comm = paceline.init()
x = bytearray(8)
comm.barrier()
if comm.rank == 0:
    for number in range(1, 4):
        x[0] = number
        comm.broadcast(x, root=0)
    comm.send(x, 1)
    time.sleep(2)
else:
    time.sleep(1.2)
    for number in range(1, 4):
        comm.broadcast(x, root=0)
        assert x[0] == number
    time.sleep(0.8)
    comm.recv(x, 0)
assert comm.get_async_error() is None
comm.close()
"""
    done = run("-n", "2", "--", sys.executable, "-c", program, env={**os.environ, "PACELINE_TRANSPORT": transport})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_who_leaves_learns_of_what_others_called_alone(transport: str) -> None:
    """A broadcast's root waits for nobody: of two that each take themselves for it, who leaves last is told."""
    program = """
import sys, time
import paceline

comm = paceline.init()
comm.broadcast(bytearray(8), root=comm.rank)
comm.rank == 0 or time.sleep(0.1)
if sys.argv[1] == "closed":
    comm.close()
if sys.argv[1] == "failed":
    raise ValueError("the program's own")
"""
    environment = {**os.environ, "PACELINE_TRANSPORT": transport}
    for end in ("closed", "left"):
        done = run("-n", "2", "--", sys.executable, "-c", program, end, env=environment)
        assert (done.returncode == 0) == (end == "left"), done.stderr
        assert re.search(
            r"Mismatch: rank 0 called broadcast #1 of 8 uint8, root 0, which rank 1 has not", done.stderr
        ), done.stderr
    done = run("-n", "2", "--", sys.executable, "-c", program, "failed", env=environment)
    assert "ValueError" in done.stderr and "Mismatch" not in done.stderr, done.stderr
