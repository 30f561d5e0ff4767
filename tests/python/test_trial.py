"""The memory of timed calls."""

from __future__ import annotations

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
