"""A rank that closes its communicator, and calls on GPU memory of the others. Needs a GPU for each rank, and torch."""

from __future__ import annotations

import threading
import time
from typing import Any

import paceline
import pytest
from gpu_ranks import Rank, on_gpus

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("fewer than two GPUs", allow_module_level=True)

RANKS = sorted({2, torch.cuda.device_count()})
PATIENCE = 30  # seconds that a call may wait for a rank that is still there
SOON = 2


def ends_with_its_name(rank: Rank) -> None:
    begin = time.monotonic()
    with pytest.raises(paceline.RemoteError, match=r"rank 1 .* left before all-reduce"):
        rank.finish()
    assert time.monotonic() - begin < SOON


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", [10, 1 << 20, 24 << 20])
def test_a_waiting_call_ends_when_the_other_rank_leaves(ranks: int, count: int) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.ones(count, device="cuda")
            for _ in range(4):
                rank.comm.all_reduce(x, op="max")
            rank.finish()
            if rank.rank != 1:
                rank.comm.all_reduce(x)
        barrier.wait(60)
        if rank.rank == 1:
            time.sleep(0.3)
            rank.comm.close()
        else:
            ends_with_its_name(rank)
        barrier.wait(60)

    on_gpus(ranks, body, timeout=PATIENCE)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("count", [1, 1000, 20000])
def test_what_a_rank_did_before_it_left_is_not_lost(ranks: int, count: int) -> None:
    """The root of a broadcast has left before the others call it; only the call after that is in vain."""

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.ones(count, device="cuda")
            rank.comm.all_reduce(x, op="max")
            rank.finish()
            if rank.rank == 1:
                x.copy_(torch.arange(count))
                rank.comm.broadcast(x, root=1)
                rank.stream.synchronize()
                rank.comm.close()
            barrier.wait(60)
            time.sleep(0.3)
            if rank.rank != 1:
                rank.comm.broadcast(x, root=1)
                rank.finish()
                assert torch.equal(x.cpu(), torch.arange(count, dtype=torch.float32))
                rank.comm.all_reduce(x)
                ends_with_its_name(rank)
        barrier.wait(60)

    on_gpus(ranks, body, timeout=PATIENCE)


def test_messages_of_a_rank_that_left_arrive() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.full((1000,), float(rank.rank + 1), device="cuda")
            rank.comm.all_reduce(x, op="min")
            rank.finish()
            if rank.rank == 1:
                rank.comm.send(x + 41, 0)
                rank.stream.synchronize()
                rank.comm.close()
            barrier.wait(60)
            time.sleep(0.3)
            if rank.rank == 0:
                rank.comm.recv(x, 1)
                rank.finish()
                assert bool((x == 42).all())
                begin = time.monotonic()
                rank.comm.recv(x, 1)
                with pytest.raises(paceline.RemoteError, match=r"rank 1 .* left before"):
                    rank.finish()
                assert time.monotonic() - begin < SOON
        barrier.wait(60)

    on_gpus(2, body, timeout=PATIENCE)


def test_a_close_does_not_wait_for_another_communicators_call() -> None:
    """Whose kernel waits for a rank that waits for this one."""
    closed = threading.Event()

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        other = rank.comm.split(0)
        assert other is not None
        with torch.cuda.stream(rank.stream):
            x = torch.ones(1000, device="cuda")
            for comm in (rank.comm, other):
                comm.all_reduce(x, op="max")
            rank.finish()
            barrier.wait(60)
            if rank.rank == 0:
                other.all_reduce(x)
                begin = time.monotonic()
                rank.comm.close()
                assert time.monotonic() - begin < PATIENCE / 3
                closed.set()
            assert closed.wait(60)
            if rank.rank == 1:
                other.all_reduce(x)
            rank.stream.synchronize()
            assert other.get_async_error() is None
            assert bool((x == 2).all())
        barrier.wait(60)
        other.close()

    on_gpus(2, body, timeout=PATIENCE)


def test_a_close_leaves_another_threads_capture_alone() -> None:
    capturing, closed = threading.Barrier(3), threading.Barrier(3)
    results: list[Any] = []

    def capture() -> None:
        torch.cuda.set_device(0)
        x, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x += 1
            capturing.wait(60)
            closed.wait(60)
            x += 1
        capturing.wait(60)
        graph.replay()
        torch.cuda.synchronize()
        results.append(x.cpu())

    thread = threading.Thread(target=capture, daemon=True)

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.ones(1000, device="cuda")
            rank.comm.all_reduce(x)
            rank.finish()
            barrier.wait(60)
            if rank.rank == 0:
                thread.start()
            capturing.wait(60)
            for _ in range(200):
                rank.comm.all_reduce(x, op="max")
            rank.comm.close()
            closed.wait(60)
            capturing.wait(60)  # no more
            rank.stream.synchronize()
            assert bool((x == 2).all())

    on_gpus(2, body, timeout=PATIENCE)
    thread.join(60)
    assert results and bool((results[0] == 2).all())


def test_who_stays_goes_on_in_a_communicator_without_the_leaver() -> None:
    if torch.cuda.device_count() < 3:
        pytest.skip("fewer than three GPUs")

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        rest = rank.comm.split(None if rank.rank == 1 else 0)
        with torch.cuda.stream(rank.stream):
            x = torch.ones(1000, device="cuda")
            rank.comm.all_reduce(x, op="max")
            rank.finish()
            if rank.rank == 1:
                rank.comm.close()
            barrier.wait(60)
            time.sleep(0.3)
            if rest is not None:
                for _ in range(100):
                    rest.all_reduce(x, op="max")
                rank.finish()  # raises if the communicator with the leaver had ended, too
                assert rest.get_async_error() is None
                assert bool((x == 1).all())
                rest.close()
        barrier.wait(60)

    on_gpus(3, body, timeout=PATIENCE)
