"""`python -m paceline` and the script `paceline` are the command `paceline`."""

import sys

from .command.interrupts import interrupt_ends


def main() -> int:
    """As `cli.main`. Ctrl-C ends it without a word also while its modules are being loaded."""
    with interrupt_ends():
        from .cli import main as command
    return command()


if __name__ == "__main__":
    sys.exit(main())
