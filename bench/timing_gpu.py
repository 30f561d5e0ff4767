"""How compare_gpu.py times: every library in turn, three rounds, by CUDA events, the slowest rank's time.

In mode `graph` a CUDA graph of many calls is replayed; in mode `eager` the calls are made one by one, from C. A round's
figure is the slowest rank's time between two events, divided by the number of calls. After the rounds every library
makes one more call, on new inputs, and its result is checked exactly.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import paceline
import torch
from check_gpu import Check
from peers_gpu import CALLS, Door, Elements, Nccl, Paceline, Peer, SymmetricMemory

ROUNDS = 3
WARM_UP = 5  # calls before a capture: libraries get to know the buffers
_MAKERS: dict[str, list[Callable[[paceline.Communicator, Elements], Peer]]] = {
    "nccl": [partial(Nccl, windows=False)],
    "windows": [partial(Nccl, windows=True)],
    "door": [Door],
    "symmetric": [partial(SymmetricMemory, way="one-shot"), partial(SymmetricMemory, way="two-shot")],
}


class Failure(Exception):
    """Paceline does not do what is compared, or not rightly."""


class Rank:
    """One rank's part of the comparison. All ranks do the same; what one cannot do is left out on all."""

    def __init__(self, peers: list[str], sizes: list[int], elements: Elements) -> None:
        torch.cuda.set_device(int(os.environ.get("PACELINE_RANK", "0")) % torch.cuda.device_count())
        torch.zeros(1, device="cuda")
        self.comm = paceline.init(timeout=60)
        if self.comm.size > torch.cuda.device_count():
            raise SystemExit(f"{self.comm.size} ranks need as many GPUs: here are {torch.cuda.device_count()}")
        self.stream = torch.cuda.Stream()
        self._check = Check(elements, self.comm.rank, self.comm.size)
        self.peers: list[Peer] = [Paceline(self.comm, elements)]
        for name in peers:
            for make in _MAKERS[name]:
                with self._agreed(name) as outcome:
                    peer = make(self.comm, elements)
                if outcome.good:
                    self.peers.append(peer)
        self.sizes = [nbytes for nbytes in sizes if self._fits(nbytes)]
        self.buffers = {}
        for peer in self.peers:
            with self._agreed(peer.name) as outcome:
                self.buffers[peer.name] = peer.buffers(max(self.sizes))
        self.peers = [peer for peer in self.peers if peer.name in self.buffers]
        torch.cuda.synchronize()

    def say(self, text: str) -> None:
        if self.comm.rank == 0:
            print(text, flush=True)

    def agree(self, value: float) -> float:
        """The largest of all ranks' values."""
        values = np.array([value], np.float64)
        self.comm.all_reduce(values, op="max")
        return float(values[0])

    def rows(self, collective: str, nbytes: int, mode: str) -> list[dict[str, Any]]:
        """A row for each peer that does this."""
        runs = {}
        for peer in self.peers:
            if not peer.takes(collective, nbytes):
                continue
            with self._agreed(f"{peer.name}, {collective} of {nbytes} bytes") as outcome:
                run = self._prepare(peer, collective, nbytes, mode)
            if outcome.good:
                runs[peer.name] = run
            elif peer is self.peers[0]:
                raise Failure(f"Paceline cannot do {collective} of {nbytes} bytes in mode {mode}")
        times: dict[str, list[float]] = {name: [] for name in runs}
        for round_number in range(ROUNDS + 1):  # the first warms up
            for name, run in runs.items():
                time = self._time(run, nbytes)
                if round_number:
                    times[name].append(time)
        right = {peer.name: self._is_right(peer, collective, nbytes) for peer in self.peers if peer.name in runs}
        if not right["paceline"]:
            raise Failure(f"Paceline's {collective} of {nbytes} bytes is wrong in mode {mode}")
        ours = times.pop("paceline")
        rows = [self._row(collective, nbytes, mode, ours, name, times[name], right[name]) for name in times]
        shown = "  ".join(
            f"{row['peer']} {row['peer_us']:.2f} ({row['ratio']:.2f}{'' if row['peer_right'] else ', WRONG'})"
            for row in rows
        )
        middle = statistics.median(ours)
        busbw = self._busbw(collective, nbytes, middle)
        self.say(f"{mode:5} {collective:14} {nbytes:>10}  {middle:9.2f} us {busbw:6.1f} GB/s   {shown}")
        return rows

    def _fits(self, nbytes: int) -> bool:
        """Whether there is memory for it: input and output, plain and registered, symmetric, and room beside them."""
        free = -self.agree(-torch.cuda.mem_get_info()[0])
        if 6 * nbytes + (4 << 30) <= free:
            return True
        self.say(f"# {nbytes} bytes do not fit: {free / 1e9:.0f} GB of GPU memory are free")
        return False

    @contextmanager
    def _agreed(self, what: str) -> Iterator[_Outcome]:
        """Something that may fail on a rank: it is good only if it went well on all."""
        outcome = _Outcome()
        trouble: Exception | None = None
        try:
            yield outcome
        except Exception as error:  # a library may raise whatever it likes
            trouble = error
            print(f"# rank {self.comm.rank}: {what}: {error}", file=sys.stderr, flush=True)
        outcome.good = self.agree(trouble is not None) == 0
        if not outcome.good:
            self.say(f"# left out: {what}")

    def _calls(self, nbytes: int) -> int:
        """So many that the ranks' different beginnings, some 50 us, are little of a round."""
        return 100 if nbytes <= 4 << 20 else 40 if nbytes <= 32 << 20 else 20 if nbytes <= 256 << 20 else 5

    def _enqueue(self, peer: Peer, collective: str, nbytes: int, calls: int) -> None:
        peer.enqueue(collective, self.buffers[peer.name], nbytes, self.stream.cuda_stream, calls)

    def _prepare(self, peer: Peer, collective: str, nbytes: int, mode: str) -> Callable[[], None]:
        """Something to be called that enqueues all calls of a round."""
        for _ in range(WARM_UP):
            with torch.cuda.stream(self.stream):
                self._enqueue(peer, collective, nbytes, 1)
            self.stream.synchronize()
            self.comm.barrier()
        calls = self._calls(nbytes)
        # A rank that has no part in a message has nothing that could be captured.
        if mode == "eager" or (collective == "send_recv" and self.comm.rank > 1):
            return lambda: self._enqueue(peer, collective, nbytes, calls)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self._enqueue(peer, collective, nbytes, calls)
        replay: Callable[[], None] = graph.replay
        return replay

    def _time(self, run: Callable[[], None], nbytes: int) -> float:
        """Microseconds of one call, of the slowest rank."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.comm.barrier()
        with torch.cuda.stream(self.stream):
            begin.record()
            run()
            end.record()
        end.synchronize()
        return self.agree(begin.elapsed_time(end) * 1000 / self._calls(nbytes))

    def _is_right(self, peer: Peer, collective: str, nbytes: int) -> bool:
        """One more call, on inputs whose results are exact."""
        comm, buffers = self.comm, self.buffers[peer.name]
        with torch.cuda.stream(self.stream):
            self._check.begin(collective, nbytes, buffers)
            self.stream.synchronize()
            comm.barrier()
            self._enqueue(peer, collective, nbytes, 1)
            wrong = self._check.wrong_elements(collective, nbytes, buffers)
        error = comm.get_async_error()
        if error is not None:
            raise error
        if wrong:
            print(f"# rank {comm.rank}: {peer.name}, {collective} of {nbytes} bytes: {wrong} elements are wrong")
        return self.agree(wrong) == 0

    def _busbw(self, collective: str, nbytes: int, microseconds: float) -> float:
        return nbytes / microseconds / 1000 * CALLS[collective].bus_factor(self.comm.size)

    def _row(
        self,
        collective: str,
        nbytes: int,
        mode: str,
        ours: list[float],
        name: str,
        theirs: list[float],
        right: bool,
    ) -> dict[str, Any]:
        middle = statistics.median(ours)
        return {
            "collective": collective,
            "bytes": nbytes,
            "mode": mode,
            "peer": name,
            "peer_us": statistics.median(theirs),
            "peer_us_min_max": [min(theirs), max(theirs)],
            "peer_right": right,
            "paceline_us": middle,
            "paceline_us_min_max": [min(ours), max(ours)],
            "ratio": statistics.median(theirs) / middle,
            "paceline_busbw_gbs": self._busbw(collective, nbytes, middle),
        }


class _Outcome:
    good = False
