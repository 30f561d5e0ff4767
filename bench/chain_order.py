"""The chain's order on a tree: topology-aware against naive, measured (root, iproute2).

    python bench/chain_order.py [--json F]

Four nodes, which are network namespaces, on two switches ("sockets") that one slow cable joins. The naive order goes
round-robin over the switches, so the cable between them carries the stream twice one way; the order that
`paceline topo` finds for this tree crosses it once. Measured: a pipelined chain's broadcast of 64 MB over TCP, the
median of five calls. Expected beforehand: the loads of the busiest cable, by its rate.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NODES, BYTES = 4, 64 << 20
LEAF, BETWEEN = 1000.0, 500.0  # Mbit/s
SWITCH = {node: node % 2 for node in range(NODES)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="F")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.side:
        return _side(chosen.side)
    orders = {"naive": list(range(NODES)), "aware": _found()}
    results: dict[str, Any] = {}
    for name, order in orders.items():
        measured = _measure(order)
        results[name] = {"order": order, "expected_s": _expected(order), "measured_s": measured}
        print(f"{name:<6} {order}  {_expected(order):.2f} s expected, {measured:.2f} s measured")
    ratio = results["naive"]["measured_s"] / results["aware"]["measured_s"]
    print(f"the topology-aware order is {ratio:.2f} times as fast")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps({**results, "ratio": ratio}, indent=1) + "\n")
    return 0


def _found() -> list[int]:
    """The order of the least loaded chain, starting at node 0."""
    from paceline.topology import topology

    vertices = [{"name": f"node{node}", "kind": "gpu"} for node in range(NODES)]
    vertices += [{"name": f"switch{i}", "kind": "pcie switch"} for i in range(2)]
    links = [
        {"between": [f"node{node}", f"switch{SWITCH[node]}"], "kind": "pcie", "gbs": LEAF / 8000}
        for node in range(NODES)
    ]
    links.append({"between": ["switch0", "switch1"], "kind": "pcie", "gbs": BETWEEN / 8000})
    tree = json.dumps({"node": {"vertices": vertices, "links": links}})
    order: list[int] = topology({"file": tree})["chain"]["order"]
    return order


def _expected(order: list[int]) -> float:
    """Seconds in which the busiest cable carries the stream as often as it has to."""
    crossings = [
        sum((SWITCH[here], SWITCH[there]) == way for here, there in pairwise(order)) for way in ((0, 1), (1, 0))
    ]
    return BYTES * 8 / 1e6 * max(1 / LEAF, max(crossings) / BETWEEN)


def _measure(order: list[int]) -> float:
    from paceline.launch import rank_environment

    sys.path.insert(0, str(ROOT / "tests" / "python"))
    from namespaces import Namespaces  # type: ignore[import-not-found]

    with Namespaces(NODES) as nodes, tempfile.TemporaryDirectory() as folder:
        for node in range(NODES):
            nodes.shape(node, LEAF)
        nodes.split([node for node in range(NODES) if SWITCH[node]], BETWEEN)
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
