"""A rank of test_gpu_mapped_memory.py: long calls in memory that is mapped piece by piece, every result checked.

python mapped_memory_side.py pieces|unshared|torch|graphs

Says at the end how many calls went from buffer to buffer.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import paceline
from gpu_tables import go_direct
from mapped_memory import BY_DESCRIPTOR, MappedMemory
from numpy.typing import NDArray
from paceline import _native
from paceline.cuda_driver import Gpu, Stream
from paceline.errors import check

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
COUNT = 4 << 20  # of float32 in a part: long enough to go direct, with any number of ranks
FLOAT32, SUM = 7, 0
UNTIL_KNOWN = 12  # calls in which a buffer gets known: it is offered in one, mapped in another, seen in a third
CALLS = 3  # that must go direct then


class Side:
    """A rank's communicator, stream and buffers."""

    def __init__(self, handle_types: int = BY_DESCRIPTOR) -> None:
        self.comm = paceline.init(timeout=60)
        self.gpu = Gpu(self.comm.node_rank)
        self.stream = Stream()
        self.input, self.output = (
            MappedMemory(self.gpu, self.comm.size * COUNT * 4 + 4096, handle_types) for _ in range(2)
        )
        self.library = _native.library()
        self.number = 0
        check(self.library.paceBarrier(self.comm._handle, self.stream.handle))
        go_direct(self.comm)

    def parts(self, collective: str) -> tuple[int, int]:
        """Of the input and the output, in parts of COUNT."""
        every = self.comm.size
        parts = {"all_reduce": (1, 1), "all_gather": (1, every), "reduce_scatter": (every, 1)}
        return parts.get(collective, (every, every))

    def value(self, rank: int, parts: int) -> NDArray[np.float32]:
        period = (np.arange(97) * 7 + rank * 31 + self.number) % 97
        return np.resize(period.astype(np.float32), parts * COUNT)

    def expected(self, collective: str) -> NDArray[np.float32]:
        parts, size, mine = self.parts(collective)[0], self.comm.size, self.comm.rank
        inputs = [self.value(rank, parts) for rank in range(size)]
        own = slice(mine * COUNT, (mine + 1) * COUNT)
        if collective == "all_reduce":
            return np.sum(inputs, 0, dtype=np.float32)
        if collective == "all_gather":
            return np.concatenate(inputs)
        if collective == "reduce_scatter":
            return np.sum([given[own] for given in inputs], 0, dtype=np.float32)
        return np.concatenate([given[own] for given in inputs])

    def fill(self, collective: str) -> None:
        self.number += 1
        given, taken = self.parts(collective)
        self.input.write(self.value(self.comm.rank, given).tobytes())
        self.output.write(bytes(taken * COUNT * 4))

    def launch(self, collective: str) -> None:
        name = "pace" + "".join(word.capitalize() for word in collective.split("_"))
        operation = [SUM] if "reduce" in collective else []
        arguments = [self.input.address, self.output.address, COUNT, FLOAT32, *operation]
        if getattr(self.library, name)(*arguments, self.comm._handle, self.stream.handle):
            raise RuntimeError(self.library.paceGetLastError(self.comm._handle).decode())

    def check(self, collective: str) -> None:
        self.stream.synchronize()
        error = self.comm.get_async_error()
        if error is not None:
            raise error
        taken = self.parts(collective)[1]
        found = np.frombuffer(self.output.read(0, taken * COUNT * 4), np.float32)
        if not np.array_equal(found, self.expected(collective)):
            raise RuntimeError(f"call {self.number}, {collective}: a wrong result")

    def direct(self, collective: str, calls: int) -> int:
        """How many of the next calls go direct."""
        before = self.comm.gpu_direct_calls()
        for _ in range(calls):
            self.fill(collective)
            self.launch(collective)
            self.check(collective)
        return self.comm.gpu_direct_calls() - before

    def replayed(self, replays: int) -> int:
        """How many replays of an all-reduce in a graph go direct."""
        self.fill("all_reduce")
        with self.stream.capture() as graph:
            self.launch("all_reduce")
        before = self.comm.gpu_direct_calls()
        for _ in range(replays):
            self.fill("all_reduce")
            graph.launch(self.stream)
            self.check("all_reduce")
        return self.comm.gpu_direct_calls() - before

    def known(self, collective: str, what: str = "") -> None:
        """That calls go direct soon, and go on to do so."""
        if not any(self.direct(collective, 1) for _ in range(UNTIL_KNOWN)):
            raise SystemExit(f"{what or collective}: no call went direct")
        need(self.direct(collective, CALLS), CALLS, what or collective)


