"""The chain's order on a tree: topology-aware against naive, predicted and measured (root, iproute2).

    python bench/chain_order.py [--json F]

Four nodes, which are network namespaces, on two switches ("sockets") that one slow cable joins; ranks are placed in
turn on the switches, and know the tree by PACELINE_TOPOLOGY. A pipelined chain in the order of ranks
(`pipelined_chain`) crosses the cable between the switches twice one way; in the order that is found for the tree
(`topology_chain`) once. A broadcast of 64 MB by both: first the simulator says how long they take (as `paceline predict
--file`); then both are measured over TCP, in turn, the median of five calls. Last what runs by itself, with the tree
known and unknown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from paceline.command.files import output_file

ROOT = Path(__file__).resolve().parents[1]
NODES, BYTES = 4, 64 << 20
NAIVE, AWARE, CHOSEN = "pipelined_chain", "topology_chain", ""
LEAF, BETWEEN = 500.0, 250.0  # Mbit/s
BUCKET = 32  # kB: a stream is measured
SWITCH = {node: node % 2 for node in range(NODES)}
# What a program gets of a cable's rate: of each frame of 1514 bytes TCP carries 1448.
PAYLOAD = 1448 / 1514
CHUNK = 128 << 10  # of a message over TCP


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=output_file, metavar="F")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        return _side(chosen.side)
    tree = _tree()
    measured = _measure(tree)
    unknown = _measure(None)[CHOSEN]
    results: dict[str, Any] = {}
    print(f"{'algorithm':<16} predicted (s)  measured (s)  error")
    for name in (NAIVE, AWARE):
        predicted = _predict(tree, name)
        error = predicted / measured[name] - 1
        results[name] = {"predicted_s": predicted, "measured_s": measured[name], "error": error}
        print(f"{name:<16} {predicted:13.3f} {measured[name]:13.3f} {100 * error:+5.1f}%")
    ratios = {kind: results[NAIVE][f"{kind}_s"] / results[AWARE][f"{kind}_s"] for kind in ("predicted", "measured")}
    error = ratios["predicted"] / ratios["measured"] - 1
    print(
        f"the topology-aware order is {ratios['measured']:.2f} times as fast, predicted {ratios['predicted']:.2f} "
        f"({100 * error:+.1f}%)"
    )
    print(f"chosen by itself: {measured[CHOSEN]:.3f} s where the tree is known, {unknown:.3f} s where it is not")
    results["chosen"] = {"known_s": measured[CHOSEN], "unknown_s": unknown}
    if chosen.json:
        document = {**results, "ratio": ratios["measured"], "predicted_ratio": ratios["predicted"]}
        Path(chosen.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _tree() -> str:
    """The cluster file of the nodes, their switches and cables."""
    vertices = [{"name": f"node{node}", "kind": "gpu"} for node in range(NODES)]
    vertices += [{"name": f"switch{i}", "kind": "pcie switch"} for i in range(2)]
    links = [
        {"between": [f"node{node}", f"switch{SWITCH[node]}"], "kind": "pcie", "gbs": LEAF * PAYLOAD / 8000}
        for node in range(NODES)
    ]
    links.append({"between": ["switch0", "switch1"], "kind": "pcie", "gbs": BETWEEN * PAYLOAD / 8000})
    return json.dumps({"node": {"vertices": vertices, "links": links}})


def _predict(tree: str, algorithm: str) -> float:
    """Seconds of the broadcast, simulated."""
    from paceline.prediction import predict

    asked = {"collective": "broadcast", "file": tree, "sizes": [BYTES], "chunk_bytes": CHUNK}
    (row,) = predict({**asked, "algorithm": algorithm})["rows"]
    return float(row["time_us"]) / 1e6


def _measure(tree: str | None) -> dict[str, float]:
    """Seconds of the broadcast, by each algorithm; tree: what the ranks know."""
    from paceline.launch import rank_environment

    sys.path.insert(0, str(ROOT / "tests" / "python"))
    from namespaces import Namespaces  # type: ignore[import-not-found]

    with Namespaces(NODES) as nodes, tempfile.TemporaryDirectory() as folder:
        for node in range(NODES):
            nodes.shape(node, LEAF, BUCKET)
        nodes.split([node for node in range(NODES) if SWITCH[node]], BETWEEN, BUCKET)
        shared = dict(os.environ) | rank_environment(NODES)
        shared |= {"PACELINE_ADDRESS": f"{nodes.address(0)}:29500", "PACELINE_TUNING": "off"}
        if tree is not None:
            known = Path(folder) / "tree.json"
            known.write_text(tree)
            shared["PACELINE_TOPOLOGY"] = str(known)
        result = Path(folder) / "seconds"
        sides = [
            subprocess.Popen(
                nodes.command(rank, [sys.executable, str(Path(__file__).resolve()), "--side", str(result)]),
                env=shared | {"PACELINE_RANK": str(rank)},
            )
            for rank in range(NODES)
        ]
        codes = [side.wait() for side in sides]
        if any(codes):
            sys.exit("a rank failed")
        seconds: dict[str, float] = json.loads(result.read_text())
        return seconds


def _side(result: str) -> int:
    """One rank."""
    from array import array
    from statistics import median

    import paceline

    with paceline.init() as comm:
        data = bytearray(BYTES)
        times: dict[str, array[float]] = {}
        for _ in range(6):
            for name in (NAIVE, AWARE, CHOSEN):
                comm.set_algorithm(name or None)
                comm.barrier()
                begin = time.perf_counter()
                comm.broadcast(data, root=0)
                times.setdefault(name, array("d")).append(time.perf_counter() - begin)
        comm.set_algorithm(None)
        for each in times.values():
            comm.all_reduce(each, op="max")
        if comm.rank == 0:
            Path(result).write_text(json.dumps({name: median(each[1:]) for name, each in times.items()}))
        comm.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
