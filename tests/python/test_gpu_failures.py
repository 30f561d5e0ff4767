"""Collectives on GPU memory that fail: ranks that call something else, never come, abort or die, and wrong memory.

Needs a GPU and torch; ranks may share a GPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import paceline
import pytest
from gpu_ranks import Rank, on_gpus

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


def test_different_calls_are_named() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.ones(10 + rank.rank, device="cuda")
            begin = time.monotonic()
            rank.comm.all_reduce(x)
            rank.stream.synchronize()
        barrier.wait(60)
        with pytest.raises(paceline.Mismatch, match=r"1[01] float32.*1[01] float32"):
            rank.comm.all_reduce(x)
        assert time.monotonic() - begin < 2

    on_gpus(2, body)


@pytest.mark.parametrize("ahead", [20, 60])
def test_another_count_is_named_however_far_ahead_the_root_is(ahead: int) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.ones(1000, device="cuda")
            rank.comm.all_reduce(x, op="max")
            rank.finish()
            if rank.rank == 0:
                for _ in range(ahead):
                    rank.comm.broadcast(x, root=0)
                rank.stream.synchronize()
            barrier.wait(60)
            if rank.rank == 1:
                with pytest.raises(paceline.Mismatch, match=r"500 float32.*1000 float32"):
                    rank.comm.broadcast(x[:500], root=0)
                    rank.finish()
        barrier.wait(60)

    on_gpus(2, body)


def test_long_calls_that_differ_touch_nothing() -> None:
    count = 8 << 20

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        memory = torch.full((4 * count,), 3.0, device="cuda")
        torch.cuda.current_stream().synchronize()
        for _ in range(5):  # until all know the memory
            with torch.cuda.stream(rank.stream):
                rank.comm.all_reduce(memory[:count])
            rank.finish()
        memory.fill_(3.0)
        torch.cuda.current_stream().synchronize()
        barrier.wait()
        with pytest.raises(paceline.Mismatch):
            with torch.cuda.stream(rank.stream):
                rank.comm.all_reduce(memory[: count * (rank.rank + 1)])
            rank.finish()
        barrier.wait()
        assert bool((memory[(rank.rank + 1) * count :] == 3).all())

    on_gpus(2, body)


def test_a_rank_that_never_comes_is_named() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        if rank.rank == 0:
            with torch.cuda.stream(rank.stream):
                x = torch.ones(100, device="cuda")
                rank.comm.all_reduce(x)
                with pytest.raises(paceline.Timeout, match=r"rank 1 .* did not come to all-reduce"):
                    rank.finish()
        barrier.wait(60)

    on_gpus(2, body, timeout=1)


def test_abort_ends_a_kernel() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        if rank.rank == 0:
            with torch.cuda.stream(rank.stream):
                x = torch.ones(100, device="cuda")
                rank.comm.all_reduce(x)
            begin = time.monotonic()
            rank.comm.abort()
            rank.stream.synchronize()
            assert time.monotonic() - begin < 1
            assert isinstance(rank.comm.get_async_error(), paceline.Aborted)
        barrier.wait(60)

    on_gpus(2, body)


def test_host_and_gpu_memory_in_one_call_are_refused() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with pytest.raises(paceline.InvalidArgument, match="GPU memory and the receive buffer in host memory"):
            rank.comm.all_reduce(torch.ones(4, device="cuda"), out=torch.ones(4))

    on_gpus(1, body)


SURVIVOR = textwrap.dedent("""
    import sys, time
    import torch
    import paceline
    comm = paceline.init(timeout=30)
    torch.cuda.set_device(comm.rank % torch.cuda.device_count())
    x = torch.ones(1 << 20, device="cuda")
    comm.all_reduce(x)
    torch.cuda.synchronize()
    print("ready", flush=True)
    try:
        while True:
            comm.all_reduce(x, op="max")
            torch.cuda.synchronize()
            error = comm.get_async_error()
            if error is not None:
                raise error
    except paceline.Error as error:
        print("error", time.time(), type(error).__name__, error, flush=True)
""")


def test_a_killed_rank_is_reported_within_two_seconds() -> None:
    identity = {"PACELINE_ADDRESS": "127.0.0.1:29713", "PACELINE_SECRET": "of the test", "PACELINE_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SURVIVOR],
            env={**os.environ, **identity, "PACELINE_RANK": str(number)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        ranks[1].send_signal(signal.SIGKILL)
        killed = time.time()
        said = ranks[0].communicate(timeout=20)[0]
        assert said.startswith("error"), said
        assert float(said.split()[1]) - killed < 2
        assert "rank 1" in said
    finally:
        for process in ranks:
            process.kill()
