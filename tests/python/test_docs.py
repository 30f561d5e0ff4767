"""The manual's commands run, its tables say what the library says, and the examples of docstrings hold."""

import doctest
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import paceline
import pytest
from paceline import _native

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language):
    """The page's blocks of a language that a reader can paste: (page, first line, text)."""
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield pytest.param(match[1], id=f"{page.name}:{text[: match.start()].count(chr(10)) + 1}")


MODULES = [module.name for module in pkgutil.walk_packages(paceline.__path__, "paceline.")]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_of_docstrings_hold(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_some_docstrings_have_examples():
    assert sum(
        doctest.testmod(importlib.import_module(f"paceline.{name}")).attempted for name in ("tuning", "topology")
    )


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def run(command, directory):
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", list(blocks("sh")))
def test_shell_blocks_run(script, directory):
    run(["bash", "-eu", "-c", script], directory)


@pytest.mark.parametrize("script", list(blocks("python")))
def test_python_blocks_run(script, directory):
    run([sys.executable, "-c", script], directory)


def described(which):
    return json.loads(_native.library().paceDescribe(which.encode()))


def test_every_environment_variable_is_in_the_manual():
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = [
        f"| `{row['variable']}` | {row['type']} | {row['default'] or '-'} | {row['help']} |"
        for row in described("configuration")
    ]
    assert [line for line in page.splitlines() if line.startswith("| `PACELINE_")] == rows


@pytest.mark.parametrize("page", [ROOT / "bench" / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """To files that are there, and headings in them."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, target
