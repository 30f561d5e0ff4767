"""Profiles: what `paceline tune` has measured on a machine, and the file that keeps it (docs/tuning.md)."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref, c_char_p
from itertools import pairwise
from math import inf, log
from pathlib import Path
from typing import Any
from uuid import uuid4

from . import _native
from .communicator import Communicator
from .errors import InvalidArgument, check

FORMAT = 2

# (collective, algorithm as Communicator.set_algorithm takes it): size in bytes of the call's count: microseconds
Times = dict[tuple[str, str], dict[int, float]]


def tuning_file() -> dict[str, str]:
    """{"path", "fingerprint", "version"}: where this machine's profile is looked for; an empty path: nowhere."""
    found: dict[str, str] = json.loads(_native.library().paceTuningFile())
    return found


def is_off() -> bool:
    """Whether no profile is looked for because PACELINE_TUNING says so, and not for want of a folder."""
    return os.environ.get("PACELINE_TUNING") == "off"


NO_FOLDER = "neither XDG_CACHE_HOME nor HOME names a folder for profiles"


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


_LEAST = {"chunk": 1, "radix": 2}  # of the numbers that may stand after an algorithm's name


def fields(algorithm: str) -> dict[str, Any]:
    """What set_algorithm takes, as the rows of a profile have it.

    >>> fields("ring chunk=65536")
    {'algorithm': 'ring', 'chunk': 65536}

    Raises InvalidArgument for what set_algorithm does not take after the name.
    """
    name, *words = algorithm.removesuffix(" ").split(" ")
    found: dict[str, Any] = {"algorithm": name}
    for word in words:
        key, _, value = word.partition("=")
        if key in _LEAST and re.fullmatch("[0-9]{1,19}", value) and int(value) >= _LEAST[key]:
            found[key] = int(value)
        elif key == "protocol" and value in ("staged", "single_copy"):
            found[key] = value
        else:
            raise InvalidArgument(
                f"{word!r} after the algorithm {name}: there are chunk=BYTES, radix=K (from 2), protocol=staged "
                "and protocol=single_copy"
            )
    return found


def algorithm(row: Mapping[str, Any]) -> str:
    """What a row of a profile says, as set_algorithm takes it."""
    return " ".join([row["algorithm"], *(f"{key}={row[key]}" for key in ("chunk", "radix", "protocol") if key in row)])


def gpu_table(comm: Communicator) -> dict[str, Any]:
    """How the communicator's calls on GPU memory are launched: {"gpu", "link", "ranks", "blocks", "table", "source"}.

    blocks: of a kernel that moves short messages at most (PACELINE_GPU_BLOCKS). The source is "measured" (by a
    profile), "shipped" with the library or "rules", for other GPUs. Raises Unsupported where such calls go through host
    memory, or none was made yet.
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


def reason_against(document: Mapping[str, Any]) -> str:
    """Why communicators on this machine do not use such a profile; empty: they do."""
    try:
        check(_native.library().paceCheckTuning(json.dumps(document).encode()))
    except InvalidArgument as error:
        return error.message
    return ""


def load(path: Path) -> dict[str, Any] | None:
    """The profile in a file, if communicators on this machine use it."""
    document = _read(path)
    return None if document is None or reason_against(document) else {"gpus": [], **document}


def reason_against_file(path: Path) -> str:
    """Why communicators on this machine do not use this file; empty: they do."""
    document = _read(path)
    return "it is no file with a JSON object" if document is None else reason_against(document)


def _read(path: Path) -> dict[str, Any] | None:
    """What a file holds, if it is a JSON object. A regular file: a device or a pipe may never end."""
    try:
        document = json.loads(path.read_text()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):  # RecursionError: it nests without end
        return None
    return document if isinstance(document, dict) else None


def job_of(setting: Mapping[str, Any]) -> tuple[str, int, int]:
    """Which jobs a setting is for: transport, number of ranks, and ranks of each node (1 where nodes do not matter)."""
    return setting["transport"], setting["ranks"], setting["model"].get("node_ranks", 1)


def measured_us(
    document: Mapping[str, Any], job: tuple[str, int, int], collective: str, algorithm: str, nbytes: int
) -> float | None:
    """The measured time at a size of the call's count, between two measured sizes interpolated; None: not measured.

    job: as job_of tells it. algorithm: with the chunk, radix and protocol that it was told, if any, as
    Communicator.set_algorithm takes them.
    """
    way = {"collective": collective, **fields(algorithm)}
    times = [
        _interpolated(curve["points"], nbytes)
        for row in document["settings"]
        if job_of(row) == job
        for curve in row["measured"]
        if {key: value for key, value in curve.items() if key != "points"} == way
    ]
    return min((time for time in times if time is not None), default=None)


def table_row(
    document: Mapping[str, Any], job: tuple[str, int, int], collective: str, nbytes: int
) -> dict[str, Any] | None:
    """What the table has for a size of the call's count; None: nothing."""
    for setting in document["settings"]:
        if job_of(setting) == job:
            for row in setting["table"]:
                if row["collective"] == collective and row["from"] <= nbytes < row.get("below", inf):
                    return dict(row)
    return None


