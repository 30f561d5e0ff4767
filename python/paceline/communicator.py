"""The communicator: its collectives, its messages, and others made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from ctypes import c_int, c_void_p
from typing import Any, Literal, TypeVar, overload

from . import _native
from .arguments import config, integer
from .arrays import as_bytes, region, shape_of
from .call_arguments import Operation, made_like, refusal
from .call_queue import Handle
from .errors import InvalidArgument
from .group import group
from .insight import Insight
from .membership import leave_unclaimed

T = TypeVar("T")


class Communicator(Insight):
    """The ranks that take part. Make one with `paceline.init()`, `split` or `shrink`.

    Every rank calls the same collectives in the same order. Arrays are NumPy arrays, torch tensors, or anything with
    the buffer protocol, `__array_interface__` or `__dlpack__`, in C order; or in GPU memory, torch tensors, CuPy arrays
    or anything with `__cuda_array_interface__`. A call on GPU memory goes on on the array's stream and returns at once.

    What is common to the collectives:

    * `op` is "sum", "prod", "max", "min", "avg", or what `paceline.premulsum(scalar)` makes.
    * Reductions take the types of `paceline.DATA_TYPES`, the others elements of any fixed size, but no objects.
    * `out` is where the result goes; without it a collective works in place or makes a new array, as it says.
    * With `async_op=True` a call returns a `Handle` at once; its `wait()` returns what the call would have returned.
      Leave the arrays alone until then.
    * Inside a `group()` results are there only after the group.

    They raise InvalidArgument for an array or argument that cannot be used, Mismatch where ranks called different
    things, RemoteError where a rank died, Timeout where one did not answer, Aborted after an abort, and InvalidUsage
    after close. All of them are `paceline.Error`.

    A communicator is used by one thread at a time (`abort` and `get_async_error` by any).
    """

    def __init__(self, handle: int | None) -> None:
        """Takes over a paceComm_t; programs use `paceline.init()`."""
        super().__init__(handle)
        # Bound once: a look-up in the library costs as much as a small call's checks.
        self._all_reduce, self._broadcast = self._library.paceAllReduce, self._library.paceBroadcast

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"rank {self.rank} of {self.size}"
        return f"<paceline.Communicator, {state}>"

    # ---- Collectives ----

    @overload
    def all_reduce(self, x: T, op: Operation = ..., out: None = ..., async_op: Literal[False] = ...) -> T: ...
    @overload
    def all_reduce(self, x: Any, op: Operation = ..., *, out: T, async_op: Literal[False] = ...) -> T: ...
    @overload
    def all_reduce(self, x: T, op: Operation = ..., out: None = ..., *, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def all_reduce(self, x: Any, op: Operation = ..., *, out: T, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def all_reduce(self, x: Any, op: Operation = ..., out: Any = ..., async_op: bool = ...) -> Any: ...
    def all_reduce(self, x: Any, op: Operation = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce over all ranks; every rank gets the result, the same bits everywhere.

        Args:
            x: any shape, the same number of elements and type on every rank.
            out: as many elements as x; None: the result replaces x.

        Returns:
            out, or x: the array with the result.

        Example::

            comm.all_reduce(gradient, op="avg")
        """
        if out is None:
            send, count, kind, keep = region(x, True)
            recv, out = send, x
        else:
            send, count, kind, keep = region(x, False)
            recv, keep = self._output(out, count, kind, keep)
        return self._call(self._all_reduce, (send, recv, count, kind, self._operator(op, kind)), keep, out, async_op)

    @overload
    def broadcast(self, x: T, root: int = ..., async_op: Literal[False] = ...) -> T: ...
    @overload
    def broadcast(self, x: T, root: int = ..., *, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def broadcast(self, x: Any, root: int = ..., async_op: bool = ...) -> Any: ...
    def broadcast(self, x: Any, root: int = 0, async_op: bool = False) -> Any:
        """Copy root's x into every rank's x, which is returned.

        Args:
            x: any shape, the same number of elements and type on every rank. It is only read on root.
        """
        root = self._rank("root", root)
        data, count, kind, keep = region(x, self.rank != root, moved=True)
        return self._call(self._broadcast, (data, data, *as_bytes(count, kind), root), keep, x, async_op)

    @overload
    def reduce(
        self, x: Any, op: Operation = ..., root: int = ..., out: Any = ..., *, async_op: Literal[True]
    ) -> Handle[Any]: ...
    @overload
    def reduce(self, x: Any, op: Operation = ..., root: int = ..., out: Any = ..., async_op: bool = ...) -> Any: ...
    def reduce(self, x: Any, op: Operation = "sum", root: int = 0, out: Any = None, async_op: bool = False) -> Any:
        """Reduce over all ranks; only root gets the result.

        Args:
            x: any shape, the same number of elements and type on every rank.
            out: on root, as many elements as x; None: the result replaces root's x. Ignored on other ranks.

        Returns:
            The array with the result on root, None on other ranks.
        """
        root = self._rank("root", root)
        at_root = self.rank == root
        send, count, kind, keep = region(x, at_root and out is None)
        recv = None
        if at_root and out is None:
            recv, out = send, x
        elif at_root:
            recv, keep = self._output(out, count, kind, keep)
        arguments = (send, recv, count, kind, self._operator(op, kind), root)
        return self._call(self._library.paceReduce, arguments, keep, out if at_root else None, async_op)

    @overload
    def all_gather(self, x: Any, *, out: T, async_op: Literal[False] = ...) -> T: ...
    @overload
    def all_gather(self, x: Any, *, out: T, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def all_gather(self, x: Any, out: Any = ..., *, async_op: Literal[True]) -> Handle[Any]: ...
    @overload
    def all_gather(self, x: Any, out: Any = ..., async_op: bool = ...) -> Any: ...
    def all_gather(self, x: Any, out: Any = None, async_op: bool = False) -> Any:
        """Gather every rank's x on every rank.

        Args:
            x: any shape, the same number of elements and type on every rank.
            out: size times as many elements as x; x may be its part number `rank` (`out[rank]`), which saves a copy.
                None: a new array of shape (size, *x.shape).

        Returns:
            out; out[r] is rank r's x.
        """
        send, count, kind, keep = region(x, False, moved=True)
        if out is None:
            out = made_like(x, (self.size, *shape_of(x)), kind)
        recv, keep = self._output(out, self.size * count, kind, keep)
        return self._call(self._library.paceAllGather, (send, recv, *as_bytes(count, kind)), keep, out, async_op)

    @overload
    def reduce_scatter(self, x: Any, op: Operation = ..., *, out: T, async_op: Literal[False] = ...) -> T: ...
    @overload
    def reduce_scatter(self, x: Any, op: Operation = ..., *, out: T, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def reduce_scatter(
        self, x: Any, op: Operation = ..., out: Any = ..., *, async_op: Literal[True]
    ) -> Handle[Any]: ...
    @overload
    def reduce_scatter(self, x: Any, op: Operation = ..., out: Any = ..., async_op: bool = ...) -> Any: ...
    def reduce_scatter(self, x: Any, op: Operation = "sum", out: Any = None, async_op: bool = False) -> Any:
        """Reduce over all ranks, and give each rank its part of the result.

        Args:
            x: shape (size, ...), or with `out` any shape with size times its elements; x[r] is rank r's part.
            out: this rank's part; it may be x[rank], which saves a copy. None: a new array of shape x.shape[1:].

        Returns:
            out.
        """
        send, total, kind, keep = region(x, False)
        count = self._part(total)
        if out is None:
            out = made_like(x, self._rows(x), kind)
        recv, keep = self._output(out, count, kind, keep)
        arguments = (send, recv, count, kind, self._operator(op, kind))
        return self._call(self._library.paceReduceScatter, arguments, keep, out, async_op)

    @overload
    def gather(self, x: Any, root: int = ..., out: Any = ..., *, async_op: Literal[True]) -> Handle[Any]: ...
    @overload
    def gather(self, x: Any, root: int = ..., out: Any = ..., async_op: bool = ...) -> Any: ...
    def gather(self, x: Any, root: int = 0, out: Any = None, async_op: bool = False) -> Any:
        """Gather every rank's x on root.

        Args:
            x: any shape, the same number of elements and type on every rank. On root it may be out[root], which saves
                a copy.
            out: on root, size times as many elements as x; None: a new array of shape (size, *x.shape). Ignored on
                other ranks.

        Returns:
            out on root (out[r] is rank r's x), None on other ranks.
        """
        root = self._rank("root", root)
        send, count, kind, keep = region(x, False, moved=True)
        recv = None
        if self.rank != root:
            out = None
        else:
            if out is None:
                out = made_like(x, (self.size, *shape_of(x)), kind)
            recv, keep = self._output(out, self.size * count, kind, keep)
        return self._call(self._library.paceGather, (send, recv, *as_bytes(count, kind), root), keep, out, async_op)

    @overload
    def scatter(self, x: Any = ..., root: int = ..., *, out: T, async_op: Literal[False] = ...) -> T: ...
    @overload
    def scatter(self, x: Any = ..., root: int = ..., *, out: T, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def scatter(self, x: Any = ..., root: int = ..., out: Any = ..., *, async_op: Literal[True]) -> Handle[Any]: ...
    @overload
    def scatter(self, x: Any = ..., root: int = ..., out: Any = ..., async_op: bool = ...) -> Any: ...
    def scatter(self, x: Any = None, root: int = 0, out: Any = None, async_op: bool = False) -> Any:
        """Give each rank its part of root's x.

        Args:
            x: on root, shape (size, ...), or with `out` any shape with size times its elements; x[r] goes to rank r.
                Ignored on other ranks.
            out: this rank's part; on root it may be x[root], which saves a copy. On root None means a new array of
                shape x.shape[1:]; other ranks must give it.

        Returns:
            out.
        """
        root = self._rank("root", root)
        if self.rank != root:
            if out is None:
                raise refusal(f"give out= on rank {self.rank}: only root {root} knows the shape")
            recv, count, kind, keep = region(out, True, moved=True)
            return self._call(
                self._library.paceScatter, (None, recv, *as_bytes(count, kind), root), keep, out, async_op
            )
        if x is None:
            raise refusal(f"x is missing: rank {root} is the root and scatters it")
        send, total, kind, keep = region(x, False, moved=True)
        count = self._part(total)
        if out is None:
            out = made_like(x, self._rows(x), kind)
        recv, keep = self._output(out, count, kind, keep)
        return self._call(self._library.paceScatter, (send, recv, *as_bytes(count, kind), root), keep, out, async_op)

    @overload
    def all_to_all(self, x: Any, *, out: T, async_op: Literal[False] = ...) -> T: ...
    @overload
    def all_to_all(self, x: Any, *, out: T, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def all_to_all(self, x: Any, out: Any = ..., *, async_op: Literal[True]) -> Handle[Any]: ...
    @overload
    def all_to_all(self, x: Any, out: Any = ..., async_op: bool = ...) -> Any: ...
    def all_to_all(self, x: Any, out: Any = None, async_op: bool = False) -> Any:
        """Send x[r] to rank r, for every r.

        Args:
            x: shape (size, ...), or any shape with a multiple of size elements.
            out: as many elements as x; it may be x. None: a new array of x's shape.

        Returns:
            out; out[r] is what rank r sent here.
        """
        send, total, kind, keep = region(x, False, moved=True)
        count = self._part(total)
        if out is None:
            out = made_like(x, shape_of(x), kind)
        recv, keep = self._output(out, total, kind, keep)
        return self._call(self._library.paceAllToAll, (send, recv, *as_bytes(count, kind)), keep, out, async_op)

    @overload
    def barrier(self, async_op: Literal[False] = ...) -> None: ...
    @overload
    def barrier(self, async_op: Literal[True]) -> Handle[None]: ...
    @overload
    def barrier(self, async_op: bool = ...) -> Handle[None] | None: ...
    def barrier(self, async_op: bool = False) -> Any:
        """Return when every rank has called it."""
        return self._call(self._library.paceBarrier, (), None, None, async_op)

    # ---- Point to point ----

    @overload
    def send(self, x: Any, peer: int, async_op: Literal[False] = ...) -> None: ...
    @overload
    def send(self, x: Any, peer: int, async_op: Literal[True]) -> Handle[None]: ...
    @overload
    def send(self, x: Any, peer: int, async_op: bool = ...) -> Handle[None] | None: ...
    def send(self, x: Any, peer: int, async_op: bool = False) -> Any:
        """Send x to rank `peer`, which receives it with `recv`: matched in order.

        Args:
            x: any shape, the same number of elements and type as on the peer.
            peer: the other rank; this rank itself only in a `group()` with the `recv`.
        """
        peer = self._rank("peer", peer)
        data, count, kind, keep = region(x, False, moved=True)
        return self._call(self._library.paceSend, (data, *as_bytes(count, kind), peer), keep, None, async_op)

    @overload
    def recv(self, x: T, peer: int, async_op: Literal[False] = ...) -> T: ...
    @overload
    def recv(self, x: T, peer: int, async_op: Literal[True]) -> Handle[T]: ...
    @overload
    def recv(self, x: T, peer: int, async_op: bool = ...) -> T | Handle[T]: ...
    def recv(self, x: Any, peer: int, async_op: bool = False) -> Any:
        """Receive into x what rank `peer` sends with `send`; the arguments are as there. Returns x."""
        peer = self._rank("peer", peer)
        data, count, kind, keep = region(x, True, moved=True)
        return self._call(self._library.paceRecv, (data, *as_bytes(count, kind), peer), keep, x, async_op)

    def group(self) -> AbstractContextManager[None]:
        """The same as `paceline.group()`: calls inside begin together at its end."""
        return group()

    # ---- Other communicators ----

    def split(
        self, color: int | None, key: int = 0, *, timeout: float | None = None, algorithm: str | None = None
    ) -> Communicator | None:
        """Ranks of the same color form a new communicator, ordered by key, then by rank. Collective.

        Args:
            color: a number from 0 to 2^31 - 1; None: take part without joining one.
            key: a number from -2^31 to 2^31 - 1; the new ranks are in its order.
            timeout, algorithm: as of `init`; they are not those of this communicator.

        Returns:
            The new communicator; None where color is None.

        Raises:
            InvalidArgument: a color, key or timeout out of its range, or no such algorithm.
            Timeout, RemoteError: a rank did not come, or died; it is named.
        """
        self._settle()
        options = config(timeout, algorithm, None)
        color = -1 if color is None else integer("color (None joins none)", color, 0)
        return self._made_by(self._library.paceCommSplit, color, integer("key", key), options=options)

    def shrink(
        self,
        excluded: Iterable[int],
        *,
        timeout: float | None = None,
        algorithm: str | None = None,
        join_timeout: float | None = None,
    ) -> Communicator:
        """The ranks that are not excluded form a new communicator, in their order: to go on when others have died.

        Collective over those that stay, who all exclude the same ranks; none calls it that is excluded. Nothing goes
        through this communicator, which may have ended, by a death, a timeout or an abort. It stays: close it. Where
        the shrink fails, for one more has died, it can be called again. docs/launching.md has a whole example.

        Args:
            excluded: ranks of this communicator; none: a new communicator of the same ranks.
            timeout, algorithm: as of `init`; they are not those of this communicator.
            join_timeout: longest wait for the others, seconds; None: this communicator's timeout or
                PACELINE_JOIN_TIMEOUT, whichever is longer.

        Raises:
            InvalidArgument: an excluded rank that there is not, or this one; a timeout out of its range.
            Timeout, RemoteError: a rank did not come in time, or died; `rank` is its number here.
            InvalidUsage: the ranks do not exclude the same ones.

        Example::

            try:
                comm.all_reduce(x)
            except paceline.RemoteError as error:
                survivors = comm.shrink([error.rank])
                comm.close()
        """
        self._settle()
        options = config(timeout, algorithm, None, join_timeout)
        if not isinstance(excluded, Iterable):
            raise InvalidArgument(f"excluded is {excluded!r}: give ranks, as in shrink([2])")
        ranks = [integer("an excluded rank", rank, 0, self.size - 1) for rank in excluded]
        made = self._made_by(self._library.paceCommShrink, (c_int * len(ranks))(*ranks), len(ranks), options=options)
        assert made is not None
        return made

    def _made_by(self, function: Callable[..., int], *arguments: Any, options: _native.Config) -> Communicator | None:
        """What a function of the C API makes of this communicator; None: no communicator."""
        pointer = c_void_p()
        try:
            result = function(self._handle, *arguments, pointer, options)
            if result:
                raise self._failure(result)
            return Communicator(pointer.value) if pointer.value else None
        except BaseException:
            leave_unclaimed([pointer.value])
            raise
