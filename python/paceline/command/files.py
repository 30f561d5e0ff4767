"""Files on the command line."""

from __future__ import annotations

import argparse
import errno
import os
import stat
from pathlib import Path


def output_file(text: str) -> str:
    """A file to be written at the end of a long run: it must be possible at the beginning."""
    path = Path(text)
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise argparse.ArgumentTypeError(f"{text!r} is a folder")
        may = os.access(path, os.W_OK)
    except (FileNotFoundError, NotADirectoryError):
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(
                f"{text!r} cannot be written: there is no folder {str(path.parent)!r}"
            ) from None
        may = os.access(path.parent, os.W_OK | os.X_OK)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {error.strerror}") from None
    if not may:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {os.strerror(errno.EACCES)}")
    return text


_PICTURES = (".png", ".svg", ".pdf", ".eps", ".jpeg", ".jpg", ".ps", ".svgz", ".tif", ".tiff", ".webp")


def picture_file(text: str) -> str:
    """An output file whose name says the format of a picture."""
    if Path(output_file(text)).suffix.lower() not in _PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} does not end with a format of pictures: {', '.join(_PICTURES)}")
    return text


def svg_file(text: str) -> str:
    """An output file for SVG."""
    if Path(output_file(text)).suffix.lower() != ".svg":
        raise argparse.ArgumentTypeError(f"{text!r} does not end with .svg: the picture is SVG")
    return text
