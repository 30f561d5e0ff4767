"""Where an array's memory is: its pointer, number of elements and element type, for everything that exports memory.

`region(x, writable)` is on the way of every call. What it costs for a small NumPy array is the reason for its shape:
the reader is looked up by the array's type, and ctypes' from_buffer checks in one step that the memory is contiguous
and writable (0.8 us in all, against 2.5 us through __array_interface__).
"""

from __future__ import annotations

import ctypes
import math
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, TypeAlias

from . import dlpack
from .datatypes import BY_NUMBER, DATA_TYPES, DataType
from .errors import InvalidArgument, Unsupported
from .group import note_refusal

Region: TypeAlias = tuple[int, int, int, Any]
"""Address, number of elements, number of the element type, and the object that keeps the memory alive (OnGpu, where
that is a GPU's). Of elements that can only be moved the number is that of their bytes, negative."""
Reader: TypeAlias = Callable[[Any, bool, bool], Region]


class OnGpu:
    """What keeps an array in GPU memory alive, and the CUDA stream on which its library works now.

    gpu: set where the library works on streams of its own (JAX): it has made the memory ready for `stream`, and may
    give it to something else once nobody holds it. So it must be held until what was put on `stream` of this GPU ended.
    """

    __slots__ = ("array", "gpu", "stream")

    def __init__(self, array: Any, stream: int, gpu: int | None = None) -> None:
        # NULL names the default stream only beside memory that is a GPU's, and an array without elements has none.
        self.array, self.stream, self.gpu = array, stream or dlpack.LEGACY_DEFAULT_STREAM, gpu


_addressof = ctypes.addressof
_from_buffer = ctypes.c_char.from_buffer
_readers: dict[type, Reader] = {}
_numpy_types: dict[Any, tuple[int, Any]] = {}  # of a dtype: our number, and a dtype with which memory can be exported
_torch_types: dict[Any, int] = {}

# Names of other libraries' types where they differ from ours.
_ALIASES = {"float8_e4m3fn": "float8e4m3", "float8_e5m2": "float8e5m2"}


def region(array: Any, writable: bool, moved: bool = False) -> Region:
    """The memory of an array. moved: its elements may be of any type of a fixed size.

    Raises InvalidArgument for what cannot be used as it is (not contiguous, read-only where it must be written,
    an element type without a counterpart), naming the remedy; Unsupported for memory of other devices than CUDA's.
    """
    try:
        return (_readers.get(type(array)) or _reader_for(array))(array, writable, moved)
    except BaseException as error:
        note_refusal(error)
        raise


def as_bytes(count: int, number: int) -> tuple[int, int]:
    """Count and type for a call that moves these elements."""
    return (count, number) if number >= 0 else (count * -number, DATA_TYPES["uint8"].number)


def type_name(number: int) -> str:
    """Of a region's elements."""
    return BY_NUMBER[number].name if number >= 0 else f"{-number} bytes each"


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape of anything that `region` reads."""
    shape = getattr(array, "shape", None)
    return tuple(_exported_shape(array) if shape is None else shape)


def _exported_shape(array: Any) -> Sequence[int]:
    """The shape that comes with the memory, of an array that does not tell its own."""
    if _exports_buffer(array):
        return memoryview(array).shape or ()
    for name in ("__array_interface__", "__cuda_array_interface__"):
        if hasattr(array, name):
            shape: Sequence[int] = getattr(array, name)["shape"]
            return shape
    return dlpack.export(array).shape


def new_like(array: Any, shape: tuple[int, ...], type_number: int) -> Any:
    """An uninitialised array of this shape and of the array's element type: of torch or CuPy for theirs, else NumPy."""
    if _is_torch(array):
        return array.new_empty(shape)
    if _library_of(array) == "cupy":
        return sys.modules["cupy"].empty(shape, array.dtype)
    try:
        import numpy
    except ImportError:
        raise InvalidArgument("give out=: without NumPy there is nothing to make the result with") from None
    if isinstance(array, numpy.ndarray):
        return numpy.empty(shape, array.dtype)
    if type_number >= 0:
        return numpy.empty(shape, numpy_dtype(BY_NUMBER[type_number].name))
    if _exports_buffer(array) or hasattr(array, "__array_interface__"):
        return numpy.empty(shape, numpy.asarray(array).dtype)
    raise InvalidArgument(f"give out=: it is not known how to make what {type(array).__name__} is")


