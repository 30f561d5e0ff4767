"""`Communicator.trace`: each rank's events, in a file of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import paceline
import pytest
from job import Job
from paceline import _native


def test_every_rank_writes_its_events(three: Job, tmp_path: Path) -> None:
    three.run("trace", path=str(tmp_path / "trace-{rank}.json"))
    for rank in range(3):
        assert len(json.loads((tmp_path / f"trace-{rank}.json").read_text())) > 0


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_a_path_may_be_of_any_kind(comm: paceline.Communicator, tmp_path: Path, kind: Any) -> None:
    with comm.trace(kind(str(tmp_path / "trace-{rank}.json"))):
        pass
    assert (tmp_path / "trace-0.json").exists()


def test_what_is_no_path_starts_no_trace(comm: paceline.Communicator, tmp_path: Path) -> None:
    with pytest.raises(paceline.InvalidArgument, match="path is 5: give a file's name"), comm.trace(5):  # type: ignore[arg-type]
        raise AssertionError("it began")
    for name in ("trace\0.json", "trace\ud800.json"):
        with pytest.raises(paceline.InvalidArgument, match=r"path is '.*trace"), comm.trace(str(tmp_path / name)):
            raise AssertionError("it began")
    assert list(tmp_path.iterdir()) == []
    with comm.trace(tmp_path / "trace.json"):
        pass


def test_a_trace_ends_also_where_the_wait_for_its_calls_does_not(
    comm: paceline.Communicator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comm, "_settle", interrupted)
    with pytest.raises(KeyboardInterrupt), comm.trace(tmp_path / "trace.json"):
        pass
    assert (tmp_path / "trace.json").exists()


def test_a_trace_ends_also_where_ctrl_c_comes_as_it_begins(
    comm: paceline.Communicator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = _native.library()
    start = library.paceTraceStart

    def start_and_interrupt(handle: int) -> int:
        start(handle)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(library, "paceTraceStart", start_and_interrupt)
        with comm.trace(tmp_path / "first.json"):
            raise AssertionError("it began")
    assert library.paceTraceStop(comm._handle, b"/dev/null") == paceline.InvalidUsage.code  # there is none


def test_a_trace_inside_a_trace_is_refused_and_the_outer_one_is_written(
    comm: paceline.Communicator, tmp_path: Path
) -> None:
    with comm.trace(tmp_path / "outer.json"):
        with pytest.raises(paceline.InvalidUsage, match="has been started"), comm.trace(tmp_path / "inner.json"):
            raise AssertionError("it began")
        comm.barrier()
    assert [file.name for file in tmp_path.iterdir()] == ["outer.json"]


def test_a_closed_communicator_has_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_RANK", raising=False)
    comm = paceline.init()
    comm.close()
    with pytest.raises(paceline.InvalidUsage, match="is closed"), comm.trace(tmp_path / "trace.json"):
        raise AssertionError("it began")
    assert list(tmp_path.iterdir()) == []


def written(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps([{"ph": "X", "tid": 0, "dur": 1.0, **event} for event in events]))
    return path


def test_merged_traces_begin_at_0(tmp_path: Path) -> None:
    begin = 1.8e15
    ranks = [written(tmp_path / f"{rank}.json", {"name": "send", "pid": rank, "ts": begin + rank}) for rank in (0, 1)]
    paceline.merge_traces(ranks, tmp_path / "all.json")
    events = json.loads((tmp_path / "all.json").read_text())
    assert [(event["pid"], event["ts"]) for event in events if event["ph"] == "X"] == [(0, 0), (1, 1)]


def test_traces_stand_side_by_side_rank_by_rank(tmp_path: Path) -> None:
    real = written(tmp_path / "real.json", *({"name": "send", "pid": rank, "ts": 1e15 + rank} for rank in (0, 1)))
    predicted = written(tmp_path / "predicted.json", *({"name": "send", "pid": rank, "ts": 0.5} for rank in (0, 1)))
    paceline.compare_traces({"measured": real, "predicted": predicted}, tmp_path / "both.json")
    events = json.loads((tmp_path / "both.json").read_text())
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0, measured", 1: "rank 0, predicted", 2: "rank 1, measured", 3: "rank 1, predicted"}
    assert [event["pid"] for event in events if event["name"] == "process_sort_index"] == [0, 2, 1, 3]
    times = {event["pid"]: event["ts"] for event in events if event["ph"] == "X"}
    assert times == {0: 0, 2: 1, 1: 0, 3: 0}
    with pytest.raises(ValueError, match="is no trace of all ranks"):
        paceline.compare_traces({"real": written(tmp_path / "x.json", {"ts": 0.0})}, tmp_path / "both.json")


def test_what_a_channel_does_beside_something_else_has_another_thread(tmp_path: Path) -> None:
    spans = {"a": (0.0, 4.0), "in a": (1.0, 2.0), "beside a": (2.0, 3.0), "after a": (4.0, 1.0), "with a": (0.0, 1.0)}
    events = [{"name": name, "pid": 0, "ts": begin, "dur": lasts} for name, (begin, lasts) in spans.items()]
    paceline.merge_traces([written(tmp_path / "0.json", *events)], tmp_path / "all.json")
    paceline.compare_traces({"real": tmp_path / "all.json"}, tmp_path / "both.json")
    for merged in ("all.json", "both.json"):
        found = json.loads((tmp_path / merged).read_text())
        assert {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"} == {
            0: "channel 0",
            16: "channel 0, beside it",
        }
        threads = [(event["name"], event["tid"]) for event in found if event["ph"] == "X"]
        assert threads == [("a", 0), ("with a", 0), ("in a", 0), ("after a", 0), ("beside a", 16)]


@pytest.mark.parametrize(
    "text",
    ["5", "null", "{}", "[1]", "[{}]", '[{"tid": 0, "ts": 0, "dur": Infinity}]', "[", "", 100_000 * "["],
    ids=range(9),
)
def test_what_is_no_trace_is_not_merged(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(ValueError):
        paceline.merge_traces([tmp_path / "trace.json"], tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()
