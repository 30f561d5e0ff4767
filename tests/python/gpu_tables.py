"""Tables of how GPUs run their calls, for tests that ask for one whatever this machine's own says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paceline
from paceline import tuning
from paceline.command.gpu_ways import FOLDS, MOVES


def go_by(comm: paceline.Communicator, table: Sequence[dict[str, Any]]) -> None:
    """From the next call on; the same on every rank, whose GPUs a call has connected."""
    found = tuning.gpu_table(comm)
    machine = {key: found[key] for key in ("gpu", "link", "ranks", "blocks")}
    tuning.use(comm, tuning.profile([], [{**machine, "table": [*table]}]))


def go_direct(comm: paceline.Communicator) -> None:
    """All that can goes from buffer to buffer."""
    way = {"family": "streaming", "direct": True}
    go_by(comm, [{"collective": collective, "from": 0, **way} for collective in (*FOLDS, *MOVES)])
