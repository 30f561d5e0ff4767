"""Ranks that die, stop or leave: every other rank gets an error that names them, and nothing is left."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import paceline
import pytest
from forked_ranks import ForkedRanks
from shared_memory import assert_nothing_left, shared_memory
from storm import CALLS

RANKS = 4
TIMEOUT = 2.0  # PACELINE_TIMEOUT of the storms, s
SEEDS = range(2 * len(CALLS))  # about 20: each call is hit by a death and by a stop
LONG_SEEDS = range(1000, 1200)
# s: rank 0 waits 0.4 s for signs of life; where it is the stopped one, the others give it 0.85 s. The rest is for
# survivors to come to a wait for the stopped rank, and to have their turns on two loaded CPUs.
AFTER_TIMEOUT = 1.5


class Blow(NamedTuple):
    """What a storm's seed says: consecutive seeds go through all combinations, 16 through those without the call."""

    signal: signal.Signals
    victim: int
    transport: str
    call: str

    @classmethod
    def of(cls, seed: int) -> Blow:
        return cls(
            signal=(signal.SIGKILL, signal.SIGSTOP)[seed % 2],
            victim=seed // 2 % RANKS,
            transport=("shm", "tcp")[seed // (2 * RANKS) % 2],
            call=CALLS[seed % len(CALLS)],
        )


def storm(seed: int) -> None:
    """One rank of a job is killed, or stopped, at some moment of some call."""
    dice = random.Random(seed)
    blow = Blow.of(seed)
    victim, stops = blow.victim, blow.signal == signal.SIGSTOP
    before = shared_memory()
    environment = {"PACELINE_TRANSPORT": blow.transport, "PACELINE_TIMEOUT": str(TIMEOUT)}
    with ForkedRanks(RANKS, "storm", {"seed": seed, "last": blow.call}, **environment) as job:
        assert job.all_told() == ["joined"] * RANKS
        assert job.all_told() == [f"only {blow.call} from now on"] * RANKS
        time.sleep(dice.uniform(0, 0.1))
        moment = job.signal(victim, blow.signal)
        for rank in range(RANKS):
            if rank == victim:
                continue
            found = job.told(rank)
            told = f"seed {seed}, {blow}, rank {rank}: {found}"
            assert found["kind"] == ("Timeout" if stops else "RemoteError"), told
            assert found["message"].startswith(f"rank {victim} (") and found["rank"] == victim, told
            assert found["call"] == blow.call, told
            assert found["at"] - moment <= (TIMEOUT + AFTER_TIMEOUT if stops else 2), told
            assert job.exit_code(rank) == 0
        if stops:  # it learns what it has missed
            job.signal(victim, signal.SIGCONT)
            assert job.told(victim)["kind"] in ("Timeout", "RemoteError")
    assert_nothing_left(before)


@pytest.fixture(scope="module")
def storms() -> Iterator[list[Future[None]]]:
    """Side by side: most of the time a job waits for its timeout."""
    with ThreadPoolExecutor(4) as pool:
        yield [pool.submit(storm, seed) for seed in SEEDS]


def test_the_storms_kill_and_stop_every_rank_on_every_transport_and_in_every_call() -> None:
    blows = [Blow.of(seed) for seed in SEEDS]
    assert len({(blow.signal, blow.victim, blow.transport) for blow in blows}) == 2 * RANKS * 2
    assert len({(blow.signal, blow.call) for blow in blows}) == 2 * len(CALLS)
    assert len({Blow.of(seed) for seed in LONG_SEEDS}) == 2 * RANKS * 2 * len(CALLS)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_survivor_names_the_dead_or_stopped_rank(storms: list[Future[None]], seed: int) -> None:
    storms[seed].result()


@pytest.mark.long
def test_every_survivor_names_the_dead_or_stopped_rank_two_hundred_times() -> None:
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(storm, seed) for seed in LONG_SEEDS]
        failures = [run.exception() for run in runs]
    failures = [failure for failure in failures if failure is not None]
    assert not failures, f"{len(failures)} of {len(runs)} runs: " + "\n".join(map(str, failures))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_stopped_rank_is_named_however_long_the_other_spins(transport: str) -> None:
    environment = {"PACELINE_TRANSPORT": transport, "PACELINE_SPIN": "1000000000", "PACELINE_TIMEOUT": "1"}
    with ForkedRanks(2, "storm", {"seed": 0, "last": "barrier"}, **environment) as job:
        assert job.all_told() == ["joined"] * 2
        assert job.all_told() == ["only barrier from now on"] * 2
        moment = job.signal(1, signal.SIGSTOP)
        found = job.told(0)
        assert found["kind"] == "Timeout" and found["message"].startswith("rank 1 ("), found
        assert found["at"] - moment < 4, found


