"""Sends and receives on GPU memory, alone and in groups. Needs a GPU and torch; ranks may share a GPU.

With PACELINE_GPU_DIRECT=off in the environment the long ones go through the window.
"""

from __future__ import annotations

import os
import random
import threading
from contextlib import nullcontext

import numpy as np
import paceline
import pytest
from gpu_ranks import Rank, on_gpus

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

UNTOUCHED = 0xA5


def test_messages_go_round_a_ring() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        after, before = (rank.rank + 1) % rank.ranks, (rank.rank - 1) % rank.ranks
        for count in (1, 100, 70001, 3000000):
            with torch.cuda.stream(rank.stream):
                out = torch.full((count,), float(rank.rank + 1), device="cuda")
                into = torch.zeros(count, device="cuda")
                with paceline.group():
                    rank.comm.send(out, after)
                    rank.comm.recv(into, before)
                rank.finish()
                assert bool((into == float(before + 1)).all())

    on_gpus(3, body)


def test_short_and_long_messages_side_by_side() -> None:
    # To the right, to the left.
    lengths = [(3, 5_000_000), (70_001, 100), (1_000_000, 5_000_000), (5_000_000, 3), (3_000_001, 4_000_000)]

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        after, before = (rank.rank + 1) % rank.ranks, (rank.rank - 1) % rank.ranks
        with torch.cuda.stream(rank.stream):
            for right, left in lengths:
                to_right = torch.full((right,), float(rank.rank + 1), device="cuda")
                to_left = torch.full((left,), float(-rank.rank - 1), device="cuda")
                from_left, from_right = torch.zeros_like(to_right), torch.zeros_like(to_left)
                to_self, from_self = torch.full((1000,), 7.0, device="cuda"), torch.zeros(1000, device="cuda")
                with paceline.group():
                    rank.comm.recv(from_left, before)
                    rank.comm.send(to_right, after)
                    rank.comm.send(to_self, rank.rank)
                    rank.comm.recv(from_self, rank.rank)
                    rank.comm.send(to_left, before)
                    rank.comm.recv(from_right, after)
                rank.finish()
                assert bool((from_left == float(before + 1)).all())
                assert bool((from_right == float(-after - 1)).all())
                assert bool((from_self == 7).all())

    on_gpus(3, body)
    on_gpus(2, body)


@pytest.mark.parametrize("count", [900_000, 3_000_000, 5_000_000])
def test_a_message_waits_for_its_other_side_alone(count: int) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        data = torch.full((count,), 5.0, device="cuda")
        into = torch.zeros(count, device="cuda")
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(rank.stream):
            if rank.rank == 0:  # what comes is sent only after what goes has been taken
                with paceline.group():
                    rank.comm.recv(into, 1)
                    rank.comm.send(data, 1)
            else:
                rank.comm.recv(into, 0)
                rank.comm.send(into, 0)
        rank.finish()
        assert bool((into == 5).all())

    on_gpus(2, body)


# What each of three ranks does, a line a group. In the first, rank 2 sends only when rank 1 has sent twice, the first
# time to rank 0, which waits for both; in the second, rank 1 receives only when rank 2 has received twice.
ORDERS = {
    "senders": ([["recv 2", "recv 1"]], [["send 0"], ["send 2"]], [["recv 1"], ["send 0"]]),
    "receivers": ([["send 1", "send 2"]], [["send 2"], ["recv 0"]], [["recv 0"], ["recv 1"]]),
}


@pytest.mark.parametrize("order", ORDERS)
def test_no_long_message_waits_for_another(order: str) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        data = torch.full((5_000_000,), float(rank.rank + 1), device="cuda")
        taken = [torch.zeros_like(data) for _ in range(3)]
        came = set()
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(rank.stream):
            for group in ORDERS[order][rank.rank]:
                with paceline.group():
                    for what, peer in ((words.split()[0], int(words.split()[1])) for words in group):
                        if what == "send":
                            rank.comm.send(data, peer)
                        else:
                            rank.comm.recv(taken[peer], peer)
                            came.add(peer)
        rank.finish()
        assert all(bool((taken[peer] == peer + 1).all()) for peer in came)

    on_gpus(3, body)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="kernels of eight ranks do not fit on one GPU")
