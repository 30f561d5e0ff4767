"""What `paceline explain` and `paceline predict` ask about: a collective, its sizes, its type and its root."""

from __future__ import annotations

import argparse

from ..datatypes import DATA_TYPES
from .collectives import COLLECTIVES, collective_name
from .sizes import sizes


def add_question(parser: argparse.ArgumentParser, default_sizes: str) -> None:
    """Add COLLECTIVE, --size, --dtype and --root."""
    add = parser.add_argument
    add("collective", type=collective_name, metavar="COLLECTIVE", choices=COLLECTIVES, help=", ".join(COLLECTIVES))
    add("--size", "--sizes", dest="sizes", type=sizes, default=sizes(default_sizes), metavar="LIST",
        help=f"bytes, as 8,64K,1M or 8:64M:x8 (default: {default_sizes})")  # fmt: skip
    add("--dtype", choices=DATA_TYPES, default="float32", metavar="T", help="type of the elements (default: float32)")
    add("--root", type=int, default=0, metavar="R", help="the root (default: 0)")


def asked_sizes(chosen: argparse.Namespace) -> list[int]:
    """The sizes asked about; a barrier has none."""
    return [0] if chosen.collective == "barrier" else list(chosen.sizes)
