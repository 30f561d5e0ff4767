"""Folds of two ranks' narrow floats: every pair of 8-bit codes, and of each 16-bit code with many; the host's bits.

Short calls and long ones, which fold in other kernels. Needs two GPUs and torch.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pytest
from gpu_ranks import Rank, on_gpus
from paceline.datatypes import DATA_TYPES, OPERATIONS

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("fewer than two GPUs", allow_module_level=True)

SHORT, LONG = 1 << 20, 32 << 20  # bytes
CODES = 1 << 16


def inputs(rank: int, element_bytes: int, nbytes: int) -> npt.NDArray[np.uint8]:
    if element_bytes == 1:
        pair = np.arange(nbytes, dtype=np.uint32) % CODES
        return (pair >> 8 * rank).astype(np.uint8)
    code = np.arange(nbytes // 2, dtype=np.uint32) % CODES
    if rank == 1:  # the same number, its like with the other sign, their neighbours, and any
        shifts = np.random.default_rng(1).integers(0, CODES, nbytes // 2 // CODES, dtype=np.uint32)
        shifts[:6] = 0, 1, CODES - 1, CODES // 2, CODES // 2 + 1, CODES // 2 - 1
        code += np.repeat(shifts, CODES)
    return code.astype(np.uint16).view(np.uint8)


@pytest.mark.parametrize("nbytes", [SHORT, LONG])
@pytest.mark.parametrize("name", ["float8e4m3", "float8e5m2", "float16", "bfloat16"])
def test_every_pair_has_the_host_engines_bits(name: str, nbytes: int) -> None:
    kind = DATA_TYPES[name]

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        data = inputs(rank.rank, kind.size, nbytes)
        given, taken = torch.from_numpy(data).cuda(), torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        count = nbytes // kind.size
        for op, number in OPERATIONS.items():
            expected = np.empty_like(data)
            rank.comm.set_algorithm("one_shot")
            rank.call("all_reduce", data.ctypes.data, expected.ctypes.data, count, kind.number, number, 0, None)
            rank.comm.set_algorithm(None)
            for _ in range(4):  # until it goes direct
                barrier.wait(60)
                taken.fill_(0)
                torch.cuda.synchronize()
                stream = rank.stream.cuda_stream
                rank.call("all_reduce", given.data_ptr(), taken.data_ptr(), count, kind.number, number, 0, stream)
                rank.finish()
                different = np.flatnonzero(taken.cpu().numpy() != expected) // kind.size
                found, wanted = (a.view(f"u{kind.size}") for a in (taken.cpu().numpy(), expected))
                some = [(hex(data.view(f"u{kind.size}")[i]), hex(found[i]), hex(wanted[i])) for i in different[:5]]
                assert len(different) == 0, f"{op} of {name}: {len(different)} differ; given, found, expected: {some}"

    on_gpus(2, body)
