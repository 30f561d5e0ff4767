"""The memory of timed calls."""

from __future__ import annotations

import pytest
from paceline import ResourceError
from paceline.command.trial import HostBuffers


def test_shared_buffers_are_as_long_as_the_longest_trial_needs() -> None:
    buffers = HostBuffers()
    buffers.reserve(b"abc", 10, 100, 50)
    assert bytes(buffers.inputs[:10]) == b"abcabcabca"
    send, recv = buffers.send, buffers.recv
    buffers.reserve(b"abc", 4, 60, 70)
    assert buffers.send is send
    assert buffers.recv is not recv
    assert (len(buffers.send[1]), len(buffers.recv[1])) == (100, 70)


@pytest.mark.parametrize("sends", [2**45, 2**75])  # of which no process, and no size_t, has so many
def test_no_memory_is_an_error_that_says_how_much(sends: int) -> None:
    for sizes in ((sends, sends, 8), (8, sends, 8), (8, 8, sends)):
        with pytest.raises(ResourceError, match=r"there is no memory for .* bytes to send and .* to receive"):
            HostBuffers().reserve(b"abc", *sizes)