def numpy_dtype(dtype: Any) -> Any:
    """The NumPy dtype for one of Paceline's type names, or for anything that numpy.dtype takes."""
    import numpy

    foreign = {"bfloat16": "bfloat16", "float8e4m3": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}
    if isinstance(dtype, str) and dtype in foreign:
        try:
            import ml_dtypes
        except ImportError:
            raise InvalidArgument(f"NumPy has {dtype} only with the package ml_dtypes: pip install ml_dtypes") from None
        return numpy.dtype(getattr(ml_dtypes, foreign[dtype]))
    try:
        return numpy.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise InvalidArgument(f"dtype is {dtype!r}: give a NumPy dtype, or one of {', '.join(DATA_TYPES)}") from None


def data_type(dtype: Any) -> DataType:
    """The element type of this name, or that NumPy or torch call so.

    Raises InvalidArgument: there is none.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DATA_TYPES and dtype is not None:
        with suppress(ImportError, InvalidArgument):
            name = numpy_dtype(dtype).name
    found = DATA_TYPES.get(_ALIASES.get(name, name))
    if found is None:
        raise InvalidArgument(f"there is no type {dtype!r}: take one of {', '.join(DATA_TYPES)}")
    return found


def _library_of(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _is_on_gpu(array: Any) -> bool:
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and device()[0] == dlpack.CUDA_DEVICE


def _reader_for(array: Any) -> Reader:
    """Choose the reader for a type that has not been seen before, and remember it."""
    kind = type(array)
    numpy = sys.modules.get("numpy")
    if _is_torch(array):
        reader = _torch_reader(sys.modules["torch"])
    elif hasattr(array, "__cuda_array_interface__"):
        reader = _read_cuda
    elif _is_on_gpu(array):  # JAX offers __array_interface__ too: of a copy in host memory
        reader = _read_dlpack
    elif numpy is not None and isinstance(array, numpy.ma.MaskedArray):
        raise InvalidArgument("a masked array's mask would be lost: pass its .data or .filled()")
    elif numpy is not None and isinstance(array, numpy.ndarray):
        reader = _read_numpy
    elif numpy is not None and isinstance(array, numpy.generic):
        raise InvalidArgument("a NumPy scalar has no memory of its own: pass numpy.asarray(x)")
    elif _exports_buffer(array):
        reader = _read_buffer
    elif hasattr(array, "__array_interface__"):
        reader = _read_array_interface
    elif hasattr(array, "__dlpack__"):
        reader = _read_dlpack
    else:
        raise InvalidArgument(
            f"{kind.__name__} exports no memory: pass a NumPy array, a torch tensor, or an object with the buffer "
            "protocol, __array_interface__ or __dlpack__"
        )
    if _library_of(array) not in ("jax", "jaxlib"):  # whose arrays have one type, wherever their memory is
        _readers[kind] = reader
    return reader


def _exports_buffer(array: Any) -> bool:
    try:
        return isinstance(array, memoryview) or memoryview(array) is not None
    except (TypeError, ValueError, BufferError):  # NumPy cannot export its foreign dtypes: not a buffer for us
        return False


def _not_contiguous(what: str, copy: str, written: bool) -> InvalidArgument:
    remedy = f"work on {copy}, and copy that back into the {what}: it is written" if written else f"pass {copy}"
    return InvalidArgument(f"the {what} is not contiguous (C order): {remedy}")


def _read_only(what: str) -> InvalidArgument:
    return InvalidArgument(f"the {what} is read-only and would be written: pass a copy, or a writable out=")


def _number(name: str, nbytes: int, moved: bool) -> int:
    """The number of an element type; of one without a counterpart, if it is only moved, its bytes, negative."""
    if name in DATA_TYPES:
        return DATA_TYPES[name].number
    if not moved or nbytes == 0:
        raise _no_type(name)
    return -nbytes


_HALVES = {"complex64": "float32", "complex128": "float64"}  # complex numbers and the type of their parts


def _no_type(name: str) -> InvalidArgument:
    hint = "; view it as uint8 and reduce with max (any) or min (all)" if name.startswith("bool") else ""
    if name in _HALVES:
        hint = f"; a sum works on its real view, for example x.view(numpy.{_HALVES[name]})"
    return InvalidArgument(f"elements of type {name} are not supported{hint} (supported: {', '.join(DATA_TYPES)})")


# ---- NumPy ----


def _read_numpy(array: Any, writable: bool, moved: bool) -> Region:
    number, carrier = _numpy_types.get(array.dtype) or _numpy_type(array.dtype, moved)
    try:
        exporting = array if carrier is None else array.view(carrier)
        return _addressof(_from_buffer(exporting)), array.size, number, array
    except (TypeError, ValueError, BufferError):  # not contiguous, read-only, or empty
        if writable and not array.flags.writeable:
            raise _read_only("array") from None
        if not array.flags.c_contiguous:
            raise _not_contiguous("array", "numpy.ascontiguousarray(x)", writable) from None
        return array.__array_interface__["data"][0], array.size, number, array


def _numpy_type(dtype: Any, moved: bool) -> tuple[int, Any]:
    name = _ALIASES.get(dtype.name, dtype.name)
    moved = moved and not dtype.hasobject
    if (moved or name in DATA_TYPES) and not dtype.isnative:
        raise InvalidArgument(f"the array's bytes are swapped ({dtype.str}): pass x.astype(x.dtype.newbyteorder('='))")
    if name not in DATA_TYPES:
        return _number(str(dtype), dtype.itemsize, moved), None
    kind = DATA_TYPES[name]
    # The buffer protocol does not know the foreign dtypes; their bits can be exported as those of an integer.
    carrier = None if dtype.isbuiltin == 1 else sys.modules["numpy"].dtype(f"u{kind.size}")
    _numpy_types[dtype] = kind.number, carrier
    return _numpy_types[dtype]


# ---- torch ----


@cache
def _torch_reader(torch: Any) -> Reader:
    """The reader of this module's tensors. Each attribute of a tensor costs as much as a look-up in the library."""
    strided = torch.strided
    # Of a GPU's number the stream on which torch works there now: without an object for it, where torch lets us.
    stream_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
        lambda gpu: torch.cuda.current_stream(gpu).cuda_stream
    )

    def read(tensor: Any, writable: bool, moved: bool) -> Region:
        number = _torch_types.get(tensor.dtype)
        if number is None:
            number = _torch_type(tensor, moved)
        if tensor.is_cuda:
            keep = OnGpu(tensor, stream_of(tensor.get_device()))
        elif tensor.is_cpu:
            keep = tensor
        else:
            raise Unsupported(f"the tensor is on {tensor.device}: pass tensor.cpu()")
        if tensor.layout is not strided:
            raise InvalidArgument(f"the tensor's layout is {tensor.layout}: pass tensor.to_dense()")
        if not tensor.is_contiguous():
            raise _not_contiguous("tensor", "tensor.contiguous()", writable)
        if tensor.is_neg():
            raise InvalidArgument("the tensor is a lazy negation: pass tensor.resolve_neg()")
        if number < 0 and tensor.is_conj():  # complex
            raise InvalidArgument("the tensor is a lazy conjugate: pass tensor.resolve_conj()")
        return tensor.data_ptr(), tensor.numel(), number, keep

    return read


