"""`paceline predict`: tables, files, and clear errors."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paceline.command.predict import table
from paceline.command.predict_plot import varied
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


def test_of_each_size_the_fastest_comes_first(tmp_path: Path) -> None:
    """100 ranks' blocks of these sizes are unequal."""
    shown = paceline("all_reduce", "--preset", "rx2", "--nodes", "100", "--sizes", "8,10000000", "--algorithm",
                     "ring,double_tree,rabenseifner", "--json", str(tmp_path / "f.json"))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    rows = json.loads((tmp_path / "f.json").read_text())["rows"]
    assert [row["bytes"] for row in rows] == 3 * [8] + 3 * [10_000_000]
    for same in rows[:3], rows[3:]:
        assert [row["time_us"] for row in same] == sorted(row["time_us"] for row in same)


def test_rows_of_longer_chunks_than_the_algorithms_own_are_told(tmp_path: Path) -> None:
    """One algorithm by name has more time than all of them."""
    words = ("broadcast", "--preset", "rx2", "--nodes", "700", "--sizes", "32M", "--json", str(tmp_path / "f.json"))
    shown = paceline(*words)
    assert shown.returncode == 0, shown.stderr
    rows = {row["algorithm"]: row for row in json.loads((tmp_path / "f.json").read_text())["rows"]}
    chain = rows["pipelined_chain"]
    assert chain["chunk_bytes"] > chain["own_chunk_bytes"] > 0
    assert rows["direct"]["own_chunk_bytes"] is None
    told = re.findall(r"^# (.*): simulated with chunks of .*, not its own .*, to keep it short: it may be faster",
                      shown.stdout, re.MULTILINE)  # fmt: skip
    assert set(told) == {f"{name} at 32M" for name, row in rows.items() if row["own_chunk_bytes"]}


@pytest.mark.parametrize("option", ["--trace", "--link-plot"])
def test_a_formula_has_no_timeline_and_no_links(tmp_path: Path, option: str) -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--sizes", "1M", "--algorithm", "reduction_server",
                     option, str(tmp_path / "f.svg"))  # fmt: skip
    assert shown.returncode == 2 and not (tmp_path / "f.svg").exists()
    assert "reduction_server is predicted by a formula: it has no links and no timeline" in shown.stderr


def test_timeline_and_link_loads(tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "links.svg"
    shown = paceline("broadcast", "--preset", "cs-storm-k80", "--sizes", "4M", "--algorithm", "topology_chain",
                     "--trace", str(trace), "--link-plot", str(picture))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    events = json.loads(trace.read_text())
    assert {event["pid"] for event in events} == set(range(16))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {rank: f"rank {rank}" for rank in range(16)}
    steps = [event for event in events if event["ph"] == "X"]
    assert {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"} == set(steps[0])
    assert min(step["ts"] for step in steps) == 0
    assert "<svg" in picture.read_text()


def test_several_algorithms_and_a_plot(tmp_path: Path) -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--sizes", "1M:16M:x4", "--algorithm", "ring,reduction_server",
                     "--plot", str(tmp_path / "plot.svg"))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "plot.svg").exists()


def test_a_size_of_0_is_drawn_without_a_warning(tmp_path: Path) -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--sizes", "0", "--plot", str(tmp_path / "plot.svg"))
    assert (shown.returncode, shown.stderr) == (0, "")


def test_several_clusters(tmp_path: Path) -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--nodes", "2:8:x2", "--sizes", "1M", "--algorithm", "ring",
                     "--plot", str(tmp_path / "plot.png"), "--json", str(tmp_path / "f.json"))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert [row["ranks"] for row in json.loads((tmp_path / "f.json").read_text())["rows"]] == [2, 4, 8]
    assert shown.stdout.count("# all_reduce on ") == 3


