"""Calls from buffer to buffer whose parts or buffers begin or end anywhere. Needs a GPU and torch."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from gpu_ranks import Rank, on_gpus
from gpu_tables import go_direct
from paceline.datatypes import DATA_TYPES
from test_gpu import COLLECTIVES, lengths, what_each_must_have

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

LOOKS = 4  # calls until all ranks know a buffer
COUNTS = (40, 6143, 299_993)  # elements
TYPES = {"uint8": torch.uint8, "bfloat16": torch.bfloat16, "float32": torch.float32, "int64": torch.int64}
UNTOUCHED = 0xA5


def places(shift: str, rank: int, element_bytes: int) -> tuple[int, int]:
    """Where input and output begin behind a multiple of 16, bytes."""
    return {
        "none": (0, 0),
        "alike": (element_bytes, 2 * element_bytes % 16),
        "inputs": (rank * element_bytes % 16, 0),
        "outputs": (0, rank * element_bytes % 16),
        "within elements": (1, element_bytes // 2),
    }[shift]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", TYPES)
def test_uneven_calls_are_exact_and_go_direct_where_outputs_lie_alike(name: str, ranks: int) -> None:
    kind, size = TYPES[name], DATA_TYPES[name].size

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        room = ranks * max(COUNTS) * size + 64
        memory = [torch.empty(room, dtype=torch.uint8, device="cuda") for _ in range(2)]
        assert all(buffer.data_ptr() % 16 == 0 for buffer in memory)
        index = torch.arange(ranks * max(COUNTS), device="cuda")
        with torch.cuda.stream(rank.stream):
            rank.comm.all_reduce(torch.ones(1, device="cuda"))  # connects the GPUs
        rank.finish()
        go_direct(rank.comm)

        def input_of(other: int, count: int) -> Any:
            return ((index[: ranks * count] * 7 + other * 31) % 23).to(kind)

        shifts = ("none", "alike", "inputs", "outputs", "within elements")
        for collective, count, shift in itertools.product(COLLECTIVES, COUNTS, shifts):
            if shift == "within elements" and size == 1:
                continue
            root = count % ranks
            given, taken = lengths(collective, ranks, rank.rank == root)
            everyone = [input_of(other, count) for other in range(ranks)]
            expected = what_each_must_have(collective, everyone, rank.rank, root).contiguous().view(torch.uint8)
            if not taken:
                expected = expected[:0]
            begin, result = places(shift, rank.rank, size)
            data = everyone[rank.rank][: given * count].view(torch.uint8)
            before = rank.comm.gpu_direct_calls()
            for number in range(LOOKS):
                barrier.wait(60)
                memory[1].fill_(UNTOUCHED)
                memory[0][begin : begin + len(data)] = data
                torch.cuda.current_stream().synchronize()
                send, recv = (buffer.data_ptr() + at for buffer, at in zip(memory, (begin, result), strict=True))
                stream = rank.stream.cuda_stream
                rank.call(collective, send, recv, count, DATA_TYPES[name].number, 0, root, stream)
                rank.finish()
                what = f"{collective} of {count}, {shift} shifted, root {root}, call {number}, rank {rank.rank}"
                found = memory[1]
                assert torch.equal(found[result : result + len(expected)], expected), what
                assert bool((found[:result] == UNTOUCHED).all()), f"wrote before its output: {what}"
                assert bool((found[result + len(expected) :] == UNTOUCHED).all()), f"wrote behind it: {what}"
            with_output = [other for other in range(ranks) if lengths(collective, ranks, other == root)[1]]
            alike = len({places(shift, other, size)[1] for other in with_output}) == 1
            reduces = collective in ("all_reduce", "reduce", "reduce_scatter")
            whole = not reduces or places(shift, 0, size)[1] % size == 0
            went = rank.comm.gpu_direct_calls() > before
            assert went == (alike and whole), f"{'direct' if went else 'through the window'}: {what}"

    on_gpus(ranks, body)
