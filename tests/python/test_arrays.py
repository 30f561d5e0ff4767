"""Reading where an array's memory is, from everything that exports memory."""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paceline import DATA_TYPES, InvalidArgument, ResourceError, Unsupported, empty
from paceline.arrays import OnGpu, as_bytes, contiguous, new_like, numpy_dtype, region, shape_of


def read(x: Any, writable: bool = True) -> tuple[int, int, str]:
    address, count, kind, _ = region(x, writable)
    return address, count, next(name for name, row in DATA_TYPES.items() if row.number == kind)


@pytest.mark.parametrize("dtype", DATA_TYPES)
@pytest.mark.parametrize("shape", [(7,), (), (0,), (2, 0, 3), (2, 3, 5), (1, 4, 1)])
def test_numpy_of_every_type_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    x = numpy.zeros(shape, numpy_dtype(dtype))
    address, count, name = read(x)
    assert (count, name) == (x.size, dtype)
    if count:
        assert address == x.__array_interface__["data"][0]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data())
def test_contiguity_is_numpys(shape: list[int], data: st.DataObject) -> None:
    x = numpy.zeros(shape).transpose(data.draw(st.permutations(range(len(shape)))))
    assert contiguous(x.shape, [stride // 8 for stride in x.strides]) == x.flags.c_contiguous
    if x.flags.c_contiguous:
        assert read(x)[1] == x.size
    else:
        with pytest.raises(InvalidArgument, match="not contiguous"):
            read(x)


def test_a_view_begins_where_it_begins() -> None:
    x = numpy.zeros(10, numpy.float32)
    assert read(x[3:])[0] == x.ctypes.data + 12
    assert read(x[3:])[1] == 7


def test_more_than_2_31_bytes() -> None:
    x = numpy.empty(2**31 + 5, numpy.uint8)  # never touched
    assert read(x)[1] == 2**31 + 5
    assert read(memoryview(mmap.mmap(-1, 2**31 + 4096)))[1] == 2**31 + 4096


@pytest.mark.parametrize(
    ("x", "remedy"),
    [
        (numpy.zeros((4, 4))[:, ::2], "numpy.ascontiguousarray"),
        (numpy.zeros((4, 4)).T[1:], "numpy.ascontiguousarray"),
        (numpy.asfortranarray(numpy.zeros((4, 4), ml_dtypes.bfloat16)), "numpy.ascontiguousarray"),
        (memoryview(bytearray(8))[::2], "bytearray"),
    ],
)
def test_not_contiguous(x: Any, remedy: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"not contiguous.*: pass .*{remedy}\(x\)$"):
        read(x, writable=False)
    with pytest.raises(InvalidArgument, match=rf"not contiguous.*: work on .*{remedy}\(x\), and copy that back into"):
        read(x)


def test_read_only_comes_before_not_contiguous() -> None:
    """The advice to copy a result back would be wrong."""
    x = numpy.zeros((4, 4))
    x.flags.writeable = False
    arrays = [
        x.T[1:],
        memoryview(b"12345678")[::2],
        Interface(x.T),
        Exporter(x.T),
        Cuda(data=(0x100, True), strides=(4, 12)),
    ]
    for frozen in arrays:
        with pytest.raises(InvalidArgument, match="read-only"):
            region(frozen, True)
        with pytest.raises(InvalidArgument, match="not contiguous"):
            region(frozen, False)


@pytest.mark.parametrize(
    ("shape", "made"),
    [
        (numpy.prod((2, 3)), (6,)),
        (numpy.array(4), (4,)),
        ([numpy.int32(2), 3], (2, 3)),
        ((), ()),
        (iter((2, 0)), (2, 0)),
    ],
)
def test_shapes_of_own_memory(shape: Any, made: tuple[int, ...]) -> None:
    assert empty(shape).shape == made


@pytest.mark.parametrize("shape", [-1, (2, -1), (0, -3)])
def test_own_memory_has_no_negative_dimensions(shape: Any) -> None:
    for make in (empty, numpy.empty):
        with pytest.raises(ValueError, match="negative dimensions are not allowed"):
            make(shape)


@pytest.mark.parametrize("shape", [2.0, (2.5,), "a", None])
def test_the_shape_of_own_memory_is_of_whole_numbers(shape: Any) -> None:
    with pytest.raises(InvalidArgument, match="give a whole number, or several"):
        empty(shape)


@pytest.mark.parametrize("dtype", ["float31", [1], object, "S0", (3, 4, 5)])
def test_the_type_of_own_memory_has_a_size(dtype: Any) -> None:
    with pytest.raises(InvalidArgument, match="dtype is "):
        empty(3, dtype)


@pytest.mark.parametrize("count", [1 << 61, 1 << 62, (1 << 62) + 1])
def test_more_own_memory_than_an_address_counts_is_refused(count: int) -> None:
    with pytest.raises(ResourceError, match=f"{4 * count} bytes"):
        empty(count, "float32")


def test_a_forked_child_shares_own_memory_and_copies_other() -> None:
    shared, other = empty(4), numpy.zeros(4, numpy.float32)
    child = os.fork()
    if child == 0:
        shared[:] = other[:] = 7
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert (shared[0], other[0]) == (7, 0)


def test_read_only() -> None:
    x = numpy.zeros(4)
    x.flags.writeable = False
    half = numpy.zeros(4, ml_dtypes.bfloat16)
    half.flags.writeable = False
    for frozen in (x, half, b"1234", memoryview(x)):
        with pytest.raises(InvalidArgument, match="read-only"):
            read(frozen, writable=True)
        assert read(frozen, writable=False)[1] == 4
    assert read(x, writable=False)[0] == x.__array_interface__["data"][0]


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (numpy.zeros(4, bool), "bool.*uint8"),
        (numpy.zeros(4, complex), "complex128.*real view.*float64"),
        (numpy.zeros(4, numpy.complex64), "complex64.*real view.*float32"),
        (numpy.zeros(4, numpy.int16), "int16"),
        (numpy.zeros(4, ">f4"), "swapped.*newbyteorder"),
        (numpy.zeros(4, "datetime64[s]"), "datetime64"),
        (numpy.zeros(4, "S5"), "supported: int8"),
        (numpy.zeros(4, [("a", "f4")]), "supported"),
        (numpy.array([None]), "object"),
        (numpy.ma.masked_array([1.0], [True]), "mask"),
        (numpy.float32(1), "scalar"),
        (array.array("h", [1]), "int16"),
        (memoryview(numpy.zeros(1, ">i4")), "swapped"),
        (memoryview(numpy.zeros(1, bool)), "bool"),
        (memoryview(numpy.zeros(1, numpy.complex64)), "complex64"),
        ([1.0, 2.0], "list exports no memory"),
        (3.5, "float exports no memory"),
        ("text", "str exports no memory"),
        (None, "NoneType exports no memory"),
    ],
)
def test_what_cannot_be_used(x: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        read(x)


@pytest.mark.parametrize(
    ("x", "name"),
    [
        (bytearray(8), "uint8"),
        (array.array("b", [1] * 8), "int8"),
        (array.array("i", [1] * 8), "int32"),
        (array.array("l", [1] * 8), "int64"),
        (array.array("Q", [1] * 8), "uint64"),
        (array.array("f", [1] * 8), "float32"),
        (memoryview(bytearray(32)).cast("I", [2, 4]), "uint32"),
        (memoryview(numpy.zeros((2, 4), numpy.float16)), "float16"),
        ((ctypes.c_double * 8)(), "float64"),
        ((ctypes.c_int32 * 4 * 2)(), "int32"),
    ],
)
def test_the_buffer_protocol(x: Any, name: str) -> None:
    address, count, found = read(x)
    assert (count, found) == (8, name)
    assert address == numpy.asarray(x).ctypes.data


def test_a_bytearray_does_not_move_while_its_memory_is_kept() -> None:
    x = bytearray(8)
    kept = region(x, True)
    with pytest.raises(BufferError):
        x.append(1)
    del kept
    x.append(1)


class Interface:
    """Exports an array by __array_interface__ alone."""

    def __init__(self, x: numpy.ndarray[Any, Any]) -> None:
        self.x = x
        self.__array_interface__ = x.__array_interface__


def test_the_array_interface() -> None:
    x = numpy.zeros((3, 4), numpy.int32)
    assert read(Interface(x)) == (x.ctypes.data, 12, "int32")
    with pytest.raises(InvalidArgument, match="not contiguous"):
        read(Interface(x.T))
    with pytest.raises(InvalidArgument, match="swapped"):
        read(Interface(x.astype(">i4")))
    with pytest.raises(InvalidArgument, match="bool8"):
        read(Interface(x.astype(bool)))
    x.flags.writeable = False
    with pytest.raises(InvalidArgument, match="read-only"):
        read(Interface(x))


def test_a_field_of_records_is_not_contiguous() -> None:
    """Its elements of 4 bytes stand 5 bytes apart."""
    records = numpy.zeros(3, [("value", numpy.float32), ("mark", numpy.uint8)])
    with pytest.raises(InvalidArgument, match="not contiguous"):
        read(Interface(records["value"]))
    with pytest.raises(InvalidArgument, match="not contiguous"):
        region(Cuda(shape=(3,), strides=(5,)), True)


class Exporter:
    """Exports an array by DLPack alone."""

    def __init__(self, x: Any, device: int = 1, versioned: bool = True) -> None:
        self.x, self.device, self.versioned = x, device, versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **keywords: Any) -> Any:
        if keywords and not self.versioned:
            raise TypeError("an exporter from before DLPack 1.0")
        return self.x.__dlpack__(**keywords)


