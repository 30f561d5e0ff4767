"""A command's ranks: whether a launcher has started them or they are still to be, and how they join."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..communicator import Communicator
from ..joining import init
from ..launch import launched_size
from .interrupts import interrupt_ends


def join(timeout: float | None = None) -> Communicator:
    """As `paceline.init`. Ctrl-C ends a rank that waits for others to come, who may be gone by it already."""
    with interrupt_ends():
        return init(timeout)


def started_size(parser: argparse.ArgumentParser, asked: Sequence[int]) -> int | None:
    """How many ranks the launcher has started; None: they are still to be. asked: what -n says, or nothing.

    Another number than the launcher's is a usage error.
    """
    size = launched_size()
    if size == 1 and asked and [*asked] != [1]:  # the shell that srun gives
        return None
    if size is not None and asked and [*asked] != [size]:
        said = ",".join(map(str, asked))
        parser.error(f"the launcher has started {size} ranks: leave -n {said} out")
    return size