def test_a_picture_of_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    line = str(tmp_path / "$a$\udcff.json")
    vertices = [{"name": name, "kind": "gpu"} for name in "ab"]
    links = [{"between": ["a", "b"], "kind": "nvlink", "gbs": 50}]
    Path(line).write_text(json.dumps({"node": {"vertices": vertices, "links": links}}))
    words = ("all_reduce", "--file", line, "--sizes", "1M", "--algorithm", "ring")
    for option in ("--plot", "--link-plot"):
        picture = tmp_path / "\udcff.svg"
        shown = paceline(*words, option, str(picture))
        assert shown.returncode == 0, shown.stderr
        assert picture.exists()


def test_an_algorithm_that_cannot_be_predicted_is_left_out_of_several(tmp_path: Path) -> None:
    line = tmp_path / "line.json"
    vertices = [{"name": name, "kind": "gpu"} for name in "abc"]
    links = [{"between": ends, "kind": "nvlink", "gbs": 50} for ends in (["a", "b"], ["b", "c"])]
    line.write_text(json.dumps({"node": {"vertices": vertices, "links": links}}))
    shown = paceline("broadcast", "--file", str(line), "--sizes", "1M", "--algorithm", "chain,direct")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"^ +1048576 .* chain ", shown.stdout, re.MULTILINE)
    assert re.search(r"^# left out: direct: .* no way ", shown.stdout, re.MULTILINE)
    written = tmp_path / "f.json"
    shown = paceline("all_reduce", "--preset", "hgx-h200", "--nodes", "2,8", "--sizes", "1M", "--algorithm",
                     "ring,rings", "--json", str(written))  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    rows = {(row["algorithm"], row["ranks"]) for row in json.loads(written.read_text())["rows"]}
    assert rows == {("ring", 16), ("rings", 16), ("ring", 64)}
    assert "# left out: rings: none are packed for 64 ranks" in shown.stdout
    shown = paceline("broadcast", "--preset", "rx2", "--nodes", "2,4", "--algorithm", "ring,rings")
    assert (shown.returncode, "there is no algorithm 'ring' for broadcast" in shown.stderr) == (1, True)


def detail(tmp_path: Path, *words: str) -> dict[str, Any]:
    path = tmp_path / "f.json"
    shown = paceline("all_reduce", *words, "--trace", str(tmp_path / "trace.json"), "--json", str(path))
    assert shown.returncode == 0, shown.stderr
    (row,) = json.loads(path.read_text())["rows"]
    assert isinstance(row, dict)
    return row


def test_bytes_on_each_link(tmp_path: Path) -> None:
    row = detail(tmp_path, "--preset", "dgx1-v100", "--gpus", "0,3", "--sizes", "1M", "--algorithm", "ring")
    links = {(link["from"], link["to"]): link for link in row["links"]}
    assert {ends: link["bytes"] for ends, link in links.items()} == {
        ("gpu0", "gpu3"): 1 << 20,
        ("gpu3", "gpu0"): 1 << 20,
    }
    assert links["gpu0", "gpu3"]["share"] == pytest.approx(1.048576 / 0.05 / row["time_us"])


