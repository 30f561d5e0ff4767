"""Print requirements of pyproject.toml, one a line: a dependency group, `build` with the build's own."""

import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python < 3.11; pip brings the same parser
    from pip._vendor import tomli as tomllib

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
for purpose in sys.argv[1:]:
    requirements = project["build-system"]["requires"] if purpose == "build" else []
    print(*requirements, *project["dependency-groups"].get(purpose, []), sep="\n")
