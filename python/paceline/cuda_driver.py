"""GPU memory, streams, events and graphs without torch or CuPy: the CUDA driver's own API through ctypes.

Everything made here belongs to the object that stands for it, and is given back with it. What is made, is made on the
GPU that the calling thread has opened::

    with Gpu(0):
        memory, stream = Memory(1 << 20), Stream()
        memory.write(bytes(1 << 20))
        with stream.capture() as graph:
            ...                         # calls on stream.handle
        graph.launch(stream)
        stream.synchronize()
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ulonglong, c_void_p
from types import TracebackType
from typing import Any

from .errors import CudaError, Unsupported

_LIBRARY = "libcuda.so.1"
_BESIDE_THE_DEFAULT_STREAM = 1  # CU_STREAM_NON_BLOCKING
_RELAXED = 2  # one thread may capture on several GPUs, and make one graph while it captures another
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

_device, _context, _stream, _event, _graph, _runnable = c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p
_address = c_uint64

# As cuda.h has them, with the versions that its macros choose.
_FUNCTIONS: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(_device), c_int],
    "cuDeviceGetName": [c_char_p, c_int, _device],
    "cuDevicePrimaryCtxRetain": [POINTER(_context), _device],
    "cuDevicePrimaryCtxRelease_v2": [_device],
    "cuCtxSetCurrent": [_context],
    "cuCtxGetCurrent": [POINTER(_context)],
    "cuCtxSynchronize": [],
    "cuMemGetInfo_v2": [POINTER(c_size_t), POINTER(c_size_t)],
    "cuMemAlloc_v2": [POINTER(_address), c_size_t],
    "cuMemFree_v2": [_address],
    "cuMemsetD8Async": [_address, c_ubyte, c_size_t, _stream],
    "cuMemcpyHtoD_v2": [_address, c_void_p, c_size_t],
    "cuMemcpyDtoH_v2": [c_void_p, _address, c_size_t],
    "cuMemcpyDtoDAsync_v2": [_address, _address, c_size_t, _stream],
    "cuStreamCreate": [POINTER(_stream), c_uint],
    "cuStreamDestroy_v2": [_stream],
    "cuStreamSynchronize": [_stream],
    "cuStreamBeginCapture_v2": [_stream, c_int],
    "cuStreamEndCapture": [_stream, POINTER(_graph)],
    "cuGraphInstantiateWithFlags": [POINTER(_runnable), _graph, c_ulonglong],
    "cuGraphLaunch": [_runnable, _stream],
    "cuGraphExecDestroy": [_runnable],
    "cuGraphDestroy": [_graph],
    "cuEventCreate": [POINTER(_event), c_uint],
    "cuEventRecord": [_event, _stream],
    "cuEventSynchronize": [_event],
    "cuEventElapsedTime": [POINTER(c_float), _event, _event],
    "cuEventDestroy_v2": [_event],
}


@functools.cache
def _driver() -> Any:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise Unsupported(f"there is no NVIDIA driver: {error}") from None
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise Unsupported(f"the NVIDIA driver has no {name}: install a newer one")
        function.argtypes = arguments
    result = library.cuInit(0)
    if result not in (0, _NO_DEVICE):
        raise Unsupported(f"the NVIDIA driver does not serve: {_reason(library, result)}")
    return library


def _reason(library: Any, result: int) -> str:
    text = c_char_p()
    library.cuGetErrorString(result, text)
    return (text.value or b"unknown error").decode() + f" ({result})"


def _call(name: str, *arguments: Any) -> None:
    library = _driver()
    result = getattr(library, name)(*arguments)
    if result:
        raise CudaError(f"{name}: {_reason(library, result)}")


def _made(name: str, kind: Any, *arguments: Any) -> Any:
    """What a function that makes something has written into its first argument."""
    value = kind()
    _call(name, value, *arguments)
    return value.value


def _give_back(name: str, handle: Any) -> None:
    getattr(_driver(), name)(handle)  # what fails here, fails for an error that has been told before


def device_count() -> int:
    """GPUs of this machine, as far as CUDA_VISIBLE_DEVICES shows them. Makes no context.

    Raises Unsupported where there is no driver.
    """
    count = c_int()
    if _driver().cuDeviceGetCount(count):
        return 0
    return count.value


class Gpu:
    """A GPU, current for the thread that opened it: its primary context, which the CUDA runtime uses too."""

    def __init__(self, number: int) -> None:
        self.number = number
        device = _made("cuDeviceGet", c_int, number)
        name = ctypes.create_string_buffer(128)
        _call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        self._context = _made("cuDevicePrimaryCtxRetain", c_void_p, device)
        self.close = weakref.finalize(self, _give_back, "cuDevicePrimaryCtxRelease_v2", device)
        self.use()

    def use(self) -> None:
        """Make it the calling thread's current GPU again, where the thread has several."""
        _call("cuCtxSetCurrent", self._context)

    def free_bytes(self) -> int:
        """Memory that nobody has."""
        self.use()
        free, total = c_size_t(), c_size_t()
        _call("cuMemGetInfo_v2", free, total)
        return free.value

    def __enter__(self) -> Gpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class Memory:
    """Device memory of the current GPU, bytes."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address: int = _made("cuMemAlloc_v2", _address, max(nbytes, 1))
        self.close = weakref.finalize(self, _give_back, "cuMemFree_v2", self.address)

    def write(self, data: bytes) -> None:
        """From host memory to the beginning of this; it is there when this returns."""
        _call("cuMemcpyHtoD_v2", self.address, data, len(data))
        _call("cuCtxSynchronize")  # the driver may still be copying from its own buffer

    def read(self, begin: int = 0, nbytes: int | None = None) -> memoryview:
        """A copy in host memory, of all or of a part. Synchronize the streams that write here before."""
        copy = bytearray(self.nbytes - begin if nbytes is None else nbytes)
        if copy:
            into = (ctypes.c_char * len(copy)).from_buffer(copy)
            _call("cuMemcpyDtoH_v2", into, self.address + begin, len(copy))
        return memoryview(copy)

    def copy_from(self, source: Memory, begin: int, nbytes: int, stream: Stream, at: int = 0) -> None:
        """Bytes of other device memory from `begin` on, to `at` in this; in the stream's order."""
        if nbytes:
            _call("cuMemcpyDtoDAsync_v2", self.address + at, source.address + begin, nbytes, stream.handle)

    def fill(self, byte: int, nbytes: int, stream: Stream) -> None:
        """The first bytes; in the stream's order."""
        _call("cuMemsetD8Async", self.address, byte, nbytes, stream.handle)


