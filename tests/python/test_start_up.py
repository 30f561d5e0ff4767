"""What keeps a job from starting: each a clear error on every rank, within the time for joining."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from forked_ranks import ForkedRanks

JOIN = 4.0  # PACELINE_JOIN_TIMEOUT, s


def joined_with(rank: int, **variables: str) -> list[dict[str, str]]:
    """How joining ended on three ranks of which one has these variables."""
    with ForkedRanks(
        3, "join", each=lambda number: variables if number == rank else {}, PACELINE_JOIN_TIMEOUT=str(JOIN)
    ) as job:
        outcomes = job.all_told()
    for found in outcomes:
        assert found["seconds"] < JOIN + 3, found
    return outcomes


def test_another_secret() -> None:
    found = joined_with(2, PACELINE_SECRET="another")
    assert "secret" in found[2]["message"] and found[2]["kind"] == "InvalidUsage", found[2]
    for rank in (0, 1):
        assert found[rank]["kind"] == "Timeout" and "rank 2 did not come" in found[rank]["message"], found[rank]
    assert "secret" in found[0]["message"]  # rank 0 knows who was turned away


def test_two_ranks_with_one_number() -> None:
    for found in joined_with(2, PACELINE_RANK="1"):
        assert found["kind"] == "InvalidUsage" and "rank 1 is claimed twice" in found["message"], found


def test_a_rank_that_never_comes() -> None:
    with ForkedRanks(3, "join", PACELINE_SIZE="4", PACELINE_JOIN_TIMEOUT="3") as job:
        for found in job.all_told():
            assert found["kind"] == "Timeout" and "rank 3 did not come" in found["message"], found
            assert found["seconds"] < 6


@pytest.mark.parametrize(("name", "value"), [("PACELINE_CHUNK", "65536"), ("PACELINE_SINGLE_COPY", "on")])
def test_different_settings(name: str, value: str) -> None:
    for found in joined_with(1, **{name: value}):
        assert found["kind"] == "InvalidUsage", found
        assert "rank 1 runs with" in found["message"] and f"{name}={value}" in found["message"], found


def test_an_algorithm_that_one_rank_does_not_know() -> None:
    for found in joined_with(1, PACELINE_ALGORITHM="nonsense"):
        assert found["kind"] == "InvalidArgument", found
        assert found["message"].startswith("rank 1: there is no algorithm 'nonsense'"), found


def test_different_transports_are_told_at_once() -> None:
    def each(rank: int) -> dict[str, str]:
        return {"PACELINE_TRANSPORT": "tcp"} if rank == 1 else {}

    with ForkedRanks(2, "join", each=each, PACELINE_JOIN_TIMEOUT="60") as job:
        for found in job.all_told():
            assert found["kind"] == "InvalidUsage" and "PACELINE_TRANSPORT=tcp" in found["message"], found
            assert found["seconds"] < 5


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("on", [0, 2])
def test_too_few_descriptors(transport: str, on: int) -> None:
    """However few are left, joining succeeds, or fails on every rank, in time, with an error that names this one."""
    ended = set()
    for left in (1, 8, 64):  # rank 2 can meet the others, but no more; some of the data connections; all
        with ForkedRanks(
            3,
            "join",
            {"few_descriptors": left, "on": on},
            PACELINE_TRANSPORT=transport,
            PACELINE_JOIN_TIMEOUT="4",
            PACELINE_TIMEOUT="4",
        ) as job:
            outcomes = job.all_told()
        ended.add(outcomes[on]["kind"])
        kinds = [found["kind"] for found in outcomes]
        if kinds == [""] * 3:
            continue
        assert "" not in kinds, (left, outcomes)
        assert "ulimit -n" in outcomes[on]["message"], outcomes
        for found in outcomes:
            assert found["seconds"] < 10, (left, found)
            assert found["message"].startswith(f"rank {on}"), (left, outcomes)
    assert "" in ended and "ResourceError" in ended


def test_a_split_that_fails_on_one_rank_leaves_the_whole() -> None:
    with ForkedRanks(3, "split_without_descriptors", {"on": 1}, PACELINE_TRANSPORT="tcp", PACELINE_TIMEOUT="20") as job:
        for parting, meeting in job.all_told():
            assert parting["kind"] == "ResourceError" and parting["message"].startswith("rank 1: "), parting
            assert "ulimit -n" in parting["message"] and parting["seconds"] < 3, parting
            assert meeting["kind"] == "", meeting


PROGRAM = """
import json, os, paceline
try:
    with paceline.init() as comm:
        comm.barrier()
    message = "ok"
except paceline.Error as error:
    message = f"{type(error).__name__}: {error}"
os.write(1, (json.dumps(message) + "\\n").encode())
"""


def with_small_shared_memory(prepare: str, **environment: str) -> list[str]:
    """How joining ended on three ranks whose /dev/shm is a small one of their own."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a mount namespace needs root and unshare")
    script = f'mount -t tmpfs -o {prepare} && exec "$@"'
    ranks = [sys.executable, "-m", "paceline", "run", "-n", "3", "--", sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *ranks],
        env=dict(os.environ) | environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "prepare",
    [
        "size=64k paceline /dev/shm",
        "size=16m paceline /dev/shm && { head -c 16M /dev/zero > /dev/shm/full || true; } 2>/dev/null",
    ],
)
def test_small_or_full_shared_memory(prepare: str) -> None:
    found = with_small_shared_memory(prepare)
    assert len(found) == 3
    for message in found:
        assert message.startswith("ResourceError: rank 0: /dev/shm is too small"), message
        assert "PACELINE_TRANSPORT=tcp" in message


def test_small_shared_memory_does_not_matter_to_tcp() -> None:
    assert with_small_shared_memory("size=64k paceline /dev/shm", PACELINE_TRANSPORT="tcp") == ["ok"] * 3


def in_containers(**environment: str) -> list[str]:
    """How joining ended on two ranks, each the first process of a pid namespace, with all at the same addresses."""
    if subprocess.run(["setarch", "-R", "unshare", "-p", "-f", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a pid namespace needs root and unshare, its addresses setarch")
    rank = ["setarch", "-R", "unshare", "-p", "-f", "--kill-child", sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "run", "-n", "2", "--", *rank],
        env=dict(os.environ) | environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_rank_does_not_take_its_own_memory_for_that_of_another_with_its_pid() -> None:
    found = in_containers(PACELINE_SINGLE_COPY="on")
    assert len(found) == 2
    for message in found:
        assert message.startswith("Unsupported: rank ") and "pid namespace" in message, message


def test_ranks_share_memory_across_pid_namespaces() -> None:
    assert in_containers(PACELINE_TRANSPORT="shm") == ["ok"] * 2
