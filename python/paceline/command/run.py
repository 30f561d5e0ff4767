"""`paceline run`: start a program's ranks on this machine."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ..door import nccl_environment
from ..launch import NoSuchAddress, launch
from .sizes import positive


def _seconds(text: str) -> float:
    """As the PACELINE_ variables take it: up to 1e9."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 1e9")
    return number


def _limit(text: str) -> float:
    if (number := _seconds(text)) == 0:
        raise argparse.ArgumentTypeError("0 is no limit: give more seconds than that")
    return number


def _address(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("'' is no address")
    return text


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        allow_abbrev=False,
        help="start a program's ranks on this machine",
        description="Start a program as RANKS ranks on this machine (many machines: torchrun, mpirun, srun), and wait. "
        "When a rank fails, this says which and how, gives the others time to end by themselves, then ends them.",
        epilog="example: paceline run -n 4 -- python program.py",
    )
    parser.add_argument("-n", "--ranks", type=positive, required=True, help="how many ranks")
    parser.add_argument("--timeout", type=_limit, metavar="S", help="longest wait of any call, seconds")
    parser.add_argument(
        "--grace", type=_seconds, default=10.0, metavar="S",
        help="seconds to end after a failure elsewhere, or a second Ctrl-C (default: 10)",
    )  # fmt: skip
    parser.add_argument(
        "--keep-going", action="store_true",
        help="let the others go on when a rank fails, as a program does that survives it (Communicator.shrink)",
    )  # fmt: skip
    parser.add_argument(
        "--address",
        type=_address,
        default="127.0.0.1",
        help="this machine's address on which rank 0 listens (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--bind",
        action="store_true",
        help="one CPU for each rank, neighbours' the same if they are too few (default: free)",
    )
    parser.add_argument("--tag", action="store_true", help="begin each line of the ranks' output with the rank, as [3]")
    parser.add_argument(
        "--nccl", action="store_true", help="put Paceline in NCCL's place under the program (paceline env nccl)"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- CMD", help="the program and its arguments")
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    parser: argparse.ArgumentParser = chosen.parser
    program = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
    if not program or not program[0]:
        parser.error("no program: paceline run -n 4 -- CMD...")
    try:
        return launch(
            program,
            chosen.ranks,
            address=chosen.address,
            timeout=chosen.timeout,
            grace=chosen.grace,
            bind=chosen.bind,
            keep_going=chosen.keep_going,
            tag=chosen.tag,
            environment={**os.environ, **(nccl_environment() if chosen.nccl else {})},
        )
    except NoSuchAddress as error:
        parser.error(f"--address {error}")
