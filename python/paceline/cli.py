"""The command `paceline`: one word a job, one module of `paceline.command` each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from io import FileIO, TextIOWrapper

from . import _native
from .command import bench, doctor, env, explain, predict, run, topo, tune
from .command.files import refuse_same_outputs
from .errors import Error
from .launch import end_with_reader

COMMANDS = (bench, run, topo, predict, tune, explain, env, doctor)


def parser() -> argparse.ArgumentParser:
    """The whole command line. Each command's module adds its part and names the function that does the job."""
    top = argparse.ArgumentParser(
        prog="paceline", description="Collective communication: measure it, run it, look into it.", allow_abbrev=False
    )
    top.add_argument("--version", action="store_true", help="print the version, and which library has it")
    top.set_defaults(parser=top)
    commands = top.add_subparsers(metavar="COMMAND", dest="command")
    for module in COMMANDS:
        module.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 well, 1 failed, 2 wrong usage."""
    if sys.stderr is None:  # descriptor 2 was closed: print() would take standard output instead
        sys.stderr = TextIOWrapper(FileIO(os.devnull, "w"))
    if isinstance(sys.stdout, TextIOWrapper):  # None where descriptor 1 was closed
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may have what the terminal's encoding has not
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = "paceline"
    try:
        try:
            chosen = _chosen(words)
            name = " ".join(filter(None, (name, chosen.command)))
            return _do(chosen)
        finally:  # also after --help, which ends by SystemExit
            _flush()
    except BrokenPipeError:
        _flush(to_nobody=True)
        return 1
    except (Error, OSError) as error:
        _flush(to_nobody=True)
        print(f"{name}: {error}\n", end="", file=sys.stderr)  # one write: other ranks may say the same now
        return 1
    except KeyboardInterrupt:
        return 130


def _chosen(words: list[str]) -> argparse.Namespace:
    chosen, unknown = parser().parse_known_args(words)
    if unknown:  # said by the command whose options these are not
        chosen.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    refuse_same_outputs(chosen)
    chosen.words = words
    return chosen


def _do(chosen: argparse.Namespace) -> int:
    if chosen.version:
        print(f"paceline {_native.version()}, {_native.library_path()}")
        return 0
    if chosen.command is None:
        chosen.parser.print_help()
        return 2
    end_with_reader()
    return int(chosen.job(chosen))


def _flush(to_nobody: bool = False) -> None:
    """Write what was printed. to_nobody: or, where that fails, drop it.

    Else Python's flush at exit would complain that the reader has gone (`paceline bench ... | head`).
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        if not to_nobody:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
