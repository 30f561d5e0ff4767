#!/usr/bin/env python3
"""What a call on GPU memory costs the host: microseconds until it returns, eager, from C and from Python.

    python bench/host_cost_gpu.py --json cost.json

Two ranks, a process and a GPU each. A gate holds each rank's stream while its calls are made, so that no call waits for
the GPU, and is opened behind them. Every single call is timed, in C by a loop in C (repeat_calls.c), and beside it the
launch of an empty kernel, which is the least that a call can cost on this machine. Shown are median, minimum and
maximum over all calls, of the rank whose median is larger, and the median beyond the empty kernel's. From Python the
arrays are __cuda_array_interface__'s, and torch's tensors where torch is there. Where the GPUs do not reach each other
calls block, and are timed as a whole, from C alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paceline
from paceline import _native
from paceline.command.collectives import COLLECTIVES
from paceline.command.files import output_file
from paceline.command.sizes import positive, size_text
from paceline.cuda_driver import Gpu, Memory, Stream, device_count
from repeat_calls import call, timed_calls

FLOAT32, SUM, ROOT = 7, 0, 0
SIZES = {
    "all_reduce": (8, 1 << 20, 16 << 20),
    "all_gather": (8, 1 << 20),
    "broadcast": (8, 1 << 20),
}  # all parts, bytes
LARGEST = max(max(sizes) for sizes in SIZES.values())
WARM_UP = 6  # calls until all ranks know the buffers
BATCH = 50  # calls behind one gate: fewer than a stream takes before it makes the host wait
EMPTY = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n\0"
Times = list[float]  # microseconds, of each call


class Gate:
    """Holds up what comes behind it on a stream, until it is opened."""

    def __init__(self, stream: Stream) -> None:
        driver, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        if driver.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(4), 0):
            raise SystemExit("cuMemHostAlloc failed")
        # In host memory: to be opened it needs no other stream, which might be held up by this one.
        self._word = ctypes.c_uint.from_address(address.value or 0)
        self._word.value = 0
        self._stream, self._number = stream, 0
        self._wait = driver.cuStreamWaitValue32_v2
        self._wait.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint]

    def close(self) -> None:
        self._number += 1
        # Until the word is so much, or more.
        if self._wait(self._stream.handle, ctypes.addressof(self._word), self._number, 0):
            raise SystemExit("cuStreamWaitValue32 failed")

    def open(self) -> None:
        self._word.value = self._number


class _Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


class EmptyKernel:
    """A kernel of one block that does nothing, launched by the driver's own function."""

    def __init__(self, stream: Stream) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        for failed in (
            driver.cuModuleLoadData(ctypes.byref(module), EMPTY),
            driver.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"),
        ):
            if failed:
                raise SystemExit(f"the driver does not take an empty kernel: error {failed}")
        self._how = _Launch(1, 1, 1, 32, 1, 1, 0, stream.handle, None, 0)
        self.call = call(driver.cuLaunchKernelEx, ctypes.addressof(self._how), function.value or 0, 0, 0)


class Array:
    """GPU memory for Paceline's Python functions."""

    def __init__(self, address: int, count: int, stream: Stream) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": "<f4",
            "version": 3,
            "stream": stream.handle,
        }


