"""The calls that are timed, on host memory: the C call itself.

Before each call the send buffer is rewritten and the ranks meet in a barrier. After a long call they meet once more:
where ranks share CPUs, who goes on to rewrite megabytes keeps its CPU from those that are in the call still. The result
of the last call can be checked bit for bit; every call has other inputs than the one before, so that an old result is
no right result. The C functions are called with ready-made ctypes objects, which keeps Python's part of a time near 0.4
us.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from abc import ABC, abstractmethod
from array import array
from typing import Any, cast

from .. import _native
from ..call_arguments import Operation
from ..communicator import Communicator
from ..datatypes import DataType, PreMulSum
from ..errors import ResourceError
from ..insight import Plan
from .collectives import Collective
from .pattern import PERIOD, SCALAR, Pattern, repeated, wrong_elements
from .sizes import size_text

_LONG_CALL = 64 << 10  # bytes sent from which on rewriting them is longer than a barrier


class Trial(ABC):
    """One collective with its buffers, ready to be called and timed at any size up to `most` elements."""

    def __init__(self, comm: Communicator, collective: Collective, pattern: Pattern, root: int, most: int) -> None:
        self.comm, self.collective, self.pattern, self.root = comm, collective, pattern, root
        self.dtype: DataType = pattern.dtype
        sends = most * (comm.size if collective.sends_all else 1)
        receives = most * (comm.size if collective.receives_all else 1)
        self._send_bytes, self._recv_bytes = sends * self.dtype.size, receives * self.dtype.size
        self._input_bytes = (sends + PERIOD) * self.dtype.size if most else 0  # every call begins elsewhere in them
        op = PreMulSum(SCALAR) if pattern.op == "premulsum" else pattern.op
        self._op = cast(Operation, op if collective.reduces else "sum")
        self._calls = 0  # all ranks count alike, so their inputs stay in step
        # Indexing gives a function without declared argument types: nothing is converted while the clock runs.
        self._function = _native.library()[collective.function]
        self._barrier = _native.library()["paceBarrier"]
        self._meeting = (ctypes.c_void_p(comm._handle), ctypes.c_void_p(None))
        self._in_place = collective.name == "broadcast" and comm.rank == root  # as programs call it

    @abstractmethod
    def run(self, count: int, calls: int) -> array[int]:
        """Make the call a number of times; this rank's time of each, ns."""

    def repeat(self, count: int, calls: int) -> None:
        """Make the call a number of times, one right after the other, without a clock."""
        self.run(count, calls)

    @abstractmethod
    def _output(self, nbytes: int) -> memoryview:
        """The first bytes of what the last call has written, in host memory."""

    def bytes(self, count: int) -> int:
        """The size of a row with this count."""
        return self.collective.total_bytes(count, self.comm.size, self.dtype.size)

    def plan(self, count: int, algorithm: str | None) -> Plan:
        """What runs where this algorithm is forced, from now on; None: where none is."""
        self.comm.set_algorithm(algorithm)
        return self.comm.explain(self.collective.name, count, self.dtype.name, self._op, self.root)

    def wrong(self, count: int) -> int:
        """How many elements of all ranks' results of the last call are wrong."""
        blocks = self.pattern.expected(self.collective, self.comm.rank, self.root, count, self._calls * 17 % PERIOD)
        output = self._output(sum(block.count for block in blocks) * self.dtype.size)
        total = array("q", [wrong_elements(output, blocks, self.dtype.size)])
        self.comm.all_reduce(total)
        return total[0]

    def _next_inputs(self) -> int:
        """Where in the inputs those of the next call begin, bytes."""
        self._calls += 1
        return self._calls * 17 % PERIOD * self.dtype.size

    def _sent(self, count: int) -> int:
        """Bytes of a call's send buffer."""
        return count * self.dtype.size * (self.comm.size if self.collective.sends_all else 1)

    def _arguments(self, count: int, send: int, recv: int, stream: int | None) -> tuple[Any, ...]:
        """send, recv, count, type, [op], [root], comm, stream."""
        tail = (ctypes.c_void_p(self.comm._handle), ctypes.c_void_p(stream))
        if self.collective.name == "barrier":
            return tail
        middle: list[Any] = [ctypes.c_int(self.dtype.number)]
        if self.collective.reduces:
            middle.append(ctypes.c_int(self.comm._operator(self._op, self.dtype.number)))
        if self.collective.rooted:
            middle.append(ctypes.c_int(self.root))
        output = send if self._in_place else recv
        return (ctypes.c_void_p(send), ctypes.c_void_p(output), ctypes.c_size_t(count), *middle, *tail)


class HostBuffers:
    """Memory for trials of one pattern of which no two are called at once: as long as the longest of them needs."""

    def __init__(self) -> None:
        self.inputs = memoryview(b"")
        self.send, self.recv = _memory(0), _memory(0)

    def reserve(self, contribution: bytes, input_bytes: int, send_bytes: int, recv_bytes: int) -> None:
        """Have room for a trial. Raises ResourceError where there is none."""
        try:
            if len(self.inputs) < input_bytes:
                self.inputs = memoryview(repeated(contribution, input_bytes))
            if len(self.send[1]) < send_bytes:
                self.send = _memory(send_bytes)
            if len(self.recv[1]) < recv_bytes:
                self.recv = _memory(recv_bytes)
        except (MemoryError, OverflowError, OSError):
            raise ResourceError(
                f"there is no memory for {size_text(send_bytes)} bytes to send and {size_text(recv_bytes)} to receive: "
                "take a smaller size"
            ) from None


class HostTrial(Trial):
    """Blocking calls, each timed by the clock of its rank."""

    def __init__(
        self,
        comm: Communicator,
        collective: Collective,
        pattern: Pattern,
        root: int,
        most: int,
        buffers: HostBuffers | None = None,
    ) -> None:
        super().__init__(comm, collective, pattern, root, most)
        self._buffers = buffers or HostBuffers()
        contribution = pattern.contributions[comm.rank]
        self._buffers.reserve(contribution, self._input_bytes, self._send_bytes, self._recv_bytes)

    def run(self, count: int, calls: int) -> array[int]:
        # Slices are made once: what is left between two calls is a memory copy.
        sent = self._sent(count)
        (send, target), source = self._buffers.send, self._buffers.inputs
        target = target[:sent]
        arguments = self._arguments(count, send, self._buffers.recv[0], None)
        function, barrier, meeting, clock = self._function, self._barrier, self._meeting, time.perf_counter_ns
        times = array("q")
        for _ in range(calls):
            start = self._next_inputs()
            target[:] = source[start : start + sent]
            barrier(*meeting)
            begin = clock()
            status = function(*arguments)
            elapsed = clock() - begin
            if status:
                raise self.comm._failure(status)
            times.append(elapsed)
            if sent >= _LONG_CALL:
                barrier(*meeting)
        return times

    def repeat(self, count: int, calls: int) -> None:
        arguments = self._arguments(count, self._buffers.send[0], self._buffers.recv[0], None)
        for _ in range(calls):
            if status := self._function(*arguments):
                raise self.comm._failure(status)

    def _output(self, nbytes: int) -> memoryview:
        return (self._buffers.send if self._in_place else self._buffers.recv)[1][:nbytes]


def _memory(nbytes: int) -> tuple[int, memoryview]:
    """Ordinary private memory, as a program's own: its address and a view that keeps it."""
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(bytes(len(memory)))  # no page is first touched while the clock runs
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)), memoryview(memory)
