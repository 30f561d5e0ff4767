"""How the calls of a communicator run: what it tells of them, forced algorithms, traces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_uint64
from dataclasses import dataclass
from typing import Any

from . import _native
from .arguments import file_name, integer, text
from .arrays import data_type
from .call_arguments import CallArguments, Operation
from .errors import InvalidArgument


@dataclass(frozen=True)
class Plan:
    """What would run for one call, as `Communicator.explain` tells it."""

    algorithm: str  # its name in the table of docs/algorithms.md
    transport: str  # "shm", "tcp", "shm+tcp" or "local"
    chunk_bytes: int  # what one step moves at most
    channels: int  # independent lanes of the schedule
    radix: int  # ranks that meet in a step of a k-nomial tree or of recursive doubling; 0: the algorithm has none
    predicted_us: float  # microseconds, by the cost model or the tuned table
    protocol: str  # of long messages inside a node: "staged" or "single_copy"


class Insight(CallArguments):
    """What a communicator tells of how its calls run. `Communicator` adds the calls."""

    def links_measured(self) -> bool:
        """Whether the links between the machines of the job were measured as it started; False on one machine."""
        return self._number(self._library.paceCommLinksMeasured) == 1

    def gpus_direct(self) -> bool:
        """Whether calls on GPU memory are made by kernels between the ranks' GPUs, as far as is known now.

        False where they go through host memory: several nodes, GPUs that do not reach each other or have no room for
        their ranks' kernels, or no call on GPU memory so far of a program that had not used a GPU when the communicator
        was made.
        """
        return self._number(self._library.paceCommGpuDirect) == 1

    def gpu_direct_calls(self) -> int:
        """How many calls on GPU memory have worked in the ranks' buffers where they lie, without a window between.

        Since the communicator was made; a graph's replays are counted too. Waits for the calls that were begun.
        """
        calls = c_uint64()
        result = self._library.paceCommGpuDirectCalls(self._handle, calls)
        if result:
            raise self._failure(result)
        return calls.value

    def explain(
        self, collective: str, count: int, dtype: Any = "float32", op: Operation = "sum", root: int = 0
    ) -> Plan:
        """What a call on host memory would run.

        Args:
            collective: "all_reduce", "broadcast", ...
            count: elements, counted as in the C call: of x for most, of one part for reduce_scatter, scatter and
                all_to_all.
            dtype: one of the names in `paceline.DATA_TYPES`, or what NumPy or torch have for it.
            op, root: of collectives that have them.

        Raises:
            InvalidArgument: there is no such collective, type, operation or root.

        Example::

            comm.explain("all_reduce", 1 << 20).algorithm
        """
        kind = data_type(dtype).number
        info = _native.PlanInfo()
        result = self._library.paceExplain(
            self._handle,
            text("collective", collective),
            integer("count", count, 0, 2**63 - 1),
            kind,
            self._operator(op, kind),
            self._rank("root", root),
            byref(info),
        )
        if result:
            raise self._failure(result)
        return Plan(
            info.algorithm.decode(),
            info.transport.decode(),
            info.chunkBytes,
            info.channels,
            info.radix,
            info.predictedMicroseconds,
            info.protocol.decode(),
        )

    def set_algorithm(self, name: str | None) -> None:
        """Force an algorithm wherever it applies, from the next call on; None: choose. The same on every rank, else
        that call raises Mismatch.

        Args:
            name: of the algorithm; after it may stand "chunk=BYTES", its longest chunk, "radix=K", the ranks that meet
                in a step of a k-nomial tree or of recursive doubling, and "protocol=staged" or "protocol=single_copy",
                the way of long messages inside a node: "ring chunk=65536", "knomial radix=8".

        Raises:
            InvalidArgument: there is no such algorithm, or what stands after it is none of these.
        """
        result = self._library.paceCommSetAlgorithm(self._handle, None if name is None else text("algorithm", name))
        if result:
            raise self._failure(result)

    @contextmanager
    def trace(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Record what each step of the calls inside did and when, and write this rank's events to a file.

        Args:
            path: where to write Chrome trace JSON (open it in Perfetto); "{rank}" in it becomes this rank's number.
                `paceline.merge_traces` puts the ranks' files together.

        Raises:
            InvalidArgument: no file can have this name.
            InvalidUsage: a trace of this communicator is open already; it goes on.
            ResourceError: the file cannot be written.
        """
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise InvalidArgument(f"path is {path!r}: give a file's name")
        file = file_name("path", os.fsdecode(path).replace("{rank}", str(self.rank)))
        result = 0
        try:  # Ctrl-C may come as soon as it records
            result = self._library.paceTraceStart(self._handle)
            if result:
                raise self._failure(result)
            yield
        finally:
            if not result:  # else the open one is another's
                try:
                    self._settle()
                finally:  # Ctrl-C may have come while this waited
                    result = self._library.paceTraceStop(self._handle, file)
        if result:
            raise self._failure(result)
