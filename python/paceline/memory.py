"""Memory that the ranks of a node reach without a copy in between."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from ctypes import c_void_p
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import _native
from .arrays import numpy_dtype
from .errors import InvalidArgument, ResourceError, check

if TYPE_CHECKING:
    import numpy


class _Allocation:
    """Owns memory from paceMemAlloc; NumPy keeps it as the base of the array and of its views."""

    def __init__(self, nbytes: int) -> None:
        library = _native.library()
        pointer = c_void_p()
        check(library.paceMemAlloc(pointer, nbytes))
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (pointer.value, False)}
        self._pointer, self._free = pointer.value, library.paceMemFree

    def __del__(self) -> None:
        if pointer := self.__dict__.get("_pointer"):
            self._free(pointer)


def _extents(shape: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    try:
        extents: tuple[int, ...] = (index(shape),)  # type: ignore[arg-type]
    except TypeError:
        try:
            extents = tuple(index(extent) for extent in shape)  # type: ignore[union-attr]
        except TypeError:
            raise InvalidArgument(f"shape is {shape!r}: give a whole number, or several") from None
    if any(extent < 0 for extent in extents):
        raise InvalidArgument(f"shape is {extents}: negative dimensions are not allowed")
    return extents


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = "float32") -> numpy.ndarray[Any, Any]:
    """A NumPy array in memory that other ranks of this node read directly, which saves the collectives a copy.

    Args:
        shape: the array's shape, or the length of one with one dimension.
        dtype: a NumPy dtype, or one of Paceline's names ("bfloat16", "float8e4m3" and "float8e5m2" need ml_dtypes).

    Returns:
        An array of zeros, aligned to pages. The memory is freed when the array and all its views are gone. A forked
        child shares it with its parent, unlike other arrays: what one writes the other sees.

    Raises:
        ResourceError: there is no memory left.
        InvalidArgument: there is no such shape or type, or the type needs ml_dtypes, which is not installed.

    Example::

        gradients = paceline.empty(1_000_000)
        comm.all_reduce(gradients)
    """
    import numpy

    element = numpy_dtype(dtype)
    extents = _extents(shape)
    if element.hasobject or element.itemsize == 0:
        raise InvalidArgument(f"dtype is {dtype!r}: give a type whose elements have a fixed size, and are no objects")
    nbytes = prod(extents) * element.itemsize
    if nbytes > sys.maxsize:
        raise ResourceError(f"no machine has {nbytes} bytes of memory")
    memory = numpy.asarray(_Allocation(max(nbytes, 1)))
    array: numpy.ndarray[Any, Any] = memory[:nbytes].view(element).reshape(extents)
    return array
