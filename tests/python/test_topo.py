"""`paceline topo`: what it prints, its files, and what it says of bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from paceline.command.topo import report
from paceline.errors import InvalidArgument
from paceline.prediction import predict
from paceline.topology import topology

GOLDEN = Path(__file__).parent / "golden"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", "topo", *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("topo-dgx1-v100.txt", {"preset": "dgx1-v100", "gpus": [0, 1, 4, 5]}),
        ("topo-cs-storm-k80.txt", {"preset": "cs-storm-k80"}),
        ("topo-one-gpu.txt", {"preset": "hgx-h200", "gpus": [3]}),
    ],
)
def test_report(name: str, request_: dict[str, object]) -> None:
    text = report(str(request_["preset"]), topology(request_))
    if os.environ.get("PACELINE_GOLDEN") == "write":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def cluster_file(*links: tuple[str, str, str, float], gpus: int) -> str:
    """GPUs and NVLinks between them: from, "->" or "-" (both ways), to, GB/s."""
    vertices = [{"name": f"gpu{i}", "kind": "gpu"} for i in range(gpus)]
    ends = ({"from": a, "to": b} if way == "->" else {"between": [a, b]} for a, way, b, _ in links)
    rated = [{**pair, "kind": "nvlink", "gbs": link[3]} for pair, link in zip(ends, links, strict=True)]
    return json.dumps({"node": {"vertices": vertices, "links": rated}})


def test_one_way_links_have_an_arrow() -> None:
    text = cluster_file(
        ("gpu0", "->", "gpu1", 50), ("gpu1", "->", "gpu0", 25), ("gpu1", "->", "gpu2", 50), ("gpu2", "-", "gpu0", 50),
        gpus=3,
    )  # fmt: skip
    assert report("ring", topology({"file": text})).splitlines()[3:5] == [
        "  nvlink     50.00 GB/s   0.00 us  gpu0 -> gpu1, gpu1 -> gpu2, gpu2 - gpu0",
        "  nvlink     25.00 GB/s   0.00 us  gpu1 -> gpu0",
    ]


def test_where_no_chain_passes_all_gpus_the_rest_is_found() -> None:
    star = cluster_file(*(("gpu0", "-", f"gpu{i}", 50) for i in (1, 2, 3)), gpus=4)
    found = topology({"file": star})
    assert found["chain"] is None and found["left_out"] == []
    assert (found["broadcast_gbs"], len(found["trees"])) == (50, 1)
    lines = report("star", found).splitlines()
    assert lines[-1] == "chain: no chain passes all of these GPUs, for GPUs do not relay"
    assert "edge-disjoint rings: none" in lines


def test_where_no_trees_can_be_packed_the_reason_is_said() -> None:
    vertices = [{"name": f"gpu{i}", "kind": "gpu"} for i in range(3)] + [{"name": "switch0", "kind": "nvswitch"}]
    ways = [("gpu0", "switch0"), ("switch0", "gpu1"), ("switch0", "gpu2"), ("gpu1", "gpu0"), ("gpu2", "gpu0")]
    links = [{"from": here, "to": there, "kind": "nvlink", "gbs": 25} for here, there in ways]
    found = topology({"file": json.dumps({"node": {"vertices": vertices, "links": links}})})
    reason = "trees need switches that get as much bandwidth as they give"
    assert (found["broadcast_gbs"], found["trees"], found["no_trees"]) == (25, None, reason)
    assert f"broadcast trees: {reason}" in report("fork", found).splitlines()


def mesh_file() -> str:
    """8 x 8 GPUs. They have rings, which the search does not find."""
    across = [(f"gpu{i}", "-", f"gpu{i + 1}", 50) for i in range(64) if i % 8 < 7]
    down = [(f"gpu{i}", "-", f"gpu{i + 8}", 50) for i in range(56)]
    return cluster_file(*across, *down, gpus=64)


def test_rings_that_a_search_did_not_find_may_be_there() -> None:
    found = topology({"file": mesh_file()})
    assert (found["rings"], found["rings_exact"]) == ([], False)
    lines = report("mesh", found).splitlines()
    assert "edge-disjoint rings: none found before the search was given up" in lines


@pytest.mark.parametrize(
    ("gpus", "broadcast", "all_reduce"),
    [([0, 1], 25, 25), ([0, 3], 50, 50), ([0, 1, 2, 3], 100, 100), ([0, 1, 4, 5], 50, 75), ([*range(8)], 150, 150)],
)
def test_known_answers_of_dgx1(gpus: list[int], broadcast: float, all_reduce: float) -> None:
    found = topology({"preset": "dgx1-v100", "gpus": gpus})
    assert (found["broadcast_gbs"], found["all_reduce_busbw_gbs"]) == (broadcast, all_reduce)


@pytest.mark.parametrize(("preset", "gbs"), [("dgx-a100", 300), ("hgx-h200", 450)])
def test_the_chain_of_a_machine_with_nvswitches_is_as_wide_as_all_of_them(preset: str, gbs: float) -> None:
    found = topology({"preset": preset})
    assert found["chain"]["width_gbs"] == gbs
    assert sum(found["ring_gbs"]) == gbs


def test_files(tmp_path: Path) -> None:
    done = run(
        *("--preset", "dgx1-v100", "--gpus", "4-7", "--json", str(tmp_path / "t.json")),
        *("--plot", str(tmp_path / "t.svg"), "--nccl-xml-out", str(tmp_path / "t.xml")),
        *("--nccl-rings-out", str(tmp_path / "r.xml")),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "t.json").read_text())
    assert sorted(found["chain"]["order"]) == [4, 5, 6, 7]
    assert found["chain"]["max_link_load"] == 1
    assert {len(ring) for ring in found["rings"]} == {4}
    assert sum(tree["gbs"] for tree in found["trees"]) == found["broadcast_gbs"]
    assert ElementTree.parse(tmp_path / "t.svg").getroot().tag.endswith("svg")
    assert ElementTree.parse(tmp_path / "r.xml").getroot().tag == "graphs"
    again = run("--nccl-xml", str(tmp_path / "t.xml"), "--gpus", "4-7", "--json", str(tmp_path / "again.json"))
    assert again.returncode == 0, again.stderr
    read = json.loads((tmp_path / "again.json").read_text())
    assert read["broadcast_gbs"] == found["broadcast_gbs"]


def test_a_name_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    file = tmp_path / "\u00e9\udcff.json"
    file.write_text(cluster_file(("gpu0", "-", "gpu1", 50), gpus=2))
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "topo", "--file", file],
        capture_output=True, timeout=60, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(f"# {tmp_path}/".encode() + rb"\xe9\udcff.json: 2 GPUs")


def test_a_name_that_xml_cannot_hold(tmp_path: Path) -> None:
    file, picture = tmp_path / "f.json", tmp_path / "t.svg"
    file.write_text(cluster_file(("gpu0", "-", "gpu1", 50), gpus=2).replace("gpu1", "gpu\\u0001"))
    done = run("--file", str(file), "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    texts = [each.text for each in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["gpu0", "gpu\ufffd"]


def test_this_machine() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# this machine: ")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--preset", "dgx2"], 1, "there is no preset 'dgx2'"),
        (["--preset", "rx3", "--gpus", "0,99"], 1, "there is no GPU 99: this topology has GPUs 0 to 31"),
        (["--preset", "rx3", "--gpus", "0,0"], 1, "GPU 0 is selected twice"),
        (["--preset", "rx3", "--gpus", "0,x"], 2, "is no list of GPUs"),
        (["--preset", "rx3", "--gpus", "5-2"], 2, "is no list of GPUs"),
        (["--preset", "rx3", "--nodes", "0"], 2, "is not a whole number >= 1"),
        (["--preset", "rx3", "--nodes", "99999"], 1, "a cluster has 1 to 65536 nodes"),
        (["--nodes", "2"], 2, "--nodes goes with --preset"),
        (["--preset", "rx3", "--plot", "t.png"], 2, "'t.png' does not end with .svg: the picture is SVG"),
        (["--preset", "rx3", "--nccl-xml-out", "/nonexistent/t.xml"], 2, "there is no folder '/nonexistent'"),
        (["--preset", "rx3", "--nccl-rings-out", "/nonexistent/r.xml"], 2, "there is no folder '/nonexistent'"),
        (["--file", "/nonexistent"], 1, "No such file"),
        (["--file", "/dev/null"], 1, "the cluster file is not JSON that can be read"),
        (["--nccl-xml", "/dev/null"], 1, "NCCL's topology XML cannot be read"),
        (["--preset", ""], 1, "there is no preset ''"),
        (["--file", ""], 2, "'' names no file"),
        (["--nccl-xml", ""], 2, "'' names no file"),
    ],
)
def test_bad_input(words: list[str], code: int, message: str) -> None:
    done = run(*words)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(bool(topology({})["gpus"]), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_has_all_keys_in_json(tmp_path: Path) -> None:
    written = tmp_path / "t.json"
    done = run("--json", str(written))
    assert done.returncode == 0, done.stderr
    found = json.loads(written.read_text())
    with_gpus = {key for key in topology({"preset": "dgx1-v100"}) if not key.startswith("nccl")}
    assert set(found) == with_gpus
    assert (found["gpus"], found["left_out"]) == ([], [])
    assert all(found[key] is None for key in with_gpus - {"vertices", "links", "gpus", "left_out"})


@pytest.mark.skipif(bool(topology({})["gpus"]), reason="this machine has a GPU")
def test_a_gpu_of_a_machine_without_any() -> None:
    done = run("--gpus", "0")
    assert done.returncode == 1
    assert done.stderr == "paceline topo: there is no GPU 0: this machine has none\n"


@pytest.mark.skipif(bool(topology({})["gpus"]), reason="this machine has a GPU")
def test_rings_of_a_machine_without_a_gpu_cannot_be_written(tmp_path: Path) -> None:
    done = run("--nccl-rings-out", str(tmp_path / "r.xml"))
    assert done.returncode == 1
    assert f"there is nothing to write to {tmp_path / 'r.xml'}: this topology has no GPU" in done.stderr


_OF_BOUNDS = {"broadcast_gbs", "worst_root", "all_gather_gbs", "reduce_scatter_gbs", "all_reduce_busbw_gbs", "chain"}
_OF_TREES = {"rings", "ring_gbs", "rings_exact", "nccl_rings", "trees"}


@pytest.mark.parametrize(
    ("gpus", "missing", "left_out"),
    [
        (64, {"nccl_rings"}, {}),
        (65, _OF_TREES, {"rings": 64, "trees": 64}),
        (128, _OF_TREES, {"rings": 64, "trees": 64}),
        (129, _OF_TREES | _OF_BOUNDS, {"bounds": 128, "rings": 64, "trees": 64, "chain": 128}),
    ],
)
def test_what_is_left_out_of_many_gpus(gpus: int, missing: set[str], left_out: dict[str, int]) -> None:
    found = topology({"preset": "rx2", "nodes": gpus})
    assert {each["what"]: each["beyond_gpus"] for each in found["left_out"]} == left_out
    assert {key for key, value in found.items() if value is None} == missing
    lines = report("rx2", found).splitlines()
    assert ("edge-disjoint rings: left out beyond 64 GPUs" in lines) == ("rings" in left_out)
    assert ("broadcast trees: left out beyond 64 GPUs" in lines) == ("trees" in left_out)
    assert ("chain: left out beyond 128 GPUs" in lines) == ("chain" in left_out)
    assert (f"bounds on GPUs 0 to {gpus - 1}, GB/s: left out beyond 128 GPUs" in lines) == ("bounds" in left_out)


def test_rings_and_trees_of_two_gpus_are_left_out_of_a_deep_graph() -> None:
    names = ["gpu0", *(f"switch{i}" for i in range(2000)), "gpu1"]
    vertices = [{"name": name, "kind": "gpu" if name.startswith("gpu") else "pcie switch"} for name in names]
    links = [{"between": ends, "kind": "pcie", "gbs": 10} for ends in pairwise(names)]
    text = json.dumps({"node": {"vertices": vertices, "links": links}})
    found = topology({"file": text})
    assert found["left_out"] == [{"what": what, "beyond_vertices": 2000} for what in ("rings", "trees")]
    assert {key for key, value in found.items() if value is None} == _OF_TREES
    assert (found["broadcast_gbs"], found["chain"]["order"]) == (10, [0, 1])
    left_out = "left out beyond 2000 GPUs, CPUs, switches and NICs"
    assert {f"edge-disjoint rings: {left_out}", f"broadcast trees: {left_out}"} <= {*report("deep", found).splitlines()}
    answer = predict({"collective": "broadcast", "file": text, "sizes": [1024]})
    assert "packed_trees: none are packed in a graph of 2002 GPUs, CPUs, switches and NICs" in answer["left_out"]


# In 4 GiB of address space.
_IN_4_GIB = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); " \
            "from paceline.cli import main; sys.exit(main(sys.argv[1:]))"  # fmt: skip


@pytest.mark.parametrize("gpus", [[], ["--gpus", "0-7,16376-16383"]])
def test_16384_gpus_are_shown_within_seconds_and_4_gib(gpus: list[str]) -> None:
    words = ["topo", "--preset", "hgx-h200", "--nodes", "2048", *gpus]
    done = subprocess.run(
        [sys.executable, "-c", _IN_4_GIB, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ", 16384 GPUs, " in done.stdout.splitlines()[0]
    assert ("chain: left out beyond 128 GPUs" in done.stdout) == (not gpus)


def test_a_cluster_that_is_too_large_to_show_is_an_error() -> None:
    done = run("--preset", "hgx-h200", "--nodes", "65536")
    assert done.returncode == 1
    assert "are too many to show: at most 200000" in done.stderr


def test_rings_that_are_left_out_cannot_be_written(tmp_path: Path) -> None:
    done = run("--preset", "rx2", "--nodes", "65", "--nccl-rings-out", str(tmp_path / "r.xml"))
    assert done.returncode == 1
    assert "there are no rings to write" in done.stderr
    assert not (tmp_path / "r.xml").exists()


def test_rings_are_written_with_the_devices_of_nccl(tmp_path: Path) -> None:
    xml, rings = tmp_path / "t.xml", tmp_path / "r.xml"
    assert run("--preset", "k80-node", "--nccl-xml-out", str(xml)).returncode == 0
    for dev in (1, 0):
        xml.write_text(xml.read_text().replace(f'<gpu dev="{dev}"', f'<gpu dev="{dev + 2}"'))
    for source, devices in (
        (["--nccl-xml", str(xml)], {"2", "3"}),
        (["--preset", "hgx-h200", "--nodes", "2", "--gpus", "9-11"], {"1", "2", "3"}),
    ):
        done = run(*source, "--nccl-rings-out", str(rings))
        assert done.returncode == 0, done.stderr
        assert {gpu.attrib["dev"] for gpu in ElementTree.parse(rings).iter("gpu")} == devices


def test_rings_of_several_nodes_cannot_be_written(tmp_path: Path) -> None:
    """NCCL's graph has NICs between nodes, which the rings do not name."""
    words = ("--preset", "hgx-h200", "--nodes", "2", "--gpus", "0-3,8-11")
    done = run(*words, "--nccl-rings-out", str(tmp_path / "r.xml"))
    assert done.returncode == 1
    assert "they pass several nodes, and NCCL's graph has NICs between these" in done.stderr
    assert not (tmp_path / "r.xml").exists()


