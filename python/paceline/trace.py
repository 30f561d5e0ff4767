"""Putting the ranks' traces together into one file for Perfetto (https://ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def merge_events(events_of_ranks: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All ranks' events, each rank as one process named "rank R", its channels as threads. The first begins at 0."""
    ranks = list(events_of_ranks)
    merged: list[dict[str, Any]] = []
    for rank, events in enumerate(ranks):
        merged += _named(rank, f"rank {rank}")
        merged.extend({**event, "pid": rank} for event in events)
    return _from_zero(merged)


def events_by_rank(events: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """One trace's events, taken apart as merge_events takes them."""
    ranks: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        ranks.setdefault(event["pid"], []).append(event)
    return [ranks.get(rank, []) for rank in range(max(ranks, default=-1) + 1)]


def merge_traces(paths: Iterable[str | Path], out: str | Path) -> None:
    """Write one trace from the files that the ranks' `Communicator.trace` wrote.

    Args:
        paths: the files, in the order of the ranks.
        out: the merged file, Chrome trace JSON; its first event begins at 0.

    Raises:
        OSError, ValueError: a file cannot be read or written, or is no trace.
    """
    events = [_events(Path(path)) for path in paths]
    Path(out).write_text(json.dumps(merge_events(events)))


def compare_traces(traces: Mapping[str, str | Path], out: str | Path) -> None:
    """Write traces of all ranks side by side into one: each rank's processes stand below each other, by their names.

    Args:
        traces: merged traces, as `paceline bench --trace`, `paceline predict --trace` and `merge_traces` write them, by
            what their ranks are to be called; each begins at 0.
        out: the file with all of them, Chrome trace JSON.

    Raises:
        OSError, ValueError: a file cannot be read or written, or is no trace of all ranks.

    Example:
        paceline.compare_traces({"measured": "bench.json", "predicted": "predict.json"}, "both.json")
    """
    both: list[dict[str, Any]] = []
    for number, (name, path) in enumerate(traces.items()):
        events = _events(Path(path))
        if not all(isinstance(event.get("pid"), int) for event in events):
            raise ValueError(f"{path} is no trace of all ranks: an event has no 'pid', the rank's number")
        for rank in sorted({event["pid"] for event in events}):
            both += _named(rank * len(traces) + number, f"rank {rank}, {name}")
        timed = [event for event in events if event.get("ph") != "M"]
        both += _from_zero([{**event, "pid": event["pid"] * len(traces) + number} for event in timed])
    Path(out).write_text(json.dumps(both))


def _named(process: int, name: str) -> list[dict[str, Any]]:
    return [
        {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}},
        {"name": "process_sort_index", "ph": "M", "pid": process, "args": {"sort_index": process}},
    ]


def _from_zero(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With times from the first one's begin on, us."""
    first = min((event["ts"] for event in events if "ts" in event), default=0)
    return [{**event, "ts": round(event["ts"] - first, 3)} if "ts" in event else event for event in events]


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        events = json.loads(path.read_text())
    except RecursionError:
        raise ValueError(f"{path} is no trace: it nests without end") from None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"{path} is no trace: it is no list of events")
    return events
