"""GPU memory of CuPy and JAX, by __cuda_array_interface__ and DLPack. Needs a GPU, torch, and each of the two."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import paceline
import pytest
from gpu_ranks import Rank, on_gpus

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


# What comes by DLPack alone, as JAX's arrays do, is called on CUDA's default stream, which a GPU has once a process.
on_default_stream = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="the ranks' calls would share a stream")


class ByDlpack:
    """An array that exports its memory by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape = array, array.shape

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "uint64"])
def test_cupy_arrays_on_their_current_stream(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        stream = cupy.cuda.ExternalStream(rank.stream.cuda_stream)
        with cupy.cuda.Device(torch.cuda.current_device()), stream:
            x = cupy.full((3, 1000), rank.rank + 1, dtype)
            own = cupy.full(100, rank.rank, dtype)
            barrier.wait()  # ranks may share a GPU, where what is not a call may wait for the other's calls
            rank.comm.all_reduce(x)
            everyone = rank.comm.all_gather(own)
            rank.finish()
            assert (cupy.asnumpy(x) == 3).all()
            assert isinstance(everyone, cupy.ndarray)
            assert (cupy.asnumpy(everyone) == np.arange(2)[:, None]).all()

    on_gpus(2, body)


@on_default_stream
def test_dlpack_alone() -> None:
    cupy = pytest.importorskip("cupy")

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        with cupy.cuda.Device(torch.cuda.current_device()):
            x = cupy.full(1000, rank.rank + 1, "float32")
            barrier.wait()
            rank.comm.all_reduce(ByDlpack(x))
            torch.cuda.synchronize()
            assert rank.comm.get_async_error() is None
            assert (cupy.asnumpy(x) == 3).all()

    on_gpus(2, body)


@on_default_stream
def test_jax_arrays() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    try:
        devices = jax.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU: {error}")

    def body(rank: Rank, barrier: threading.Barrier) -> None:
        gpu = torch.cuda.current_device()  # until JAX makes another one current
        device = devices[gpu]
        x = jax.device_put(np.full(1000, rank.rank + 1, np.float32), device).block_until_ready()
        out = torch.zeros(1000, device=gpu)
        torch.cuda.synchronize(gpu)
        barrier.wait()  # what JAX begins on one GPU may wait for a kernel on another, and that for this rank
        rank.comm.all_reduce(x, out=out)
        torch.cuda.synchronize(gpu)
        assert rank.comm.get_async_error() is None
        assert bool((out == 3).all())
        # What JAX still computes is waited for, and what it gives away is given away when it has been read.
        busy = jax.jit(lambda a: jax.lax.fori_loop(0, 2000, lambda i, b: jax.numpy.sin(b) * 0 + 1, a))
        for number in range(5):
            product = busy(jax.device_put(np.zeros((1000, 1000), np.float32), device)) * (rank.rank + number)
            out = torch.zeros(1000, 1000, device=gpu)
            torch.cuda.synchronize(gpu)
            barrier.wait()
            rank.comm.all_reduce(product, out=out)
            del product
            jax.device_put(np.full((1000, 1000), 77, np.float32), device).block_until_ready()
            torch.cuda.synchronize(gpu)
            assert bool((out == 1 + 2 * number).all())
        with pytest.raises(paceline.InvalidArgument, match="read-only"):  # JAX's arrays never change
            rank.comm.all_reduce(x)
        on_host = np.ones(4, np.float32)  # JAX's arrays in host memory have the same type
        rank.comm.all_reduce(on_host)
        assert (on_host == 2).all()

    on_gpus(2, body)
