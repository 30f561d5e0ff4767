"""What a person sees who waits for a command at a terminal."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest
from paceline.cli import main
from paceline.command import predict, topo
from paceline.command.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """From here on: pytest puts its own standard error in place before each test."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def slowly(asked: Any) -> Any:
    """A call of the library that takes more than a second."""

    def call(request: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(1.3)
        found: dict[str, Any] = asked(request)
        return found

    return call


def test_a_part_that_says_nothing_shows_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch)
    progress = Progress(2)
    with progress.during("a long one"):
        time.sleep(1.3)
    with progress.during("a short one"):
        pass
    progress.step("the end")
    shown = terminal.getvalue()
    assert f"[{'':30}] a long one, 1 s" in shown
    assert "a short one" not in shown
    assert f"[{'#' * 30}] the end" in shown


@pytest.mark.parametrize(("columns", "shown"), [(20, 19), (0, 79)])
def test_the_bar_stays_in_its_line(monkeypatch: pytest.MonkeyPatch, columns: int, shown: int) -> None:
    terminal = at_a_terminal(monkeypatch)
    monkeypatch.setattr(terminal, "fileno", lambda: 2)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    Progress(1).step("a long one: " + 80 * "x")
    assert len(terminal.getvalue().removeprefix("\r\033[K")) == shown


def test_topo_and_predict_show_what_they_are_at(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch)
    monkeypatch.setattr(topo, "topology", slowly(topo.topology))
    assert main(["topo", "--preset", "dgx1-v100"]) == 0
    assert "dgx1-v100: bounds, rings, trees and chain, 1 s" in terminal.getvalue()
    monkeypatch.setattr(predict, "predict", slowly(predict.predict))
    words = ["--preset", "rx2", "--nodes", "2,4", "--sizes", "1M", "--algorithm", "chain,direct"]
    assert main(["predict", "broadcast", *words]) == 0
    for part, what in enumerate(("chain, 2", "direct, 2", "chain, 4", "direct, 4")):
        assert f"[{'#' * (30 * part // 4):30}] broadcast by {what} nodes, 1 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1).during("a long one"):
        time.sleep(1.3)
    assert capsys.readouterr().err == ""
