"""Sizes on the command line."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paceline.command.sizes import counts, positive, rounded_size_text, size, size_text, sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", [8]),
        ("0", [0]),
        ("8,64K,1M", [8, 65536, 1048576]),
        ("2G,1k,3MiB,5KB,7B", [2**31, 1024, 3 * 2**20, 5 * 2**10, 7]),
        ("8:64M:x8", [8, 64, 512, 4096, 32768, 262144, 2097152, 16777216]),
        ("1K:4K", [1024, 2048, 4096]),
        ("1M:3M:1M", [2**20, 2 * 2**20, 3 * 2**20]),
        ("8,1K:2K:x2,9", [8, 1024, 2048, 9]),
        ("4:4:x2", [4]),
        ("9223372036854775807", [2**63 - 1]),
    ],
)
def test_lists_and_ranges(text: str, expected: list[int]) -> None:
    assert sizes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8,",
        "x",
        "-8",
        "1.5M",
        "8T",
        "²",
        5000 * "9",
        "K",
        "8:4:x2",
        "8:64:x1",
        "8:64:0",
        "0:64:x2",
        "1:2:3:4",
        "8:64:x",
        "9223372036854775808",
        "8589934592G",
        "1:1000000000:1",
    ],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        sizes(text)


@given(st.integers(0, 2**45))
def test_written_and_read_back(count: int) -> None:
    assert size(size_text(count)) == count


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (1023, "1023B"), (98304, "96K"), (1024000, "1000K"), (1500000, "1.43M"), (2**31, "2048M")],
)
def test_rounded(count: int, text: str) -> None:
    assert rounded_size_text(count) == text


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.0", "2147483648"])
def test_positive(text: str) -> None:
    assert positive("12") == 12
    with pytest.raises(argparse.ArgumentTypeError):
        positive(text)


def test_counts_are_lists_and_ranges_of_whole_numbers() -> None:
    assert counts("2,4,8:32:x2") == [2, 4, 8, 16, 32]
    for text in ("4,foo", "1K", "0", "2:x2"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number >= 1"):
            counts(text)
