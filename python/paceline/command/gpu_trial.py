"""The calls that are timed, on GPU memory: calls one behind the other on a CUDA stream, between two events.

A call is launched and returns, and programs make many of them one after the other. So a time is that of a batch of
calls, divided by their number: launched one by one, or as one CUDA graph. Before each batch the send buffer is
rewritten and the ranks meet in a barrier on the host.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..communicator import Communicator
from ..cuda_driver import Event, Memory, Stream
from ..insight import Plan
from .collectives import Collective
from .pattern import Pattern, repeated
from .trial import Trial

BATCHES = ((1 << 20, 50), (32 << 20, 20))  # calls in a batch of messages up to so many bytes
_BATCH_OF_LONGER = 5


class GpuTrial(Trial):
    """Calls on the current GPU. Time of a call: that between two events of its stream, divided by the batch."""

    def __init__(
        self,
        comm: Communicator,
        collective: Collective,
        pattern: Pattern,
        root: int,
        most: int,
        graphs: bool,
        batches: Sequence[tuple[int, int]] = BATCHES,
    ) -> None:
        super().__init__(comm, collective, pattern, root, most)
        self._graphs, self._batches = graphs, batches
        inputs = repeated(pattern.contributions[comm.rank], self._input_bytes)
        self._source, self._send = Memory(len(inputs)), Memory(self._send_bytes)
        self._recv = Memory(self._recv_bytes)
        self._source.write(inputs)
        self._stream, self._begin, self._end = Stream(), Event(), Event()
        # The first call connects the GPUs, which no graph can hold.
        self._make(self._barrier, (ctypes.c_void_p(comm._handle), ctypes.c_void_p(self._stream.handle)))
        self._stream.synchronize()
        self._direct = comm.gpus_direct()

    def plan(self, count: int, algorithm: str | None) -> Plan:
        plan = super().plan(count, algorithm)
        if not self._direct:
            return plan
        forced = algorithm is not None and plan.algorithm == algorithm
        return replace(plan, algorithm=plan.algorithm if forced else "exchange", transport="gpu", chunk_bytes=0)

    def run(self, count: int, calls: int) -> array[int]:
        stream, begin, end = self._stream, self._begin, self._end
        sent, batch = self._sent(count), self._batch(count)
        launch = self._launcher(count, batch)
        times = array("q")
        for _ in range(calls):
            self._send.copy_from(self._source, self._next_inputs(), sent, stream)
            stream.synchronize()
            self._make(self._barrier, self._meeting)
            begin.record(stream)
            launch()
            end.record(stream)
            end.synchronize()
            times.append(round(end.microseconds_since(begin) * 1000 / batch))
        error = self.comm.get_async_error()
        if error is not None:
            raise error
        return times

    def _output(self, nbytes: int) -> memoryview:
        return (self._send if self._in_place else self._recv).read(0, nbytes)

    def _batch(self, count: int) -> int:
        total = self.bytes(count)
        return next((calls for largest, calls in self._batches if total <= largest), _BATCH_OF_LONGER)

    def _launcher(self, count: int, batch: int) -> Callable[[], None]:
        """What puts a batch on the stream."""
        arguments = self._arguments(count, self._send.address, self._recv.address, self._stream.handle)

        def one_by_one() -> None:
            for _ in range(batch):
                self._make(self._function, arguments)

        if not self._graphs:
            return one_by_one
        self._make(self._function, arguments)  # what the first call of a shape prepares is no part of a graph
        self._stream.synchronize()
        with self._stream.capture() as graph:
            one_by_one()
        return lambda: graph.launch(self._stream)

    def _make(self, function: Any, arguments: tuple[Any, ...]) -> None:
        status = function(*arguments)
        if status:
            raise self.comm._failure(status)
