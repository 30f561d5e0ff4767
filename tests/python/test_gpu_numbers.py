"""Long calls after so many short ones that the numbers of messages have gone half round since the last long one.

That takes more than an hour of calls, so the numbers are set in the windows, which are looked for in the GPUs' memory.
Needs two GPUs and torch. With PACELINE_GPU_DIRECT=off in the environment nothing works in another rank's buffers.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gpu_ranks import Rank, on_gpus
from gpu_tables import go_direct
from test_gpu_late import Gate

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("fewer than two GPUs", allow_module_level=True)

TIMEOUT = 3  # seconds
FAR = 0xA0000000  # messages
# As in cuda/memory/window.h: what a window begins with, and where `numbers` lie.
RANKS, ANNOUNCEMENTS, COPIES, NUMBERS_AT = 16, 256, 64, 167936
RANGE_START, RANGE_SIZE = 11, 12  # CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ..._SIZE
STEP = 2 << 20  # addresses of allocations
LARGEST = 64 << 30  # bytes of a range of addresses that is looked through

Words = npt.NDArray[np.uint32]


@functools.cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def ask(attribute: int, address: int) -> int:
    value = ctypes.c_uint64()
    failed = driver().cuPointerGetAttribute(ctypes.byref(value), attribute, ctypes.c_uint64(address))
    return 0 if failed else value.value


def allocations() -> Iterator[tuple[int, int]]:
    """Address and bytes of each on a GPU: the driver keeps ranges of the process's addresses for them."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        for address in range(-(-begin // STEP) * STEP, end, STEP) if end - begin <= LARGEST else ():
            if ask(RANGE_START, address) == address:
                yield address, ask(RANGE_SIZE, address)


def read(address: int, words: int) -> Words:
    into: Words = np.zeros(words, np.uint32)
    size = ctypes.c_size_t(into.nbytes)
    if driver().cuMemcpyDtoH_v2(ctypes.c_void_p(into.ctypes.data), ctypes.c_uint64(address), size):
        raise OSError(f"the memory at {address:#x} cannot be read")
    return into


def write(address: int, what: Words) -> None:
    size = ctypes.c_size_t(what.nbytes)
    assert driver().cuMemcpyHtoD_v2(ctypes.c_uint64(address), ctypes.c_void_p(what.ctypes.data), size) == 0


def window_of(rank: Rank) -> int:
    """It is the allocation on this GPU where all copies of the numbers are alike."""
    other = 1 - rank.rank
    found, looked_at = [], []
    for address, size in allocations():
        looked_at.append((hex(address), size))
        if size < 8 << 20:
            continue
        try:
            numbers = read(address + NUMBERS_AT, COPIES * RANKS * 2).reshape(COPIES, RANKS, 2)
        except OSError:  # mapped, but not for this GPU
            continue
        expected = np.zeros_like(numbers)
        expected[:, other] = numbers[0, other]
        if 0 < numbers[0, other].max() < 1000 and (numbers == expected).all():
            found.append(address)
    assert len(found) == 1, f"the window is not where, or not as, this test thinks: {looked_at}"
    return found[0]


def go_far(rank: Rank) -> None:
    """As if there had been FAR messages each way, the last of them short."""
    window, other = window_of(rank), 1 - rank.rank
    numbers = read(window + NUMBERS_AT, COPIES * RANKS * 2).reshape(COPIES, RANKS, 2)
    numbers[:, other] = FAR
    write(window + NUMBERS_AT, numbers)
    there = window + other * ANNOUNCEMENTS * 16
    announced = read(there, ANNOUNCEMENTS * 4).reshape(ANNOUNCEMENTS, 4)
    slots = np.arange(ANNOUNCEMENTS)
    announced[:, 0] = FAR - (FAR - slots) % ANNOUNCEMENTS
    write(there, announced)


def call_that_one_comes_to_late(
    rank: Rank, barrier: threading.Barrier, gates: list[Gate], call: Callable[[], object]
) -> None:
    call()
    rank.finish()
    go_direct(rank.comm)
    for _ in range(4):
        call()
        rank.finish()
    if os.environ.get("PACELINE_GPU_DIRECT") != "off":
        assert rank.comm.gpu_direct_calls() > 0
    barrier.wait(60)
    go_far(rank)
    barrier.wait(60)
    if rank.rank == 1:
        gates.append(Gate(rank.stream))
        call()
    barrier.wait(60)
    if rank.rank == 0:
        try:
            call()
            time.sleep(0.3)
            assert not rank.stream.query(), "it ended before the other rank came"
        finally:
            gates[0].open()
    rank.finish()


def test_a_collective_waits_for_a_rank_whose_words_are_of_long_ago() -> None:
    gates: list[Gate] = []

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.empty(8 << 20, device="cuda")
            call_that_one_comes_to_late(rank, barrier, gates, lambda: rank.comm.all_reduce(x.fill_(1.0 + rank.rank)))
            assert bool((x == 3).all())
        barrier.wait(60)

    on_gpus(2, body, timeout=TIMEOUT)


def test_a_sender_keeps_its_buffer_until_the_receiver_has_loaded_it() -> None:
    gates: list[Gate] = []

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with torch.cuda.stream(rank.stream):
            x = torch.empty(5_000_000, device="cuda")
            send, receive = lambda: rank.comm.send(x.fill_(1.0), 1), lambda: rank.comm.recv(x.fill_(0.0), 0)
            move = send if rank.rank == 0 else receive
            call_that_one_comes_to_late(rank, barrier, gates, move)
            if rank.rank == 0:
                x.fill_(42.0)
            rank.stream.synchronize()
            assert bool((x == (42 if rank.rank == 0 else 1)).all())
        barrier.wait(60)

    on_gpus(2, body, timeout=TIMEOUT)
