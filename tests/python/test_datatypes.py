"""One element of each type, against NumPy and ml_dtypes."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paceline import DATA_TYPES
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
        if math.isfinite(value) and value:
            assert kind.encode(value) == bytes([code])


@pytest.mark.parametrize("name", ["float8e4m3", "float8e5m2"])
@given(value=st.floats(-400, 400, width=16))
def test_float8_rounds_to_nearest_even(name: str, value: float) -> None:
    if value:
        assert DATA_TYPES[name].encode(value) == numpy.asarray(value).astype(numpy_dtype(name)).tobytes()


@pytest.mark.parametrize("name", DATA_TYPES)
def test_exact_range(name: str) -> None:
    kind = DATA_TYPES[name]
    assert len(kind.encode(1)) == kind.size
    for value in range(min(kind.exact, 2**12) + 1):
        assert kind.decode(kind.encode(value)) == value
    if "float" in name:
        assert kind.decode(kind.encode(kind.exact + 1)) != kind.exact + 1
