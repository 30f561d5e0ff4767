"""Print requirements of pyproject.toml, one a line: `build`, or the name of a dependency group."""

import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python < 3.11; pip brings the same parser
    from pip._vendor import tomli as tomllib

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
for group in sys.argv[1:]:
    print(*(project["build-system"]["requires"] if group == "build" else project["dependency-groups"][group]), sep="\n")
