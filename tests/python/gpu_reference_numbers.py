"""Numbers of every type whose sums round, and what a reduction of them may come to: a float64 reference and a bound."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from paceline.datatypes import DataType

Array = npt.NDArray[Any]

SCALARS = {True: 0.75, False: 3.0}  # of premulsum, for floats and for integers: all types have them
_TINY = {"float16": 2.0**-24, "float8e4m3": 2.0**-9, "float8e5m2": 2.0**-16}  # subnormal numbers; the others' are far
_SINGLE = 2.0**-24  # unit roundoff of float32, in which narrow floats are folded
_DOUBLE = 2.0**-53


def is_float(dtype: DataType) -> bool:
    return "float" in dtype.name


@functools.cache
def _float8(dtype: DataType) -> Array:
    return np.array([dtype.decode(bytes([code])) for code in range(256)])


def decoded(dtype: DataType, data: bytes) -> Array:
    """Floats as float64, integers as they are."""
    if dtype.name == "bfloat16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype.size == 1 and is_float(dtype):
        return _float8(dtype)[np.frombuffer(data, np.uint8)]
    found = np.frombuffer(data, dtype.name)
    return found.astype(np.float64) if is_float(dtype) else found


def drawn(dtype: DataType, op: str, ranks: int, rank: int, count: int) -> bytes:
    """A rank's input: floats of both signs over eight binades, integers of all sizes, whose sums wrap."""
    rng = np.random.default_rng([dtype.number, len(op), ranks, rank])
    if not is_float(dtype):
        limits = np.iinfo(dtype.name)
        # What is divided must not have wrapped before: no order of the ranks would say what comes of it.
        low, high = (int(each) // ranks if op == "avg" else int(each) for each in (limits.min, limits.max))
        return rng.integers(max(low, -high), high, count, dtype=dtype.name, endpoint=True).tobytes()
    least, most = (0.75, 1.5) if op == "prod" else (2.0**-6, 4.0)
    if dtype.size == 1:
        size = np.abs(_float8(dtype))
        codes = np.flatnonzero((size >= least) & (size <= most)).astype(np.uint8)
        return rng.choice(codes, count).tobytes()
    values = np.exp2(rng.uniform(math.log2(least), math.log2(most), count)) * rng.choice([-1.0, 1.0], count)
    if dtype.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return values.astype(dtype.name).tobytes()


def reduced(dtype: DataType, op: str, inputs: list[Array]) -> tuple[Array, Array]:
    """The reference and how far a result may be from it.

    With u the type's unit roundoff and n ranks, an input goes through n roundings to the type at most: n-1 folds, and
    the scaling before them (premulsum, averages of float16 and of 8-bit floats) or the division behind them (other
    averages). So a sum is off by less than ((1+u)^n - 1) times the sum of the inputs' sizes, and a product by that
    times its size; a rounding to a subnormal number by half of the smallest one more. Narrow floats are folded in
    float32 and rounded to the type once a fold, so as often at most, and by float32's u as often again: n-1 folds, the
    scaling and its factor 1/n. The reference is rounded, too, by float64's. Integers wrap, and maxima and minima are
    among the inputs: both are exact.
    """
    n = len(inputs)
    if not is_float(dtype):
        return _of_integers(op, inputs), np.zeros(len(inputs[0]))
    if op in ("max", "min"):
        return (np.maximum if op == "max" else np.minimum).reduce(inputs), np.zeros(len(inputs[0]))
    u = 1.0 / dtype.exact
    single = _SINGLE if dtype.size < 4 else 0.0
    relative = math.expm1(n * math.log1p(u) + (n + 1) * math.log1p(single)) + (n + 1) * _DOUBLE
    if op == "prod":
        product = np.multiply.reduce(inputs)
        return product, relative * np.abs(product)
    factor = {"avg": 1.0 / n, "premulsum": SCALARS[True]}.get(op, 1.0)
    terms = np.array(inputs) * factor
    tiny = n * _TINY.get(dtype.name, 0.0) / 2 * (1 + u) ** n
    return terms.sum(0), relative * np.abs(terms).sum(0) + tiny


def _of_integers(op: str, inputs: list[Array]) -> Array:
    """As C has it: they wrap, and are divided towards zero."""
    kind = inputs[0].dtype.type
    if op == "premulsum":
        inputs = [each * kind(SCALARS[False]) for each in inputs]
    fold = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}.get(op, np.add)
    total: Array = functools.reduce(fold, inputs)
    return np.sign(total) * (np.abs(total) // kind(len(inputs))) if op == "avg" else total
