#!/usr/bin/env python3
"""Compare Paceline with other libraries on this machine's GPUs: one run, interleaved, timed the same way.

    python bench/compare_gpu.py --gpus 2 --json gpu.json

For each collective, size and mode every library takes its turn, three rounds of them. In mode `graph` a CUDA graph of
many calls is replayed; in mode `eager` the calls are made one by one. A round's figure is the slowest rank's time
between two events, divided by the number of calls; shown is the median over rounds, with minimum and maximum. The last
result is checked exactly. Ratio = the fastest peer's time divided by Paceline's: above 1 Paceline is faster.

NVLink multicast is left off in all libraries (NCCL_NVLS_ENABLE=0 and the like).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WITHOUT_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
COLLECTIVES = [
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
]
SIZES = [8, 128, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 16 << 20, 128 << 20, 1 << 30]
ROUNDS = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes")
    parser.add_argument("--modes", default="graph,eager")
    parser.add_argument("--peers", default="nccl,windows,symmetric", help="also door: Paceline's libnccl.so.2")
    parser.add_argument("--json", metavar="F")
    parser.add_argument("--plot", metavar="F")
    return parser.parse_args()


def bus_factor(collective: str, ranks: int) -> float:
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (
        (ranks - 1) / ranks if collective in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1
    )


class Rank:
    """One rank's part of the comparison."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        import paceline
        import torch
        from peers_gpu import Door, Nccl, Paceline, SymmetricMemory, Unavailable

        self.torch, self.unavailable = torch, Unavailable
        local = int(os.environ.get("PACELINE_RANK", "0"))
        torch.cuda.set_device(local % torch.cuda.device_count())
        torch.zeros(1, device="cuda")
        self.comm = paceline.init(timeout=60)
        self.peers: list[Any] = [Paceline(self.comm)]
        makers: dict[str, Callable[[], Any]] = {
            "nccl": lambda: Nccl(self.comm, False),
            "windows": lambda: Nccl(self.comm, True),
            "symmetric": lambda: SymmetricMemory(self.comm),
            "door": lambda: Door(self.comm),
        }
        for name in filter(None, chosen.peers.split(",")):
            try:
                self.peers.append(makers[name]())
            except (Unavailable, RuntimeError) as error:
                self.say(f"{name}: {error}")
        self.stream = torch.cuda.Stream()
        largest = max(map(int, chosen.sizes.split(",")))
        self.buffers = {peer.name: peer.buffers(largest) for peer in self.peers}

    def say(self, text: str) -> None:
        if self.comm.rank == 0:
            print(text, flush=True)

    def calls(self, nbytes: int) -> int:
        return 100 if nbytes <= 1 << 20 else 20 if nbytes <= 32 << 20 else 5

    def prepare(self, peer: Any, collective: str, nbytes: int, mode: str) -> Any:
        """Something to be called that enqueues all calls of a round; None where the library does not do it."""
        torch, buffers = self.torch, self.buffers[peer.name]

        def enqueue(calls: int) -> None:
            for _ in range(calls):
                peer.enqueue(collective, buffers, nbytes, self.stream.cuda_stream)

        try:
            with torch.cuda.stream(self.stream):
                enqueue(2)
            self.stream.synchronize()
            if mode == "eager":
                return lambda: enqueue(self.calls(nbytes))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                enqueue(self.calls(nbytes))
            return graph.replay
        except self.unavailable:
            return None

    def time(self, run: Any, nbytes: int) -> float:
        """Microseconds of one call, of the slowest rank."""
        import numpy as np

        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.comm.barrier()
        with torch.cuda.stream(self.stream):
            begin.record()
            run()
            end.record()
        end.synchronize()
        times = np.array([begin.elapsed_time(end) * 1000 / self.calls(nbytes)])
        self.comm.all_reduce(times, op="max")
        return float(times[0])

    def rows(self, collective: str, nbytes: int, mode: str) -> list[dict[str, Any]]:
        runs = {peer.name: self.prepare(peer, collective, nbytes, mode) for peer in self.peers}
        runs = {name: run for name, run in runs.items() if run is not None}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for round_number in range(ROUNDS + 1):  # the first warms up
            for name, run in runs.items():
                time = self.time(run, nbytes)
                if round_number:
                    times[name].append(time)
        self.check(collective, nbytes)
        ours = times.pop("paceline")
        middle = statistics.median(ours)
        busbw = nbytes / middle / 1000 * bus_factor(collective, self.comm.size)
        rows = []
        for name, theirs in times.items():
            rows.append(
                {
                    "collective": collective,
                    "bytes": nbytes,
                    "mode": mode,
                    "peer": name,
                    "peer_us": statistics.median(theirs),
                    "peer_us_min_max": [min(theirs), max(theirs)],
                    "paceline_us": middle,
                    "paceline_us_min_max": [min(ours), max(ours)],
                    "ratio": statistics.median(theirs) / middle,
                    "paceline_busbw_gbs": busbw,
                }
            )
        shown = "  ".join(f"{row['peer']} {row['peer_us']:.2f} ({row['ratio']:.2f})" for row in rows)
        self.say(f"{collective:14} {nbytes:>10} {mode:5}  {middle:9.2f} us {busbw:6.1f} GB/s   {shown}")
        return rows

    def check(self, collective: str, nbytes: int) -> None:
        """Paceline's result, from inputs whose sums are exact."""
        torch, comm = self.torch, self.comm
        peer, buffers = self.peers[0], self.buffers["paceline"]
        elements = max(1, nbytes // 4)
        index = torch.arange(elements, device="cuda", dtype=torch.int64)

        def contribution(rank: int) -> Any:
            return ((index * 7 + rank * 31) % 97).to(torch.float32)

        buffers.send[:elements] = contribution(comm.rank)
        buffers.recv[:elements] = -1
        torch.cuda.synchronize()
        comm.barrier()
        peer.enqueue(collective, buffers, nbytes, self.stream.cuda_stream)
        self.stream.synchronize()
        error = comm.get_async_error()
        if error is not None:
            raise error
        from peers_gpu import counts

        n, part = comm.size, counts(collective, nbytes, comm.size)
        total = sum(contribution(rank) for rank in range(n))
        mine = slice(comm.rank * part, (comm.rank + 1) * part)
        found = buffers.recv
        good = True
        if collective == "all_reduce" or (collective == "reduce" and comm.rank == 0):
            good = torch.equal(found[:elements], total)
        elif collective in ("broadcast", "send_recv") and comm.rank == 1:
            good = torch.equal(found[:elements], contribution(0))
        elif collective == "reduce_scatter":
            good = torch.equal(found[:part], total[mine])
        elif collective == "scatter":
            good = torch.equal(found[:part], contribution(0)[mine])
        elif collective == "all_gather" or (collective == "gather" and comm.rank == 0):
            good = all(torch.equal(found[r * part : (r + 1) * part], contribution(r)[:part]) for r in range(n))
        elif collective == "all_to_all":
            good = all(torch.equal(found[r * part : (r + 1) * part], contribution(r)[mine]) for r in range(n))
        if not good:
            raise SystemExit(f"rank {comm.rank}: {collective} of {nbytes} bytes is wrong")


def main() -> int:
    chosen = arguments()
    if "PACELINE_RANK" not in os.environ:
        command = [sys.executable, "-m", "paceline", "run", "-n", str(chosen.gpus), "--", sys.executable, *sys.argv]
        return subprocess.call(command, env={**os.environ, **WITHOUT_MULTICAST})
    rank = Rank(chosen)
    rows: list[dict[str, Any]] = []
    for collective in chosen.collectives.split(","):
        for mode in chosen.modes.split(","):
            for nbytes in map(int, chosen.sizes.split(",")):
                rows += rank.rows(collective, nbytes, mode)
                if chosen.json and rank.comm.rank == 0:
                    Path(chosen.json).write_text(json.dumps({"gpus": chosen.gpus, "rows": rows}, indent=1))
    if chosen.plot and rank.comm.rank == 0:
        plot(rows, chosen.plot)
    rank.comm.barrier()
    os._exit(0)  # the peers' own endings are not of interest


def plot(rows: list[dict[str, Any]], path: str) -> None:
    import matplotlib.pyplot as plt

    collectives = list(dict.fromkeys(row["collective"] for row in rows))
    figure, axes = plt.subplots(len(collectives), 1, figsize=(7, 3 * len(collectives)), squeeze=False)
    for axis, collective in zip(axes[:, 0], collectives, strict=True):
        mine = [row for row in rows if row["collective"] == collective and row["mode"] == "graph"]
        for peer in dict.fromkeys(row["peer"] for row in mine):
            points = [(row["bytes"], row["ratio"]) for row in mine if row["peer"] == peer]
            axis.plot(*zip(*points, strict=True), marker="o", label=f"against {peer}")
        axis.axhline(1, color="grey", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_title(f"{collective}: time of the peer / time of Paceline, in graphs")
        axis.set_xlabel("bytes")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(main())
