"""The bench's inputs: every result is exact, and the check finds what is wrong."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paceline import DATA_TYPES
from paceline.command.collectives import COLLECTIVES
from paceline.command.pattern import PERIOD, SCALAR, Block, Pattern, repeated, wrong_elements

OPS = ["sum", "prod", "max", "min", "avg", "premulsum"]


def values(dtype: str, table: bytes) -> list[float]:
    kind = DATA_TYPES[dtype]
    return [kind.decode(table[at : at + kind.size]) for at in range(0, len(table), kind.size)]


@pytest.mark.parametrize("dtype", DATA_TYPES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 17, 64])
def test_every_partial_result_is_exact(dtype: str, op: str, ranks: int) -> None:
    kind = DATA_TYPES[dtype]
    pattern = Pattern(kind, op, ranks)
    columns = list(zip(*(values(dtype, table) for table in pattern.contributions), strict=True))
    assert len(columns) == PERIOD
    for column, expected in zip(columns, values(dtype, pattern.reduced), strict=True):
        if op in ("max", "min"):
            assert expected == (max if op == "max" else min)(column)
        elif op == "prod":
            assert expected == math.prod(column)
        else:
            # All values are of one sign, so no partial sum is larger than the whole.
            factor = SCALAR if op == "premulsum" else 1
            total = sum(column) * factor
            assert min(column) >= 0
            assert total <= kind.exact or kind.decode(kind.encode(total)) == total
            assert expected == (total / ranks if op == "avg" else total)


@pytest.mark.parametrize("dtype", ["float32", "float8e5m2", "int8"])
def test_inputs_differ_between_ranks_and_from_call_to_call(dtype: str) -> None:
    tables = Pattern(DATA_TYPES[dtype], "sum", 4).contributions
    assert len(set(tables)) == 4
    size = DATA_TYPES[dtype].size
    for table in tables:
        assert table != table[17 * size :] + table[: 17 * size]


@settings(max_examples=50)
@given(
    st.sampled_from(["int8", "float16", "float32", "float64"]),
    st.integers(1, 5),
    st.integers(1, 2000),
    st.integers(0, PERIOD),
    st.data(),
)
def test_a_right_result_has_no_wrong_element_and_a_wrong_one_is_counted(
    dtype: str, ranks: int, count: int, shift: int, data: st.DataObject
) -> None:
    pattern, size = Pattern(DATA_TYPES[dtype], "sum", ranks), DATA_TYPES[dtype].size
    blocks = [Block(table, shift + 3 * count, count) for table in pattern.contributions]
    right = bytearray()
    for table in pattern.contributions:
        start = (shift + 3 * count) * size
        right += repeated(table, (shift + 4 * count) * size)[start : start + count * size]
    assert wrong_elements(memoryview(right), blocks, size) == 0
    spoiled = data.draw(st.sets(st.integers(0, ranks * count - 1), max_size=20))
    for element in spoiled:
        right[element * size] ^= 0x40
    assert wrong_elements(memoryview(right), blocks, size) == len(spoiled)


def test_expected_results_of_each_collective() -> None:
    pattern = Pattern(DATA_TYPES["int32"], "sum", 3)
    zero, one, two = pattern.contributions
    found = {name: pattern.expected(row, 1, 2, 10, 5) for name, row in COLLECTIVES.items()}
    assert found["all_reduce"] == [Block(pattern.reduced, 5, 10)]
    assert found["broadcast"] == [Block(two, 5, 10)]
    assert found["reduce"] == found["gather"] == []
    assert pattern.expected(COLLECTIVES["reduce"], 2, 2, 10, 5) == [Block(pattern.reduced, 5, 10)]
    assert found["all_gather"] == [Block(zero, 5, 10), Block(one, 5, 10), Block(two, 5, 10)]
    assert found["reduce_scatter"] == [Block(pattern.reduced, 15, 10)]
    assert found["scatter"] == [Block(two, 15, 10)]
    assert found["all_to_all"] == [Block(zero, 15, 10), Block(one, 15, 10), Block(two, 15, 10)]


@pytest.mark.parametrize(
    ("name", "factor"),
    [("all_reduce", 1.5), ("broadcast", 1), ("reduce", 1), ("all_gather", 0.75), ("reduce_scatter", 0.75),
     ("all_to_all", 0.75), ("gather", 0.75), ("scatter", 0.75)],
)  # fmt: skip
def test_bus_bandwidth_and_sizes(name: str, factor: float) -> None:
    row = COLLECTIVES[name]
    assert row.bus_factor(4) == factor
    assert row.count(4096, 4, 8) == (128 if factor == 0.75 else 512)
    assert row.total_bytes(row.count(4096, 4, 8), 4, 8) == 4096
    assert row.count(8, 4, 8) == 1
    assert row.count(0, 4, 8) == 0