@pytest.mark.parametrize(
    ("x", "count", "nbytes"),
    [
        (memoryview(numpy.zeros(3, bool)), 3, 1),
        (memoryview(numpy.zeros(3, numpy.complex64)), 3, 8),
        (array.array("h", [1, 2]), 2, 2),
        (Interface(numpy.zeros((2, 3), numpy.complex128)), 6, 16),
        (Interface(numpy.zeros(3, "M8[ns]")), 3, 8),
        (Exporter(numpy.zeros(3, bool)), 3, 1),
        (Exporter(numpy.zeros(3, numpy.int16)), 3, 2),
        (numpy.zeros((), "S7"), 1, 7),
    ],
)
def test_elements_of_other_types_are_moved_as_bytes(x: Any, count: int, nbytes: int) -> None:
    assert region(x, True, moved=True)[1:3] == (count, -nbytes)
    assert as_bytes(count, -nbytes) == (count * nbytes, DATA_TYPES["uint8"].number)
    with pytest.raises(InvalidArgument, match="are not supported"):
        region(x, True)
    if not isinstance(x, Exporter):
        made = new_like(x, (4,), -nbytes)
        assert (made.shape, made.dtype) == ((4,), numpy.asarray(x).dtype)


@pytest.mark.parametrize(
    "x",
    [
        numpy.zeros(3, object),
        numpy.zeros(3, [("a", object)]),
        numpy.zeros(3, numpy.dtype([])),
        numpy.array(["a"], numpy.dtypes.StringDType()),
        Interface(numpy.zeros(3, object)),
    ],
)
def test_objects_are_not_moved(x: Any) -> None:
    with pytest.raises(InvalidArgument, match="are not supported"):
        region(x, False, moved=True)


