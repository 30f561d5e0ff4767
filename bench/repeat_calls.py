"""Calls of C libraries made many times in a row, by a loop in C: a program in C or C++ would call them like that."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MOST = 9  # arguments


class _Call(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("arguments", ctypes.c_long * _MOST)]


def call(function: Any, *arguments: int) -> tuple[int, tuple[int, ...]]:
    """A call of a ctypes function whose arguments are integers and addresses and whose result is 0 if it went well."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0, arguments


def repeat(calls: Sequence[tuple[int, tuple[int, ...]]], times: int) -> int:
    """All calls in their order, so many times; 0, or what the first that fails returns."""
    result: int = _library().repeat_calls(_in_a_row(calls), len(calls), times)
    return result


def timed_calls(made: tuple[int, tuple[int, ...]], times: int) -> tuple[int, list[int]]:
    """A call so many times: 0, or what the first that fails returns; and what each took, nanoseconds."""
    took = (ctypes.c_long * times)()
    result: int = _library().timed_calls(_in_a_row([made]), times, took)
    return result, list(took)


def _in_a_row(calls: Sequence[tuple[int, tuple[int, ...]]]) -> ctypes.Array[_Call]:
    row = (_Call * len(calls))()
    for place, (function, arguments) in zip(row, calls, strict=True):
        place.function = function
        place.arguments[: len(arguments)] = arguments
    return row


@functools.cache
def _library() -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise OSError("no C compiler: cc, gcc or clang makes the loop that makes the calls")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "repeat_calls.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))