def test_json_has_the_links_of_every_row_that_was_simulated(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    words = ("--preset", "dgx1-v100", "--sizes", "64K,1M", "--algorithm", "ring,packed_trees,reduction_server")
    assert paceline("all_reduce", *words, "--json", str(path)).returncode == 0
    rows = json.loads(path.read_text())["rows"]
    assert {row["algorithm"]: row["links"] is None for row in rows} == {
        "ring": False,
        "packed_trees": False,
        "reduction_server": True,
    }
    for row in rows:
        if row["links"] is not None:
            assert max(link["share"] for link in row["links"]) == pytest.approx(row["busiest_share"])


def test_the_share_of_a_slow_link_is_of_what_it_carries(tmp_path: Path) -> None:
    words = ("--preset", "dgx1-v100", "--gpus", "0,3", "--sizes", "1M", "--algorithm", "ring")
    row = detail(tmp_path, *words, "--slow-link", "gpu0 -> gpu3:10")
    (slow,) = (link for link in row["links"] if link["from"] == "gpu0")
    assert slow["gbs"] == 5
    assert slow["share"] == pytest.approx(row["busiest_share"])


def test_in_detail_every_node_is_there(tmp_path: Path) -> None:
    """One node's ranks stand for all only where no links and no timeline are asked for."""
    words = ("--preset", "hgx-h200", "--nodes", "32", "--sizes", "1M", "--algorithm", "ring")
    row = detail(tmp_path, *words)
    assert {link["from"].split("/")[0] for link in row["links"]} == {"leaf0", *(f"node{i}" for i in range(32))}
    assert {event["pid"] for event in json.loads((tmp_path / "trace.json").read_text())} == set(range(256))


def test_the_axis_is_what_was_varied() -> None:
    """Counts that are rounded to whole blocks make the rows' bytes differ."""
    asked = {"collective": "all_gather", "preset": "rx2", "sizes": [100_000], "algorithm": "ring"}
    rows = [
        {**row, "ranks": nodes, "sources": 0} for nodes in (3, 7) for row in predict({**asked, "nodes": nodes})["rows"]
    ]
    assert len({row["bytes"] for row in rows}) == 2
    assert {row["asked_bytes"] for row in rows} == {100_000}
    assert varied(rows) == "ranks"
    assert varied([{**row, "asked_bytes": row["bytes"]} for row in rows]) == "asked_bytes"
    assert varied(rows[:1]) == "asked_bytes"


def test_rings_take_the_chunk_asked_for() -> None:
    asked = {"collective": "all_reduce", "preset": "dgx1-v100", "sizes": [64 << 20], "algorithm": "rings"}
    (own,) = predict(asked)["rows"]
    (short,) = predict({**asked, "chunk_bytes": 16384})["rows"]
    assert short["chunk_bytes"] == 16384
    assert short["time_us"] > own["time_us"]


def test_a_radix_is_taken_and_told() -> None:
    asked = {"collective": "broadcast", "preset": "rx2", "sizes": [64], "algorithm": "knomial"}
    (own,) = predict(asked)["rows"]
    times = {}
    for radix in (2, 4, 16, own["radix"]):
        (row,) = predict({**asked, "radix": radix})["rows"]
        assert row["radix"] == radix
        times[radix] = row["time_us"]
    assert times[2] > times[4] > times[16]  # levels, one after the other, of messages that go side by side
    assert times[own["radix"]] == own["time_us"]
    assert {row["algorithm"]: row["radix"] for row in predict({**asked, "algorithm": "all"})["rows"]}["chain"] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--algorithm", "chain", "--radix", "4"), "chain has no radix; there are knomial"),
        (("--radix", "1"), "radix is 1: give 2 or more"),
        (("--radix", "4", "--sources", "2"), "either --radix or --sources"),
    ],
)
def test_a_radix_that_cannot_be(options: tuple[str, ...], reason: str) -> None:
    shown = paceline("broadcast", "--preset", "rx2", *options)
    assert shown.returncode != 0
    assert reason in shown.stderr


@pytest.mark.parametrize(("collective", "algorithm"), [("broadcast", "packed_trees"), ("all_reduce", "rings")])
def test_too_many_steps_are_refused(collective: str, algorithm: str) -> None:
    shown = paceline(collective, "--preset", "dgx1-v100", "--sizes", "1G", "--chunk", "16", "--algorithm", algorithm)
    assert shown.returncode == 1
    assert re.search(rf"{algorithm}: \d+ steps are too many to simulate", shown.stderr)


