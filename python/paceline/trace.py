"""Putting the ranks' traces together into one file for Perfetto (https://ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

_BESIDE = 16  # at least as many channels as ranks have


def merge_events(events_of_ranks: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All ranks' events, each rank as one process named "rank R", its channels as threads. The first begins at 0.

    What a channel does beside something else, as a send that is under way while it waits, has further threads.
    """
    ranks = list(events_of_ranks)
    zero = _first(event for events in ranks for event in events)
    merged: list[dict[str, Any]] = []
    for rank, events in enumerate(ranks):
        merged += _process(rank, f"rank {rank}", events, zero)
    return merged


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
        if not all(isinstance(rank := event.get("pid"), int) and rank >= 0 for event in events):
            raise ValueError(f"{path} is no trace of all ranks: an event has no 'pid', the rank's number")
        for rank, its_events in enumerate(events_by_rank(events)):
            both += _process(rank * len(traces) + number, f"rank {rank}, {name}", its_events, _first(events))
    Path(out).write_text(json.dumps(both))


def _process(number: int, name: str, events: Iterable[dict[str, Any]], zero: float) -> list[dict[str, Any]]:
    """One process of a merged trace: its names, and its events with times from zero on, us."""
    channels: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        channels.setdefault(event["tid"] % _BESIDE, []).append({**event, "ts": round(event["ts"] - zero, 3)})
    process = [_note(number, "process_name", name=name), _note(number, "process_sort_index", sort_index=number)]
    for channel, its_events in sorted(channels.items()):
        for lane, lane_events in enumerate(_lanes(its_events)):
            thread = channel + lane * _BESIDE
            title = f"channel {channel}" + (", beside it" if lane else "")
            process.append(_note(number, "thread_name", name=title) | {"tid": thread})
            process.extend({**event, "pid": number, "tid": thread} for event in lane_events)
    return process


def _lanes(events: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The events, in lanes in each of which two lie one in the other or do not overlap: Perfetto drops others."""
    lanes: list[list[dict[str, Any]]] = []
    open_ends: list[list[int]] = []  # ns, by lane: of its last event and those around it
    for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
        begin = round(1000 * event["ts"])
        end = begin + round(1000 * event["dur"])
        number = next((number for number, ends in enumerate(open_ends) if _fits(begin, end, ends)), len(lanes))
        if number == len(lanes):
            lanes.append([])
            open_ends.append([])
        lanes[number].append(event)
        open_ends[number].append(end)
    return lanes


def _fits(begin: int, end: int, ends: list[int]) -> bool:
    while ends and ends[-1] <= begin:
        ends.pop()
    return not ends or end <= ends[-1]


def _note(process: int, kind: str, **arguments: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "args": arguments}


def _first(events: Iterable[dict[str, Any]]) -> float:
    """When the first one begins, us."""
    return min((event["ts"] for event in events), default=0)


def _events(path: Path) -> list[dict[str, Any]]:
    """A trace's events without names of processes and threads."""
    try:
        events = json.loads(path.read_text())
    except RecursionError:
        raise ValueError(f"{path} is no trace: it nests without end") from None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"{path} is no trace: it is no list of events")
    timed = [event for event in events if event.get("ph") != "M"]
    for key in ("tid", "ts", "dur"):
        if not all(isinstance(value := event.get(key), int | float) and isfinite(value) for event in timed):
            raise ValueError(f"{path} is no trace: an event has no {key!r}")
    return timed