@pytest.mark.parametrize("count", [100, 3_000_000])
def test_a_group_on_several_streams_is_one(count: int) -> None:
    """Its messages keep their order, follow what is on any of the streams, and are followed by what comes there."""

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        other = torch.cuda.Stream()
        streams = [rank.stream, other, rank.stream]
        parts = [torch.zeros(count, device="cuda") for _ in streams]
        seen = [torch.zeros(count, device="cuda") for _ in streams]
        torch.cuda.synchronize()
        for sender in (0, 1):
            in_group = rank.rank == 0  # its peer makes the calls one by one, on one stream
            call = rank.comm.send if rank.rank == sender else rank.comm.recv
            with paceline.group() if in_group else nullcontext():
                for i, stream in enumerate(streams):
                    with torch.cuda.stream(stream if in_group else rank.stream):
                        if rank.rank == sender:
                            torch.cuda._sleep(20_000_000 if stream is other else 1)
                            parts[i].fill_(10 * sender + i + 1)
                        call(parts[i], 1 - rank.rank)
            for i, stream in enumerate(streams):
                with torch.cuda.stream(stream if in_group else rank.stream):
                    seen[i].copy_(parts[i])
            torch.cuda.synchronize()
            rank.finish()
            assert [own.unique().tolist() for own in seen] == [[10.0 * sender + i + 1] for i in range(3)]

    on_gpus(2, body)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="kernels of eight ranks do not fit on one GPU")
def test_pairs_exchange_more_than_rings_hold() -> None:
    assert torch.cuda.get_device_properties(0).multi_processor_count >= 4 * 32
    count = (16 << 20) // 4  # the longest that goes by strips: with eight ranks, 69 strips in rings of 16

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        other = rank.rank ^ 1
        with torch.cuda.stream(rank.stream):
            out = torch.arange(count, dtype=torch.float32, device="cuda") + rank.rank
            into = torch.zeros_like(out)
            for _ in range(20):
                with paceline.group():
                    rank.comm.send(out, other)
                    rank.comm.recv(into, other)
            rank.finish()
            assert bool((into == out - rank.rank + other).all())

    on_gpus(8, body)


@pytest.mark.parametrize("count", [3, 5_000_000])
def test_a_group_has_messages_of_several_types(count: int) -> None:
    kinds = [torch.int8, torch.float32]

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        other = 1 - rank.rank
        given = torch.full((count,), rank.rank + 1, dtype=kinds[rank.rank], device="cuda")
        taken = torch.zeros(count, dtype=kinds[other], device="cuda")
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(rank.stream), paceline.group():
            if rank.rank == 0:
                rank.comm.send(given, other)
                rank.comm.recv(taken, other)
            else:
                rank.comm.recv(taken, other)
                rank.comm.send(given, other)
        rank.finish()
        assert bool((taken == other + 1).all())

    on_gpus(2, body)


def test_messages_of_different_types_are_named() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        data = torch.zeros(1000, dtype=[torch.int32, torch.float32][rank.rank], device="cuda")
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(rank.stream):
            if rank.rank == 0:
                rank.comm.send(data, 1)
                rank.stream.synchronize()
                return
            with pytest.raises(paceline.Mismatch, match=r"1000 (float32.* int32|int32.* float32)"):
                rank.comm.recv(data, 0)
                rank.finish()

    on_gpus(2, body)


@pytest.mark.parametrize(("sent", "wanted"), [([0], [4]), ([4], [0]), ([0, 4], [4, 4])])
def test_a_message_of_no_elements_is_told_from_others(sent: list[int], wanted: list[int]) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        data = [torch.zeros(count, device="cuda") for count in (sent, wanted)[rank.rank]]
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(rank.stream):
            if rank.rank == 0:
                with paceline.group():
                    for x in data:
                        rank.comm.send(x, 1)
                rank.stream.synchronize()
                return
            with pytest.raises(paceline.Mismatch, match=r"(0 float32.* 4 float32|4 float32.* 0 float32)"):
                with paceline.group():
                    for x in data:
                        rank.comm.recv(x, 0)
                rank.finish()

    on_gpus(2, body)


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_a_collective_of_no_elements_is_told_from_others(collective: str) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        data = torch.zeros(4 * rank.rank, device="cuda")
        torch.cuda.current_stream().synchronize()
        mismatch = pytest.raises(paceline.Mismatch, match=r"(0 float32.* 4 float32|4 float32.* 0 float32)")
        with mismatch, torch.cuda.stream(rank.stream):
            getattr(rank.comm, collective)(data)
            rank.finish()
            rank.comm.barrier()  # of a rank that saw nothing wrong itself

    on_gpus(2, body)


