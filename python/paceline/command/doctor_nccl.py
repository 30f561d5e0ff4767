"""`paceline doctor --nccl`: who would serve the calls of a program for NCCL here, call by call."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..door import describe_nccl, nccl_library, why_not_preloaded
from .doctor import Check


def checks(environment: Mapping[str, str] | None = None) -> tuple[list[Check], dict[str, Any]]:
    """The rows for our library and for NCCL's own, and what our library says of itself ({} where it does not load)."""
    try:
        state = describe_nccl()
    except OSError as error:
        return [Check("nccl door", "fail", str(error), "install the wheel again")], {}
    return [door(os.environ if environment is None else environment), settings(state), real(state)], state


def door(environment: Mapping[str, str]) -> Check:
    """Whether a program started here would get our library."""
    ours = nccl_library()
    if problem := why_not_preloaded():
        return Check("nccl door", "warn", problem)
    preloaded = environment.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    if ours.resolve() in [Path(one).resolve() for one in preloaded]:
        return Check("nccl door", "ok", f"LD_PRELOAD names {ours}")
    return Check("nccl door", "warn", f"LD_PRELOAD does not name {ours}: programs run on NCCL alone",
                 'eval "$(paceline env nccl)"')  # fmt: skip


def settings(state: Mapping[str, Any]) -> Check:
    """The variables, and what they and the machine leave to Paceline."""
    if state["problem"]:
        return Check("nccl calls", "fail", state["problem"], "correct PACELINE_NCCL_FORWARD")
    if state["why_nccl_serves_all"]:
        return Check("nccl calls", "ok", f"NCCL serves all: {state['why_nccl_serves_all']}")
    return Check("nccl calls", "ok", "Paceline serves what the table below says, on GPUs of one machine")


def real(state: Mapping[str, Any]) -> Check:
    """NCCL's own library, for what Paceline does not serve."""
    if state["real"]:
        return Check("nccl itself", "ok", f"version {state['real']['version']}, {state['real']['path']}")
    return Check("nccl itself", "warn", f"not found, for what Paceline does not serve: {state['why_no_real']}",
                 "install nvidia-nccl-cu13, or set PACELINE_NCCL_LIBRARY")  # fmt: skip


def calls(state: Mapping[str, Any]) -> str:
    """Functions by who serves them and why."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in state.get("functions", ()):
        groups.setdefault((row["served_by"], row["why"]), []).append(row["name"])
    lines = []
    for (served_by, why), names in groups.items():
        lines.append(f"{served_by}: {why}")
        lines += textwrap.wrap(" ".join(names), 118, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)