@pytest.mark.parametrize("nbytes", [8, 4096, 8192, 512 << 10, 2 << 20])
def test_a_multicast_of_one_source_is_a_multicast(nbytes: int) -> None:
    asked = {"collective": "broadcast", "preset": "rx2", "sizes": [nbytes], "algorithm": "multicast"}
    (one,) = predict(asked)["rows"]
    (sources,) = predict({**asked, "sources": 1})["rows"]
    assert one["time_us"] == pytest.approx(sources["time_us"], rel=1e-12)
    # At least a datagram's start, its issue to 16 ranks, and the bytes from the host's memory over EDR.
    assert one["time_us"] >= 0.05 + math.log(16) / 17.5 + nbytes / 12500


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
    settings = [setting, {**setting, "transport": "loopback", "ranks": 3}]
    document = {"format": 2, "fingerprint": "0" * 16, "version": "1.2.3", "settings": settings}
    profile.write_text(json.dumps(document))
    shown = paceline("all_gather", "--profile", str(profile), "-n", "8", "--sizes", "1M", "--algorithm", "ring")
    assert shown.returncode == 0, shown.stderr
    assert "model" in shown.stdout
    assert shown.stdout.splitlines()[1].endswith("busiest link or method")
    for words, ranks in ((), 2), (("--transport", "loopback"), 3):
        assert f" on {ranks} ranks, " in paceline("broadcast", "--profile", str(profile), *words).stdout
    assert "no setting for transport" in paceline("broadcast", "--profile", str(profile), "--transport", "tcp").stderr
    profile.write_text("{}")
    assert paceline("all_gather", "--profile", str(profile)).returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus", "0,1"),
        ("--placement", "node"),
        ("--start", "0"),
        ("--delay", "0"),
        ("--ports", "one"),
        ("--multicast",),
        ("--slow-gpu", "0:2"),
        ("--slow-link", "a -> b:2"),
        ("--servers", "2"),
        ("--sources", "2", "--chunk", "4K"),
        ("--trace", "f"),
        ("--link-plot", "f.svg"),
    ],
)
def test_a_profile_is_no_topology(words: tuple[str, ...]) -> None:
    shown = paceline("broadcast", "--profile", "/nonexistent", *words)
    assert shown.returncode == 2
    assert f"{words[0]} needs a topology, not --profile" in shown.stderr


