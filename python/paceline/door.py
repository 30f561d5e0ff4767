"""The doors: Paceline's libraries that stand in another library's place, and the variables that put them there."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _native


def nccl_library() -> Path:
    """Our libnccl.so.2: in a folder of its own beside libpaceline.so."""
    return _native.library_path().parent / "nccl" / "libnccl.so.2"


def why_not_preloaded() -> str:
    """Why the loader cannot take our library from LD_PRELOAD, which it splits at spaces and colons; "": it can."""
    ours = str(nccl_library())
    if not nccl_library().exists():
        return f"{ours} does not exist: install the paceline wheel"
    if " " in ours or ":" in ours:
        return (
            f"LD_PRELOAD cannot name {ours}, since the loader splits it at spaces and colons: install the paceline "
            "wheel in a folder without them"
        )
    return ""


def nccl_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables under which a program for NCCL gets ours.

    LD_PRELOAD, since torch finds its own NCCL by a run path that beats LD_LIBRARY_PATH; what stands there already
    stays, behind ours. Raises OSError where the library is not there, or its path is none for LD_PRELOAD.

    >>> nccl_environment({"LD_PRELOAD": "/usr/lib/libjemalloc.so"})  # doctest: +SKIP
    {'LD_PRELOAD': '.../paceline/lib/nccl/libnccl.so.2:/usr/lib/libjemalloc.so'}
    """
    ours = str(nccl_library())
    if problem := why_not_preloaded():
        raise OSError(problem)
    before = (os.environ if environment is None else environment).get("LD_PRELOAD", "")
    others = [one for one in before.replace(" ", ":").split(":") if one and one != ours]
    return {"LD_PRELOAD": ":".join([ours, *others])}


def describe_nccl() -> dict[str, Any]:
    """What our libnccl.so.2 says of itself in this process: paceNcclDescribe of plugins/nccl/insight.h."""
    library = ctypes.CDLL(str(nccl_library()))
    library.paceNcclDescribe.restype = ctypes.c_char_p
    described: dict[str, Any] = json.loads(library.paceNcclDescribe())
    return described
