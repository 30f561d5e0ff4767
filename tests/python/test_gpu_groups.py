"""Groups of calls on GPU memory, on several streams. Needs two GPUs and torch."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import paceline
import pytest
from gpu_ranks import Gate, Rank, on_gpus

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("fewer than two GPUs", allow_module_level=True)


def test_a_groups_calls_begin_behind_all_its_streams_and_these_go_on_behind_all_calls() -> None:
    """As NCCL has it: a buffer may be written, and a result read, on any stream of the group."""

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        comm, one, other = rank.comm, rank.stream, torch.cuda.Stream()
        for elements in (64, 8 << 20):
            with torch.cuda.stream(one):
                x, y, z, seen = (torch.zeros(elements, device="cuda") for _ in range(4))
                comm.all_reduce(y)  # what is made at a first call may wait for all streams
            rank.finish()
            gate = Gate(other)
            with torch.cuda.stream(other):
                x.fill_(1 + rank.rank)
            with paceline.group():
                with torch.cuda.stream(one):
                    comm.all_reduce(x)
                    if rank.rank == 0:
                        comm.send(x, 1)
                    else:
                        comm.recv(z, 0)
                with torch.cuda.stream(other):
                    comm.all_reduce(y)
            with torch.cuda.stream(other):
                seen.copy_(x)
            barrier.wait(60)
            gate.open()
            other.synchronize()
            assert bool((seen == 3).all()), seen
            rank.finish()
            if rank.rank == 1:
                assert bool((z == 1).all()), z  # messages come before collectives

    on_gpus(2, body)


def test_a_group_over_several_gpus_leaves_the_threads_current_gpu_as_it_was() -> None:
    comms = paceline.init_all([0, 1])
    buffers = [torch.ones(16, device=f"cuda:{gpu}") for gpu in (0, 1)]
    streams = [torch.cuda.Stream(gpu) for gpu in (0, 1)]
    for current in (0, 1):
        torch.cuda.set_device(current)
        for _ in range(3):
            with paceline.group():
                for comm, buffer, stream in zip(comms, buffers, streams):
                    with torch.cuda.stream(stream):
                        comm.all_reduce(buffer, op="max")
            assert torch.cuda.current_device() == current
    for stream in streams:
        stream.synchronize()
    for comm in comms:
        comm.close()


def test_communicators_whose_first_calls_are_one_group_use_the_gpus_of_their_buffers() -> None:
    program = textwrap.dedent("""
        import threading, paceline, torch
        comms, identity = [None, None], paceline.unique_id()

        def join(rank):
            comms[rank] = paceline.init(30, rank=rank, size=2, unique_id=identity)

        threads = [threading.Thread(target=join, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        buffers = [torch.ones(1000, device=f"cuda:{gpu}") for gpu in (0, 1)]
        for right in (2, 4):
            with paceline.group():
                for comm, buffer in zip(comms, buffers):
                    comm.all_reduce(buffer)
            assert torch.cuda.current_device() == 0
            for gpu in (0, 1):
                torch.cuda.synchronize(gpu)
                assert comms[gpu].get_async_error() is None
                assert bool((buffers[gpu] == right).all())
        for comm in comms:
            comm.close()
    """)
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