def _torch_type(tensor: Any, moved: bool) -> int:
    name = str(tensor.dtype).removeprefix("torch.")
    name = _ALIASES.get(name, name)
    number = _number(name, tensor.element_size(), moved and not tensor.is_quantized)
    if number >= 0:
        _torch_types[tensor.dtype] = number
    return number


# ---- The buffer protocol ----

_KINDS = {"b": "int", "h": "int", "i": "int", "l": "int", "q": "int", "n": "int",
          "B": "uint", "H": "uint", "I": "uint", "L": "uint", "Q": "uint", "N": "uint",
          "e": "float", "f": "float", "d": "float"}  # fmt: skip
_MOVED = {"?": "bool", "c": "char", "Zf": "complex64", "Zd": "complex128"}  # and what stands in _KINDS
_SWAPPED = ">!" if sys.byteorder == "little" else "<"


class _PyBuffer(ctypes.Structure):
    """Py_buffer, for the address of read-only memory, which from_buffer refuses to tell."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def _read_buffer(array: Any, writable: bool, moved: bool) -> Region:
    try:
        view = memoryview(array)  # also keeps a bytearray from moving while a call is under way
    except (BufferError, TypeError, ValueError) as error:  # it was released, or closed
        raise InvalidArgument(f"{type(array).__name__} exports no memory now: {error}") from None
    if writable and view.readonly:
        raise _read_only("buffer")
    if not view.c_contiguous:
        raise _not_contiguous("buffer", "a copy, for example bytearray(x)", writable)
    order, code = view.format[:-1], view.format[-1:]
    if order and order in _SWAPPED:
        raise InvalidArgument(f"the buffer's bytes are swapped (format {view.format!r}): pass it in native order")
    plain = order in ("", "@", "=", "<", ">")
    if plain and code in _KINDS:
        name = f"{_KINDS[code]}{view.itemsize * 8}"
    else:
        name = _MOVED.get(view.format, f"format {view.format!r}")
    number = _number(name, view.itemsize, moved and ((plain and code in _KINDS) or view.format in _MOVED))
    try:
        address = _addressof(_from_buffer(view))
    except (TypeError, ValueError):  # read-only, or empty
        address = _buffer_address(view)
    return address, view.nbytes // view.itemsize, number, view


def _buffer_address(view: memoryview) -> int:
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address or 0


# ---- __array_interface__ ----


_INTERFACE_KINDS = {"i": "int", "u": "uint", "f": "float", "b": "bool", "c": "complex"}
_TYPESTR = re.compile(r"([<>|=])([a-zA-Z])([0-9]*)(\[[^]]*\])?")


@lru_cache(maxsize=256)
def _element_of(typestr: str) -> tuple[str, str, int, str] | None:
    """Of a typestr: byte order, kind, bytes of an element, and its type's name."""
    read = _TYPESTR.fullmatch(typestr)
    if read is None:
        return None
    kind, size = read[2], int(read[3] or 0)
    name = f"{_INTERFACE_KINDS[kind]}{size * 8}" if kind in _INTERFACE_KINDS else repr(read[0])
    return read[1], kind, size, name


