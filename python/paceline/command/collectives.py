"""What the command must know of each collective: one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Collective:
    """A collective as a C call: send, recv, count, type, [op], [root], comm, stream."""

    name: str
    function: str  # of the C API
    sends_all: bool = False  # the send buffer holds a part for every rank
    receives_all: bool = False  # the recv buffer holds a part of every rank
    reduces: bool = False
    rooted: bool = False

    @property
    def total_is_parts(self) -> bool:
        """Whether the size of a row means all ranks' parts together, as in nccl-tests."""
        return self.sends_all or self.receives_all

    def bus_factor(self, ranks: int) -> float:
        """busbw / algbw."""
        if self.name == "all_reduce":
            return 2 * (ranks - 1) / ranks
        return (ranks - 1) / ranks if self.total_is_parts else 1.0

    def count(self, total_bytes: int, ranks: int, element_bytes: int) -> int:
        """The call's count for a row of this size; at least one element, except for a size of 0."""
        if total_bytes == 0 or self.name == "barrier":
            return 0
        parts = ranks if self.total_is_parts else 1
        return max(1, total_bytes // (parts * element_bytes))

    def total_bytes(self, count: int, ranks: int, element_bytes: int) -> int:
        """The size of a row with this count."""
        return count * element_bytes * (ranks if self.total_is_parts else 1)


def collective_name(text: str) -> str:
    """As it is called here: the manual's all-reduce is all_reduce."""
    return text.replace("-", "_")


COLLECTIVES: dict[str, Collective] = {
    row.name: row
    for row in (
        Collective("all_reduce", "paceAllReduce", reduces=True),
        Collective("broadcast", "paceBroadcast", rooted=True),
        Collective("reduce", "paceReduce", reduces=True, rooted=True),
        Collective("all_gather", "paceAllGather", receives_all=True),
        Collective("reduce_scatter", "paceReduceScatter", sends_all=True, reduces=True),
        Collective("gather", "paceGather", receives_all=True, rooted=True),
        Collective("scatter", "paceScatter", sends_all=True, rooted=True),
        Collective("all_to_all", "paceAllToAll", sends_all=True, receives_all=True),
        Collective("barrier", "paceBarrier"),
    )
}
