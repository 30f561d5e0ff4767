"""The C API (include/paceline/paceline.h) through ctypes: one table of functions, and the library that has them.

Pointers travel as plain ints, so that a call makes no ctypes objects. The library is loaded at first use, not at
import: `paceline doctor` must be able to say why it does not load.
"""

from __future__ import annotations

import atexit
import functools
import os
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from . import interrupts

UNIQUE_ID_BYTES = 128


class UniqueId(Structure):
    """paceUniqueId."""

    _fields_ = [("internal", c_char * UNIQUE_ID_BYTES)]


class Config(Structure):
    """paceConfig_t."""

    _fields_ = [
        ("size", c_size_t),
        ("timeoutSeconds", c_double),
        ("algorithm", c_char_p),
        ("chunkBytes", c_size_t),
        ("joinTimeoutSeconds", c_double),
    ]


class PlanInfo(Structure):
    """pacePlanInfo_t."""

    _fields_ = [
        ("algorithm", c_char * 48),
        ("transport", c_char * 16),
        ("chunkBytes", c_size_t),
        ("channels", c_int),
        ("radix", c_int),
        ("predictedMicroseconds", c_double),
        ("protocol", c_char * 16),
    ]


# Handles and buffers are pointers (void), counts are in elements; see paceline.h for what each function does.
_comm = _buffer = _stream = c_void_p
_type = _op = _root = _peer = c_int
_count = c_size_t

_FUNCTIONS: dict[str, list[Any]] = {
    "paceGetVersion": [POINTER(c_int)],
    "paceSetInterrupted": [c_void_p],
    "paceGetErrorString": [c_int],
    "paceGetLastError": [_comm],
    "paceGetLastErrorRank": [_comm, POINTER(c_int)],
    "paceGetUniqueId": [POINTER(UniqueId)],
    "paceCommInitRankConfig": [POINTER(c_void_p), c_int, UniqueId, c_int, POINTER(Config)],
    "paceCommInitEnvironment": [POINTER(c_void_p), POINTER(Config)],
    "paceCommInitAll": [POINTER(c_void_p), c_int, POINTER(c_int)],
    "paceCommSplit": [_comm, c_int, c_int, POINTER(c_void_p), POINTER(Config)],
    "paceCommShrink": [_comm, POINTER(c_int), c_int, POINTER(c_void_p), POINTER(Config)],
    "paceCommDestroy": [_comm],
    "paceCommAbort": [_comm],
    "paceCommGetAsyncError": [_comm, POINTER(c_int)],
    "paceCommCount": [_comm, POINTER(c_int)],
    "paceCommUserRank": [_comm, POINTER(c_int)],
    "paceCommNodeCount": [_comm, POINTER(c_int)],
    "paceCommNodeRank": [_comm, POINTER(c_int)],
    "paceCommLinksMeasured": [_comm, POINTER(c_int)],
    "paceCommGpuDirect": [_comm, POINTER(c_int)],
    "paceCommGpuDirectCalls": [_comm, POINTER(c_uint64)],
    "paceRedOpCreatePreMulSum": [POINTER(c_int), c_char_p, _type, _comm],
    "paceRedOpDestroy": [_op, _comm],
    "paceAllReduce": [_buffer, _buffer, _count, _type, _op, _comm, _stream],
    "paceBroadcast": [_buffer, _buffer, _count, _type, _root, _comm, _stream],
    "paceReduce": [_buffer, _buffer, _count, _type, _op, _root, _comm, _stream],
    "paceAllGather": [_buffer, _buffer, _count, _type, _comm, _stream],
    "paceReduceScatter": [_buffer, _buffer, _count, _type, _op, _comm, _stream],
    "paceGather": [_buffer, _buffer, _count, _type, _root, _comm, _stream],
    "paceScatter": [_buffer, _buffer, _count, _type, _root, _comm, _stream],
    "paceAllToAll": [_buffer, _buffer, _count, _type, _comm, _stream],
    "paceBarrier": [_comm, _stream],
    "paceSend": [_buffer, _count, _type, _peer, _comm, _stream],
    "paceRecv": [_buffer, _count, _type, _peer, _comm, _stream],
    "paceGroupStart": [],
    "paceGroupEnd": [],
    "paceHostStreamCreate": [POINTER(c_void_p)],
    "paceHostStreamMark": [_stream, POINTER(c_uint64)],
    "paceHostStreamWait": [_stream, c_uint64, c_double],
    "paceHostStreamResult": [_stream, c_uint64],
    "paceHostStreamDestroy": [_stream],
    "paceMemAlloc": [POINTER(c_void_p), c_size_t],
    "paceMemFree": [c_void_p],
    "paceExplain": [_comm, c_char_p, _count, _type, _op, _root, POINTER(PlanInfo)],
    "paceCommSetAlgorithm": [_comm, c_char_p],
    "paceDescribe": [c_char_p],
    "paceTopology": [c_char_p, POINTER(c_char_p)],
    "paceTune": [_comm, c_char_p, c_int, POINTER(c_char_p)],
    "paceCommSetTuning": [_comm, c_char_p],
    "paceCheckTuning": [c_char_p],
    "paceCommGpuTable": [_comm, POINTER(c_char_p)],
    "paceTuningFile": [],
    "pacePredict": [c_char_p, POINTER(c_char_p)],
    "paceTraceStart": [_comm],
    "paceTraceStop": [_comm, c_char_p],
}
_TEXT = {
    "paceGetErrorString",
    "paceGetLastError",
    "paceDescribe",
    "paceTuningFile",
}  # these return text, the others a paceResult_t


def library_path() -> Path:
    """Where the shared library is: in the package, or where PACELINE_LIBRARY says (for development)."""
    override = os.environ.get("PACELINE_LIBRARY")
    return Path(override) if override else Path(__file__).parent / "lib" / "libpaceline.so"


@functools.cache
def library() -> Any:
    """The loaded library, its functions declared. Raises OSError where it cannot be used, with the path."""
    path = library_path()
    if not path.exists():
        raise OSError(
            f"{path} does not exist: install the paceline wheel, or set PACELINE_LIBRARY to a built libpaceline.so"
        )
    loaded = CDLL(str(path))
    for name, arguments in _FUNCTIONS.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise OSError(f"{path} has no {name}: it is of another version than the package")
        function.argtypes = arguments
        function.restype = c_char_p if name in _TEXT else c_int
    loaded.paceSetInterrupted(interrupts.step)
    atexit.register(loaded.paceSetInterrupted, None)  # no steps of an interpreter that ends
    return loaded


def version() -> str:
    """The library's version, for example "0.1.0"."""
    number = c_int()
    library().paceGetVersion(number)
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