@functools.cache
def _gpu(number: int) -> Gpu:
    return Gpu(number)


def wait_for_stream(gpu: int, stream: int) -> None:
    """Return when all that was put on this stream of this GPU has ended."""
    before = _made("cuCtxGetCurrent", c_void_p)
    _gpu(gpu).use()
    try:
        _call("cuStreamSynchronize", stream)
    finally:
        _call("cuCtxSetCurrent", before)


class Stream:
    """A CUDA stream of the current GPU; `handle` is its cudaStream_t."""

    def __init__(self) -> None:
        self.handle: int | None = _made("cuStreamCreate", c_void_p, _BESIDE_THE_DEFAULT_STREAM)
        self.close = weakref.finalize(self, _give_back, "cuStreamDestroy_v2", self.handle)

    def synchronize(self) -> None:
        _call("cuStreamSynchronize", self.handle)

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """What is put on the stream inside becomes the graph, and does not run. Use the graph afterwards."""
        graph = Graph()
        _call("cuStreamBeginCapture_v2", self.handle, _RELAXED)
        try:
            yield graph
        finally:
            captured = c_void_p()
            _driver().cuStreamEndCapture(self.handle, captured)  # an error has been told by the call that caused it
        graph._take(captured.value)


class Graph:
    """A captured graph. Made by `Stream.capture`."""

    def __init__(self) -> None:
        self._runnable: int | None = None

    def _take(self, captured: int | None) -> None:
        if captured is None:
            raise CudaError("the capture of a graph was broken off: something in it cannot be captured")
        try:
            self._runnable = _made("cuGraphInstantiateWithFlags", c_void_p, captured, 0)
        finally:
            _give_back("cuGraphDestroy", captured)
        self.close: Callable[[], Any] = weakref.finalize(self, _give_back, "cuGraphExecDestroy", self._runnable)

    def launch(self, stream: Stream) -> None:
        _call("cuGraphLaunch", self._runnable, stream.handle)


class Event:
    """A mark in a stream, with its time."""

    def __init__(self) -> None:
        self._handle = _made("cuEventCreate", c_void_p, 0)
        self.close = weakref.finalize(self, _give_back, "cuEventDestroy_v2", self._handle)

    def record(self, stream: Stream) -> None:
        _call("cuEventRecord", self._handle, stream.handle)

    def synchronize(self) -> None:
        """Wait until the stream has passed the mark."""
        _call("cuEventSynchronize", self._handle)

    def microseconds_since(self, earlier: Event) -> float:
        milliseconds = c_float()
        _call("cuEventElapsedTime", milliseconds, earlier._handle, self._handle)
        return milliseconds.value * 1000
