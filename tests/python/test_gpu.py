"""Collectives on GPU memory, against the host engine's results. Needs a GPU and torch; ranks may share a GPU."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import paceline
import pytest
from gpu_ranks import Rank, on_gpus
from paceline import _native
from paceline.cuda_driver import Stream
from paceline.datatypes import DATA_TYPES

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

COLLECTIVES = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"]
SIZES = [1, 2, 3, 5, 8, 31, 64, 1000, 4096, 65536, 70001, 262144, 524288, 600011, 1 << 20, 3000017]
LARGEST = 6 << 20
CASES = int(os.environ.get("PACELINE_GPU_CASES", "300"))
# On the host these fold in the order of the ranks, as the GPU does: the same bits also where sums round.
IN_ORDER = {"all_reduce": "one_shot", "reduce": "direct", "reduce_scatter": "direct"}
OFFSETS = [(0, 0), (0, 0), (0, 0), (8, 8), (4, 0), (0, 4), (1, 3)]
UNTOUCHED = 0xA5
# What an empty slot holds: src/cuda/memory/window.h.
BLANK = np.frombuffer(np.uint64(0xFFB1A9C57F8D2E63).tobytes(), np.uint8)
HALF_BLANK = np.frombuffer(np.uint64(0xFFB1A9C500000001).tobytes(), np.uint8)  # this, too, looks empty


def lengths(collective: str, ranks: int, is_root: bool) -> tuple[int, int]:
    """Input and output of a rank, in counts."""
    return {
        "all_reduce": (1, 1),
        "broadcast": (int(is_root), 1),
        "reduce": (1, int(is_root)),
        "all_gather": (1, ranks),
        "reduce_scatter": (ranks, 1),
        "gather": (1, ranks if is_root else 0),
        "scatter": (ranks if is_root else 0, 1),
        "all_to_all": (ranks, ranks),
    }[collective]


def in_place_offsets(collective: str, rank: int, is_root: bool) -> tuple[int, int]:
    """Where input and output begin in their one buffer, in counts."""
    if collective == "all_gather" or (collective == "gather" and is_root):
        return rank, 0
    if collective == "reduce_scatter" or (collective == "scatter" and is_root):
        return 0, rank
    return 0, 0


def one_case(rank: Rank, rng: random.Random, number: int, memory: tuple[Any, Any]) -> None:
    """A random call, the same on every rank, on host and GPU memory: the same bytes."""
    collective, kind = rng.choice(COLLECTIVES), DATA_TYPES[rng.choice(list(DATA_TYPES))]
    op, root = rng.randrange(5), rng.randrange(rank.ranks)
    count = max(1, min(rng.choice(SIZES), LARGEST // rank.ranks) // kind.size)
    working_in_place = rng.choice([0, 0, 0, -1, -1, rng.randrange(1 << rank.ranks)])  # a bit for each rank
    in_place, (shift_in, shift_out) = bool(working_in_place >> rank.rank & 1), rng.choice(OFFSETS)
    any_bits = rng.random() < 0.5 and op != 1
    is_root = rank.rank == root
    inputs, outputs = lengths(collective, rank.ranks, is_root)
    in_bytes, out_bytes = inputs * count * kind.size, outputs * count * kind.size
    numbers = np.random.default_rng([number, rank.rank])
    if any_bits:
        data = numbers.integers(0, 256, in_bytes, dtype=np.uint8)
        if rng.random() < 0.3:
            for i, word in enumerate(numbers.integers(0, max(1, in_bytes // 8), 6)):
                looks_empty = (BLANK, HALF_BLANK)[i % 2]
                data[word * 8 : word * 8 + 8] = looks_empty[: len(data[word * 8 : word * 8 + 8])]
    else:
        table = np.frombuffer(b"".join(kind.encode(v) for v in (0, 1, 2, 3)), np.uint8).reshape(4, kind.size)
        data = np.ascontiguousarray(table[numbers.integers(0, 2 if op == 1 else 4, inputs * count)].reshape(-1))

    expected = np.full(max(out_bytes, 1), UNTOUCHED, np.uint8)
    rank.comm.set_algorithm(IN_ORDER.get(collective))
    data_there = data if len(data) else np.zeros(1, np.uint8)
    rank.call(collective, data_there.ctypes.data, expected.ctypes.data, count, kind.number, op, root, None)
    rank.comm.set_algorithm(None)

    given, taken = memory
    with torch.cuda.stream(rank.stream):
        if in_place:
            first, second = in_place_offsets(collective, rank.rank, is_root)
            begin = shift_in + first * count * kind.size
            result = shift_in + second * count * kind.size
            given = taken
        else:
            begin, result = shift_in, shift_out
        taken[: max(in_bytes, out_bytes) + 256].fill_(UNTOUCHED)
        if in_bytes:
            given[begin : begin + in_bytes] = torch.from_numpy(data).cuda()
        send, recv = given.data_ptr() + begin, taken.data_ptr() + result
        rank.call(collective, send, recv, count, kind.number, op, root, rank.stream.cuda_stream)
        rank.finish()
        found = taken[result : result + out_bytes].cpu().numpy()
        after = taken[result + out_bytes : result + out_bytes + 16].cpu().numpy()
    what = f"{collective} {kind.name} op {op} count {count} root {root} at {shift_in}, {shift_out}"
    what += f", in place {working_in_place:#b}"
    assert np.array_equal(found, expected[:out_bytes]), f"rank {rank.rank}: {what}"
    assert in_place or (after == UNTOUCHED).all(), f"rank {rank.rank} wrote behind its output: {what}"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_calls_have_the_host_engines_bits(ranks: int) -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        rng = random.Random(ranks)
        memory = tuple(torch.empty(LARGEST + 4096, dtype=torch.uint8, device="cuda") for _ in range(2))
        for number in range(CASES):
            barrier.wait(60)
            one_case(rank, rng, number, memory)

    on_gpus(ranks, body)


def what_each_must_have(collective: str, inputs: list[Any], rank: int, root: int) -> Any:
    """What a rank must have, of inputs of which each is as long as all ranks' parts."""
    count = len(inputs[0]) // len(inputs)
    mine = slice(rank * count, (rank + 1) * count)
    if collective in ("all_reduce", "reduce"):
        return sum(inputs)[:count]
    if collective in ("all_gather", "gather"):
        return torch.cat([given[:count] for given in inputs])
    if collective == "reduce_scatter":
        return sum(inputs)[mine]
    if collective == "all_to_all":
        return torch.cat([given[mine] for given in inputs])
    return inputs[root][mine if collective == "scatter" else slice(count)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_long_calls_are_exact_while_buffers_become_known(ranks: int) -> None:
    """The first goes through the window, later ones from buffer to buffer; then memory is freed and used again."""

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        count = 12 << 18  # of float32: 12 MB
        index = torch.arange(ranks * count, device="cuda")

        def value(of: int, number: int) -> Any:
            return ((index * 7 + of * 31 + number) % 97).to(torch.float32)

        number = 0
        for collective in COLLECTIVES:
            for root in (0, ranks - 1):
                given, taken = lengths(collective, ranks, rank.rank == root)
                for in_place in (0, -1, 0b1):  # a bit for each rank
                    barrier.wait(60)
                    buffer = torch.empty(2 * ranks * count, device="cuda")
                    for _ in range(3):
                        number += 1
                        first, second = in_place_offsets(collective, rank.rank, rank.rank == root)
                        if not in_place >> rank.rank & 1:
                            first, second = 0, ranks
                        buffer.fill_(-1)
                        begin, result = buffer[first * count :], buffer[second * count :]
                        begin[: given * count] = value(rank.rank, number)[: given * count]
                        torch.cuda.current_stream().synchronize()
                        stream = rank.stream.cuda_stream
                        rank.call(collective, begin.data_ptr(), result.data_ptr(), count, 7, 0, root, stream)
                        rank.finish()
                        everyone = [value(r, number) for r in range(ranks)]
                        expected = what_each_must_have(collective, everyone, rank.rank, root)
                        what = f"{collective} root {root} in place {in_place:#b} number {number} rank {rank.rank}"
                        assert torch.equal(result[: taken * count], expected[: taken * count]), what

    on_gpus(ranks, body)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_calls_of_more_than_a_gigabyte_go_one_way_in_all_blocks(ranks: int) -> None:
    """A second kernel does what the first, which has fewer blocks, could not: all of it or nothing."""

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        def check(memory: Any) -> None:
            with torch.cuda.stream(rank.stream):
                memory.fill_(rank.rank + 1)
                rank.comm.all_reduce(memory)
            rank.finish()
            right = ranks * (ranks + 1) / 2
            assert memory.min().item() == memory.max().item() == right

        def begin() -> tuple[Any, Any]:
            barrier.wait(60)
            return torch.empty(4 << 20, device="cuda"), torch.empty((1 << 28) + 4, device="cuda")

        for _ in range(2):
            short, long = begin()
            for _ in range(4):  # until all know the memory
                check(long)
            for _ in range(4):
                check(short)
            long = None
            torch.cuda.empty_cache()

    on_gpus(ranks, body)


@pytest.mark.parametrize("ranks", [3, 4])
def test_sums_on_their_way_to_the_root_may_look_like_an_empty_slot(ranks: int) -> None:
    """Of reduces passed on by strips: they are vouched for, and short calls after them find all slots empty."""
    count, kind = 600_011, DATA_TYPES["int64"]
    blank = int(BLANK.view(np.int64)[0])

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        mine = torch.arange(count, device="cuda") % ranks == rank.rank
        given, taken = mine * blank, torch.empty(count, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        barrier.wait(60)
        stream = rank.stream.cuda_stream
        for root in (*range(ranks), 0):
            with torch.cuda.stream(rank.stream):
                taken.fill_(7)
            rank.call("reduce", given.data_ptr(), taken.data_ptr(), count, kind.number, 0, root, stream)
            rank.finish()
            assert (taken == (blank if rank.rank == root else 7)).all(), f"rank {rank.rank}, root {root}"
            rank.call("all_reduce", given.data_ptr(), taken.data_ptr(), 70_001, kind.number, 0, 0, stream)
            rank.finish()
            assert (taken[:70_001] == blank).all(), f"rank {rank.rank}, after root {root}"

    on_gpus(ranks, body)


def test_a_stream_may_be_gone_before_the_next_call() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        x = torch.ones(100_000, device="cuda")
        torch.cuda.current_stream().synchronize()
        for _ in range(20):
            stream = Stream()
            if rank.rank == 0:
                time.sleep(0.001)  # the others' kernels are still waiting when their stream goes
            rank.call("all_reduce", x.data_ptr(), x.data_ptr(), x.numel(), 7, 2, 0, stream.handle)
            stream.close()
        with torch.cuda.stream(rank.stream):
            rank.comm.all_reduce(x, op="max")
        rank.finish()
        assert bool((x == 1).all())

    on_gpus(2, body)


def test_a_graph_is_replayed_among_eager_calls() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        x = torch.ones(1000, device="cuda")
        y = torch.zeros(1000, device="cuda")
        z = torch.zeros(1000, device="cuda")
        torch.cuda.current_stream().synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=rank.stream, capture_error_mode="thread_local"):
            for _ in range(10):
                rank.comm.all_reduce(x, out=y)
        barrier.wait(60)
        with torch.cuda.stream(rank.stream):
            for _ in range(20):
                graph.replay()
                rank.comm.all_reduce(x, out=z)
        rank.finish()
        assert bool((y == rank.ranks).all()) and bool((z == rank.ranks).all())

    on_gpus(2, body)


def test_what_goes_through_host_memory_is_in_no_graph_also_where_it_reads_nothing() -> None:
    ranks = 17  # more than the engine takes
    one_by_one = (
        threading.Lock()
    )  # torch waits for the whole GPU first, which CUDA refuses while another thread captures

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        x = torch.full((1000,), float(rank.rank), device="cuda")
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(rank.stream):
            rank.comm.broadcast(x, root=1)
        assert not rank.comm.gpus_direct()
        assert bool((x == 1).all())
        barrier.wait(60)
        graph = torch.cuda.CUDAGraph()
        with (
            one_by_one,
            pytest.raises(paceline.InvalidUsage, match="cannot be captured into a graph"),
            torch.cuda.graph(graph, stream=rank.stream, capture_error_mode="thread_local"),
        ):
            rank.comm.broadcast(x)
        barrier.wait(60)
        with torch.cuda.stream(rank.stream):
            rank.comm.all_reduce(x)
        assert bool((x == ranks).all())

    on_gpus(ranks, body)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_buffer_on_another_gpu_is_refused_unless_the_stream_is_of_the_communicators() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        other = 1 - rank.rank
        x = torch.ones(1000, device=f"cuda:{other}")
        torch.cuda.synchronize(other)
        refused = rf"in the memory of GPU {other}, but rank {rank.rank} uses GPU {rank.rank}"
        with pytest.raises(paceline.InvalidArgument, match=refused):
            rank.comm.all_reduce(x)
        with pytest.raises(paceline.InvalidArgument, match=refused), torch.cuda.stream(torch.cuda.Stream(other)):
            rank.comm.all_reduce(x)
        barrier.wait(60)
        rank.call("all_reduce", x.data_ptr(), x.data_ptr(), x.numel(), 7, 0, 0, rank.stream.cuda_stream)
        rank.finish()
        assert bool((x == 2).all())

    on_gpus(2, body)


def test_a_host_stream_is_refused() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        x = torch.ones(1000, device="cuda")
        stream = ctypes.c_void_p()
        assert _native.library().paceHostStreamCreate(ctypes.byref(stream)) == 0
        with pytest.raises(RuntimeError, match="`stream` is a paceHostStream_t, which is for host buffers"):
            rank.call("all_reduce", x.data_ptr(), x.data_ptr(), x.numel(), 7, 0, 0, stream)
        assert _native.library().paceHostStreamDestroy(stream) == 0

    on_gpus(1, body)


def test_a_group_that_fails_ends_the_communicators_whose_calls_it_does_not_make() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        failing, on_gpu, on_host = (rank.comm.split(0) for _ in range(3))
        assert failing is not None and on_gpu is not None and on_host is not None
        x, there = torch.ones(1000, device="cuda"), np.ones(10)
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(rank.stream):
            if rank.rank == 0:
                failing.abort()
                with pytest.raises(paceline.Aborted), paceline.group():
                    on_host.all_reduce(there)
                    failing.all_reduce(x)
                    on_gpu.all_reduce(x)
            else:
                with pytest.raises(paceline.RemoteError, match="broke off its group of calls"):
                    on_host.all_reduce(there)
                with pytest.raises(paceline.RemoteError, match="broke off its group of calls"):
                    on_gpu.all_reduce(x)
                    rank.stream.synchronize()
                    on_gpu.barrier()
        for made in (failing, on_gpu, on_host):
            made.close()

    on_gpus(2, body)


def test_calls_on_two_streams_keep_their_order() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        other = torch.cuda.Stream()
        with torch.cuda.stream(rank.stream):
            x = torch.ones(100000, device="cuda")
        rank.stream.synchronize()
        for _ in range(50):
            for stream in (rank.stream, other):
                with torch.cuda.stream(stream):
                    rank.comm.all_reduce(x, op="max")
        other.synchronize()
        rank.finish()
        assert bool((x == 1).all())

    on_gpus(2, body)


def test_several_communicators_at_once_on_streams_of_their_own() -> None:
    def body(rank: Rank, barrier: threading.Barrier) -> None:
        split = [rank.comm.split(0, sign * rank.rank) for sign in (1, -1)]
        comms = [rank.comm, *(comm for comm in split if comm is not None)]
        streams = [rank.stream, torch.cuda.Stream(), torch.cuda.Stream()]
        counts = [3, 70001, 3000017]  # one for each family of kernels
        inputs = [torch.full((count,), float(rank.rank + 1), device="cuda") for count in counts]
        outputs = [torch.zeros(count, device="cuda") for count in counts]
        torch.cuda.current_stream().synchronize()
        for number in range(60):
            for index in (number % 3, (number + 1) % 3, (number + 2) % 3):
                with torch.cuda.stream(streams[index]):
                    comms[index].all_reduce(inputs[index], out=outputs[index])
        for comm, stream, output in zip(comms, streams, outputs):
            stream.synchronize()
            error = comm.get_async_error()
            assert error is None, error
            assert bool((output == rank.ranks * (rank.ranks + 1) / 2).all())
        barrier.wait(60)
        for comm in comms[1:]:
            comm.close()

    on_gpus(min(4, max(2, torch.cuda.device_count())), body)


def test_one_thread_with_several_gpus() -> None:
    ranks = max(2, torch.cuda.device_count())
    devices = [rank % torch.cuda.device_count() for rank in range(ranks)]
    comms = paceline.init_all(devices)
    for count in (1, 5000, 3000000):
        streams = [torch.cuda.Stream(device) for device in devices]
        inputs, outputs = [], []
        for rank, (device, stream) in enumerate(zip(devices, streams)):
            with torch.cuda.device(device), torch.cuda.stream(stream):
                inputs.append(torch.full((count,), float(rank + 1), device="cuda"))
                outputs.append(torch.zeros(ranks * count, device="cuda"))
        with paceline.group():
            for comm, stream, given, taken in zip(comms, streams, inputs, outputs):
                with torch.cuda.stream(stream):
                    comm.all_gather(given, out=taken)
        with paceline.group():
            for comm, stream, given in zip(comms, streams, inputs):
                with torch.cuda.stream(stream):
                    comm.all_reduce(given)
        right = torch.arange(1.0, ranks + 1).repeat_interleave(count)
        for comm, stream, given, taken in zip(comms, streams, inputs, outputs):
            stream.synchronize()
            assert comm.get_async_error() is None
            assert torch.equal(taken.cpu(), right)
            assert bool((given == ranks * (ranks + 1) / 2).all())
    for comm in comms:
        comm.close()


def test_a_thread_that_never_chose_a_gpu_gets_no_context_on_gpu_0() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("fewer than two GPUs")
    program = textwrap.dedent("""
        import ctypes, threading, paceline, torch
        torch.cuda.set_device(1)
        x = torch.ones(1000, device="cuda")
        comm = paceline.init(rank=0, size=1, unique_id=paceline.unique_id())
        driver = ctypes.CDLL("libcuda.so.1")

        def has_context(gpu):
            flags, active = ctypes.c_uint(), ctypes.c_int()
            assert driver.cuDevicePrimaryCtxGetState(gpu, ctypes.byref(flags), ctypes.byref(active)) == 0
            return bool(active.value)

        errors = []

        def call():
            try:
                for _ in range(3):
                    comm.all_reduce(x)
                    assert torch.cuda.current_device() == 0
                context = ctypes.c_void_p()
                assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
                assert not context.value, "the thread had none"
            except BaseException as error:
                errors.append(error)

        assert not has_context(0)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        torch.cuda.synchronize()
        assert not errors, errors
        comm.close()
        assert has_context(1) and not has_context(0)
    """)
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
