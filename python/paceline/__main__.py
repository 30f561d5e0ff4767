"""`python -m paceline` is the command `paceline`."""

import sys

from .cli import main

sys.exit(main())
