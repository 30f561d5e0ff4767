"""The tables and the plot of bench/compare_gpu.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "report_gpu.py"


def row(collective: str, nbytes: int, mode: str, peer: str, peer_us: float, right: bool = True) -> dict[str, Any]:
    return {
        "collective": collective,
        "bytes": nbytes,
        "mode": mode,
        "peer": peer,
        "peer_us": peer_us,
        "peer_us_min_max": [peer_us, peer_us],
        "peer_right": right,
        "paceline_us": 10.0,
        "paceline_us_min_max": [10.0, 10.0],
        "ratio": peer_us / 10,
        "paceline_busbw_gbs": nbytes / 10000,
    }


DOCUMENT = {
    "gpus": 2,
    "gpu": "a GPU",
    "rows": [
        row("all_reduce", 8, "graph", "NCCL default", 20),
        row("all_reduce", 8, "graph", "NCCL windows", 15),
        row("all_reduce", 8, "graph", "torch one-shot", 5, right=False),
        row("all_reduce", 2 << 20, "graph", "NCCL default", 9),
        row("send_recv", 8, "graph", "NCCL default", 12),
        row("all_reduce", 8, "eager", "NCCL default", 30),
    ],
}


def report(tmp_path: Path, *words: str) -> str:
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps(DOCUMENT))
    command = [sys.executable, str(SCRIPT), str(file), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_ratios_are_those_of_the_fastest_peer_that_is_right(tmp_path: Path) -> None:
    assert report(tmp_path).split("\n") == [
        "",
        "In CUDA graphs: microseconds, and in brackets the fastest peer's time divided by ours.",
        "",
        "| | 8 B | 2 MB |",
        "|---|---|---|",
        "| all-reduce | 10 (1.50) | 10 (0.90) |",
        "| send-recv | 10 (1.20) |  |",
        "",
        "Without graphs: microseconds, and in brackets the fastest peer's time divided by ours.",
        "",
        "| | 8 B |",
        "|---|---|",
        "| all-reduce | 10 (3.00) |",
        "",
        "slower: graph all_reduce of 2 MB: 0.90 of NCCL default",
        "wrong: torch one-shot, graph all_reduce of 8 B",
        "Paceline is the fastest in 3 of 4 calls.",
        "",
    ]


def test_the_plot_has_a_panel_for_each_collective_and_mode(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "gpu.svg"
    report(tmp_path, "--plot", str(picture))
    drawn = picture.read_text()
    for title in ("all-reduce, graph", "all-reduce, eager", "send-recv, graph", "NCCL windows", "2 x a GPU"):
        assert f"<!-- {title}" in drawn, title
