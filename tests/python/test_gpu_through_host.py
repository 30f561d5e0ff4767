"""Calls on GPU memory that go through host memory, as of more ranks than have windows. Needs a GPU and torch."""

from __future__ import annotations

import subprocess
import sys

import paceline
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

RANKS = 17  # one more than have windows


def test_one_thread_has_all_ranks() -> None:
    comms = paceline.init_all([0] * RANKS)
    try:
        assert not any(comm.gpus_direct() for comm in comms)
        x = [torch.full((1000,), float(comm.rank), device="cuda") for comm in comms]
        y = torch.zeros(5, device="cuda")
        with paceline.group():
            for comm, own in zip(comms, x):
                comm.all_reduce(own)
            comms[0].send(y.fill_(7.0), 1)
            comms[1].recv(sent := torch.zeros(5, device="cuda"), 0)
        assert all(bool((own == sum(range(RANKS))).all()) for own in x)
        assert bool((sent == 7).all())
    finally:
        for comm in comms:
            comm.close()


def test_ranks_whose_kernels_do_not_fit_on_their_gpu() -> None:
    """Kernels of up to 32 blocks wait for each other, and each block may need a multiprocessor."""
    fitting = max(1, torch.cuda.get_device_properties(0).multi_processor_count // 32)
    for ranks in (fitting, fitting + 1):
        comms = paceline.init_all([0] * ranks)
        try:
            assert [comm.gpus_direct() for comm in comms] == [ranks == fitting] * ranks
            x = [torch.full((3_000_000,), float(comm.rank), device="cuda") for comm in comms]
            streams = [torch.cuda.Stream() for _ in comms]
            torch.cuda.synchronize()
            with paceline.group():
                for comm, own, stream in zip(comms, x, streams):
                    with torch.cuda.stream(stream):
                        comm.all_reduce(own)
            torch.cuda.synchronize()
            assert all(bool((own == sum(range(ranks))).all()) for own in x)
        finally:
            for comm in comms:
                comm.close()


def test_groups_name_communicators_in_any_order() -> None:
    first, second = paceline.init_all([0] * RANKS), paceline.init_all([0] * RANKS)
    try:
        x = [torch.ones(100, device="cuda") for _ in range(2 * RANKS)]
        with paceline.group():
            for rank in range(RANKS):
                pair = [(first[rank], x[rank]), (second[rank], x[RANKS + rank])]
                for comm, own in pair if rank % 2 else pair[::-1]:
                    comm.all_reduce(own)
        assert all(bool((own == RANKS).all()) for own in x)
    finally:
        for comm in first + second:
            comm.close()


def test_a_group_s_calls_read_what_those_before_them_wrote() -> None:
    comms = paceline.init_all([0] * RANKS)
    try:
        x = [torch.ones(1000, device="cuda") for _ in comms]
        y = [torch.zeros(1000, device="cuda") for _ in comms]
        z = [torch.zeros(RANKS * 1000, device="cuda") for _ in comms]
        received = torch.zeros(1000, device="cuda")
        with paceline.group():
            for comm, own, output, all_of_it in zip(comms, x, y, z):
                comm.all_reduce(own)
                comm.all_reduce(own)
                comm.all_reduce(own, out=output)
                comm.all_gather(output, all_of_it)
            comms[0].send(torch.full((1000,), 3.0, device="cuda"), 1)
            comms[1].recv(received, 0)
            for comm in comms:
                comm.broadcast(received if comm.rank == 1 else y[comm.rank], root=1)
        assert all(bool((own == RANKS**2).all()) for own in x)
        assert all(bool((all_of_it == RANKS**3).all()) for all_of_it in z)
        assert bool((received == 3).all())
        assert all(bool((y[comm.rank] == 3).all()) for comm in comms if comm.rank != 1)
    finally:
        for comm in comms:
            comm.close()


def test_messages_keep_their_order_on_several_streams() -> None:
    comms = paceline.init_all([0] * RANKS)
    try:
        streams = [torch.cuda.Stream() for _ in range(2)]
        given = [torch.full((100,), float(i), device="cuda") for i in range(5)]
        taken = [torch.zeros(100, device="cuda") for _ in range(5)]
        torch.cuda.synchronize()
        sends = [(comms[2], 1, 0), (comms[0], 0, 1), (comms[0], 1, 1), (comms[1], 0, 1), (comms[1], 1, 1)]
        receives = [(comms[0], 0, 2), (comms[1], 0, 0), (comms[1], 0, 0), (comms[1], 1, 1), (comms[1], 0, 1)]
        with paceline.group():
            for (comm, stream, peer), own in zip(sends, given):
                with torch.cuda.stream(streams[stream]):
                    comm.send(own, peer)
            for (comm, stream, peer), own in zip(receives, taken):
                with torch.cuda.stream(streams[stream]):
                    comm.recv(own, peer)
        torch.cuda.synchronize()
        assert [own.unique().tolist() for own in taken] == [[float(i)] for i in range(5)]
    finally:
        for comm in comms:
            comm.close()


PROGRAM = """
import paceline, torch
first = paceline.init(timeout=20)
second = first.split(0, key=first.rank)
x = [torch.full((100,), value, device="cuda") for value in (1.0, 2.0)]
torch.cuda.synchronize()
with paceline.group():
    for comm, own in [(first, x[0]), (second, x[1])][:: 1 if first.rank else -1]:
        with torch.cuda.stream(torch.cuda.Stream()):
            comm.all_reduce(own)
torch.cuda.synchronize()
assert [own.unique().tolist() for own in x] == [[3.0], [6.0]]
"""


def test_first_calls_in_a_group_meet_in_any_order() -> None:
    """Ranks that had not used their GPU when they made the communicators."""
    command = [sys.executable, "-m", "paceline", "run", "-n", "3", "--", sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