@pytest.mark.parametrize("ahead", [20, 60])
def test_another_count_is_named_however_far_ahead_the_sender_is(ahead: int) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            data = torch.ones(1024, device="cuda")
            rank.comm.all_reduce(data, op="max")
            rank.finish()
            if rank.rank == 0:
                for _ in range(ahead):
                    rank.comm.send(data, 1)
                rank.stream.synchronize()
            barrier.wait(60)
            if rank.rank == 1:
                with pytest.raises(paceline.Mismatch, match=r"512 float32.*1024 float32"):
                    for number in range(ahead):
                        rank.comm.recv(data if number else data[:512], 0)
                    rank.finish()
        barrier.wait(60)

    on_gpus(2, body)


def test_the_message_that_is_not_taken_is_named() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            data, few = torch.zeros(5_000_000, device="cuda"), torch.zeros(2, dtype=torch.int8, device="cuda")
            rank.comm.all_reduce(few, op="max")
            rank.finish()
            if rank.rank == 0:
                with pytest.raises(paceline.Timeout, match=r"rank 1 .* did not come to .* 5000000 float32"):
                    with paceline.group():
                        rank.comm.send(data, 1)
                        rank.comm.recv(few, 2)
                    rank.finish()
            elif rank.rank == 2:
                rank.comm.send(few, 0)
                rank.stream.synchronize()
        barrier.wait(60)

    on_gpus(3, body, timeout=3)


def test_a_message_to_itself_needs_both_sides() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        data, other = torch.zeros(100, device="cuda"), torch.ones(50, device="cuda")
        with pytest.raises(paceline.Mismatch, match="to itself"):
            rank.comm.send(data, rank.rank)
        with pytest.raises(paceline.Mismatch, match="to itself"), paceline.group():
            rank.comm.send(data, rank.rank)
            rank.comm.recv(other, rank.rank)
        with torch.cuda.stream(rank.stream):
            rank.comm.all_reduce(other)
        rank.finish()

    on_gpus(2, body)


def test_what_is_empty_is_on_the_gpu_whatever_the_stream() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        nothing, one = torch.empty(0, device="cuda"), torch.ones(1, device="cuda")
        torch.cuda.current_stream().synchronize()
        barrier.wait(60)  # ranks that share a GPU have one default stream: none works there while another waits for it
        for side in (0, 1):  # the rank that works on a stream of its own; the other one on the default stream
            with torch.cuda.stream(rank.stream if rank.rank == side else torch.cuda.default_stream()):
                if rank.rank == 0:
                    rank.comm.send(nothing, 1)
                else:
                    rank.comm.recv(nothing, 0)
                for name in ("all_reduce", "broadcast", "all_gather"):
                    getattr(rank.comm, name)(nothing)
                rank.comm.all_reduce(one)
                torch.cuda.current_stream().synchronize()
            rank.comm.barrier()  # on the host, which has counted none of these
            rank.finish()
            assert one.item() == 2 ** (side + 1)

    on_gpus(2, body, timeout=10)


def test_long_messages_of_any_address_and_length() -> None:
    rng = random.Random(5)
    cases = [
        (rng.choice([0, 0, 16, 8, 1]), rng.choice([0, 0, 8, 3]), rng.randrange(4 << 20, 40 << 20)) for _ in range(16)
    ]
    numbers = np.random.default_rng(5)
    everyone = [torch.from_numpy(numbers.integers(0, 256, 48 << 20, dtype=np.uint8)) for _ in range(2)]

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        other = 1 - rank.rank
        given, expected = everyone[rank.rank].cuda(), everyone[other].cuda()
        torch.cuda.current_stream().synchronize()
        before = rank.comm.gpu_direct_calls()
        for number, (shift, place, length) in enumerate(cases):
            with torch.cuda.stream(rank.stream):
                taken = torch.full((48 << 20,), UNTOUCHED, dtype=torch.uint8, device="cuda")
                barrier.wait()  # ranks may share a GPU, where what is not a call may wait for the other's calls
                send = given[shift : shift + length]
                receive = taken[place : place + length]
                if number % 2 == 0:
                    with paceline.group():
                        rank.comm.send(send, other)
                        rank.comm.recv(receive, other)
                elif rank.rank == 0:
                    rank.comm.send(send, other)
                else:
                    rank.comm.recv(receive, other)
            rank.finish()
            barrier.wait()
            if number % 2 == 1 and rank.rank == 0:
                continue
            assert torch.equal(receive, expected[shift : shift + length]), (shift, place, length)
            assert bool((taken[:place] == UNTOUCHED).all())
            assert bool((taken[place + length :] == UNTOUCHED).all())
        if os.environ.get("PACELINE_GPU_DIRECT") != "off":
            assert rank.comm.gpu_direct_calls() > before

    on_gpus(2, body)
