"""A rank in the soak: its GPU, its communicators, their streams and buffers; how it makes a call and checks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paceline
from gpu_tables import go_by
from paceline import _native
from paceline.command.pattern import PERIOD, SCALAR, Block, Pattern, repeated, wrong_elements
from paceline.cuda_driver import Gpu, Graph, Memory, Stream
from soak_plan import LARGEST, RING, SLOTS, Call, Episode

GUARD = 64  # bytes behind an output that must stay as they are
UNTOUCHED = 0xA5
ROOM = 1 << 12  # bytes of a buffer beside the call's: offsets, guard, a part of one element for each rank


def _go_by(team: paceline.Communicator, table: list[dict[str, Any]]) -> None:
    if team.gpus_direct():
        go_by(team, table)


class Side:
    """One rank. Everything but `check` only puts work on streams."""

    scalar: float = SCALAR  # of premulsum

    def __init__(
        self, gpu: Gpu, teams: list[paceline.Communicator], largest: int = LARGEST, slots: int = SLOTS
    ) -> None:
        gpu.use()
        self._gpu, self.teams = gpu, teams
        self._streams = [[Stream(), Stream()] for _ in teams]
        self._inputs = [Memory(largest + 2 * ROOM) for _ in teams]
        self._send = [Memory(largest + ROOM) for _ in range(slots)]
        self._recv = [Memory(largest + ROOM) for _ in range(slots)]
        self._graphs: dict[int, Graph] = {}

    def begin(self, episode: Episode, calls: list[Call]) -> None:
        """Load the inputs of these calls, which depend on the episode's type and operation, and take its table."""
        self._gpu.use()
        self._episode = episode
        for team in self.teams:
            _go_by(team, episode.table)
        size = episode.dtype.size
        self._patterns = [Pattern(episode.dtype, episode.op, team.size) for team in self.teams]
        for number, (team, pattern) in enumerate(zip(self.teams, self._patterns)):
            needed = [self._input(call)[1] for call in calls if call.team == number]
            elements = max(needed, default=0) // size + PERIOD
            self._inputs[number].write(repeated(pattern.contributions[team.rank], elements * size))
        self._graphs.clear()

    def prepare(self, call: Call) -> None:
        """Write the call's input, and what must not be taken for its output."""
        self._gpu.use()
        stream, size = self._stream(call), self._episode.dtype.size
        start, nbytes, _, length = self._places(call)
        send, recv = self._send[call.slot], self._recv[call.slot]
        recv.fill(UNTOUCHED, length + ROOM // 2, stream)
        (recv if self._in_place(call) else send).copy_from(
            self._inputs[call.team], call.shift * size, nbytes, stream, at=start
        )

    def make(self, call: Call) -> None:
        """The call itself."""
        team, library = self.teams[call.team], _native.library()
        kind, stream = self._episode.dtype.number, self._stream(call).handle
        start, _, result, _ = self._places(call)
        send = (self._recv if self._in_place(call) else self._send)[call.slot].address + start
        recv = self._recv[call.slot].address + result
        if call.collective is RING:
            after, before = (team.rank + 1) % team.size, (team.rank - 1) % team.size
            results = [
                library.paceSend(send, call.count, kind, after, team._handle, stream),
                library.paceRecv(recv, call.count, kind, before, team._handle, stream),
            ]
        else:
            arguments: list[Any] = [send, recv, call.count, kind]
            if call.collective.reduces:
                scaled = self._episode.op == "premulsum"
                arguments.append(team._operator(paceline.premulsum(self.scalar) if scaled else self._episode.op, kind))
            if call.collective.rooted:
                arguments.append(call.root)
            results = [getattr(library, call.collective.function)(*arguments, team._handle, stream)]
        for result in results:
            if result:
                raise team._failure(result)

    def barrier(self, team: int) -> None:
        """One of the GPUs, on the team's first stream."""
        self._gpu.use()
        comm = self.teams[team]
        result = _native.library().paceBarrier(comm._handle, self._streams[team][0].handle)
        if result:
            raise comm._failure(result)

    @contextmanager
    def capture(self, team: int) -> Iterator[Graph]:
        """What is put on the team's first stream inside becomes the graph."""
        self._gpu.use()
        with self._streams[team][0].capture() as graph:
            try:
                yield graph
            finally:
                self._gpu.use()  # the thread may have gone on to other GPUs

    def keep(self, team: int, graph: Graph) -> None:
        self._graphs[team] = graph

    def replay(self, team: int) -> None:
        self._gpu.use()
        self._graphs[team].launch(self._streams[team][0])

    def finish(self) -> None:
        """Wait for the streams; raise what went wrong on the GPU."""
        self._gpu.use()
        for streams in self._streams:
            for stream in streams:
                stream.synchronize()
        for team in self.teams:
            error = team.get_async_error()
            if error is not None:
                raise error

    def check(self, call: Call) -> int:
        """Bytes checked; raises AssertionError."""
        self._gpu.use()
        size, blocks = self._episode.dtype.size, self._expected(call)
        _, _, result, length = self._places(call)
        nbytes = sum(block.count for block in blocks) * size
        found = self._recv[call.slot].read(result, nbytes)
        wrong = wrong_elements(found, blocks, size)
        where = f"rank {self.teams[call.team].rank} of {self.teams[call.team].size}, {call}"
        assert wrong == 0, f"{wrong} elements are wrong: {where}"
        behind = self._recv[call.slot].read(length, GUARD)
        assert set(behind) == {UNTOUCHED}, f"written behind the output: {where}"
        return nbytes

    def _in_place(self, call: Call) -> bool:
        return bool(call.in_place >> self.teams[call.team].rank & 1)

    def _stream(self, call: Call) -> Stream:
        return self._streams[call.team][call.stream]

    def _expected(self, call: Call) -> list[Block]:
        team, pattern = self.teams[call.team], self._patterns[call.team]
        if call.collective is RING:
            return [Block(pattern.contributions[(team.rank - 1) % team.size], call.shift, call.count)]
        return pattern.expected(call.collective, team.rank, call.root, call.count, call.shift)

    def _input(self, call: Call) -> tuple[bool, int]:
        """Whether this rank reads an input, and how many bytes it is long."""
        team, rooted = self.teams[call.team], call.collective.rooted
        reads = not (rooted and call.collective.name in ("broadcast", "scatter") and team.rank != call.root)
        parts = team.size if call.collective.sends_all else 1
        return reads, (call.count * parts * self._episode.dtype.size if reads else 0)

    def _places(self, call: Call) -> tuple[int, int, int, int]:
        """Bytes: where the input begins and how long it is, where the output begins, and where what is used ends."""
        team, size = self.teams[call.team], self._episode.dtype.size
        part = call.count * size
        input_at, output_at = (offset * size for offset in call.offsets)
        _, nbytes = self._input(call)
        is_root, name = team.rank == call.root, call.collective.name
        writes = name not in ("reduce", "gather") or is_root
        output = part * (team.size if call.collective.receives_all else 1) if writes else 0
        if self._in_place(call):
            output_at = input_at
            if name == "all_gather" or (name == "gather" and is_root):
                input_at += team.rank * part
            elif name == "reduce_scatter" or (name == "scatter" and is_root):
                output_at += team.rank * part
            return input_at, nbytes, output_at, max(input_at + nbytes, output_at + output)
        return input_at, nbytes, output_at, output_at + output
