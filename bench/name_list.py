"""An option of a command line that is a list of names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def name_list(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Its type, for argparse: some of these, with commas between them."""

    def parse(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",") if name.strip()]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return chosen

    return parse