def test_a_barrier_is_predicted_once(tmp_path: Path) -> None:
    shown = paceline("barrier", "--preset", "rx2", "--algorithm", "fan", "--json", str(tmp_path / "f.json"))
    assert shown.returncode == 0, shown.stderr
    assert [row["bytes"] for row in json.loads((tmp_path / "f.json").read_text())["rows"]] == [0]
    assert shown.stdout.splitlines()[-1].split()[:4] == ["0", "0", "fan", "-"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--preset", "dgx9"), "there is no preset 'dgx9'"),
        (("--preset", "dgx1-v100", "--nodes", "0"), "'0' is not a whole number >= 1"),
        (("--preset", "dgx1-v100", "--sizes", "-5"), "'-5' is no size"),
        (("--preset", "dgx1-v100", "--gpus", "0,9"), "there is no GPU 9"),
        (("--preset", "dgx1-v100", "--root", "8"), "root 8 is none of the 8 ranks"),
        (("--preset", "dgx1-v100", "--algorithm", "magic"), "there is no algorithm 'magic': take one of direct, "),
        (("--preset", "rx2", "--algorithm", "rng,ring"), "there is no algorithm 'rng': take one of "),
        (("--preset", "rx2", "--algorithm", "rng"), "packed_trees, multicast, or all"),
        (("--preset", "rx2", "--algorithm", ""), "there is no algorithm '': take one of "),
        *(
            ((option, "f.svg", "--preset", "rx2", "--size", "1M", *words), f"{option} shows one algorithm at one size")
            for option in ("--trace", "--link-plot")
            for words in (
                (),
                ("--algorithm", "ring,chain"),
                ("--algorithm", "chain", "--size", "1M,2M"),
                ("--algorithm", "chain", "--nodes", "2,4"),
                ("--algorithm", "ring", "--sources", "2"),
            )
        ),
        *(
            (("--preset", "rx2", "--algorithm", "multicast", option, "1"), "takes no other (--start, --delay)")
            for option in ("--start", "--delay")
        ),
        (("--preset", "rx2", "--sources", "2", "--chunk", "4K"), "either --chunk or --sources"),
        (("--preset", "rx2", "--root", "1", "--sources", "2"), "either --root or --sources, which are the first ranks"),
        (("--preset", "rx2", "--servers", "2"), "--servers goes with --algorithm reduction_server"),
        (("--preset", "rx2", "--algorithm", "all,chain"), "--algorithm is all, or some by name"),
        (("--preset", "rx2", "--slow-gpu", "3:2", "--slow-gpu", "03:4"), "--slow-gpu names '3' twice"),
        (("--preset", "rx2", *(2 * ("--slow-link", "a -> b:2"))), "--slow-link names 'a -> b' twice"),
        (("--preset", "rx2", "--gpus", "²"), "'²' is no list of GPUs"),
        (("--preset", "rx2", "--gpus", "0," + 20 * "9"), f"{20 * '9'} is more than 2147483647"),
        (("--preset", "rx2", "--gpus", 5000 * "9"), "is more than 2147483647"),
        (("--file", "/tmp"), "'/tmp' is a folder"),
        (("--profile", "/tmp"), "'/tmp' is a folder"),
        (("--preset", "rx2", "--transport", "shm"), "--transport goes with --profile"),
        (("--preset", "rx2", "--plot", "f.xyz"), "'f.xyz' does not end with a format of pictures: .png, .svg, .pdf"),
        (("--preset", "dgx1-v100", "--slow-gpu", "3:0"), "is no straggler"),
        (("--preset", "dgx1-v100", "--slow-gpu", "3:1e999"), "is no straggler"),
        (
            ("--preset", "dgx1-v100", "--slow-link", "gpu0 -> gpu3:1e308"),
            "the link gpu0 -> gpu3 cannot take 1e+308 times as long: a factor is from 1e-06 to 1000000",
        ),
        (("--preset", "dgx1-v100", "--delay", "1e308"), "delay_us must be a number from 0 to 1000000000, not 1e+308"),
        *(
            (("--preset", "dgx1-v100", option, value), f"{option}: '{value}' is no number of microseconds >= 0")
            for option in ("--start", "--delay")
            for value in ("nan", "inf", "-1", "x")
        ),
        (("--profile", "/nonexistent"), "No such file"),
        ((), "one of the arguments --preset --file --nccl-xml --profile is required"),
    ],
)
def test_errors(words: tuple[str, ...], message: str) -> None:
    shown = paceline("broadcast", *words)
    assert shown.returncode in (1, 2)
    assert message in shown.stderr


def test_only_rooted_collectives_have_a_root() -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--root", "1")
    assert (shown.returncode, "all_reduce has no root: leave out --root" in shown.stderr) == (2, True)


def test_an_algorithm_named_twice_is_predicted_once() -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--sizes", "1M", "--algorithm", "ring,ring")
    assert shown.returncode == 0, shown.stderr
    assert len(re.findall(" ring ", shown.stdout)) == 1


def test_one_rank_is_one_rank() -> None:
    shown = paceline("all_reduce", "--preset", "rx2", "--nodes", "1", "--sizes", "1M")
    assert shown.stdout.startswith("# all_reduce on 1 rank, rx2\n")
    shown = paceline("all_reduce", "--preset", "rx2", "--nodes", "1", "--algorithm", "magic")
    assert "'magic'" in shown.stderr and "Traceback" not in shown.stderr


def test_where_nothing_can_be_predicted_all_reasons_are_told() -> None:
    shown = paceline("broadcast", "--preset", "dgx1-v100", "--sizes", "1G", "--chunk", "1")
    assert shown.returncode == 1
    reasons = re.findall(r"(\w+): \d+ steps are too many to simulate", shown.stderr)
    assert {"pipelined_chain", "direct", "topology_chain", "packed_trees"} <= set(reasons)
