"""Calls on GPU memory that go through host memory, as of more ranks than have windows. Needs a GPU and torch."""

from __future__ import annotations

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
