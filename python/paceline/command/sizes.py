"""Sizes and counts on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_MOST = 2**31 - 1  # of anything that is counted
_MOST_BYTES = 2**63 - 1
_MOST_DIGITS = 1000
_MOST_SIZES = 10_000  # of one range


def positive(text: str) -> int:
    """A whole number from 1 to 2^31 - 1."""
    return _whole(text, 1)


def not_negative(text: str) -> int:
    """A whole number from 0 to 2^31 - 1."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or _number(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= {least}")
    if _number(text) > _MOST:
        raise argparse.ArgumentTypeError(f"{text} is more than {_MOST}")
    return _number(text)


def _number(digits: str) -> int:
    """What so many digits say that Python refuses to read them is more than anything."""
    return int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS


def size(text: str) -> int:
    """Bytes: a number, or with K, M or G (powers of 1024), as 64K."""
    digits = text.upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:] in _UNITS else ""
    number = digits.removesuffix(unit) if unit else digits
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write bytes, or 64K, 1M, 2G")
    nbytes = _number(number) * _UNITS[unit]
    if nbytes > _MOST_BYTES:
        raise argparse.ArgumentTypeError(f"{text} is more bytes than any buffer has: at most {_MOST_BYTES}")
    return nbytes


def sizes(text: str) -> list[int]:
    """A list as 8,64K,1M; an item may be a range as 8:64M:x8 (each 8 times the last) or 1M:4M:1M (steps of 1M)."""
    return _list(text, size)


def counts(text: str) -> list[int]:
    """One number >= 1, or several as sizes are written: 2,4,8 or 2:1024:x2."""
    return _list(text, positive)


def _list(text: str, read: Callable[[str], int]) -> list[int]:
    found: list[int] = []
    for item in text.split(","):
        first, *rest = item.split(":")
        if not rest:
            found.append(read(first))
        elif len(rest) <= 2:
            found.extend(_range(read(first), read(rest[0]), rest[1] if len(rest) == 2 else "x2", read))
        else:
            raise argparse.ArgumentTypeError(f"{item!r} is no range: write FROM:TO:xFACTOR or FROM:TO:STEP")
    return found


def _range(first: int, last: int, step: str, read: Callable[[str], int]) -> list[int]:
    factor = positive(step[1:]) if step[:1] == "x" else 1
    add = 0 if step[:1] == "x" else read(step)
    if first > last:
        raise argparse.ArgumentTypeError(f"the range {first}:{last}:{step} is empty")
    if (factor == 1 and add == 0) or (factor > 1 and first == 0):
        raise argparse.ArgumentTypeError(f"the range {first}:{last}:{step} has no end")
    found = [first]
    while found[-1] * factor + add <= last:
        if len(found) == _MOST_SIZES:
            raise argparse.ArgumentTypeError(f"the range {first}:{last}:{step} has more than {_MOST_SIZES} items")
        found.append(found[-1] * factor + add)
    return found


def counted(count: int, things: str) -> str:
    """1 rank, 2 ranks."""
    return f"{count} {things.removesuffix('s') if count == 1 else things}"


def ranks_text(count: int) -> str:
    """1 rank, 2 ranks."""
    return counted(count, "ranks")


def size_text(count: int) -> str:
    """The shortest way to write a size: 65536 is 64K."""
    for unit in ("G", "M", "K"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]}{unit}"
    return str(count)


def rounded_size_text(nbytes: int) -> str:
    """A size in three digits, or of whole units: 1500000 is 1.43M, 1024000 is 1000K, 500 is 500B."""
    for unit in ("M", "K"):
        if nbytes >= _UNITS[unit]:
            number = nbytes / _UNITS[unit]
            return f"{number:.0f}{unit}" if number >= 100 else f"{number:.3g}{unit}"
    return f"{nbytes}B"
