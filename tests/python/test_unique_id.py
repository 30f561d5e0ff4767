"""Unique ids and forks: whoever makes an id, and however ranks come to be."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import paceline
import pytest


def _rank(identity: bytes, rank: int, size: int) -> None:
    with paceline.init(rank=rank, size=size, unique_id=identity) as comm:
        assert comm.all_reduce(np.ones(1000, np.int32)).sum() == 1000 * size


def _in_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(error, flush=True)
        os._exit(1)


def _await(children: list[int]) -> None:
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_forked_ranks_of_the_process_that_made_the_id(order: tuple[int, ...]) -> None:
    identity = paceline.unique_id()
    _await([_in_child(lambda rank=rank: _rank(identity, rank, 3)) for rank in order])


def test_forked_ranks_beside_the_process_that_made_the_id() -> None:
    identity = paceline.unique_id()
    children = [_in_child(lambda rank=rank: _rank(identity, rank, 3)) for rank in (2, 1)]
    _rank(identity, 0, 3)
    _await(children)


def test_a_forked_rank_0_beside_the_process_that_made_the_id() -> None:
    identity = paceline.unique_id()
    children = [_in_child(lambda rank=rank: _rank(identity, rank, 3)) for rank in (2, 0)]
    _rank(identity, 1, 3)
    _await(children)
