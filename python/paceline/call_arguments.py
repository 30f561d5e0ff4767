"""What the calls of a communicator ask of their arguments."""

from __future__ import annotations

import struct
from ctypes import c_int
from typing import Any, Literal, TypeAlias

from .arguments import integer
from .arrays import new_like, region, shape_of, type_name
from .datatypes import BY_NUMBER, OPERATIONS, PreMulSum
from .errors import InvalidArgument
from .group import note_refusal
from .membership import Membership

Operation: TypeAlias = Literal["sum", "prod", "max", "min", "avg"] | PreMulSum
"""What `op` takes."""

# What others call the operations.
_OTHER_NAMES = {
    **{name: name for name in OPERATIONS},
    **{"add": "sum", "mul": "prod", "multiply": "prod", "product": "prod", "maximum": "max", "amax": "max"},
    **{"minimum": "min", "amin": "min", "mean": "avg", "average": "avg"},
}
_PREMULSUM_OPERATORS = 16  # kept for each communicator; the oldest makes room


def refusal(message: str) -> InvalidArgument:
    """The error of a call that fails a check here."""
    error = InvalidArgument(message)
    note_refusal(error)
    return error


def _no_operation(op: object) -> str:
    """What is wrong with it."""
    if callable(op):
        name = getattr(op, "__name__", type(op).__name__)
        if name in _OTHER_NAMES:
            return f'op is the function {name}: say op="{_OTHER_NAMES[name]}"'
        return f"op is the function {name}: write its call, as premulsum(scalar)"
    if not isinstance(op, str):
        return f"op is of {type(op).__name__}: it is a name (the place for the result is out=)"
    meant = _OTHER_NAMES.get(op.lower())
    hint = f"did you mean {meant!r}? There are" if meant else "take one of"
    return f"there is no operation {op!r}: {hint} {', '.join(OPERATIONS)}, or premulsum()"


def made_like(x: Any, shape: tuple[int, ...], kind: int) -> Any:
    """A new array for a call's result."""
    try:
        return new_like(x, shape, kind)
    except BaseException as error:
        note_refusal(error)
        raise


class CallArguments(Membership):
    """What a communicator's calls go by: the checks of what they are given, and its own reduction operators."""

    def __init__(self, handle: int | None) -> None:
        super().__init__(handle)
        self._operators: dict[tuple[float | str, int], int] = {}

    def _output(self, out: Any, count: int, kind: int, keep: Any) -> tuple[int, Any]:
        """The address of `out`, which must have this count and type; and what keeps it and the input alive."""
        address, available, out_kind, keep_out = region(out, True, moved=kind < 0)
        if available != count or out_kind != kind:
            raise refusal(
                f"out has {available} elements of {type_name(out_kind)}, but the result has {count} of "
                f"{type_name(kind)}"
            )
        return address, (keep, keep_out)

    def _rank(self, name: str, value: int) -> int:
        if type(value) is int and 0 <= value < self.size:  # all but always, and on the way of short calls
            return value
        try:
            return integer(name, value, 0, self.size - 1)
        except InvalidArgument as error:
            note_refusal(error)
            raise

    def _part(self, total: int) -> int:
        if total % self.size:
            raise refusal(f"x has {total} elements, which do not divide into {self.size} equal parts")
        return total // self.size

    def _rows(self, x: Any) -> tuple[int, ...]:
        shape = shape_of(x)
        if not shape or shape[0] != self.size:
            raise refusal(f"x has shape {shape}: it must be ({self.size}, ...), one row a rank, or give out=")
        return shape[1:]

    def _operator(self, op: Operation, kind: int) -> int:
        number = OPERATIONS.get(op) if isinstance(op, str) else None
        if number is not None:
            return number
        if isinstance(op, PreMulSum):
            return self._premulsum(op.scalar, kind)
        raise refusal(_no_operation(op))

    def _premulsum(self, scalar: float, kind: int) -> int:
        key = (scalar or str(scalar), kind)  # 0.0 and -0.0 are equal, and two operators
        number = self._operators.get(key)
        if number is not None:
            return number
        if len(self._operators) == _PREMULSUM_OPERATORS:
            oldest = next(iter(self._operators))
            self._library.paceRedOpDestroy(self._operators.pop(oldest), self._handle)
        operator = c_int()
        try:
            element = BY_NUMBER[kind].encode(scalar)
        except (ValueError, OverflowError, struct.error):
            raise refusal(f"premulsum({scalar}): {BY_NUMBER[kind].name} cannot hold this number") from None
        result = self._library.paceRedOpCreatePreMulSum(operator, element, kind, self._handle)
        if result:
            error = self._failure(result)
            note_refusal(error)
            raise error
        self._operators[key] = operator.value
        return operator.value
