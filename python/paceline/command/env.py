"""`paceline env`: the environment variables that put Paceline under an unmodified program."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from ..door import nccl_environment
from .files import output_file, write_json

DOORS = {"nccl": nccl_environment}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "env",
        allow_abbrev=False,
        help="print the variables that put Paceline under a program",
        description="Print the environment variables that put Paceline under an unmodified program, for a shell. nccl: "
        "programs for NCCL (PyTorch, JAX, CuPy) get Paceline's libnccl.so.2, which hands NCCL what it does not serve.",
        epilog='example: eval "$(paceline env nccl)"; torchrun --nproc-per-node 2 train.py',
    )
    parser.add_argument("door", metavar="nccl", choices=sorted(DOORS), help="whose place Paceline takes")
    parser.add_argument("--json", type=output_file, metavar="F", help="write the variables to this file")
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    variables = DOORS[chosen.door]()
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    if chosen.json:
        write_json(chosen.json, variables)
    return 0
