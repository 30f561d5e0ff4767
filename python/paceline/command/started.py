"""Whether a command's ranks have been started by a launcher, or are still to be."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..launch import launched_size


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
