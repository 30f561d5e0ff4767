"""A rank whose kernel begins late, or when another's has given up, and that one's buffers are its program's again.

Needs two GPUs and torch. With PACELINE_GPU_DIRECT=off in the environment nothing works in another rank's buffers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import paceline
import pytest
from gpu_ranks import Gate, Rank, on_gpus
from gpu_tables import go_direct

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("fewer than two GPUs", allow_module_level=True)

TIMEOUT = 3  # seconds
CANARY = 42.0


def call_that_one_comes_to_late(
    rank: Rank, barrier: threading.Barrier, gates: list[Gate], call: Callable[[], object], buffer: Any
) -> None:
    """Rank 1's kernel begins when rank 0's has given up and its program has written the buffer."""
    call()
    rank.finish()
    go_direct(rank.comm)
    for _ in range(5):  # until both know the memory
        call()
        rank.finish()
    if os.environ.get("PACELINE_GPU_DIRECT") != "off":
        assert rank.comm.gpu_direct_calls() > 0
    if rank.rank == 1:
        gates.append(Gate(rank.stream))
        call()
    barrier.wait(60)
    if rank.rank == 0:
        try:
            call()
            rank.stream.synchronize()  # nobody asks what became of it yet, so rank 1 is not told
            buffer.fill_(CANARY)
            rank.stream.synchronize()
        finally:
            gates[0].open()
    rank.stream.synchronize()


def test_a_kernel_that_waits_long_is_told_of_once() -> None:
    program = (
        "import os, paceline, time, torch; torch.cuda.set_device(int(os.environ['PACELINE_RANK'])); "
        "c = paceline.init(); "
        "x = torch.ones(4, device='cuda'); c.all_reduce(x); torch.cuda.synchronize(); "
        "c.rank != 1 or time.sleep(8); c.all_reduce(x); torch.cuda.synchronize(); c.close(); assert x[0] == 4, x"
    )
    words = [sys.executable, "-m", "paceline", "run", "-n", "2", "--", sys.executable, "-c", program]
    environment = {**os.environ, "PACELINE_LOG": "info"}
    done = subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "has waited" in line]
    assert len(lines) == 1 and "rank 0" in lines[0], done.stderr
    assert re.search(r"has waited \d s for rank 1 to come to all-reduce on its GPU; gives up after 300 s", lines[0])


def test_a_late_collective_touches_no_buffer_of_a_rank_that_gave_up() -> None:
    gates: list[Gate] = []

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.ones(8 << 20, device="cuda")
            call_that_one_comes_to_late(rank, barrier, gates, lambda: rank.comm.all_reduce(x, op="max"), x)
            if rank.rank == 1:
                assert rank.comm.get_async_error() is not None or bool((x == 1).all())
            barrier.wait(60)
            if rank.rank == 0:
                assert bool((x == CANARY).all())
                with pytest.raises(paceline.Timeout, match="did not come to all-reduce"):
                    rank.finish()
        barrier.wait(60)

    on_gpus(2, body, timeout=TIMEOUT)


def test_a_late_receiver_does_not_take_what_the_sender_has_there_now() -> None:
    gates: list[Gate] = []

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.full((5_000_000,), 1.0 - rank.rank, device="cuda")
            move = (lambda: rank.comm.send(x, 1)) if rank.rank == 0 else (lambda: rank.comm.recv(x, 0))
            call_that_one_comes_to_late(rank, barrier, gates, move, x)
            if rank.rank == 1:
                assert rank.comm.get_async_error() is not None or bool((x == 1).all())
            barrier.wait(60)
            if rank.rank == 0:
                with pytest.raises(paceline.Timeout, match="did not come to send/receive"):
                    rank.finish()
        barrier.wait(60)

    on_gpus(2, body, timeout=TIMEOUT)


@pytest.mark.parametrize("begun_before", [0.001, 0.002, 0.003, 0.004, 0.005])  # s; it loads for 5.7 ms
def test_a_receiver_that_loads_while_the_sender_gives_up_learns_it(begun_before: float) -> None:
    """What it has loaded may be what the sender's program wrote there meanwhile, on the stream behind the call."""
    gates: list[Gate] = []

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.full((1 << 29,), 1.0 - rank.rank, device="cuda")
            for _ in range(3):  # the last ones go direct
                rank.comm.send(x, 1) if rank.rank == 0 else rank.comm.recv(x, 0)
                rank.finish()
            if rank.rank == 1:
                x.zero_()
                gates.append(Gate(rank.stream))
                rank.comm.recv(x, 0)
            barrier.wait(60)
            if rank.rank == 0:
                rank.comm.send(x, 1)
                gives_up = time.monotonic() + 33 / 32  # a timeout of 1 s, and its grace (patience.cuh)
                x.fill_(CANARY)
                time.sleep(gives_up - begun_before - time.monotonic())
                gates[0].open()
            rank.stream.synchronize()
            if rank.rank == 1:
                assert rank.comm.get_async_error() is not None or bool((x == 1).all())
        barrier.wait(60)

    on_gpus(2, body, timeout=1)


# All-reduces of each kind of kernel, in elements of four bytes; with more than two ranks those of some length are
# relayed, and others passed on.
LENGTHS = (2, 1000, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_gave_up_gives_nothing_that_it_has_not_got(ranks: int, calls: int) -> None:
    """The late rank gets what the others gave before they gave up, or an error: in the call that they gave up in, and
    in the one behind it, whose input is what that one has left."""
    for length in LENGTHS:
        gates: list[Gate] = []

        def body(rank: Rank, barrier: threading.Barrier, length: int = length, gates: list[Gate] = gates) -> None:
            with torch.cuda.stream(rank.stream):
                x = torch.ones(length, device="cuda")
                results = [torch.empty_like(x) for _ in range(calls)]
                for _ in range(3):
                    rank.comm.all_reduce(x, out=results[0])
                    rank.finish()
                for result in results:
                    result.fill_(CANARY)
                if rank.rank == 1:
                    gates.append(Gate(rank.stream))
                for result in results:
                    rank.comm.all_reduce(x, out=result)
                    x.copy_(result)
                if rank.rank != 1:
                    rank.stream.synchronize()  # nobody asks what became of it yet, so rank 1 is not told
                barrier.wait(60)
                if rank.rank == 1:
                    gates[0].open()
                    rank.stream.synchronize()
                    right = [bool((result == ranks ** (i + 1)).all()) for i, result in enumerate(results)]
                    assert rank.comm.get_async_error() is not None or all(right), length
                barrier.wait(60)
                if rank.rank != 1:
                    with pytest.raises(paceline.Error):
                        rank.finish()
            barrier.wait(60)

        on_gpus(ranks, body, timeout=1)
