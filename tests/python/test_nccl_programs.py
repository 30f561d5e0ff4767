"""Ordinary programs for NCCL on GPUs: nccl_programs.py runs them."""

from __future__ import annotations

import pytest
from nccl_programs import PROGRAMS, Absent, Failed, served, step_microseconds


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    try:
        PROGRAMS[name]()
    except Absent as absent:
        pytest.skip(str(absent))


SAYS = (
    "host:7 [paceline] NCCL INFO Paceline 1.2.3, NCCL 2.28.9 at /x: Paceline serves all_reduce, gather; NCCL the rest"
)


def test_a_program_counts_as_served_only_by_paceline() -> None:
    assert served(SAYS) == SAYS
    for output in (
        "",
        SAYS + "\nhost:7 [paceline] NCCL INFO a communicator of 2 ranks: NCCL serves all its calls: far",
    ):
        with pytest.raises(Failed):
            served(output)


def test_step_times_are_read() -> None:
    assert step_microseconds("ddp: step 812.5 us\nrank 0 is well\nfsdp2: step 1.0 us\n") == {"ddp": 812.5, "fsdp2": 1.0}
