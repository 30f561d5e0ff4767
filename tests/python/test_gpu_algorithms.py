"""Every algorithm of the table on GPU memory: forced, it gives the exact result, eagerly and in graphs.

Needs a GPU and torch; ranks may share a GPU, up to four. Run alone: pytest tests/python/test_gpu_algorithms.py
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paceline
import pytest
from gpu_ranks import Rank, on_gpus
from paceline import _native
from paceline.datatypes import DATA_TYPES

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

from test_gpu import UNTOUCHED, in_place_offsets, lengths  # noqa: E402

SUM, AVG = 0, 4
FLOAT32, FLOAT16, INT64, UINT8 = (DATA_TYPES[name] for name in ("float32", "float16", "int64", "uint8"))
# Elements, type, and where send and receive buffers begin, bytes from a multiple of 256.
SHAPES = [
    (1, FLOAT32, 0, 0),
    (1001, UINT8, 1, 3),
    (4099, INT64, 0, 8),
    (70001, FLOAT32, 0, 4),
    (1 << 18, FLOAT32, 0, 0),
]
LARGEST = 24 << 20
TABLE = json.loads(_native.library().paceDescribe(b"algorithms"))
GPUS = torch.cuda.device_count()


def algorithms_of(collective: str) -> list[str]:
    return [row["name"] for row in TABLE if collective in row["collectives"] and not row["topology"]]


def value(rank: int, index: Any) -> Any:
    """Whole numbers, small enough that sums of them are exact in every type."""
    return (rank * 5 + index * 3 + index // 251) % 8


def expected(collective: str, rank: int, ranks: int, count: int, root: int) -> Any:
    begin = rank * count if collective in ("reduce_scatter", "scatter", "all_to_all") else 0
    index = begin + np.arange(count)
    if collective in ("broadcast", "scatter"):
        return value(root, index)
    from_all = [value(r, index) for r in range(ranks)]
    return sum(from_all) if "reduce" in collective else np.concatenate(from_all)


def encode(values: Any, kind: Any) -> Any:
    """The elements' bytes."""
    table = np.frombuffer(b"".join(kind.encode(v) for v in range(256)), np.uint8).reshape(256, kind.size)
    return np.ascontiguousarray(table[np.asarray(values)].reshape(-1))


