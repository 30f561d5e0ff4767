"""Every collective against NumPy, on real processes, over random types, operations, counts and roots."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job import Job
from paceline import DATA_TYPES, OPERATIONS

NAMES = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"]

relaxed = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


@pytest.mark.parametrize("name", NAMES)
@relaxed
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.one_of(st.integers(0, 40), st.integers(0, 3000), st.integers(0, 150_000)),
    dtype=st.sampled_from(list(DATA_TYPES)),
    op=st.sampled_from([*OPERATIONS, "premulsum"]),
    root=st.integers(0, 3),
    in_place=st.sampled_from([0, -1, 0b1, 0b10, 0b1101]),
    asynchronous=st.booleans(),
)
def test_result_is_numpys(job: Job, name: str, dtype: str, op: str, **case: object) -> None:
    if dtype.startswith("float8") and op == "premulsum":
        op = "sum"  # twice the sum does not fit into their exact range
    digests = job.run("collective", name=name, dtype=dtype, op=op, **case)
    if name in ("all_reduce", "broadcast", "all_gather"):
        assert len(set(digests)) == 1, "the same bits on every rank"


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter"])
def test_the_same_bits_from_run_to_run(three: Job, name: str) -> None:
    case = {"seed": 5, "count": 50_000, "op": "sum", "root": 0, "in_place": 0, "asynchronous": False}
    assert three.run("collective", name=name, dtype="float32", **case) == three.run(
        "collective", name=name, dtype="float32", **case
    )


def test_torch_tensors(three: Job) -> None:
    pytest.importorskip("torch")
    three.run("torch_tensors")


@pytest.mark.parametrize("function", ["buffers", "own_memory", "premulsum_of_rank"])
def test_on_every_size_of_job(job: Job, function: str) -> None:
    job.run(function)


@pytest.mark.parametrize(
    "dtype",
    ["?", "int16", "uint16", "complex64", "complex128", "datetime64[s]", "S5", "U3", [["a", "i4"], ["b", "S3"]]],
    ids=str,
)
def test_what_is_moved_and_not_reduced_may_have_any_type(three: Job, dtype: object) -> None:
    three.run("moves", dtype=dtype)
