"""GPU memory that is mapped piece by piece, by the driver's own functions: cuMemCreate, cuMemMap and others."""

from __future__ import annotations

import ctypes
import itertools
from ctypes import POINTER, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

from paceline.cuda_driver import Gpu, Memory

PIECE = 2 << 20  # bytes: what pieces are multiples of
BY_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location_type", c_int),
        ("location", c_int),
        ("metadata", c_void_p),
        ("flags", c_uint64),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location_type", c_int), ("location", c_int), ("flags", c_int))


_FUNCTIONS = {
    "cuMemAddressReserve": [POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_ulonglong],
    "cuMemAddressFree": [c_uint64, c_size_t],
    "cuMemCreate": [POINTER(c_uint64), c_size_t, POINTER(_Properties), c_ulonglong],
    "cuMemRelease": [c_uint64],
    "cuMemMap": [c_uint64, c_size_t, c_size_t, c_uint64, c_ulonglong],
    "cuMemUnmap": [c_uint64, c_size_t],
    "cuMemSetAccess": [c_uint64, c_size_t, POINTER(_Access), c_size_t],
    "cuCtxSynchronize": [],
    "cuPointerGetAttributes": [c_uint, POINTER(c_int), POINTER(c_void_p), c_uint64],
}


def _driver() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    for name, arguments in _FUNCTIONS.items():
        getattr(library, name).argtypes = arguments
    return library


class MappedMemory(Memory):
    """At least so many bytes, in pieces of different lengths. `handle_types`: how they may be shared; 0: not at all."""

    def __init__(self, gpu: Gpu, nbytes: int, handle_types: int = BY_DESCRIPTOR) -> None:
        self.nbytes = nbytes
        self._gpu, self._types, self._library = gpu, handle_types, _driver()
        self.pieces: list[tuple[int, int]] = []
        end = 0
        lengths = itertools.cycle([1, 10, 2, 3])
        while end < nbytes:
            self.pieces.append((end, next(lengths) * PIECE))
            end += self.pieces[-1][1]
        self._reserved = 2 * end  # a part of what is reserved, as a segment that may grow
        base = c_uint64()
        self._call("cuMemAddressReserve", base, self._reserved, 0, 0, 0)
        self.address = base.value
        for piece in range(len(self.pieces)):
            self._map(piece)

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def _map(self, piece: int) -> None:
        begin, length = self.pieces[piece]
        handle = c_uint64()
        properties = _Properties(1, self._types, 1, self._gpu.number, None, 0)  # pinned, on a device
        self._call("cuMemCreate", handle, length, properties, 0)
        self._call("cuMemMap", self.address + begin, length, 0, handle.value, 0)
        self._call("cuMemRelease", handle.value)
        self._call("cuMemSetAccess", self.address + begin, length, _Access(1, self._gpu.number, 3), 1)

    def _unmap(self, piece: int) -> None:
        begin, length = self.pieces[piece]
        self._call("cuMemUnmap", self.address + begin, length)

    def attributes(self, offset: int) -> dict[str, int]:
        """What the driver says of an address: as src/cuda/memory/virtual_memory.cc asks it."""
        numbers = {
            "buffer id": 7,
            "range": 11,
            "range bytes": 12,
            "handle types": 14,
            "piece bytes": 18,
            "piece": 19,
            "block id": 20,
        }
        values = [c_uint64() for _ in numbers]
        data = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        which = (c_int * len(values))(*numbers.values())
        self._call("cuPointerGetAttributes", len(values), which, data, self.address + offset)
        return {name: value.value for name, value in zip(numbers, values)}

    def renew(self, piece: int) -> None:
        """Other memory at the same address. What used the old must have ended."""
        self._call("cuCtxSynchronize")
        self._unmap(piece)
        self._map(piece)

    def free(self) -> None:
        self._call("cuCtxSynchronize")
        for piece in range(len(self.pieces)):
            self._unmap(piece)
        self._call("cuMemAddressFree", self.address, self._reserved)
