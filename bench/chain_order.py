"""The chain's order on a tree: topology-aware against naive, predicted and measured (root, iproute2).

    python bench/chain_order.py [--json F]

Four nodes, which are network namespaces, on two switches ("sockets") that one slow cable joins. The naive order goes
round-robin over the switches, so the cable between them carries the stream twice one way; the order that
`paceline topo` finds for this tree crosses it once. A pipelined chain's broadcast of 64 MB: first the simulator says,
of the same tree, how long both orders take (as `paceline predict --file`); then both are measured over TCP, the median
of five calls.
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
    from paceline.topology import topology

    tree = _tree()
    orders = {"naive": list(range(NODES)), "aware": topology({"file": tree})["chain"]["order"]}
    results: dict[str, Any] = {}
    print(f"{'order':<20} predicted (s)  measured (s)  error")
    for name, order in orders.items():
        predicted, measured = _predict(tree, order), _measure(order)
        error = predicted / measured - 1
        results[name] = {"order": order, "predicted_s": predicted, "measured_s": measured, "error": error}
        print(f"{name:<6}{order!s:<14} {predicted:13.3f} {measured:13.3f} {100 * error:+5.1f}%")
    ratios = {kind: results["naive"][f"{kind}_s"] / results["aware"][f"{kind}_s"] for kind in ("predicted", "measured")}
    error = ratios["predicted"] / ratios["measured"] - 1
    print(
        f"the topology-aware order is {ratios['measured']:.2f} times as fast, predicted {ratios['predicted']:.2f} "
        f"({100 * error:+.1f}%)"
    )
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


def _predict(tree: str, order: list[int]) -> float:
    """Seconds of a pipelined chain in this order, simulated."""
    from paceline.prediction import predict

    asked = {"collective": "broadcast", "file": tree, "gpus": order, "sizes": [BYTES], "chunk_bytes": CHUNK}
    (row,) = predict({**asked, "algorithm": "pipelined_chain"})["rows"]
    return float(row["time_us"]) / 1e6


def _measure(order: list[int]) -> float:
    from paceline.launch import rank_environment

    sys.path.insert(0, str(ROOT / "tests" / "python"))
    from namespaces import Namespaces  # type: ignore[import-not-found]

    with Namespaces(NODES) as nodes, tempfile.TemporaryDirectory() as folder:
        for node in range(NODES):
            nodes.shape(node, LEAF, BUCKET)
        nodes.split([node for node in range(NODES) if SWITCH[node]], BETWEEN, BUCKET)
        shared = dict(os.environ) | rank_environment(NODES)
        shared |= {"PACELINE_ADDRESS": f"{nodes.address(order[0])}:29500", "PACELINE_TUNING": "off"}
        result = Path(folder) / "seconds"
        # Ranks follow the order: a chain goes through them by number.
        sides = [
            subprocess.Popen(
                nodes.command(node, [sys.executable, str(Path(__file__).resolve()), "--side", str(result)]),
                env=shared | {"PACELINE_RANK": str(rank)},
            )
            for rank, node in enumerate(order)
        ]
        codes = [side.wait() for side in sides]
        if any(codes):
            sys.exit("a rank failed")
        return float(result.read_text())


def _side(result: str) -> int:
    """One rank."""
    from array import array
    from statistics import median

    import paceline

    with paceline.init() as comm:
        data = bytearray(BYTES)
        times = array("d")
        comm.set_algorithm("pipelined_chain")
        for _ in range(6):
            comm.barrier()
            begin = time.perf_counter()
            comm.broadcast(data, root=0)
            times.append(time.perf_counter() - begin)
        comm.set_algorithm(None)
        comm.all_reduce(times, op="max")
        if comm.rank == 0:
            Path(result).write_text(str(median(times[1:])))
        comm.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
