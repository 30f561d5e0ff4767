"""The command `paceline`: one word a job, one module of `paceline.command` each."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from . import __version__, _native
from .command import bench, doctor, env, explain, predict, run, topo, tune
from .errors import Error
from .launch import end_with_reader

COMMANDS = (bench, run, topo, predict, tune, explain, env, doctor)


def parser() -> argparse.ArgumentParser:
    """The whole command line. Each command's module adds its part and names the function that does the job."""
    top = argparse.ArgumentParser(
        prog="paceline", description="Collective communication: measure it, run it, look into it.", allow_abbrev=False
    )
    top.add_argument("--version", action="store_true", help="print the versions of the package and of the library")
    commands = top.add_subparsers(metavar="COMMAND", dest="command")
    for module in COMMANDS:
        module.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 well, 1 failed, 2 wrong usage."""
    if isinstance(sys.stdout, TextIOWrapper):  # None where descriptor 1 was closed
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may have what the terminal's encoding has not
    words = list(sys.argv[1:] if arguments is None else arguments)
    top = parser()
    chosen = top.parse_args(words)
    chosen.words = words
    try:
        if chosen.version:
            print(f"paceline {__version__}, library {_native.version()}")
            return 0
        if chosen.command is None:
            top.print_help()
            return 2
        end_with_reader()
        code = int(chosen.job(chosen))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader went (`paceline bench ... | head`): no message, also not from Python's flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Error, OSError) as error:
        print(f"{' '.join(filter(None, ('paceline', chosen.command)))}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