def test_what_is_moved_is_in_native_order_too() -> None:
    for x in (numpy.zeros(3, ">i2"), numpy.zeros(3, [("a", ">i2")])):
        with pytest.raises(InvalidArgument, match="swapped"):
            region(x, False, moved=True)


class Odd:
    def __init__(self, **interface: Any) -> None:
        self.__array_interface__ = interface


@pytest.mark.parametrize(
    "interface", [{"shape": (3,)}, {"typestr": "<f4"}, {"typestr": "f4", "shape": (3,)}, {"typestr": 4, "shape": (3,)}]
)
def test_an_array_interface_without_a_type_or_a_shape(interface: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="Odd's array interface has no typestr or no shape"):
        read(Odd(**interface))


@pytest.mark.parametrize("dtype", ["M8[s]", object])
def test_an_array_interface_of_an_odd_type(dtype: Any) -> None:
    with pytest.raises(InvalidArgument, match="are not supported"):
        read(Interface(numpy.zeros(3, dtype)))


def test_a_released_buffer() -> None:
    view = memoryview(bytearray(8))
    view.release()
    file = mmap.mmap(-1, 4096)
    read(file)
    file.close()
    for closed in (view, file):
        with pytest.raises(InvalidArgument, match=r"(memoryview|mmap) exports no memory now: .*(released|closed)"):
            read(closed)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned: bool) -> None:
    x = numpy.zeros((3, 4), numpy.float16)
    assert read(Exporter(x[1:], versioned=versioned)) == (x.ctypes.data + 8, 8, "float16")
    assert read(Exporter(numpy.zeros(()), versioned=versioned))[1:] == (1, "float64")
    assert read(Exporter(numpy.zeros((0, 3)), versioned=versioned))[1:] == (0, "float64")
    with pytest.raises(InvalidArgument, match="not contiguous"):
        read(Exporter(x.T, versioned=versioned))
    with pytest.raises(InvalidArgument, match="bool"):
        read(Exporter(x.astype(bool), versioned=versioned))


