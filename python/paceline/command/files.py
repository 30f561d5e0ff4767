"""Files on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path


def output_file(text: str) -> str:
    """A file to be written at the end of a long run: its folder must be there at the beginning."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder")
    return text
