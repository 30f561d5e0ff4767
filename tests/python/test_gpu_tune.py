"""`paceline tune --device cuda`: the ways it tries, the tables it makes, and, where there are GPUs, all of it.

Without one, a stand-in for the driver stands for two, and the host's engine does the calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_jobs import gpus
from paceline import tuning
from paceline.command.collectives import COLLECTIVES
from paceline.command.gpu_ways import Way, between, candidates, choose, curves, rows, summary

HERE = Path(__file__).parent
NAMES = [name for name in COLLECTIVES if name != "barrier"]
SIZES = [4, 500, 2000, 4096, 100_000, 1 << 20, 100 << 20, 1 << 30]
BRIEF, WIDE, RELAYED, LARGE = Way("brief", lanes=4), Way("brief", lanes=15), Way("streaming", 2), Way("large")
DIRECT, PUSHED = Way("large", direct=True), Way("large", direct=True, pushed=True)
PASSED = Way("large", direct=True, passed=True)
ENGINES = Way("large", direct=True, engines=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_ways_worth_a_try(name: str, ranks: int) -> None:
    for nbytes in SIZES:
        ways = candidates(name, ranks, nbytes)
        assert len(set(ways)) == len(ways) <= 24
        assert any(not way.direct for way in ways)
        parts = ranks > 2 and name in ("all_reduce", "reduce", "broadcast")
        assert any(way.steps == 2 for way in ways) == (parts and nbytes >= 8192)
        assert any(way.direct for way in ways) == (nbytes >= 65536 and nbytes % 16 == 0)
        folds_direct = any(way.direct for way in ways) and "reduce" in name
        assert any(way.passed for way in ways) == folds_direct
        assert any(way.pushed for way in ways) == (folds_direct and ranks > 2)
        piece = nbytes // ranks if parts else nbytes
        assert any(way.blocks for way in ways if way.family != "large") == (piece > 2 << 20)
        assert any(way.engines for way in ways) == (nbytes >= 16 << 20 and "reduce" not in name and not parts)


def test_the_fastest_is_chosen_and_changes_only_for_a_gain() -> None:
    times = {
        8: {BRIEF: 2.0, WIDE: 2.1},
        1024: {BRIEF: 2.04, WIDE: 2.0},  # not worth a change
        65536: {BRIEF: 4.0, WIDE: 3.0, RELAYED: 3.5},
        1 << 20: {WIDE: 9.0, RELAYED: 8.0, LARGE: 12.0, DIRECT: 7.9},  # nor is that
        4 << 20: {RELAYED: 20.0, LARGE: 16.0, DIRECT: 12.0},
        64 << 20: {RELAYED: 200.0, LARGE: 160.0, DIRECT: 159.0},
    }
    chosen = choose(times)
    assert [*chosen.values()] == [BRIEF, BRIEF, WIDE, RELAYED, DIRECT, DIRECT]
    table = rows("all_reduce", chosen)
    assert table == [
        {"collective": "all_reduce", "from": 0, "family": "brief", "lanes": 4},
        {"collective": "all_reduce", "from": 8192, "family": "brief", "lanes": 15},
        {"collective": "all_reduce", "from": 262144, "family": "streaming", "steps": 2},
        {"collective": "all_reduce", "from": 2 << 20, "family": "large", "direct": True},
    ]
    assert summary(table) == (
        "brief (lanes 4) below 8K, then brief (lanes 15) below 256K, then streaming (steps 2) below 2M, then "
        "direct, or large"
    )


def test_a_fold_is_pushed_where_that_is_worth_it() -> None:
    times = {
        16 << 20: {LARGE: 70.0, DIRECT: 58.0, PUSHED: 60.0},
        128 << 20: {LARGE: 500.0, DIRECT: 402.0, PUSHED: 396.0},  # not worth it
        512 << 20: {LARGE: 1900.0, DIRECT: 1590.0, PUSHED: 1510.0},
        1 << 30: {LARGE: 3800.0, DIRECT: 3100.0, PUSHED: 3050.0},  # stays
    }
    chosen = choose(times)
    assert [*chosen.values()] == [DIRECT, DIRECT, PUSHED, PUSHED]
    table = rows("all_reduce", chosen)
    assert table == [
        {"collective": "all_reduce", "from": 0, "family": "large", "direct": True},
        {"collective": "all_reduce", "from": 256 << 20, "family": "large", "direct": True, "pushed": True},
    ]
    assert summary(table) == "direct, or large below 256M, then pushed, or large"
    assert choose({1 << 20: {LARGE: 9.0, PUSHED: 8.0}}) == {1 << 20: PUSHED}


def test_a_fold_is_passed_on_where_that_is_worth_it() -> None:
    times = {
        32 << 20: {LARGE: 300.0, DIRECT: 170.0, PUSHED: 160.0, PASSED: 166.0},
        128 << 20: {LARGE: 900.0, DIRECT: 640.0, PUSHED: 604.0, PASSED: 580.0},
        1 << 30: {LARGE: 7000.0, DIRECT: 5000.0, PUSHED: 5010.0, PASSED: 4460.0},
    }
    both = Way("large", direct=True, pushed=True, passed=True)  # pushed what cannot be passed on
    assert [*choose(times).values()] == [PUSHED, both, PASSED]
    table = rows("all_reduce", choose(times))
    assert table[1] == {"collective": "all_reduce", "from": 64 << 20, **both.fields()}
    assert both.fields() == {"family": "large", "direct": True, "pushed": True, "passed": True}
    assert summary(table) == (
        "pushed, or large below 64M, then passed on, or large below 362M, then passed on, or large"
    )
    assert choose({1 << 20: {LARGE: 9.0, DIRECT: 8.0, PASSED: 7.9}}) == {1 << 20: DIRECT}


def test_copy_engines_are_used_where_they_are_faster() -> None:
    times = {
        16 << 20: {LARGE: 70.0, DIRECT: 54.0, ENGINES: 66.0},
        1 << 30: {LARGE: 3800.0, DIRECT: 2880.0, ENGINES: 2730.0},
    }
    chosen = choose(times)
    assert [*chosen.values()] == [DIRECT, ENGINES]
    assert summary(rows("broadcast", chosen)) == "direct, or large below 128M, then copy engines, or large"


def test_what_was_measured_is_told() -> None:
    times = {8: {BRIEF: 2.0004}, 1 << 20: {RELAYED: 9.0, BRIEF: 12.0}}
    assert curves("reduce", times) == [
        {"collective": "reduce", "family": "brief", "lanes": 4, "points": [[8, 2.0], [1 << 20, 12.0]]},
        {"collective": "reduce", "family": "streaming", "steps": 2, "points": [[1 << 20, 9.0]]},
    ]


def test_what_meets_half_way_is_measured_there() -> None:
    times = {
        1024: {BRIEF: 2.0, WIDE: 3.0},
        16384: {BRIEF: 4.0, WIDE: 3.0, DIRECT: 9.0},
        65536: {WIDE: 9.0, LARGE: 12.0},
    }
    assert between(times) == {4096: [WIDE, BRIEF, DIRECT]}
    assert between({1024: {BRIEF: 2.0}, 1040: {WIDE: 1.0}}) == {}


def paceline(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline", *words]
    variables = {**os.environ, "PACELINE_TUNING": "off", **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)


def test_every_rank_measures_the_same_ways(fake_cuda: dict[str, str], tmp_path: Path) -> None:
    done = paceline("run", "-n", "2", "--", sys.executable, str(HERE / "gpu_tune_side.py"), **fake_cuda)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["gpu"], found["link"], found["ranks"], found["blocks"]) == ("fake GPU", "nvlink", 2, 32)
    assert found["table"][0]["from"] == 0
    sizes = [row["from"] for row in found["table"]]
    assert sizes == sorted(set(sizes))
    assert {row["collective"] for row in found["table"]} == {"all_reduce"}
    measured = [{key: value for key, value in row.items() if key != "points"} for row in found["measured"]]
    for row in found["table"]:
        way = {key: value for key, value in row.items() if key not in ("from", "direct", "pushed", "passed", "engines")}
        assert way in measured
    assert all(time > 0 for row in found["measured"] for _, time in row["points"])
    path = tmp_path / "profile.json"
    tuning.merge(path, [], [found])
    done = paceline("explain", "barrier", "-n", "2", "--size", "0", PACELINE_TUNING=str(path))
    assert (done.returncode, done.stderr) == (0, "")


def test_gpus_that_do_not_reach_each_other_have_no_table(fake_cuda: dict[str, str], tmp_path: Path) -> None:
    done = paceline(
        "tune", "--device", "cuda", "-n", "2", "--largest", "1K", "--output", str(tmp_path / "f"), **fake_cuda
    )
    assert done.returncode == 1
    assert "calls on GPU memory go through host memory" in done.stderr
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("words", "devices", "reason"),
    [
        ([], "1", "this machine shows 1 GPU: there is nothing to tune"),
        (["-n", "3"], "2", "3 ranks need as many GPUs, this machine shows 2"),
        (["-n", "1"], "2", "a collective among 1 rank is a copy"),
        (["--transport", "shm"], "2", "--transport is of the host's engine"),
    ],
)
def test_wrong_usage(fake_cuda: dict[str, str], words: list[str], devices: str, reason: str) -> None:
    done = paceline("tune", "--device", "cuda", *words, **fake_cuda, FAKE_CUDA_DEVICES=devices)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_tables_are_kept_beside_settings(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    model = {"start_us": 2.0, "step_us": 0.1, "bandwidth_gbs": 5.0, "reduce_gbs": 5.0, "write_gbs": 50.0,
             "copy_gbs": 5.0, "duplex": 0.5, "multicast_share": 0.0, "switching_us": 0.0, "sharing": 1,
             "largest_chunk": 65536}  # fmt: skip
    setting = {"transport": "shm", "ranks": 2, "model": model, "measured": [], "table": []}
    of_two, of_four = ({"gpu": "G", "link": "nvlink", "ranks": ranks, "table": []} for ranks in (2, 4))
    wide = {**of_two, "blocks": 64}
    tuning.merge(path, [setting])
    tuning.merge(path, [], [of_two, of_four, wide])
    again = {**of_two, "blocks": 32, "table": [{"collective": "reduce", "from": 0, "family": "large"}]}
    tuning.merge(path, [], [again])
    found = tuning.load(path)
    assert found is not None
    assert found["settings"] == [setting]
    assert found["gpus"] == [of_four, wide, again]


def test_measured_tables_become_shipped_ones(tmp_path: Path) -> None:
    shipped, profile = tmp_path / "gpu_tables.json", tmp_path / "profile.json"
    row = {"collective": "reduce", "from": 0, "family": "large"}
    machine = {"gpu": "G", "link": "nvlink", "blocks": 32}
    of_two, of_four = ({**machine, "ranks": ranks, "table": [row]} for ranks in (2, 4))
    shipped.write_text(json.dumps({"gpus": [of_four]}))
    other = {**of_four, "table": [row, {**row, "from": 100}]}
    tuning.merge(profile, [], [of_two, other])
    tool = [sys.executable, str(HERE.parents[1] / "tools" / "ship_gpu_tables.py"), "--into", str(shipped)]
    subprocess.run([*tool, str(profile)], check=True, timeout=60)
    assert json.loads(shipped.read_text()) == {"gpus": [of_two, other]}
    assert len(shipped.read_text().splitlines()) == 7


@pytest.mark.parametrize("gpus", [3, [3], [{"gpu": "G", "link": "nvlink", "ranks": 2}]])
def test_a_profile_whose_tables_are_wrong_is_a_warning(tmp_path: Path, gpus: object) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**tuning.profile([]), "gpus": gpus}))
    done = paceline("explain", "barrier", "-n", "2", "--size", "0", PACELINE_TUNING=str(path))
    assert done.returncode == 0
    assert "profile.json is not used: the GPU table" in done.stderr
    assert tuning.load(path) is None


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
def test_what_is_measured_is_used(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    words = ["--collectives", "all_reduce,broadcast", "--seconds", "5", "--largest", "4M", "--output", str(path)]
    done = paceline("tune", "--device", "cuda", "-n", "2", *words)
    assert done.returncode == 0, done.stderr
    (setting,) = json.loads(path.read_text())["gpus"]
    assert {row["collective"] for row in setting["table"]} == {"all_reduce", "broadcast"}
    for variable, source in ((str(path), "measured"), ("off", None)):
        side = [sys.executable, str(HERE / "gpu_table_side.py"), "show"]
        done = paceline("run", "-n", "2", "--", *side, PACELINE_TUNING=variable)
        assert done.returncode == 0, done.stderr
        shown = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(shown) == 2 and shown[0] == shown[1]
        if source is None:
            assert shown[0]["source"] in ("shipped", "rules")
            continue
        assert shown[0]["source"] == source
        assert [row for row in shown[0]["table"] if row["collective"] in ("all_reduce", "broadcast")] == sorted(
            setting["table"], key=lambda row: (row["collective"] != "broadcast", row["from"])
        )


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("ranks", sorted({2, min(gpus(), 4)}) if gpus() >= 2 else [2])
def test_no_table_makes_a_result_wrong(ranks: int) -> None:
    side = [sys.executable, str(HERE / "gpu_table_side.py"), "extremes"]
    done = paceline("run", "-n", str(ranks), "--", *side, PACELINE_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert "all right" in done.stdout


@pytest.mark.skipif(gpus() < 1, reason="no GPU")
@pytest.mark.parametrize("ranks", [2, 3])
def test_copy_engines_do_what_only_moves(ranks: int) -> None:
    side = [sys.executable, str(HERE / "gpu_table_side.py"), "engines"]
    done = paceline("run", "-n", str(ranks), "--", *side, PACELINE_TIMEOUT="20", PACELINE_LOG="info")
    assert done.returncode == 0, done.stderr
    for name in ("broadcast", "all-gather", "gather", "scatter", "all-to-all"):
        said = f"a graph's {name} of 4096 bytes goes by the copy engines" in done.stderr
        assert said == (name != "broadcast" or ranks == 2)


@pytest.mark.skipif(gpus() < 1, reason="no GPU")
def test_graphs_that_were_not_captured_together_are_told() -> None:
    side = [sys.executable, str(HERE / "gpu_table_side.py"), "crossed"]
    done = paceline("run", "-n", "2", "--", *side, PACELINE_TIMEOUT="20", PACELINE_LOG="info")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("goes by the copy engines") == 4
    assert "was not captured together with rank" in done.stdout


@pytest.mark.skipif(gpus() < 1, reason="no GPU")
def test_memory_of_graphs_that_are_gone_is_given_back() -> None:
    side = [sys.executable, str(HERE / "gpu_table_side.py"), "recaptured"]
    done = paceline("run", "-n", "2", "--", *side, PACELINE_TIMEOUT="20", PACELINE_LOG="info")
    assert done.returncode == 0, done.stderr
    assert "goes by the copy engines" in done.stderr


@pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("field", ["lanes", "direct", "family"])
def test_ranks_with_different_tables_are_told(field: str) -> None:
    side = [sys.executable, str(HERE / "gpu_table_side.py"), "different", field]
    done = paceline("run", "-n", "2", "--", *side, PACELINE_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert "by another table than rank" in done.stdout
