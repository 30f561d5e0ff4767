"""A topology, and what collectives can reach on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ctypes import byref, c_char_p
from typing import Any

from . import _native
from .errors import check


def topology(request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the library about a topology; paceTopology in paceline.h says what a request and its answer have.

    Raises InvalidArgument for a request that makes no sense, saying why.

    >>> topology({"preset": "dgx1-v100", "gpus": [0, 3]})["broadcast_gbs"]
    50.0
    """
    answer = c_char_p()
    check(_native.library().paceTopology(json.dumps(request).encode(), byref(answer)))
    found: dict[str, Any] = json.loads(answer.value or b"{}")
    return found
