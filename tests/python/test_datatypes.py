"""One element of each type, against NumPy and ml_dtypes."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paceline import DATA_TYPES, InvalidArgument, premulsum
from paceline.arrays import numpy_dtype


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@given(value=st.floats(-60000, 60000))
def test_floats_round_as_numpy(name: str, value: float) -> None:
    element = numpy_dtype(name)
    if name == "bfloat16":
        value = float(numpy.float32(value))  # ml_dtypes rounds twice from float64, as the reductions do
    assert DATA_TYPES[name].encode(value) == numpy.asarray(value).astype(element).tobytes()


@pytest.mark.parametrize("name", ["float8e4m3", "float8e5m2"])
def test_every_float8(name: str) -> None:
    kind, codes = DATA_TYPES[name], bytes(range(256))
    values = numpy.frombuffer(codes, numpy_dtype(name)).astype(float)
    for code, value in zip(codes, values, strict=True):
        found = kind.decode(bytes([code]))
        assert found == value or (math.isnan(found) and math.isnan(value))
        if math.isfinite(value):
            assert kind.encode(value) == bytes([code])


@pytest.mark.parametrize("name", ["float8e4m3", "float8e5m2"])
@given(value=st.floats(-400, 400, width=16))
def test_float8_rounds_to_nearest_even(name: str, value: float) -> None:
    assert DATA_TYPES[name].encode(value) == numpy.asarray(value).astype(numpy_dtype(name)).tobytes()


# A value that still rounds to a finite one, and one that no longer does.
@pytest.mark.parametrize(
    ("name", "last", "beyond"),
    [
        ("float8e4m3", 464, 464.5),
        ("float8e5m2", 61439, 61440),
        ("float16", 65519, 65520),
        ("bfloat16", 3.3961e38, 3.3962e38),
        ("float32", 3.4028235e38, 3.4028236e38),
    ],
)
def test_what_rounds_beyond_the_largest_finite_value(name: str, last: float, beyond: float) -> None:
    kind = DATA_TYPES[name]
    for sign in (1, -1):
        assert math.isfinite(kind.decode(kind.encode(sign * last)))
        with pytest.raises(OverflowError):
            kind.encode(sign * beyond)


def test_infinities() -> None:
    for name in ("float8e5m2", "float16", "bfloat16", "float32", "float64"):
        kind = DATA_TYPES[name]
        assert [kind.decode(kind.encode(value)) for value in (math.inf, -math.inf)] == [math.inf, -math.inf]
    with pytest.raises(OverflowError):
        DATA_TYPES["float8e4m3"].encode(math.inf)


@pytest.mark.parametrize("scalar", [2**53 + 1, numpy.int64(2**53 + 1)])
def test_a_whole_scalar_stays_exact(scalar: int) -> None:
    assert DATA_TYPES["int64"].encode(premulsum(scalar).scalar) == (2**53 + 1).to_bytes(8, sys.byteorder)


@pytest.mark.parametrize("scalar", [2.5, Fraction(5, 2), numpy.float32(2.5)])
def test_a_scalar_of_any_number_type(scalar: float) -> None:
    assert premulsum(scalar).scalar == 2.5


@pytest.mark.parametrize("scalar", ["a", "2", b"2", None, 1j, numpy.ones(2)])
def test_a_scalar_that_is_no_number(scalar: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"premulsum\(.*\): it takes (a|one) number"):
        premulsum(scalar)


@pytest.mark.parametrize("name", DATA_TYPES)
def test_exact_range(name: str) -> None:
    kind = DATA_TYPES[name]
    assert len(kind.encode(1)) == kind.size
    for value in range(min(kind.exact, 2**12) + 1):
        assert kind.decode(kind.encode(value)) == value
    if "float" in name:
        assert kind.decode(kind.encode(kind.exact + 1)) != kind.exact + 1
