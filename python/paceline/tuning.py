"""Profiles: what `paceline tune` has measured on a machine, and the file that keeps it (docs/tuning.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

from . import _native
from .communicator import Communicator

FORMAT = 2

# (collective, algorithm as Communicator.set_algorithm takes it): size in bytes of the call's count: microseconds
Times = dict[tuple[str, str], dict[int, float]]


def tuning_file() -> dict[str, str]:
    """{"path", "fingerprint", "version"}: where this machine's profile is looked for; an empty path: switched off."""
    found: dict[str, str] = json.loads(_native.library().paceTuningFile())
    return found


def setting(comm: Communicator, times: Times, *, fit: bool) -> dict[str, Any]:
    """Measured times (us, by bytes of the call's count) as a setting of a profile.

    With the cost model fitted to them, or with their table. Between machines with narrow links the model is that of the
    links, measured as the job started.

    Raises InvalidArgument for times that are not above 0.
    """
    rows = [
        {"collective": collective, **fields(algorithm), "points": sorted(points.items())}
        for (collective, algorithm), points in times.items()
    ]
    made = c_char_p()
    result = _native.library().paceTune(comm._handle, json.dumps(rows).encode(), int(fit), byref(made))
    if result:
        raise comm._failure(result)
    found: dict[str, Any] = json.loads(made.value or b"{}")
    return found


def fields(algorithm: str) -> dict[str, Any]:
    """What set_algorithm takes, as the rows of a profile have it.

    >>> fields("ring chunk=65536")
    {'algorithm': 'ring', 'chunk': 65536}
    """
    name, *words = algorithm.split()
    said = dict(word.split("=") for word in words)
    return {"algorithm": name, **{key: int(value) if key == "chunk" else value for key, value in said.items()}}


def algorithm(row: Mapping[str, Any]) -> str:
    """What a row of a profile says, as set_algorithm takes it."""
    return " ".join([row["algorithm"], *(f"{key}={row[key]}" for key in ("chunk", "protocol") if key in row)])


def gpu_table(comm: Communicator) -> dict[str, Any]:
    """How the communicator's calls on GPU memory are launched: {"gpu", "link", "ranks", "table", "source"}.

    The source is "measured" (by a profile), "shipped" with the library or "rules", for other GPUs. Raises Unsupported
    where such calls go through host memory, or none was made yet.
    """
    text = c_char_p()
    result = _native.library().paceCommGpuTable(comm._handle, byref(text))
    if result:
        raise comm._failure(result)
    found: dict[str, Any] = json.loads(text.value or b"{}")
    return found


def profile(settings: Sequence[Mapping[str, Any]], gpus: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The document that a file holds: settings of the host's engine, and tables of calls on GPU memory."""
    here = tuning_file()
    return {
        "format": FORMAT,
        "fingerprint": here["fingerprint"],
        "version": here["version"],
        "settings": [*settings],
        "gpus": [*gpus],
    }


def use(comm: Communicator, document: Mapping[str, Any] | None) -> None:
    """Choose by this profile from the next call on, on every rank; None: by the model alone."""
    text = None if document is None else json.dumps(document).encode()
    result = _native.library().paceCommSetTuning(comm._handle, text)
    if result:
        raise comm._failure(result)


def load(path: Path) -> dict[str, Any] | None:
    """The profile in a file, if it is one of this machine and version."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        wanted = profile([])
        here = all(document[key] == wanted[key] for key in ("format", "fingerprint", "version"))
        of_gpus = document.setdefault("gpus", [])
        if (
            here
            and all(row.keys() >= {"transport", "ranks", "measured", "table"} for row in document["settings"])
            and all(row.keys() >= {"gpu", "link", "ranks", "table"} for row in of_gpus)
        ):
            return document
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return None


def measured_us(
    document: Mapping[str, Any], transport: str, ranks: int, collective: str, algorithm: str, nbytes: int
) -> float | None:
    """The measured time at a size of the call's count, between two measured sizes interpolated; None: not measured.

    Of several ways to run the algorithm, the fastest.
    """
    times = [
        _interpolated(curve["points"], nbytes)
        for row in document["settings"]
        if (row["transport"], row["ranks"]) == (transport, ranks)
        for curve in row["measured"]
        if (curve["collective"], curve["algorithm"]) == (collective, algorithm)
    ]
    return min((time for time in times if time is not None), default=None)


def _interpolated(points: Sequence[tuple[int, float]], nbytes: int) -> float | None:
    for (low, before), (high, after) in pairwise(points):
        if low <= nbytes <= high:
            share = log(max(nbytes, 1) / max(low, 1)) / log(high / max(low, 1))
            return float(before * (after / before) ** share)
    return None


def merge(path: Path, settings: Sequence[Mapping[str, Any]], gpus: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write settings and tables into a file; those of other transports, GPUs and numbers of ranks stay, if they are of
    this machine.
    """
    old = load(path) or profile([])
    document = profile(
        _merged(old["settings"], settings, ("transport", "ranks")), _merged(old["gpus"], gpus, ("gpu", "link", "ranks"))
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # A job that starts now reads the old file or the new one.
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(document) + "\n")
    fresh.replace(path)


def _merged(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[Mapping[str, Any]]:
    fresh = {tuple(row[key] for key in keys) for row in new}
    return [*(row for row in old if tuple(row[key] for key in keys) not in fresh), *new]
