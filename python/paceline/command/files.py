"""Files on the command line."""

from __future__ import annotations

import argparse
import errno
import json
import os
import stat
import tempfile
from pathlib import Path

from ..errors import InvalidArgument

_LONGEST = 64 << 20  # bytes of an input file; a cluster of 512 nodes with all its links has 9 MB


def input_text(name: str) -> str:
    """What an input file holds. One that is too long to be meant, as a device without end, is an OSError."""
    if Path(name).is_dir():
        raise InvalidArgument(f"{str(Path(name))!r} is a folder")
    with Path(name).open("rb") as file:
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise OSError(errno.EFBIG, f"it is longer than {_LONGEST >> 20} MiB", name)
    return data.decode(errors="replace")


def write_text(name: str, text: str) -> None:
    """What an option with a file's name writes. An OSError names the file, also where the disk is full."""
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        error.filename = name
        raise


def write_json(name: str, document: object) -> None:
    """What --json writes."""
    write_text(name, json.dumps(document, indent=1) + "\n")


def named_file(text: str) -> str:
    """A file's name; an empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' names no file")
    return text


class Output(str):
    """The name of a file to be written."""


def output_name(text: str) -> Output:
    """A file to be written by what finds out itself whether that is possible."""
    return Output(named_file(text))


def output_file(text: str) -> Output:
    """A file to be written at the end of a long run: it must be possible at the beginning."""
    name = output_name(text)
    try:
        _try_to_write(Path(name))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {error.strerror}") from None
    return name


def refuse_same_outputs(chosen: argparse.Namespace) -> None:
    """Two options that name one file are a usage error: the one written last would be all that is left."""
    writers: dict[object, str] = {}
    for option, name in vars(chosen).items():
        if not isinstance(name, Output) or (file := _identity(name)) is None:
            continue
        if (other := writers.setdefault(file, option)) != option:
            both = " and ".join(f"--{each.replace('_', '-')}" for each in (other, option))
            chosen.parser.error(f"{both} write one file, {name!r}: give each its own")


def _identity(name: str) -> object | None:
    """The same for all names of a file; None: what is written there, as to a device, does not replace what was."""
    try:
        if not Path(name).exists():
            return os.path.realpath(name)
        there = Path(name).stat()
    except OSError:  # as in a folder that has gone: who is to write there says so
        return None
    return (there.st_dev, there.st_ino) if stat.S_ISREG(there.st_mode) else None


def _try_to_write(path: Path) -> None:
    """Leaves no trace, also where other ranks of the job do the same."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        folder = Path(os.path.realpath(path)).parent  # of what a link leads to
        if not folder.is_dir():
            raise argparse.ArgumentTypeError(
                f"{str(path)!r} cannot be written: there is no folder {str(folder)!r}"
            ) from None
        tempfile.TemporaryFile(dir=folder).close()
        return
    if stat.S_ISDIR(mode):
        raise argparse.ArgumentTypeError(f"{str(path)!r} is a folder")
    if stat.S_ISREG(mode):
        path.open("ab").close()
    elif not os.access(path, os.W_OK):  # to open a pipe may take until somebody reads it
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


_PICTURES = (".png", ".svg", ".pdf", ".eps", ".jpeg", ".jpg", ".ps", ".svgz", ".tif", ".tiff", ".webp")


def picture_file(text: str) -> Output:
    """An output file whose name says the format of a picture."""
    name = output_file(text)
    if Path(name).suffix.lower() not in _PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} does not end with a format of pictures: {', '.join(_PICTURES)}")
    return name


def svg_file(text: str) -> Output:
    """An output file for SVG."""
    name = output_file(text)
    if Path(name).suffix.lower() != ".svg":
        raise argparse.ArgumentTypeError(f"{text!r} does not end with .svg: the picture is SVG")
    return name
