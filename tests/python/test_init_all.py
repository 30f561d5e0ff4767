"""paceline.init_all: what can be said without a GPU. With GPUs: test_gpu.py."""

from __future__ import annotations

import paceline
import pytest


def test_no_ranks() -> None:
    with pytest.raises(paceline.InvalidArgument, match="count is 0"):
        paceline.init_all([])


def test_a_number_instead_of_gpus() -> None:
    with pytest.raises(paceline.InvalidArgument, match=r"devices is 3: give GPUs, as in init_all\(\[0, 1\]\)"):
        paceline.init_all(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", [-1, 2**32, 0.5])
def test_a_number_that_no_gpu_has(device: int) -> None:
    with pytest.raises(paceline.InvalidArgument, match=f"a device is {device}"):
        paceline.init_all([device])


@pytest.mark.parametrize("devices", [[1000], [0, 1000]])
def test_a_gpu_that_is_not_there(devices: list[int]) -> None:
    """No rank waits for one whose GPU cannot be used."""
    with pytest.raises(paceline.Error, match=r"there is no GPU|no CUDA"):
        paceline.init_all(devices)
