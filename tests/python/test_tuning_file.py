"""The file of a machine's profile: several processes write to it, and damage in it does not stay."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from paceline import InvalidArgument, tuning
from paceline.command.explain import _reason

MODEL = {"start_us": 2.0, "step_us": 0.1, "bandwidth_gbs": 5.0, "reduce_gbs": 5.0, "write_gbs": 50.0, "copy_gbs": 5.0,
         "duplex": 0.5, "multicast_share": 0.0, "switching_us": 0.0, "sharing": 1, "largest_chunk": 65536}  # fmt: skip


def setting(ranks: int) -> dict[str, Any]:
    return {"transport": "shm", "ranks": ranks, "model": MODEL, "model_error": 0.1, "measured": [], "table": []}


def gpu_table(ranks: int) -> dict[str, Any]:
    return {"gpu": "G", "link": "nvlink", "ranks": ranks, "table": []}


def merge_together(path: Path, ranks: int, together: Barrier) -> None:
    together.wait()
    tuning.merge(path, [setting(ranks)])


def test_a_full_disk_is_told_with_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{path}'"):
            tuning.merge(path, [setting(2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.iterdir()) == []


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


def test_settings_of_different_ranks_a_node_stay_side_by_side(tmp_path: Path) -> None:
    """All ranks on one node, and two nodes of two ranks each."""
    path = tmp_path / "profile.json"
    one, two = (
        {**setting(4), "transport": "shm+tcp", "model": {**MODEL, **of_nodes},
         "measured": [{"collective": "all_reduce", "algorithm": "ring", "points": [[1024, us]]}],
         "table": [{"collective": "all_reduce", "from": 0, "algorithm": algorithm}]}
        for of_nodes, us, algorithm in (
            ({}, 10.0, "ring"),
            ({"node_ranks": 2, "node_start_us": 2.0, "cable_gbs": 3.0, "stream_gbs": 2.0}, 30.0, "hierarchical"),
        )
    )  # fmt: skip
    assert tuning.merge(path, [one]) == tuning.merge(path, [two]) == []
    found = tuning.load(path)
    assert found == tuning.profile([one, two])
    for saved, us, algorithm in ((one, 10.0, "ring"), (two, 30.0, "hierarchical")):
        job = tuning.job_of(saved)
        row = tuning.table_row(found, job, "all_reduce", 1024)
        assert row is not None and row["algorithm"] == algorithm
        assert tuning.measured_us(found, job, "all_reduce", "ring", 1024) == us
    reason = _reason(found, "profile.json", ("shm+tcp", 4, 3), [], 1)
    assert reason.endswith("profile.json has nothing measured over shm+tcp with 3 ranks a node")
    assert tuning.merge(path, [two]) == []
    assert tuning.load(path) == found


@pytest.mark.parametrize("change", [{"fingerprint": "0" * 16}, {"version": "0.0.1"}, {"format": 99}])
def test_a_profile_of_another_machine_is_replaced(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**tuning.profile([setting(2)]), **change}))
    assert tuning.load(path) is None
    assert tuning.merge(path, [setting(3)]) == []
    assert tuning.load(path) == tuning.profile([setting(3)])


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"format": 2}', "[" * 100_000])
def test_a_file_that_is_no_profile_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    assert tuning.load(path) is None
    tuning.merge(path, [setting(3)])
    assert tuning.load(path) == tuning.profile([setting(3)])


def folder(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # as /dev/null
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [folder, device])
def test_what_is_no_regular_file_stays_as_it_is(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "profile.json"
    make(path)
    before = path.stat()
    link = tmp_path / "link.json"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(InvalidArgument, match=f"{name}: it is no regular file"):
            tuning.merge(name, [setting(3)])
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_a_pipe_is_no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may ever write to it: it is not read."""
    path = tmp_path / "profile.json"
    os.mkfifo(path)

    def read_text(_: Path) -> str:
        raise AssertionError("it is read")

    monkeypatch.setattr(Path, "read_text", read_text)
    assert tuning.load(path) is None


def test_a_symbolic_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    link, path = tmp_path / "link.json", tmp_path / "folder" / "profile.json"
    link.symlink_to(path)
    for ranks in (2, 3):
        tuning.merge(link, [setting(ranks)])
    assert link.readlink() == path
    assert tuning.load(path) == tuning.profile([setting(2), setting(3)])
    assert [*path.parent.iterdir()] == [path]


def test_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    tuning.merge(path, [setting(2)])
    path.chmod(0o600)
    tuning.merge(path, [setting(3)])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "file/profile.json", "file/deeper/profile.json", "loop/profile.json"])
def test_tune_says_at_once_that_a_file_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    done = paceline("tune", "-n", "2", "--seconds", "1", "--largest", "4K", "--output", str(tmp_path / name))
    assert (done.returncode, done.stdout) == (1, "")  # nothing was measured
    assert done.stderr.startswith(f"paceline tune: no profile can be saved in {tmp_path / name}: ")
    assert done.stderr.count("\n") == 1


def test_rank_0_of_a_job_says_at_once_that_a_file_cannot_be_written(tmp_path: Path) -> None:
    words = ("-m", "paceline", "tune", "--seconds", "1", "--largest", "4K", "--output", str(tmp_path))
    done = paceline("run", "-n", "2", "--", sys.executable, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"paceline tune: no profile can be saved in {tmp_path}: it is no regular file" in done.stderr


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


@pytest.mark.parametrize("text", ["[" * 100_000, '{"settings": [{"ranks": Infinity, "transport": "shm"}]}'])
def test_a_damaged_profile_is_no_profile_to_predict_by(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    done = paceline("predict", "broadcast", "--sizes", "8", "--profile", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("paceline predict: ")
    assert done.stderr.count("\n") == 1


def test_a_profile_that_is_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    os.mkfifo(path)
    words = ("-c", "import paceline; paceline.init().barrier()")
    done = paceline("run", "-n", "2", "--", sys.executable, *words, PACELINE_TUNING=str(path))
    assert done.returncode == 0, done.stderr
    assert f"{path} is not used: it cannot be read." in done.stderr


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
