"""PACELINE_TOPOLOGY: ranks that know what is between them run what the searches find there, and choose by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job import Job
from launching import command
from namespaces import Namespaces, NotPermitted
from paceline.launch import rank_environment
from test_namespaces import SpreadJob

DGX = {"node": {"preset": "dgx1-v100"}}
SERVED = {
    "topology_chain": ("broadcast", "reduce"),
    "packed_trees": ("broadcast", "all_reduce", "all_gather", "reduce_scatter"),
    "rings": ("all_reduce", "all_gather", "reduce_scatter"),
}


def tree(ranks: int) -> dict[str, object]:
    """Ranks in turn on two switches that one cable of 200 Mbit/s joins; theirs have 1 Gbit/s."""
    vertices = [{"name": f"rank{rank}", "kind": "gpu"} for rank in range(ranks)]
    vertices += [{"name": f"switch{i}", "kind": "pcie switch"} for i in range(2)]
    links = [{"between": [f"rank{rank}", f"switch{rank % 2}"], "kind": "pcie", "gbs": 0.12} for rank in range(ranks)]
    links.append({"between": ["switch0", "switch1"], "kind": "pcie", "gbs": 0.024})
    return {"node": {"vertices": vertices, "links": links}}


@pytest.fixture(scope="module")
def dgx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    file = tmp_path_factory.mktemp("topology") / "dgx.json"
    file.write_text(json.dumps(DGX))
    with Job(4, PACELINE_TOPOLOGY=str(file), PACELINE_TUNING="off") as job:
        yield job


@pytest.mark.parametrize(("algorithm", "name"), [(a, name) for a, names in SERVED.items() for name in names])
def test_what_goes_by_a_topology_is_numpys(dgx: Job, algorithm: str, name: str) -> None:
    dgx.run("set_algorithm", algorithm=algorithm)
    assert dgx.run("ran", name=name, count=1001) == [algorithm] * 4
    for count, dtype, in_place in (
        (0, "float32", 0),
        (1, "int64", 0b1111),
        (1001, "float64", 0b10),
        (70_007, "float16", -1),
    ):
        digests = dgx.run(
            "collective", name=name, seed=count, count=count, dtype=dtype, op="sum", root=2, in_place=in_place,
            asynchronous=False,
        )  # fmt: skip
        if name in ("all_reduce", "broadcast", "all_gather"):
            assert len(set(digests)) == 1, "the same bits on every rank"
    dgx.run("set_algorithm", algorithm=None)


def test_parts_of_a_job_know_where_they_are(dgx: Job) -> None:
    """GPUs 0 and 3 of a DGX-1V have two links, so four rings both ways; 1 and 2 likewise."""
    for found in dgx.run("rings_of_parts"):
        assert found == {"algorithm": "rings", "sum": 3.0}


def test_without_a_topology_nothing_goes_by_one() -> None:
    with Job(2) as job:
        job.run("set_algorithm", algorithm="rings")
        assert "rings" not in job.run("ran", name="all_reduce", count=1001)


START = "import paceline; paceline.init().close()"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "there is no such file"),
        ("", "it is empty"),
        ("{", "is not JSON"),
        ("<system", "XML"),
        (json.dumps({"node": {"preset": "rx1"}}), None),
        (json.dumps({"node": {"preset": "k80-node"}}), "has 2 GPUs, but there is a rank 2"),
        (json.dumps({"node": {"preset": "dgx"}}), "preset"),
    ],
)
def test_a_file_that_is_none_is_told_to_all(tmp_path: Path, text: str | None, complaint: str | None) -> None:
    file = tmp_path / "topology"
    if text is not None:
        file.write_text(text)
    shared = dict(os.environ) | rank_environment(3) | {"PACELINE_TOPOLOGY": str(file)}
    ranks = [
        subprocess.Popen([sys.executable, "-c", START], env=shared | {"PACELINE_RANK": str(rank)},
                         stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]  # fmt: skip
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    if complaint is None:
        assert not any(rank.returncode for rank in ranks), errors
    for rank, error in zip(ranks, errors, strict=True):
        if complaint is not None:
            assert rank.returncode != 0
            assert "PACELINE_TOPOLOGY" in error and complaint in error


def test_a_file_that_cannot_be_looked_at_is_told_as_such(tmp_path: Path) -> None:
    file = tmp_path / "topology"
    file.symlink_to(file)
    environment = {**os.environ, "PACELINE_TOPOLOGY": str(file)}
    start = command("run", "-n", "2", "--", sys.executable, "-c", START)
    done = subprocess.run(start, env=environment, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert f"PACELINE_TOPOLOGY={file}: Too many levels of symbolic links" in done.stderr


def test_the_choice_between_nodes_goes_by_it(tmp_path: Path) -> None:
    """Ranks in turn on two switches: by itself a broadcast crosses the cable between these once each way."""
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(tree(6)))
    try:
        with Namespaces(6) as nodes:
            with SpreadJob(nodes, PACELINE_TUNING="off", PACELINE_TOPOLOGY=str(file)) as job:
                for name, count in (("broadcast", 1 << 18), ("broadcast", 1 << 24), ("all_gather", 1 << 16)):
                    (algorithm,) = set(job.run("algorithm_for", name=name, count=count))
                    assert algorithm in SERVED and name in SERVED[algorithm]
                digests = job.run(
                    "collective", name="broadcast", seed=1, count=300_007, dtype="float32", op="sum", root=5,
                    in_place=0, asynchronous=False,
                )  # fmt: skip
                assert len(set(digests)) == 1
            # Six machines are no node of a cluster: what goes by such a file is not there.
            file.write_text(json.dumps({**DGX, "nodes": 2, "network": {"nic_gbs": 12.5}}))
            with SpreadJob(nodes, PACELINE_TUNING="off", PACELINE_TOPOLOGY=str(file)) as job:
                job.run("set_algorithm", algorithm="rings")
                assert "rings" not in job.run("ran", name="all_reduce", count=1001)
            with SpreadJob(nodes, PACELINE_TUNING="off") as job:
                assert not set(job.run("algorithm_for", name="broadcast", count=1 << 18)) & set(SERVED)
    except NotPermitted as error:
        pytest.skip(str(error))
