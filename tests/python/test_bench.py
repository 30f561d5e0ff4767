"""`paceline bench` and `paceline explain`, for real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paceline import _native
from paceline.command.collectives import COLLECTIVES


def paceline(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", *words], capture_output=True, text=True, timeout=120, check=False
    )


def bench(tmp_path: Path, *words: str) -> dict[str, Any]:
    out = tmp_path / "bench.json"
    done = paceline("bench", *words, "--json", str(out))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(out.read_text())
    return document


def test_every_collective_is_right(tmp_path: Path) -> None:
    document = bench(tmp_path, "all", "-n", "3", "--sizes", "0,8,1000,100K", "--check", "--iterations", "3")
    assert set(document) == {"version", "host", "device", "graphs", "ranks", "rows"}
    assert (document["device"], document["graphs"], document["ranks"]) == ("cpu", False, 3)
    assert {row["collective"] for row in document["rows"]} == set(COLLECTIVES)
    for row in document["rows"]:
        assert set(row) == {"collective", "bytes", "count", "dtype", "op", "root", "algorithm", "transport",
                            "chunk_bytes", "radix", "time_us", "algbw_gbs", "busbw_gbs", "wrong", "chosen"}  # fmt: skip
        assert row["wrong"] == 0
        assert 0 < row["time_us"]["min"] <= row["time_us"]["median"] <= row["time_us"]["max"]
        assert row["algbw_gbs"] == pytest.approx(row["bytes"] / row["time_us"]["median"] / 1000)
        assert (row["op"] is not None) == COLLECTIVES[row["collective"]].reduces
        assert (row["root"] is not None) == COLLECTIVES[row["collective"]].rooted


@pytest.mark.parametrize(
    ("dtype", "op"), [("float8e5m2", "sum"), ("bfloat16", "avg"), ("int8", "prod"), ("float16", "premulsum"),
                      ("float64", "max"), ("uint64", "min")]
)  # fmt: skip
def test_types_and_operations_are_exact(tmp_path: Path, dtype: str, op: str) -> None:
    words = ["all_reduce", "reduce_scatter", "-n", "3", "--sizes", "1,4K,300K", "--iterations", "2", "--check"]
    document = bench(tmp_path, *words, "--dtype", dtype, "--op", op)
    assert [row["wrong"] for row in document["rows"]] == [0] * len(document["rows"])
    assert {(row["dtype"], row["op"]) for row in document["rows"]} == {(dtype, op)}


def test_every_algorithm_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "all.json"
    words = ["bench", "all", "-n", "4", "--sizes", "64,64K", "--algorithm", "all", "--root", "2", "--iterations", "3",
             "--warmup", "1", "--check", "--json", str(out)]  # fmt: skip
    done = paceline(*words)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert [row for row in rows if row["wrong"] != 0] == []
    for name in COLLECTIVES:
        for size in {row["bytes"] for row in rows if row["collective"] == name}:
            here = [row for row in rows if row["collective"] == name and row["bytes"] == size]
            assert len({row["algorithm"] for row in here}) == len(here)
            assert sum(row["chosen"] for row in here) == 1
    assert len({row["algorithm"] for row in rows if row["collective"] == "all_reduce"}) >= 5
    assert done.stdout.count(" *") == sum(row["chosen"] for row in rows)


def test_a_forced_algorithm_is_what_runs(tmp_path: Path) -> None:
    document = bench(tmp_path, "all_reduce", "-n", "2", "--sizes", "1K", "--algorithm", "ring", "--iterations", "2")
    assert [row["algorithm"] for row in document["rows"]] == ["ring"]
    document = bench(
        tmp_path, "all", "-n", "2", "--sizes", "64K", "--algorithm", "ring chunk=8192", "--iterations", "2"
    )
    rows = {row["collective"]: (row["algorithm"], row["chunk_bytes"]) for row in document["rows"]}
    assert rows["all_reduce"] == ("ring", 8192)
    assert rows["broadcast"][0] != "ring"


def test_a_forced_algorithm_that_does_not_serve_so_many_ranks_is_said_not_to() -> None:
    words = ["bench", "broadcast", "-n", "3", "--sizes", "1K", "--iterations", "2", "--algorithm"]
    for name, serves in (("scatter_doubling", False), ("chain", True)):
        done = paceline(*words, name)
        assert done.returncode == (0 if serves else 1), done.stderr
        assert (f"# {name} does not serve broadcast on 3 ranks: others ran" in done.stderr) != serves


def test_it_joins_the_job_of_a_launcher() -> None:
    done = paceline("run", "-n", "2", "--", sys.executable, "-m", "paceline", "bench", "barrier", "--iterations", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# paceline") and ": 2 ranks" in done.stdout
    assert sum("barrier" in line for line in done.stdout.splitlines()) == 1
    wrong = paceline("run", "-n", "2", "--", sys.executable, "-m", "paceline", "bench", "barrier", "-n", "3")
    assert wrong.returncode == 2 and "leave -n 3 out" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["all_reduce", "--algorithm", "nonsense"], "there is no algorithm 'nonsense': take one of"),
        (["broadcast", "--algorithm", "rabenseifner"], "rabenseifner does not serve broadcast: take one of "),
        (["reduce", "gather", "--algorithm", "ring"], "ring does not serve reduce or gather: take one of "),
        (["all_reduce", "--algorithm", "ring chunk=abc"], "'chunk=abc' after the algorithm ring: there are"),
        (["all_reduce", "--warmup", "-1"], "'-1' is not a whole number >= 0"),
        (["all_reduce", "--plot", "plot.xyz"], "'plot.xyz' does not end with a format of pictures: .png, .svg, .pdf"),
        (["all_reduce", "--graph"], "--graph needs --device cuda"),
        (["broadcast", "-n", "2", "--root", "2"], "--root 2 is none of 2 ranks"),
        (["all_reduce", "--sizes", "8:4"], "is empty"),
        (["all_reduce", "--dtype", "int16"], "invalid choice: 'int16'"),
    ],
)
def test_wrong_usage(words: list[str], reason: str) -> None:
    done = paceline("bench", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_plot_and_trace(tmp_path: Path) -> None:
    picture, trace = tmp_path / "plot.png", tmp_path / "trace.json"
    bench(
        tmp_path, "all_reduce", "broadcast", "-n", "2", "--sizes", "8,64K", "--iterations", "2", "--plot", str(picture)
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    bench(tmp_path, "all_reduce", "-n", "2", "--sizes", "64K", "--trace", str(trace))
    events = json.loads(trace.read_text())
    assert {event["pid"] for event in events} == {0, 1}
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1"}
    assert min(event["ts"] for event in events if event["ph"] == "X") == 0
    for rank in (0, 1):
        assert any(event["ph"] == "X" and event["pid"] == rank and event["dur"] >= 0 for event in events)


def test_explain(tmp_path: Path) -> None:
    out = tmp_path / "explain.json"
    done = paceline("explain", "all_reduce", "-n", "3", "--size", "8,1M", "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert [(row["bytes"], row["count"]) for row in rows] == [(8, 2), (2**20, 2**18)]
    for row in rows:
        assert row["algorithm"] in done.stdout and row["transport"] == "shm"


def test_explain_of_a_barrier_is_one_row() -> None:
    done = paceline("explain", "barrier", "-n", "2")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4


@pytest.mark.parametrize("words", [["explain", "all_reduce", "-n", "4"], ["tune", "-n", "2,4"]])
def test_a_launcher_has_the_last_word_on_the_number_of_ranks(words: list[str]) -> None:
    done = paceline("run", "-n", "2", "--", sys.executable, "-m", "paceline", *words)
    assert done.returncode == 2
    assert f"the launcher has started 2 ranks: leave -n {words[-1]} out" in done.stderr


@pytest.mark.parametrize("root", ["2", "-1"])
def test_explain_refuses_a_root_that_is_none(root: str) -> None:
    done = paceline("explain", "broadcast", "-n", "2", "--root", root)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--root {root} is none of 2 ranks" in done.stderr


def test_explain_refuses_a_size_that_no_memory_holds_once() -> None:
    done = paceline("explain", "all_reduce", "-n", "2", "--size", "8000000G")
    assert done.returncode == 1
    assert "2147483648000000 elements are more than memory can hold" in done.stderr
    assert "barrier" not in done.stderr and "rank 1" not in done.stderr


def test_version() -> None:
    done = paceline("--version")
    assert done.stdout == f"paceline {_native.version()}, {_native.library_path()}\n"
