"""Putting the ranks' traces together into one file for Perfetto (https://ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def merge_events(events_of_ranks: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All ranks' events, each rank as one process named "rank R", its channels as threads."""
    merged: list[dict[str, Any]] = []
    for rank, events in enumerate(events_of_ranks):
        merged.append({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}})
        merged.append({"name": "process_sort_index", "ph": "M", "pid": rank, "args": {"sort_index": rank}})
        merged.extend({**event, "pid": rank} for event in events)
    return merged


def merge_traces(paths: Iterable[str | Path], out: str | Path) -> None:
    """Write one trace from the files that the ranks' `Communicator.trace` wrote.

    Args:
        paths: the files, in the order of the ranks.
        out: the merged file, Chrome trace JSON.

    Raises:
        OSError, ValueError: a file cannot be read or written, or is no trace.
    """
    events = [_events(Path(path)) for path in paths]
    Path(out).write_text(json.dumps(merge_events(events)))


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        events = json.loads(path.read_text())
    except RecursionError:
        raise ValueError(f"{path} is no trace: it nests without end") from None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"{path} is no trace: it is no list of events")
    return events
