"""The file of a machine's profile: several processes write to it, and damage in it does not stay."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from paceline import tuning

MODEL = {"start_us": 2.0, "step_us": 0.1, "bandwidth_gbs": 5.0, "reduce_gbs": 5.0, "write_gbs": 50.0, "copy_gbs": 5.0,
         "duplex": 0.5, "multicast_share": 0.0, "switching_us": 0.0, "sharing": 1, "largest_chunk": 65536}  # fmt: skip


def setting(ranks: int) -> dict[str, Any]:
    return {"transport": "shm", "ranks": ranks, "model": MODEL, "model_error": 0.1, "measured": [], "table": []}


def gpu_table(ranks: int) -> dict[str, Any]:
    return {"gpu": "G", "link": "nvlink", "ranks": ranks, "table": []}


def merge_together(path: Path, ranks: int, together: Barrier) -> None:
    together.wait()
    tuning.merge(path, [setting(ranks)])


def test_processes_that_merge_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "profile.json"
    counts = range(2, 18)
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(len(counts))
    writers = [context.Process(target=merge_together, args=(path, ranks, together)) for ranks in counts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0] * len(counts)
    found = tuning.load(path)
    assert found is not None
    assert sorted(row["ranks"] for row in found["settings"]) == [*counts]
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize(
    ("key", "damaged", "reason"),
    [
        ("settings", {**setting(4), "model": {}}, "the profile has no start_us from 0 to 1000000"),
        ("settings", {"ranks": 4}, "the profile has a setting without transport, ranks, model, measured and table"),
        ("gpus", {**gpu_table(4), "table": [{}]}, "the GPU table has a row without a collective"),
    ],
)
def test_a_damaged_part_is_left_out(tmp_path: Path, key: str, damaged: dict[str, Any], reason: str) -> None:
    path = tmp_path / "profile.json"
    document = tuning.profile([setting(2)], [gpu_table(2)])
    document[key].insert(0, damaged)
    path.write_text(json.dumps(document))
    assert tuning.load(path) is None
    assert tuning.merge(path, [setting(3)]) == [reason]
    assert tuning.load(path) == tuning.profile([setting(2), setting(3)], [gpu_table(2)])


@pytest.mark.parametrize("change", [{"fingerprint": "0" * 16}, {"version": "0.0.1"}, {"format": 99}])
def test_a_profile_of_another_machine_is_replaced(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**tuning.profile([setting(2)]), **change}))
    assert tuning.load(path) is None
    assert tuning.merge(path, [setting(3)]) == []
    assert tuning.load(path) == tuning.profile([setting(3)])


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"format": 2}'])
def test_a_file_that_is_no_profile_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    assert tuning.load(path) is None
    tuning.merge(path, [setting(3)])
    assert tuning.load(path) == tuning.profile([setting(3)])


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.mkdir()
    with pytest.raises(OSError):
        tuning.merge(path, [setting(3)])
    assert [*tmp_path.iterdir()] == [path]


def paceline(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def damage(path: Path) -> None:
    path.write_text(json.dumps(tuning.profile([setting(2), {**setting(4), "model": {}}])))


def test_explain_does_not_go_by_a_file_that_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    damage(path)
    done = paceline("explain", "all_reduce", "-n", "2", "--size", "1K", PACELINE_TUNING=str(path))
    assert done.returncode == 0
    assert f"{path} is not used: the profile has no start_us" in done.stderr
    assert "not calibrated here" in done.stdout
    assert "by the table in" not in done.stdout


def test_tune_mends_a_damaged_file_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    damage(path)
    words = ("-n", "2", "--transport", "loopback", "--seconds", "1", "--largest", "4K", "--output", str(path))
    done = paceline("tune", *words)
    assert done.returncode == 0, done.stderr
    assert f"paceline tune: {path} had a damaged part, which is left out: the profile has no start_us" in done.stderr
    found = tuning.load(path)
    assert found is not None
    assert [(row["transport"], row["ranks"]) for row in found["settings"]] == [("shm", 2), ("loopback", 2)]
