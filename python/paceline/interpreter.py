"""Command lines of further Pythons, for ranks and probes that this package starts.

With -c or -m Python looks for every module in the current folder first, and a secrets.py there would take the standard
library's place. What the user keeps there is no part of a measurement: the folder is left out. (-P does the same, from
Python 3.11 on.)
"""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGES = Path(__file__).parents[1]  # the folder in which this package was found
_LEAVE_CURRENT_FOLDER = "import sys\nif sys.path[:1] == ['']: del sys.path[0]\n"
# Ctrl-C in a terminal reaches a rank that is still loading the package, too, and then ends it without a word.
_COMMAND = """\
import signal, sys
heeds = signal.getsignal(signal.SIGINT) == signal.default_int_handler
if heeds: signal.signal(signal.SIGINT, signal.SIG_DFL)
from paceline.cli import main
if heeds: signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


def python(program: str, *words: str) -> list[str]:
    """What runs a program's text with these words as its arguments.

    The current folder stays in the path where it is what this package comes from: the program finds the same one.
    """
    start = "" if Path().samefile(_PACKAGES) else _LEAVE_CURRENT_FOLDER
    return [sys.executable, "-c", start + program, *words]


def paceline(*words: str) -> list[str]:
    """What runs the command `paceline` with these words."""
    return python(_COMMAND, *words)
