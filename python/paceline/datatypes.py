"""The element types and operations, by name, with the numbers of paceline.h."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from operator import index

from .errors import InvalidArgument


@dataclass(frozen=True)
class DataType:
    """An element type."""

    name: str
    number: int  # of paceDataType_t
    size: int  # bytes of one element
    exact: int  # the type holds 0, 1, ... exact without rounding
    # One element, in this machine's byte order, rounded. Raises ValueError, OverflowError or struct.error for what the
    # type cannot hold: an integer type only whole numbers.
    encode: Callable[[float], bytes]
    decode: Callable[[bytes], float]


def _whole(value: float) -> int:
    if value != int(value):
        raise ValueError("not a whole number")
    return int(value)


def _packed(name: str, number: int, code: str, exact: int) -> DataType:
    convert = float if code[-1] in "efd" else _whole
    return DataType(
        name,
        number,
        struct.calcsize(code),
        exact,
        lambda value: struct.pack(code, convert(value)),
        lambda element: float(struct.unpack(code, element)[0]),
    )


def _encode_bfloat16(value: float) -> bytes:
    bits = int.from_bytes(struct.pack("<f", value), "little")
    if bits & 0x7FFFFFFF < 0x7F800000:  # an infinity or a NaN has nothing to round
        bits += 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even
        if bits & 0x7FFFFFFF >= 0x7F800000:
            raise OverflowError("beyond the largest finite value")
    return (bits >> 16).to_bytes(2, "little")


def _decode_bfloat16(element: bytes) -> float:
    return float(struct.unpack("<f", b"\0\0" + element)[0])


@functools.cache
def _float8_values(exponent_bits: int) -> list[float]:
    """The values of the 128 positive codes. e4m3 has no infinity and one NaN (code 127); e5m2 is as IEEE 754."""
    mantissa_bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    values = []
    for code in range(128):
        exponent, mantissa = code >> mantissa_bits, code % 2**mantissa_bits
        fraction = mantissa / 2**mantissa_bits
        values.append(fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias))
    for code in range(127 if exponent_bits == 4 else 124, 128):
        values[code] = float("nan")
    if exponent_bits == 5:
        values[124] = float("inf")
    return values


def _float8(name: str, number: int, exponent_bits: int, exact: int) -> DataType:
    def encode(value: float) -> bytes:
        beyond = 127 if exponent_bits == 4 else 124  # the code after that of the largest finite value
        if math.isnan(value):
            code = 127
        elif math.isinf(value) and exponent_bits == 5:
            code = 124
        else:  # the nearest; of two equally near ones the even code
            finite = _float8_values(exponent_bits)[:beyond]
            values = [*finite, 2 * finite[-1] - finite[-2]]
            code = min(range(beyond + 1), key=lambda code: (abs(values[code] - abs(value)), code % 2))
            if math.isinf(value) or code == beyond:
                raise OverflowError("beyond the largest finite value")
        return bytes([code | (128 if math.copysign(1, value) < 0 else 0)])

    def decode(element: bytes) -> float:
        magnitude = _float8_values(exponent_bits)[element[0] & 127]
        return -magnitude if element[0] & 128 else magnitude

    return DataType(name, number, 1, exact, encode, decode)


DATA_TYPES: dict[str, DataType] = {
    kind.name: kind
    for kind in (
        _packed("int8", 0, "=b", 127),
        _packed("uint8", 1, "=B", 255),
        _packed("int32", 2, "=i", 2**31 - 1),
        _packed("uint32", 3, "=I", 2**32 - 1),
        _packed("int64", 4, "=q", 2**63 - 1),
        _packed("uint64", 5, "=Q", 2**64 - 1),
        _packed("float16", 6, "=e", 2**11),
        _packed("float32", 7, "=f", 2**24),
        _packed("float64", 8, "=d", 2**53),
        DataType("bfloat16", 9, 2, 2**8, _encode_bfloat16, _decode_bfloat16),
        _float8("float8e4m3", 10, 4, 2**4),
        _float8("float8e5m2", 11, 5, 2**3),
    )
}
"""The element types by name."""
BY_NUMBER: tuple[DataType, ...] = tuple(sorted(DATA_TYPES.values(), key=lambda kind: kind.number))

OPERATIONS: dict[str, int] = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
"""The operations by name: their paceRedOp_t."""


@dataclass(frozen=True)
class PreMulSum:
    """The operator that multiplies this rank's input by `scalar`, then sums. Made by `premulsum`."""

    scalar: float


def premulsum(scalar: float) -> PreMulSum:
    """An operator that multiplies this rank's input by a scalar, then sums over ranks.

    The scalar is rounded to the call's element type. One that the type cannot hold (beyond its largest value, or for
    integers no whole number) makes the call raise InvalidArgument. Each rank may give another one.

    Raises:
        InvalidArgument: the scalar is no number.

    Example, an average weighted by the samples that each rank saw::

        comm.all_reduce(gradient, op=paceline.premulsum(samples / total_samples))
    """
    try:
        return PreMulSum(index(scalar))  # type: ignore[arg-type]  # what is whole stays exact: not all fit a float
    except TypeError:
        pass
    if not hasattr(scalar, "__float__"):  # float() would read text
        raise InvalidArgument(f"premulsum({scalar!r}): it takes a number")
    try:
        return PreMulSum(float(scalar))
    except (TypeError, ValueError):
        raise InvalidArgument(f"premulsum({scalar!r}): it takes one number") from None
