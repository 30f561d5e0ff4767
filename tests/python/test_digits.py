"""examples/digits.py: four ranks learn what one process learns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


def learned(tmp_path: Path, *launcher: str) -> dict[str, Any]:
    out = tmp_path / "losses.json"
    words = [*launcher, sys.executable, str(EXAMPLE), "--save-losses", str(out)]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "of the test images right" in shown.stdout
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_four_ranks_learn_as_one_process(tmp_path: Path) -> None:
    one = learned(tmp_path)
    four = learned(tmp_path, sys.executable, "-m", "paceline", "run", "-n", "4", "--")
    assert len(one["losses"]) == len(four["losses"]) == 150
    assert four["losses"] == pytest.approx(one["losses"], abs=1e-5, rel=0)
    assert four["accuracy"] == one["accuracy"] > 0.95


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--batch", "5000"), "--batch 5000: there are 1500 images"),
        (("--batch", "0"), "--batch 0: there are"),
        (("--epochs", "0"), "--epochs 0: give at least 1"),
    ],
)
def test_what_nothing_can_be_learned_with(words: tuple[str, ...], told: str) -> None:
    shown = subprocess.run(
        [sys.executable, str(EXAMPLE), *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert shown.returncode == 2 and told in shown.stderr