class Call:
    """One collective on this rank's memory: what it reads, and what it must leave."""

    def __init__(self, rank: Rank, collective: str, root: int, shape: Any, in_place: bool, memory: Any) -> None:
        count, kind, shift_in, shift_out = shape
        self.rank, self.collective, self.root, self.count, self.kind = rank, collective, root, count, kind
        is_root = rank.rank == root
        inputs, outputs = lengths(collective, rank.ranks, is_root)
        self.data = torch.from_numpy(encode(value(rank.rank, np.arange(inputs * count)), kind)).cuda()
        self.result = expected(collective, rank.rank, rank.ranks, count, root) if outputs else np.zeros(0, int)
        given, self.taken = memory
        self.begin, self.end = shift_in, shift_out
        if in_place:
            first, second = in_place_offsets(collective, rank.rank, is_root)
            given = self.taken
            self.begin, self.end = shift_in + first * count * kind.size, shift_in + second * count * kind.size
        self.given, self.in_place = given, in_place

    def prepare(self) -> None:
        """On the current stream."""
        reach = max(self.begin + len(self.data), self.end + len(self.result) * self.kind.size) + 64
        self.taken[:reach].fill_(UNTOUCHED)
        self.given[self.begin : self.begin + len(self.data)] = self.data

    def run(self, op: int = SUM) -> None:
        send, recv = self.given.data_ptr() + self.begin, self.taken.data_ptr() + self.end
        stream = self.rank.stream.cuda_stream
        self.rank.call(self.collective, send, recv, self.count, self.kind.number, op, self.root, stream)

    def check(self, what: str, divisor: int = 1) -> None:
        self.rank.finish()
        wanted = encode(self.result // divisor, self.kind)
        found = self.taken[self.end : self.end + len(wanted)].cpu().numpy()
        where = f"rank {self.rank.rank} of {self.rank.ranks}: {what}, root {self.root}, {self.count} elements"
        assert np.array_equal(found, wanted), f"{where}, in place {self.in_place}: wrong result"
        behind = self.taken[self.end + len(wanted) : self.end + len(wanted) + 16].cpu().numpy()
        assert self.in_place or (behind == UNTOUCHED).all(), f"{where}: wrote behind its output"


def calls(rank: Rank, collective: str, memory: Any) -> Iterator[Call]:
    roots = {0, rank.ranks - 1} if collective in ("broadcast", "reduce", "gather", "scatter") else {0}
    for shape in SHAPES:
        if shape[0] * shape[1].size * rank.ranks > LARGEST:
            continue
        for root in sorted(roots):
            for in_place in (False, True):
                yield Call(rank, collective, root, shape, in_place, memory)


def buffers() -> tuple[Any, Any]:
    one, other = (torch.empty(LARGEST + 4096, dtype=torch.uint8, device="cuda") for _ in range(2))
    return one, other


COLLECTIVES = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"]
RANKS = [n for n in (1, 2, 3, 4, 5, 8) if n <= 4 * GPUS]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_algorithm_is_exact(collective: str, ranks: int) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        memory = buffers()
        for name in algorithms_of(collective):
            rank.comm.set_algorithm(name)
            for call in calls(rank, collective, memory):
                barrier.wait(60)
                with torch.cuda.stream(rank.stream):
                    for _ in range(2):  # made, then found
                        call.prepare()
                        call.run()
                    call.check(name)

    on_gpus(ranks, body)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_algorithm_is_exact_in_graphs(collective: str) -> None:
    """Captured at its first call, replayed among calls of the chosen kernels, which share its numbers and chunks."""
    capturing = threading.Lock()

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        memory = buffers()
        for name in algorithms_of(collective):
            for count in (1000, 200003):
                call = Call(rank, collective, 0, (count, FLOAT32, 0, 0), False, memory)
                rank.comm.set_algorithm(name)
                graph = torch.cuda.CUDAGraph()
                # torch waits for the whole GPU first, which nobody may while another rank there captures.
                with capturing, torch.cuda.graph(graph, stream=rank.stream, capture_error_mode="thread_local"):
                    for _ in range(3):
                        call.run()
                rank.comm.set_algorithm(None)
                barrier.wait(60)
                with torch.cuda.stream(rank.stream):
                    for _ in range(4):
                        call.prepare()
                        graph.replay()
                        call.check(f"{name} replayed")
                        call.prepare()
                        call.run()
                        call.check(f"the chosen kernels after {name}")

    on_gpus(2 if GPUS == 1 else 4, body)


def test_averages_are_divided_as_on_the_host() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        memory = buffers()
        for collective in ("all_reduce", "reduce", "reduce_scatter"):
            for name in algorithms_of(collective):
                rank.comm.set_algorithm(name)
                call = Call(rank, collective, 0, (5003, INT64, 0, 0), False, memory)
                barrier.wait(60)
                with torch.cuda.stream(rank.stream):
                    call.prepare()
                    call.run(AVG)
                    call.check(f"average by {name}", rank.ranks)
                # Scaled by 1/n before they are added: exact where n is a power of two.
                half = Call(rank, collective, 0, (5003, FLOAT16, 0, 0), True, memory)
                half.result = half.result.astype(float) / rank.ranks
                with torch.cuda.stream(rank.stream):
                    half.prepare()
                    half.run(AVG)
                    rank.finish()
                    size = len(half.result) * 2
                    found = half.taken[half.end : half.end + size].cpu().numpy().view(np.float16)
                assert np.array_equal(found, half.result.astype(np.float16)), f"average of float16 by {name}"

    on_gpus(2, body)


def test_one_ranks_average_has_the_types_nan(comm: paceline.Communicator) -> None:
    """Also where nothing is folded: scaled, the number becomes the one NaN of its type, as on the host."""
    given = np.array([0x3C00, 0x7E01, 0xFFFF, 0x7C00], np.uint16).view(np.float16)
    comm.set_algorithm("ring")
    on_host, x = given.copy(), torch.from_numpy(given.copy()).cuda()
    comm.all_reduce(on_host, op="avg")
    comm.all_reduce(x, op="avg")
    torch.cuda.synchronize()
    assert x.cpu().numpy().view(np.uint16).tolist() == on_host.view(np.uint16).tolist()


def test_folds_have_the_host_engines_bits() -> None:
    """Random float32, whose sums round: the same schedule folds in the same order, with chunks of the same length."""

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        numbers = np.random.default_rng(rank.rank)
        for collective in ("all_reduce", "reduce", "reduce_scatter"):
            inputs, outputs = lengths(collective, rank.ranks, rank.rank == 0)
            count = 30011
            data = numbers.standard_normal(inputs * count).astype(np.float32)
            for name in algorithms_of(collective):
                if name == "knomial":  # its radix is chosen by what steps cost, on the host and on the GPU
                    continue
                rank.comm.set_algorithm(name)
                barrier.wait(60)
                wanted = np.zeros(max(outputs, 1) * count, np.float32)
                number = FLOAT32.number
                rank.call(collective, data.ctypes.data, wanted.ctypes.data, count, number, SUM, 0, None)
                with torch.cuda.stream(rank.stream):
                    given = torch.from_numpy(data).cuda()
                    taken = torch.zeros(max(outputs, 1) * count, device="cuda")
                    stream = rank.stream.cuda_stream
                    rank.call(collective, given.data_ptr(), taken.data_ptr(), count, number, SUM, 0, stream)
                    rank.finish()
                found = taken.cpu().numpy()
                if outputs:
                    assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32)), f"{collective} by {name}"

    on_gpus(3, body, chunk_bytes=4096)


