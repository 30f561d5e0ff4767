"""Predictions: what a collective would take on a topology that need not be here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ctypes import byref, c_char_p
from typing import Any

from . import _native
from .errors import check


def predict(request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the library for a prediction; pacePredict in paceline.h says what a request and its answer have.

    Raises InvalidArgument for a request that makes no sense, saying why.

    >>> asked = {"collective": "broadcast", "preset": "dgx1-v100", "sizes": [1 << 30], "algorithm": "packed_trees"}
    >>> round(predict(asked)["rows"][0]["algbw_gbs"])  # the bound is 150
    148
    """
    answer = c_char_p()
    check(_native.library().pacePredict(json.dumps(request).encode(), byref(answer)))
    found: dict[str, Any] = json.loads(answer.value or b"{}")
    return found