def _interpolated(points: Sequence[tuple[int, float]], nbytes: int) -> float | None:
    for size, us in points:
        if size == nbytes:
            return float(us)
    for (low, before), (high, after) in pairwise(points):
        if low <= nbytes <= high:
            share = log(max(nbytes, 1) / max(low, 1)) / log(high / max(low, 1))
            return float(before * (after / before) ** share)
    return None


def saving_place(path: Path) -> Path:
    """The file that a profile saved under this path replaces: where symbolic links lead. Its folder is made.

    Raises:
        InvalidArgument: what is there is no regular file (a folder, a device), or none can be there.
    """
    try:
        if path.exists() and not path.is_file():
            raise InvalidArgument(f"no profile can be saved in {path}: it is no regular file")
        place = path.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise InvalidArgument(f"no profile can be saved in {path}: {error}") from None
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise InvalidArgument(f"no profile can be saved in {path}: the folder {place.parent} cannot be written")
    return place


def merge(path: Path, settings: Sequence[Mapping[str, Any]], gpus: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Write settings and tables into a file; those of other transports, GPUs, numbers of ranks and of ranks a node
    stay, if they are of this machine and communicators accept them. Several processes may do so at once.

    Returns what was wrong with those that communicators do not accept: for one of them they would use none.

    Raises:
        InvalidArgument: there can be no such file (`saving_place`).
    """
    path = saving_place(path)
    with _locked(path):
        old, damage = _accepted(path)
        document = profile(
            _merged(old["settings"], settings, job_of),
            _merged(old["gpus"], gpus, _gpus_of),
        )
        # A job that starts now reads the old file or the new one.
        fresh = path.with_name(f"{path.name}.{uuid4().hex}")
        try:
            fresh.write_text(json.dumps(document) + "\n")
            with suppress(FileNotFoundError):  # there was none
                shutil.copymode(path, fresh)
            fresh.replace(path)
        except OSError as error:
            error.filename = str(path)  # a full disk is told without a name
            raise
        finally:
            fresh.unlink(missing_ok=True)
    return damage


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with a file, among all that come this way. The lock is a file beside it, as long as somebody has it."""
    lock = path.with_name(path.name + ".lock")
    while True:
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            # Who had it before has removed it; others may have a new one by now.
            if not _is_at(lock, held.fileno()):
                continue
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _accepted(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What communicators accept of a file of this machine, and what is wrong with the rest."""
    found, kept = _read(path), profile([])
    if found is None or any(found.get(key) != kept[key] for key in ("format", "fingerprint", "version")):
        return kept, []
    damage = []
    for key in ("settings", "gpus"):
        rows = found.get(key, [])
        for row in rows if isinstance(rows, list) else []:
            if reason := reason_against({**profile([]), key: [row]}):
                damage.append(reason)
            else:
                kept[key].append(row)
    return kept, damage


def _gpus_of(table: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which calls a table of GPUs is for. An older file's tables have no number of blocks: they are for 32."""
    return table["gpu"], table["link"], table["ranks"], table.get("blocks", 32)


def _merged(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], key_of: Callable[[Mapping[str, Any]], object]
) -> list[Mapping[str, Any]]:
    fresh = {key_of(row) for row in new}
    return [*(row for row in old if key_of(row) not in fresh), *new]