def test_dlpack_read_only() -> None:
    x = numpy.zeros(4)
    x.flags.writeable = False
    assert read(Exporter(x), writable=False)[1] == 4
    with pytest.raises(InvalidArgument, match="read-only"):
        read(Exporter(x))
    for writable in (False, True):  # in DLPack 0 it would look writable
        with pytest.raises(InvalidArgument, match=r"Exporter does not export its memory: .*readonly.*: pass a copy"):
            read(Exporter(x, versioned=False), writable)


def test_dlpack_of_a_copy_is_only_read() -> None:
    class Copies(Exporter):
        def __dlpack__(self, **keywords: Any) -> Any:
            return super().__dlpack__(copy=True, **keywords)

    x = Copies(numpy.zeros(4))
    assert read(x, writable=False)[1] == 4
    with pytest.raises(InvalidArgument, match=r"Copies exports a copy, .*lost: pass another out="):
        read(x)


def test_memory_of_other_devices_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"DLPack type 10\): copy it"):
        read(Exporter(numpy.zeros(4), device=10))


def test_dlpack_tells_gpu_memory() -> None:
    class OnCuda(Exporter):
        def __dlpack__(self, stream: object = None, **arguments: Any) -> object:
            self.stream = stream
            return super().__dlpack__(**arguments)

    x = OnCuda(numpy.zeros(4, numpy.float32), device=2)
    address, count, _, keep = region(x, True)
    assert isinstance(keep, OnGpu) and keep.stream == 1
    assert keep.gpu is not None  # it must be kept until the call has ended
    assert x.stream == 1  # CUDA's default stream, where the call goes on
    assert (address, count) == (x.x.ctypes.data, 4)


def test_gpu_memory_without_a_stream_is_made_ready_by_dlpack() -> None:
    class Jax(Exporter):
        """As JAX has it: version 2 of the interface, which has no stream, and DLPack."""

        def __init__(self) -> None:
            super().__init__(numpy.zeros(12, numpy.float32), device=2)
            self.asked: list[object] = []
            self.__cuda_array_interface__ = Cuda(version=2, data=(0x7F0000000100, True)).__cuda_array_interface__

        def __dlpack__(self, stream: object = None, **arguments: Any) -> object:
            self.asked.append(stream)
            return super().__dlpack__(**arguments)

    x = Jax()
    address, count, _, keep = region(x, False)
    assert (address, count, x.asked) == (0x7F0000000100, 12, [1])
    assert isinstance(keep, OnGpu) and (keep.stream, keep.gpu) == (1, 0)
    with pytest.raises(InvalidArgument, match="read-only"):
        region(x, True)


