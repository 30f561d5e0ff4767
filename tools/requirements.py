"""Print requirements of pyproject.toml, one a line: `build`, or the name of a dependency group (none: nothing)."""

import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python < 3.11; pip brings the same parser
    from pip._vendor import tomli as tomllib

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
for purpose in sys.argv[1:]:
    groups = {"build": project["build-system"]["requires"], **project["dependency-groups"]}
    for requirement in groups.get(purpose, []):
        print(requirement)