def killed_while_joining(seed: int) -> None:
    dice = random.Random(seed)
    victim = dice.randrange(3)
    before = shared_memory()
    environment = {"PACELINE_TRANSPORT": "tcp" if seed % 4 == 0 else "shm", "PACELINE_JOIN_TIMEOUT": "5"}
    with ForkedRanks(3, "join_and_meet", **environment) as job:
        assert job.all_told() == ["starts"] * 3
        time.sleep(dice.uniform(0, 0.05))
        moment = job.signal(victim, signal.SIGKILL)
        for rank in {0, 1, 2} - {victim}:
            found = job.told(rank)
            assert f"rank {victim}" in found["message"], f"seed {seed}: {found}"
            # A rank that dies before it has reported in is only missing.
            assert found["kind"] in ("RemoteError", "Timeout"), f"seed {seed}: {found}"
            assert found["at"] - moment < (2 if found["kind"] == "RemoteError" else 7), f"seed {seed}: {found}"
    assert_nothing_left(before)


@pytest.mark.long
def test_a_death_while_joining() -> None:
    with ThreadPoolExecutor(4) as pool:
        for run in [pool.submit(killed_while_joining, seed) for seed in range(16)]:
            run.result()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_abort_from_another_thread(transport: str) -> None:
    with ForkedRanks(3, "abort_from_a_thread", {"aborts": 2}, PACELINE_TRANSPORT=transport) as job:
        aborted = job.told(2)
        for rank in range(3):
            found = job.told(rank)
            assert found["kind"] == "Aborted" and "rank 2" in found["message"], found
            assert found["at"] - aborted < 2
        job.say(2, "end")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("function", ["all_reduce", "barrier", "recv", "broadcast"])
@pytest.mark.parametrize("leaves", [0, 2])
def test_a_rank_that_leaves_early_is_named(transport: str, function: str, leaves: int) -> None:
    with ForkedRanks(3, "leave_early", {"leaves": leaves, "function": function}, PACELINE_TRANSPORT=transport) as job:
        left = job.told(leaves)["at"]
        for rank in {0, 1, 2} - {leaves}:
            found = job.told(rank)
            assert found["kind"] == "RemoteError" and f"rank {leaves} " in found["message"], found
            assert found["at"] - left < 3, found


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("absent", [0, 1])
def test_a_rank_that_does_not_enter_is_named(transport: str, absent: int) -> None:
    with ForkedRanks(3, "never_enter", {"absent": absent}, PACELINE_TRANSPORT=transport, PACELINE_TIMEOUT="1") as job:
        outcomes = job.all_told()
    for found in outcomes:
        assert found["kind"] == "Timeout", found
        assert found["message"].startswith(f"rank {absent} ("), found
        assert "has not entered all-reduce #2; it is outside of any call" in found["message"]
    # The first whose time is up ends it for the other, too, which may have come later.
    assert 1 <= max(found["seconds"] for rank, found in enumerate(outcomes) if rank != absent) < 4


def test_a_rank_that_takes_nothing_is_named() -> None:
    with ForkedRanks(3, "take_nothing", PACELINE_TIMEOUT="1") as job:
        found = job.told(1)
        assert found["kind"] == "Timeout", found
        assert found["message"].startswith("rank 1 ("), found
        assert "has not entered broadcast #2; it is outside of any call; rank 0 waited" in found["message"], found
        for rank in (0, 2):
            job.say(rank, "end")
        assert job.told(2)["message"] == found["message"]