def test_jax_arrays_are_read_where_each_of_them_is() -> None:
    class ArrayImpl:
        """One type for both: as JAX has it, the interface is there only where the memory is a GPU's."""

        def __init__(self, on_gpu: bool) -> None:
            if on_gpu:
                self.__cuda_array_interface__ = Cuda().__cuda_array_interface__
            else:
                self.__array_interface__ = numpy.zeros(5, numpy.int8).__array_interface__

    ArrayImpl.__module__ = "jaxlib._jax"
    assert read(ArrayImpl(False))[1:] == (5, "int8")
    assert read(ArrayImpl(True))[1:] == (12, "float32")
    assert read(ArrayImpl(False))[1:] == (5, "int8")


class Cuda:
    """An array in GPU memory, as CuPy and Numba export it."""

    def __init__(self, **changes: object) -> None:
        interface = {"shape": (3, 4), "typestr": "<f4", "data": (0x7F0000000100, False), "version": 3, "stream": 1}
        self.__cuda_array_interface__ = {**interface, **changes}


def test_cuda_array_interface_tells_the_stream() -> None:
    assert read(Cuda()) == (0x7F0000000100, 12, "float32")
    keep = region(Cuda(), True)[3]
    assert isinstance(keep, OnGpu) and keep.stream == 1
    keep = region(Cuda(stream=None), True)[3]
    assert isinstance(keep, OnGpu) and keep.stream == 1  # the default one, by the name that is not NULL


def test_cuda_array_interface_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="not contiguous"):
        region(Cuda(strides=(4, 12)), False)
    with pytest.raises(InvalidArgument, match="read-only"):
        region(Cuda(data=(0x7F0000000100, True)), True)
    with pytest.raises(InvalidArgument, match="complex64"):
        region(Cuda(typestr="<c8"), False)


def test_results_are_made_like_their_input() -> None:
    x = numpy.zeros(3, ml_dtypes.bfloat16)
    made = new_like(x, (2, 3), DATA_TYPES["bfloat16"].number)
    assert (made.shape, made.dtype) == ((2, 3), x.dtype)
    made = new_like(array.array("i", [1]), (2, 1), DATA_TYPES["int32"].number)
    assert (made.shape, made.dtype) == ((2, 1), numpy.int32)
    assert shape_of(array.array("i", [1, 2])) == (2,)
    assert shape_of(numpy.zeros((2, 3))) == (2, 3)


def test_results_for_tensors_of_any_class_are_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        """As torch.Tensor makes others like itself."""

        def new_empty(self, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
            return "tensor", shape

    class Own(Tensor):
        """A program's own, of its own module."""

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    for x in (Tensor(), Own()):
        assert new_like(x, (2, 5), DATA_TYPES["float32"].number) == ("tensor", (2, 5))


@pytest.mark.parametrize("shape", [(), (5,), (2, 0), (2, 3)])
def test_the_shape_of_arrays_that_do_not_tell_it(shape: tuple[int, ...]) -> None:
    x = numpy.zeros(shape, numpy.float32)
    for exported in (Interface(x), Exporter(x), Exporter(x, versioned=False), Cuda(shape=shape)):
        assert not hasattr(exported, "shape")
        assert shape_of(exported) == shape


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    for name in ("float32", "bfloat16", "float16", "int64", "uint8", "float8_e4m3fn", "float8_e5m2"):
        x = torch.zeros(3, 4, dtype=getattr(torch, name))
        assert read(x) == (x.data_ptr(), 12, name.replace("_e4m3fn", "e4m3").replace("_e5m2", "e5m2"))
        assert new_like(x, (2, 5), 0).shape == (2, 5)
    with pytest.raises(InvalidArgument, match=r": pass tensor.contiguous\(\)$"):
        read(torch.zeros(3, 4).T, writable=False)
    with pytest.raises(InvalidArgument, match=r"work on tensor.contiguous\(\), and copy that back into the tensor"):
        read(torch.zeros(3, 4).T)
    with pytest.raises(InvalidArgument, match="bool"):
        read(torch.zeros(3, dtype=torch.bool))
    with pytest.raises(InvalidArgument, match="to_dense"):
        read(torch.zeros(3, 3).to_sparse())
    assert read(torch.nn.Parameter(torch.zeros(3)))[1] == 3
