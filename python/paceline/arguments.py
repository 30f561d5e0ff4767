"""Numbers and names among a call's arguments, looked at before C has them: it takes a number's lowest bits without a
word, a name up to its first NUL, and 0 for what was not said."""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import sizeof
from numbers import Real
from operator import index
from typing import SupportsIndex

from . import _native
from .errors import InvalidArgument

_INT_MAX = 2**31 - 1
_SSIZE_MAX = 2**63 - 1
_LONGEST = 1e9  # s, of any wait: src/api/communicators.cc


def integer(name: str, value: SupportsIndex, lowest: int = -_INT_MAX - 1, highest: int = _INT_MAX) -> int:
    """The value, if it is a whole number from lowest to highest. The name is for the error.

    Raises:
        InvalidArgument: it is not.
    """
    try:
        number = index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {value!r}: give a whole number") from None
    if not lowest <= number <= highest:
        raise InvalidArgument(f"{name} is {number}: it must be from {lowest} to {highest}")
    return number


def seconds(name: str, value: float) -> float:
    """The value, if it is a number of seconds that a wait can last.

    Raises:
        InvalidArgument: it is not.
    """
    if not isinstance(value, Real) or not 0 < value <= _LONGEST:
        raise InvalidArgument(f"{name} is {value!r}: give seconds, above 0 and up to {_LONGEST:g}")
    return float(value)


def text(name: str, value: str) -> bytes:
    """The value as C takes it, if it is a str of which C has all.

    Raises:
        InvalidArgument: it is not.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}: give a str")
    return _encoded(name, value, str.encode)


def file_name(name: str, value: str) -> bytes:
    """The value as C takes it, if a file can have this name.

    Raises:
        InvalidArgument: it cannot.
    """
    return _encoded(name, value, os.fsencode)


def _encoded(name: str, value: str, encode: Callable[[str], bytes]) -> bytes:
    try:
        encoded = encode(value)
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} is {value!r}: it has a character without an encoding") from None
    if b"\0" in encoded:
        raise InvalidArgument(f"{name} is {value!r}: it has a NUL character")
    return encoded


def config(
    timeout: float | None, algorithm: str | None, chunk_bytes: int | None, join_timeout: float | None = None
) -> _native.Config:
    """A paceConfig_t; None leaves the choice to the library and its environment variables.

    Raises:
        InvalidArgument: what is given is not of its kind, or no wait or chunk can be so long.
    """
    return _native.Config(
        sizeof(_native.Config),
        0.0 if timeout is None else seconds("timeout", timeout),
        None if algorithm is None else text("algorithm", algorithm),
        0 if chunk_bytes is None else integer("chunk_bytes", chunk_bytes, 1, _SSIZE_MAX),
        0.0 if join_timeout is None else seconds("join_timeout", join_timeout),
    )
