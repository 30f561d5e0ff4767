"""DLPack's capsule, read through ctypes (https://dmlc.github.io/dlpack, dlpack.h).

The capsule is never consumed: it is kept as long as the memory is needed, and its own destructor then frees the
exporter's structure.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from .errors import InvalidArgument, Unsupported


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _DLTensor),
    ]


_READ_ONLY_FLAG, _COPIED_FLAG = 1, 2
CUDA_DEVICE = 2
LEGACY_DEFAULT_STREAM = 1  # CUDA's default stream, as CUDA and DLPack name it
_HOST_DEVICES = {1, 3, 11, 13}  # CPU, and host memory pinned by CUDA or ROCm, and managed memory
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_FLOAT8 = {10: "float8e4m3", 12: "float8e5m2"}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


@dataclass
class Tensor:
    """What a capsule says."""

    address: int
    shape: list[int]
    strides: list[int] | None  # in elements; None: C order
    type_name: str
    element_bytes: int  # 0: no whole ones
    read_only: bool
    copied: bool  # the memory is not the array's own
    capsule: Any
    gpu: int | None = None  # whose memory it is, ready for what is put on CUDA's default stream; None: the host's


def export(array: Any) -> Tensor:
    """Ask an array for its capsule and read it.

    Raises Unsupported for devices that are no CUDA GPUs, InvalidArgument where the array refuses.
    """
    device, number = array.__dlpack_device__()
    on_gpu = int(device) == CUDA_DEVICE
    if not on_gpu and int(device) not in _HOST_DEVICES:
        raise Unsupported(f"{type(array).__name__} is in the memory of a device (DLPack type {int(device)}): copy it")
    where = {"stream": LEGACY_DEFAULT_STREAM} if on_gpu else {}
    tensor = read(_capsule(array, where))
    tensor.gpu = int(number) if on_gpu else None
    return tensor


def _capsule(array: Any, where: dict[str, int]) -> Any:
    try:
        try:
            return array.__dlpack__(max_version=(1, 0), **where)
        except TypeError:  # an exporter from before DLPack 1.0
            return array.__dlpack__(**where)
    except BufferError as error:  # a read-only array, of which DLPack 0 cannot say so
        raise InvalidArgument(f"{type(array).__name__} does not export its memory: {error}: pass a copy") from None


def read(capsule: Any) -> Tensor:
    """Read a capsule of DLPack 0 or 1."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _DLManagedTensorVersioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise InvalidArgument(f"the array speaks DLPack {managed.major}.{managed.minor}; version 1 is understood")
        tensor, flags = managed.dl_tensor, managed.flags
    elif _is_valid(capsule, b"dltensor"):
        tensor, flags = _DLTensor.from_address(_get_pointer(capsule, b"dltensor")), 0
    else:
        raise InvalidArgument("__dlpack__ returned no unused DLPack capsule")
    name = _FLOAT8.get(tensor.code) or f"{_CODES.get(tensor.code, f'code {tensor.code} ')}{tensor.bits}"
    if tensor.lanes != 1:
        name += f"x{tensor.lanes}"
    return Tensor(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tensor.shape[: tensor.ndim] if tensor.ndim else [],
        strides=tensor.strides[: tensor.ndim] if tensor.ndim and tensor.strides else None,
        type_name=name,
        element_bytes=tensor.bits * tensor.lanes // 8 if tensor.bits * tensor.lanes % 8 == 0 else 0,
        read_only=bool(flags & _READ_ONLY_FLAG),
        copied=bool(flags & _COPIED_FLAG),
        capsule=capsule,
    )
