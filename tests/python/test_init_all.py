"""paceline.init_all: what can be said without a GPU. With GPUs: test_gpu.py."""

from __future__ import annotations

import paceline
import pytest


def test_no_ranks() -> None:
    with pytest.raises(paceline.InvalidArgument, match="a communicator of 0 ranks"):
        paceline.init_all([])


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(paceline.Error, match=r"there is no GPU 1000|no CUDA"):
        paceline.init_all([1000])