def test_barriers_by_every_algorithm() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        for name in algorithms_of("barrier"):
            rank.comm.set_algorithm(name)
            for _ in range(10):
                rank.call("barrier", 0, 0, 0, UINT8.number, SUM, 0, rank.stream.cuda_stream)
            rank.finish()

    on_gpus(3 if GPUS == 1 else 4, body)


def assert_told(count: int, differ: Callable[[Rank, Any], None], why: str) -> None:
    """An all-reduce, begun after what makes the ranks differ, ends with this mismatch on both."""

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.ones(count, device="cuda")
            differ(rank, x)
            rank.comm.all_reduce(x)
            rank.stream.synchronize()
        barrier.wait(60)
        with pytest.raises(paceline.Mismatch, match=why):
            rank.comm.all_reduce(x)

    on_gpus(2, body)


def test_ranks_that_force_different_algorithms_are_told() -> None:
    def differ(rank: Rank, _: Any) -> None:
        rank.comm.set_algorithm(["one_shot", None][rank.rank])

    assert_told(1000, differ, "force the same algorithm")


def test_ranks_that_force_different_chunks_are_told() -> None:
    """Also where they had the same ones in a call of this shape before."""

    def differ(rank: Rank, x: Any) -> None:
        rank.comm.set_algorithm("ring chunk=262144")
        rank.comm.all_reduce(x)
        rank.finish()
        if rank.rank == 1:
            rank.comm.set_algorithm("ring chunk=131072")

    assert_told(1 << 18, differ, "different algorithms, chunks or radices")


def test_a_rank_that_never_comes_to_a_schedule_is_named() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        rank.comm.set_algorithm("ring")
        if rank.rank == 0:
            with torch.cuda.stream(rank.stream):
                x = torch.ones(1000, device="cuda")
                rank.comm.all_reduce(x)
                with pytest.raises(paceline.Timeout, match=r"rank 1 .* did not come to all-reduce"):
                    rank.finish()
        barrier.wait(60)

    on_gpus(2, body, timeout=1)