@pytest.mark.parametrize("single_copy", ["auto", "off"])
def test_a_death_without_rank_0_is_found_also_where_no_memory_may_be_read(single_copy: str) -> None:
    with ForkedRanks(3, "die_without_rank_0", PACELINE_SINGLE_COPY=single_copy) as job:
        assert job.told(0) == {"kind": ""}
        assert [job.told(rank) for rank in (1, 2)] == ["there"] * 2
        moment = job.signal(2, signal.SIGKILL)
        found = job.told(1)
        assert found["kind"] == "RemoteError" and "died: its process has ended" in found["message"], found
        assert found["at"] - moment < 5, found


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_each_communicator_of_a_group_numbers_the_dead_rank_in_its_own_way(order: list[int]) -> None:
    with ForkedRanks(3, "die_beside_a_group", {"order": order}) as job:
        assert job.all_told() == ["there"] * 3
        job.signal(2, signal.SIGKILL)
        numbers = [(2, 0)[each] for each in order]
        assert [job.told(rank) for rank in (0, 1)] == [[numbers[0], *numbers]] * 2


def test_what_is_written_after_a_failed_call_reaches_nobody() -> None:
    with ForkedRanks(2, "fail_and_write", PACELINE_TIMEOUT="2") as job:
        assert job.told(1) == "waits"
        time.sleep(0.2)  # until it does so inside the call
        job.signal(1, signal.SIGSTOP)
        job.say(0, "go on")
        assert job.told(0)["kind"] == "Timeout"
        job.signal(1, signal.SIGCONT)
        found = job.told(1)
        assert found["kind"] in ("Timeout", "RemoteError"), found
        job.say(0, "end")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_survivors_start_again(transport: str) -> None:
    with ForkedRanks(3, "start_again", {"victim": 0}, PACELINE_TRANSPORT=transport) as job:
        assert job.all_told() == ["joined"] * 3
        job.signal(0, signal.SIGKILL)
        made = job.told(1)
        for rank in (1, 2):
            job.say(rank, made)
        assert [job.told(rank) for rank in (1, 2)] == [3, 3]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_survivors_go_on_without_an_id(transport: str) -> None:
    before = shared_memory()
    with ForkedRanks(5, "go_on", {"victims": [0, 3]}, PACELINE_TRANSPORT=transport) as job:
        assert job.all_told() == ["there"] * 5
        job.signal(0, signal.SIGKILL)
        assert [job.told(rank) for rank in (1, 2, 3, 4)] == ["there"] * 4
        job.signal(3, signal.SIGKILL)
        for rank, number in ((1, 0), (2, 1), (4, 2)):
            first, second, last = job.told(rank)
            assert first == [0, rank - 1, 4, 6]
            assert second == [2, number, 3, 3]
            assert last == ([number - 1, 2] if number else [0, 3])
    assert_nothing_left(before)


def test_bad_arguments_of_a_shrink() -> None:
    with paceline.init() as comm:
        for ranks in ([1], [-1], [0], 0, None):
            with pytest.raises(paceline.InvalidArgument):
                comm.shrink(ranks)  # type: ignore[arg-type]
        with pytest.raises(paceline.InvalidArgument):
            comm.shrink([], join_timeout=0)
        with comm.shrink([]) as same:
            assert (same.rank, same.size) == (0, 1)


@pytest.mark.parametrize("ending", ["close", "abort", "mismatch", "shrink"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_process_holds_what_it_held_before(transport: str, ending: str) -> None:
    """Descriptors, threads and mappings, after success and after failure."""
    times, before = 20 if ending == "close" else 5, shared_memory()
    with ForkedRanks(2, "come_and_go", {"times": times, "ending": ending}, PACELINE_TRANSPORT=transport) as job:
        for _ in range(times + 1):  # in step: a process that runs ahead would hold a later round's connection
            assert job.all_told() == ["ready"] * 2
            for rank in range(2):
                job.say(rank, "go on")
        for held in job.all_told():
            assert held[1:] == [held[0]] * times
    assert_nothing_left(before)


@pytest.mark.parametrize("second", ["barrier", "split", "close"])
def test_a_second_thread_is_refused(second: str) -> None:
    with ForkedRanks(2, "two_threads", {"second": second}) as job:
        found = job.told(0)
        assert found["kind"] == "InvalidUsage" and "another thread is inside" in found["message"], found
        job.say(1, "come")
        assert [result["kind"] for result in job.all_told()] == ["", ""]


def test_threads_without_order() -> None:
    with ForkedRanks(1, "many_threads") as job:
        assert job.told(0) == 8000
