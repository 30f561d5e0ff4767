"""Numbers among a call's arguments: C takes their lowest bits without a word, so they are looked at before."""

from __future__ import annotations

from operator import index
from typing import SupportsIndex

from .errors import InvalidArgument

_INT_MAX = 2**31 - 1


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
