"""`paceline predict`: tables, files, and clear errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paceline.command.predict import table
from paceline.prediction import predict


def paceline(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", "predict", *words], capture_output=True, text=True, check=False
    )


def test_rows_are_printed_and_written(tmp_path: Path) -> None:
    shown = paceline("all_reduce", "--preset", "dgx1-v100", "--sizes", "1M,64M", "--json", str(tmp_path / "f.json"))
    assert shown.returncode == 0, shown.stderr
    document = json.loads((tmp_path / "f.json").read_text())
    assert document["topology"] == "dgx1-v100" and {row["ranks"] for row in document["rows"]} == {8}
    assert {row["bytes"] for row in document["rows"]} == {1 << 20, 64 << 20}
    assert {"ring", "rings", "double_tree"} <= {row["algorithm"] for row in document["rows"]}
    lines = shown.stdout.splitlines()
    assert lines[0] == "# all_reduce on 8 ranks, dgx1-v100"
    assert lines[1:] == table(document["rows"]).splitlines()


@pytest.mark.parametrize("option", ["--trace", "--link-plot"])
def test_a_formula_has_no_timeline_and_no_links(tmp_path: Path, option: str) -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--sizes", "1M", "--algorithm", "reduction_server",
                     option, str(tmp_path / "f"))  # fmt: skip
    assert shown.returncode == 2 and not (tmp_path / "f").exists()
    assert "reduction_server is predicted by a formula: it has no links and no timeline" in shown.stderr


def test_timeline_and_link_loads(tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "links.svg"
    shown = paceline("broadcast", "--preset", "cs-storm-k80", "--sizes", "4M", "--algorithm", "topology_chain",
                     "--trace", str(trace), "--link-plot", str(picture))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    events = json.loads(trace.read_text())
    assert {event["pid"] for event in events} == set(range(16))
    assert {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"} == set(events[0])
    assert "<svg" in picture.read_text()


def test_several_algorithms_and_a_plot(tmp_path: Path) -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--sizes", "1M:16M:x4", "--algorithm", "ring,reduction_server",
                     "--plot", str(tmp_path / "plot.svg"))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "plot.svg").exists()


def test_several_clusters(tmp_path: Path) -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--nodes", "2:8:x2", "--sizes", "1M", "--algorithm", "ring",
                     "--plot", str(tmp_path / "plot.png"), "--json", str(tmp_path / "f.json"))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert [row["ranks"] for row in json.loads((tmp_path / "f.json").read_text())["rows"]] == [2, 4, 8]
    assert shown.stdout.count("# all_reduce on ") == 3


def test_sources() -> None:
    """Few are simulated; beyond, the formulas go on."""
    asked = {"collective": "broadcast", "preset": "rx2", "sizes": [1 << 21]}
    for nodes, sources, method in ((16, 16, "simulated"), (512, 512, "formula")):
        rows = predict({**asked, "nodes": nodes, "sources": sources})["rows"]
        methods = {row["algorithm"]: row["method"] for row in rows}
        assert methods == {"knomial": method, "ring": method, "multicast": "formula"}


def test_a_profile_gives_the_model(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    model = {"start_us": 2.0, "step_us": 0.1, "bandwidth_gbs": 5.0, "reduce_gbs": 5.0, "write_gbs": 50.0,
             "copy_gbs": 5.0, "duplex": 0.5, "multicast_share": 0.0, "switching_us": 0.0, "sharing": 1,
             "largest_chunk": 65536}  # fmt: skip
    setting = {"transport": "shm", "ranks": 2, "model": model, "model_error": 0.1, "measured": [], "table": []}
    document = {"format": 2, "fingerprint": "0" * 16, "version": "0.1.0", "settings": [setting]}
    profile.write_text(json.dumps(document))
    shown = paceline("all_gather", "--profile", str(profile), "-n", "8", "--sizes", "1M", "--algorithm", "ring")
    assert shown.returncode == 0, shown.stderr
    assert "model" in shown.stdout
    assert "no setting for transport" in paceline("broadcast", "--profile", str(profile), "--transport", "tcp").stderr
    profile.write_text("{}")
    assert paceline("all_gather", "--profile", str(profile)).returncode == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--preset", "dgx9"), "there is no preset 'dgx9'"),
        (("--preset", "dgx1-v100", "--nodes", "0"), "'0' is not a whole number >= 1"),
        (("--preset", "dgx1-v100", "--sizes", "-5"), "'-5' is no size"),
        (("--preset", "dgx1-v100", "--gpus", "0,9"), "there is no GPU 9"),
        (("--preset", "dgx1-v100", "--root", "8"), "root 8 is none of the 8 ranks"),
        (("--preset", "dgx1-v100", "--algorithm", "magic"), "there is no algorithm 'magic'"),
        (("--preset", "dgx1-v100", "--trace", "f"), "one algorithm at one size"),
        (("--preset", "dgx1-v100", "--slow-gpu", "3:0"), "is no straggler"),
        (("--profile", "/nonexistent"), "No such file"),
        ((), "one of the arguments --preset --file --nccl-xml --profile is required"),
    ],
)
def test_errors(words: tuple[str, ...], message: str) -> None:
    shown = paceline("broadcast", *words)
    assert shown.returncode in (1, 2)
    assert message in shown.stderr