def need(found: int, least: int, what: str) -> None:
    if found < least:
        raise SystemExit(f"{what}: {found} calls went direct, not {least}")


def pieces() -> int:
    side = Side()
    for collective in COLLECTIVES:
        side.known(collective)
    for round_number in range(6):
        # Other memory at some of the same addresses, on one rank or on all.
        if round_number % 2 == 0 or side.comm.rank == round_number % side.comm.size:
            side.input.renew(round_number % len(side.input.pieces))
            side.output.renew(1)
        side.known(COLLECTIVES[round_number % 4], f"renewed {round_number}")

    need(side.replayed(5), 5, "a graph")
    need(side.direct("all_gather", 2), 2, "eager calls after a graph")

    for buffer in (side.input, side.output):
        buffer.free()
    side.input, side.output = (MappedMemory(side.gpu, side.comm.size * COUNT * 4 + 4096) for _ in range(2))
    need(side.replayed(5), 5, "a graph of new memory")
    side.known("all_to_all", "new memory")
    direct = side.comm.gpu_direct_calls()
    side.comm.close()
    for buffer in (side.input, side.output):
        buffer.free()
    return direct


def unshared() -> int:
    side = Side(handle_types=0)
    for collective in COLLECTIVES:
        side.direct(collective, 3)
    side.replayed(3)
    direct = side.comm.gpu_direct_calls()
    side.comm.close()
    return direct


def connected() -> paceline.Communicator:
    """For torch's tensors."""
    import torch

    comm = paceline.init(timeout=60)
    torch.cuda.set_device(comm.node_rank)
    comm.all_reduce(torch.zeros(8 << 20, device="cuda"))
    torch.cuda.synchronize()
    go_direct(comm)
    return comm


def torch_tensors() -> int:
    """Tensors of torch's expandable segments, which are unmapped and mapped again from round to round."""
    import torch

    comm = connected()
    for round_number, count in enumerate([8, 30, 16, 50, 8, 20, 30]):
        x = torch.empty(count << 20, device="cuda")
        y = torch.empty_like(x)
        index = torch.arange(count << 20, device="cuda") % 97
        went: list[int] = []
        for number in range(UNTIL_KNOWN + CALLS):
            before = comm.gpu_direct_calls()
            x.copy_(index + comm.rank + number)
            y.zero_()
            comm.all_reduce(x, out=y)
            torch.cuda.current_stream().synchronize()
            error = comm.get_async_error()
            if error is not None:
                raise error
            right = comm.size * (index + number) + comm.size * (comm.size - 1) // 2
            if not torch.equal(y, right.to(torch.float32)):
                raise RuntimeError(f"round {round_number}, call {number}: a wrong result")
            went.append(comm.gpu_direct_calls() - before)
        need(sum(went[-CALLS:]), CALLS, f"round {round_number}")
        if not any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot()):
            raise SystemExit("torch's segments are not expandable")
        del x, y, index, right
        if round_number % 2 == 0:
            torch.cuda.empty_cache()
    direct: int = comm.gpu_direct_calls()
    comm.close()
    return direct


def graphs() -> int:
    """Graphs of tensors that no call has seen before, captured by one rank later than by the others; torch's own."""
    import torch

    comm = connected()
    for round_number, count in enumerate([8, 30, 20]):
        x, graph, kept = torch.empty(count << 20, device="cuda"), torch.cuda.CUDAGraph(), []
        index = torch.arange(count << 20, device="cuda") % 97
        time.sleep(0.2 * (comm.rank == round_number % comm.size))
        with torch.cuda.graph(graph):
            for step in range(3):
                kept.append(x + step)
                comm.all_reduce(kept[-1])
        before = comm.gpu_direct_calls()
        for number in range(4):
            x.copy_(index + comm.rank + number)
            graph.replay()
            torch.cuda.synchronize()
            error = comm.get_async_error()
            if error is not None:
                raise error
            for step in range(3):
                right = comm.size * (index + number + step) + comm.size * (comm.size - 1) // 2
                if not torch.equal(kept[step], right.to(torch.float32)):
                    raise RuntimeError(f"round {round_number}, replay {number}, step {step}: a wrong result")
        need(comm.gpu_direct_calls() - before, 12, f"graph {round_number}")
    direct: int = comm.gpu_direct_calls()
    comm.close()
    return direct


if __name__ == "__main__":
    modes = {"pieces": pieces, "unshared": unshared, "torch": torch_tensors, "graphs": graphs}
    # In one piece, also where Python writes without buffers: the ranks share the pipe.
    print(f"direct calls: {modes[sys.argv[1]]()}", flush=True)