def test_rings_that_there_are_not_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "star.json").write_text(cluster_file(*(("gpu0", "-", f"gpu{i}", 50) for i in (1, 2, 3)), gpus=4))
    for source in (["--file", str(tmp_path / "star.json")], ["--preset", "dgx1-v100", "--gpus", "3"]):
        done = run(*source, "--nccl-rings-out", str(tmp_path / "r.xml"))
        assert done.returncode == 1
        assert "there are no rings to write" in done.stderr
        assert "none passes all of these GPUs" in done.stderr
        assert not (tmp_path / "r.xml").exists()


def test_rings_that_a_search_did_not_find_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "mesh.json").write_text(mesh_file())
    done = run("--file", str(tmp_path / "mesh.json"), "--nccl-rings-out", str(tmp_path / "r.xml"))
    assert done.returncode == 1
    assert done.stderr == (
        f"paceline topo: there are no rings to write to {tmp_path / 'r.xml'}: "
        "none found before the search was given up\n"
    )
    assert not (tmp_path / "r.xml").exists()


@pytest.mark.parametrize("gpus", [[], [-1], [1 << 40], [0.5], "0", [None]])
def test_lists_of_gpus_that_are_none(gpus: object) -> None:
    with pytest.raises(InvalidArgument):
        topology({"preset": "dgx1-v100", "gpus": gpus})


@pytest.mark.parametrize("request_", [{"preset": 3}, {"preset": "rx3", "nodes": "4"}, {"file": None}])
def test_requests_that_are_none(request_: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        topology(request_)