def _read_array_interface(array: Any, writable: bool, moved: bool) -> Region:
    return _from_interface(array, array.__array_interface__, writable, moved)


def _from_interface(array: Any, interface: dict[str, Any], writable: bool, moved: bool) -> Region:
    element = _element_of(str(interface.get("typestr")))
    shape, strides = interface.get("shape"), interface.get("strides")
    if element is None or not isinstance(shape, (tuple, list)):
        raise InvalidArgument(
            f"{type(array).__name__}'s array interface has no typestr or no shape: pass a NumPy array"
        )
    order, kind, size, name = element
    number = _number(name, size, moved and kind in "iufbcmM")
    if order in _SWAPPED:
        raise InvalidArgument(f"the array's bytes are swapped ({interface['typestr']}): pass it in native order")
    data = interface.get("data")
    if not isinstance(data, tuple):
        raise InvalidArgument("__array_interface__ gives no address, but a buffer: pass that buffer")
    address, read_only = data
    if writable and read_only:
        raise _read_only("array")
    if strides is not None and not contiguous(shape, strides, size):
        raise _not_contiguous("array", "a contiguous copy", writable)
    # The interface may belong to a temporary: it is kept with the array.
    return address, math.prod(shape), number, (array, interface)


# ---- __cuda_array_interface__ ----


def _read_cuda(array: Any, writable: bool, moved: bool) -> Region:
    """CuPy, Numba and whatever else exports GPU memory. The interface's stream is the one to be used.

    Before version 3 it has none, so nobody would wait for what still writes the array: DLPack says so too.
    """
    interface = array.__cuda_array_interface__
    address, count, number, keep = _from_interface(array, interface, writable, moved)
    if interface["version"] < 3 and _is_on_gpu(array):
        tensor = dlpack.export(array)
        return address, count, number, OnGpu((keep, tensor.capsule), 0, tensor.gpu)
    stream = interface.get("stream")
    if _library_of(array) == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream().ptr
    return address, count, number, OnGpu(keep, stream or 0)


def contiguous(shape: Any, strides: Any, element: int = 1) -> bool:
    """Whether these strides are those of C order, where an element is so long; without elements any are."""
    if 0 in shape:
        return True
    expected = element
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


# ---- DLPack ----


def _read_dlpack(array: Any, writable: bool, moved: bool) -> Region:
    tensor = dlpack.export(array)
    number = _number(tensor.type_name, tensor.element_bytes, moved)
    if writable and tensor.read_only:
        raise _read_only("array")
    if writable and tensor.copied:
        raise InvalidArgument(f"{type(array).__name__} exports a copy, in which the result is lost: pass another out=")
    if tensor.strides is not None and not contiguous(tensor.shape, tensor.strides):
        raise _not_contiguous("array", "a contiguous copy", writable)
    keep: Any = (array, tensor.capsule)
    if tensor.gpu is not None:
        keep = OnGpu(keep, 0, tensor.gpu)
    return tensor.address, math.prod(tensor.shape), number, keep