class Rank:
    """One rank: times what both ranks call."""

    def __init__(self, batches: int) -> None:
        self.gpu = Gpu(int(os.environ["PACELINE_RANK"]) % device_count())
        self.comm, self.batches = paceline.init(timeout=30), batches
        self.stream = Stream()
        self._send, self._recv, self._gate = Memory(LARGEST), Memory(LARGEST), Gate(self.stream)
        in_c(call(_native.library().paceBarrier, *self._end), 1)  # the first call connects the GPUs
        self._finish()
        self.direct = self.comm.gpus_direct()

    @property
    def _end(self) -> tuple[int, int]:
        """What a call's arguments end with."""
        return self.comm._handle or 0, self.stream.handle or 0

    def time(self, batch: Callable[[int], Times]) -> dict[str, float]:
        """Of a batch of so many calls, which gives their times: those of the slower rank."""
        batch(WARM_UP)
        self._finish()
        times: Times = []
        for _ in range(self.batches):
            self.comm.barrier()
            if self.direct:
                self._gate.close()
            try:
                times += batch(BATCH)
            finally:
                if self.direct:
                    self._gate.open()
            self._finish()
        figures = np.array([statistics.median(times), max(times), -min(times)])
        self.comm.all_reduce(figures, op="max")
        return dict(zip(("median", "max", "min"), map(float, np.abs(figures)), strict=True))

    def in_c(self, collective: str, nbytes: int) -> Callable[[int], Times]:
        kind = COLLECTIVES[collective]
        count = kind.count(nbytes, self.comm.size, 4)
        choices = [SUM] * kind.reduces + [ROOT] * kind.rooted
        input_and_output = (self._send.address, self._recv.address)
        made = call(getattr(_native.library(), kind.function), *input_and_output, count, FLOAT32, *choices, *self._end)
        return lambda times: in_c(made, times)

    def in_python(self, collective: str, nbytes: int, kind_of_array: Callable[[Array], Any]) -> Callable[[int], Times]:
        count = COLLECTIVES[collective].count(nbytes, self.comm.size, 4)
        whole = count * self.comm.size if collective == "all_gather" else count
        x, y = (
            kind_of_array(Array(memory.address, length, self.stream))
            for memory, length in ((self._send, count), (self._recv, whole))
        )
        comm = self.comm
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: comm.all_reduce(x, out=y),
            "all_gather": lambda: comm.all_gather(x, out=y),
            "broadcast": lambda: comm.broadcast(x),
        }
        return lambda times: in_python(calls[collective], times)

    def _finish(self) -> None:
        self.stream.synchronize()
        error = self.comm.get_async_error()
        if error is not None:
            raise error


def in_c(made: tuple[int, tuple[int, ...]], times: int) -> Times:
    result, nanoseconds = timed_calls(made, times)
    if result:
        raise SystemExit(f"a call failed: {result}")
    return [each / 1000 for each in nanoseconds]


def in_python(made: Callable[[], Any], times: int) -> Times:
    found, now = [], time.perf_counter_ns
    for _ in range(times):
        begin = now()
        made()
        found.append((now() - begin) / 1000)
    return found


def rows_of(rank: Rank) -> list[dict[str, Any]]:
    """The empty kernel, then every call from C and from Python."""
    empty = EmptyKernel(rank.stream)
    figures = rank.time(lambda times: in_c(empty.call, times))
    rows: list[dict[str, Any]] = []

    def add(language: str, what: str, nbytes: int | None, figures: dict[str, float], least: float) -> None:
        row = {"from": language, "call": what, "bytes": nbytes, "us": figures, "beyond_launch_us": least}
        rows.append(row)
        if rank.comm.rank == 0:
            size = "" if nbytes is None else size_text(nbytes)
            times = f"{figures['median']:8.2f} {figures['min']:8.2f} {figures['max']:8.2f} {least:8.2f}"
            print(f"{language:7} {what:13} {size:>5} {times}", flush=True)

    launch = figures["median"]
    if rank.comm.rank == 0:
        print("from    call           size   median      min      max   beyond the launch, us", flush=True)
    add("C", "empty kernel", None, figures, 0.0)
    arrays: dict[str, Callable[[Array], Any]] = {}
    if rank.direct:
        arrays["Python"] = lambda array: array
        tensors = torch_tensors(rank.gpu, rank.stream)
        if tensors is not None:
            arrays["torch"] = tensors
    for collective, sizes in SIZES.items():
        for nbytes in sizes:
            ways = {"C": rank.in_c(collective, nbytes)}
            ways |= {name: rank.in_python(collective, nbytes, array) for name, array in arrays.items()}
            for language, batch in ways.items():
                figures = rank.time(batch)
                add(language, collective, nbytes, figures, figures["median"] - launch)
    return rows


def torch_tensors(gpu: Gpu, stream: Stream) -> Callable[[Array], Any] | None:
    """What makes a tensor of an array; None: there is no torch. It works on this stream from now on."""
    try:
        import torch
    except ImportError:
        return None
    torch.cuda.set_device(gpu.number)
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream.handle))
    return lambda array: torch.as_tensor(array, device="cuda")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=positive, default=20, help=f"of {BATCH} calls each (default: 20)")
    parser.add_argument("--json", type=output_file, metavar="F")
    chosen = parser.parse_args()
    if "PACELINE_RANK" not in os.environ:
        command = [sys.executable, "-m", "paceline", "run", "-n", "2", "--", sys.executable, *sys.argv]
        return subprocess.call(command)
    rank = Rank(chosen.batches)
    rows = rows_of(rank)
    if chosen.json and rank.comm.rank == 0:
        document = {"gpu": rank.gpu.name, "gpus_direct": rank.direct, "rows": rows}
        Path(chosen.json).write_text(json.dumps(document, indent=1) + "\n")
    rank.comm.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
