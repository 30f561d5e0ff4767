"""`paceline topo`: show a topology, how fast collectives on it can be, and the rings, trees and chain that reach it."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from ..errors import Error
from ..topology import topology
from . import topo_plot
from .files import output_file, svg_file, write_json, write_text
from .interrupts import interrupt_ends
from .progress import Progress
from .sizes import positive
from .topology_source import add_source, source_request

_MOST = 8  # of one kind in a line
_NO_RING_FOUND = "none found before the search was given up"
_PLURALS = {"pcie switch": "PCIe switches", "nvswitch": "NVSwitches", "network switch": "network switches"}
_SHORT = {"gpu": "GPU", "cpu": "CPU", "nic": "NIC", "pcie switch": "PCIe switch", "nvswitch": "NVSwitch"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "topo",
        allow_abbrev=False,
        help="show a topology and what it can reach",
        description="Show the graph of GPUs, CPUs, switches and NICs, the bounds of collectives' rates on it, and the "
        "rings, trees and chain found. Without an option: this machine.",
        epilog="example: paceline topo --preset dgx1-v100 --gpus 0,1,4,5",
    )
    add = parser.add_argument
    add_source(parser, required=False, gpus="the collectives' GPUs, as 0,1,4-7 (default: all)")
    add("--nodes", type=positive, metavar="K", help="how many nodes of the preset")
    add("--json", type=output_file, metavar="F", help="write everything to this file")
    add("--plot", type=svg_file, metavar="F", help="draw the graph to this file (SVG)")
    add("--nccl-xml-out", type=output_file, metavar="F", help="write the topology as NCCL's topology XML")
    add("--nccl-rings-out", type=output_file, metavar="F", help="write the rings as NCCL's graph XML (NCCL_GRAPH_FILE)")
    parser.set_defaults(job=job, parser=parser)


def job(chosen: argparse.Namespace) -> int:
    asked = request(chosen)
    name = chosen.preset or chosen.file or chosen.nccl_xml or "this machine"
    with Progress(1) as progress, progress.during(f"{name}: bounds, rings, trees and chain"), interrupt_ends():
        found = topology(asked)
    print(report(name, found), end="")
    for path, key in ((chosen.nccl_xml_out, "nccl_xml"), (chosen.nccl_rings_out, "nccl_rings")):
        if path:
            if key not in found:
                raise Error(f"there is nothing to write to {path}: this topology has no GPU")
            if why := _why_no_rings(found) if key == "nccl_rings" else "":
                raise Error(f"there are no rings to write to {path}: {why}")
            write_text(path, found[key])
    if chosen.json:
        shown = {key: value for key, value in found.items() if not key.startswith("nccl")}
        write_json(chosen.json, shown)
    if chosen.plot:
        write_text(chosen.plot, topo_plot.svg(found))
    return 0


def _why_no_rings(found: dict[str, Any]) -> str:
    """Empty if there are some for NCCL's graph XML."""
    if found["rings"] is None:
        return "they are left out for so large a graph"
    if not found["rings"]:
        return "none passes all of these GPUs" if found["rings_exact"] else _NO_RING_FOUND
    return "" if found["nccl_rings"] else "they pass several nodes, and NCCL's graph has NICs between these"


def request(chosen: argparse.Namespace) -> dict[str, Any]:
    """The options as paceTopology wants them."""
    return {"nccl_xml_out": bool(chosen.nccl_xml_out), **source_request(chosen, chosen.nodes or 0)}


def report(name: str, found: dict[str, Any]) -> str:
    """What a person reads."""
    lines = [f"# {name}: {_census(found['vertices'])}", "", "links (each way unless ->)"]
    lines += _links(found["links"])
    lines.append("")
    if not found["gpus"]:
        return "\n".join([*lines, "no GPU: there is nothing to find rings, trees or a chain for"]) + "\n"
    left_out = {each["what"]: f"left out beyond {_limit(each)}" for each in found["left_out"]}
    for title, what, shown in (
        (f"bounds on {_gpus(found['gpus'])}, GB/s", "bounds", _bounds),
        ("edge-disjoint rings", "rings", _rings),
        ("broadcast trees", "trees", _trees),
        ("chain", "chain", _chain),
    ):
        lines += [f"{title}: {left_out[what]}"] if what in left_out else shown(found)
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _limit(left_out: dict[str, Any]) -> str:
    if "beyond_gpus" in left_out:
        return f"{left_out['beyond_gpus']} GPUs"
    return f"{left_out['beyond_vertices']} GPUs, CPUs, switches and NICs"


def _census(vertices: list[dict[str, Any]]) -> str:
    counts = Counter(vertex["kind"] for vertex in vertices)
    words = []
    for kind, count in counts.items():
        short = _SHORT.get(kind, kind)
        words.append(f"{count} {short if count == 1 else _PLURALS.get(kind, short + 's')}")
    return ", ".join(words)


def _links(links: list[dict[str, Any]]) -> list[str]:
    """Links of one kind and rate in one line; those that go both ways alike once."""
    rated = Counter((link["from"], link["to"], link["kind"], link["gbs"], link["latency_us"]) for link in links)
    groups: dict[tuple[str, float, float], list[str]] = {}
    for (here, there, *rating), count in rated.items():
        for _ in range(count):
            key = (here, there, *rating)
            back = (there, here, *rating)
            if not rated[key]:
                break
            rated[key] -= 1
            both = rated[back] > 0
            if both:
                rated[back] -= 1
            kind, gbs, latency = rating
            groups.setdefault((kind, gbs, latency), []).append(f"{here}{' - ' if both else ' -> '}{there}")
    lines = []
    for (kind, gbs, latency), names in groups.items():
        more = f", and {len(names) - _MOST} more" if len(names) > _MOST else ""
        lines.append(f"  {kind:<7} {gbs:8.2f} GB/s {latency:6.2f} us  {', '.join(names[:_MOST])}{more}")
    return lines


def _gpus(gpus: list[int]) -> str:
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    if len(gpus) > 2 and gpus == list(range(gpus[0], gpus[0] + len(gpus))):
        return f"GPUs {gpus[0]} to {gpus[-1]}"
    return f"GPUs {', '.join(map(str, gpus))}"


def _rate(gbs: float | None) -> str:
    return f"{'-':>8}" if gbs is None else f"{gbs:8.2f}"


def _way(order: list[int]) -> str:
    return " -> ".join(map(str, order))


def _bounds(found: dict[str, Any]) -> list[str]:
    lines = [
        f"bounds on {_gpus(found['gpus'])}, GB/s",
        f"  broadcast             {_rate(found['broadcast_gbs'])}  from the worst root, GPU {found['worst_root']}",
    ]
    for key, title in (("all_gather_gbs", "all_gather busbw"), ("reduce_scatter_gbs", "reduce_scatter busbw"),
                       ("all_reduce_busbw_gbs", "all_reduce busbw")):  # fmt: skip
        lines.append(f"  {title:<21} {_rate(found[key])}")
    if found["all_reduce_busbw_gbs"] is not None:
        lines[-1] += "  of a reduce-scatter, then an all-gather"
    return lines


def _rings(found: dict[str, Any]) -> list[str]:
    if not found["rings"]:
        return [f"edge-disjoint rings: {'none' if found['rings_exact'] else _NO_RING_FOUND}"]
    best = "no other rings are faster" if found["rings_exact"] else "the best found; others may be faster"
    lines = [f"edge-disjoint rings: {len(found['rings'])}, together {sum(found['ring_gbs']):.2f} GB/s ({best})"]
    return lines + [
        f"  {_rate(rate)}  {_way(order)}" for order, rate in zip(found["rings"], found["ring_gbs"], strict=True)
    ]


def _trees(found: dict[str, Any]) -> list[str]:
    if found["trees"] is None:
        return [f"broadcast trees: {found['no_trees']}"]
    lines = [f"broadcast trees from GPU {found['worst_root']}: {len(found['trees'])}"]
    lines += [f"  {_rate(tree['gbs'])}  {_tree(tree)}" for tree in found["trees"][:_MOST]]
    if len(found["trees"]) > _MOST:
        lines.append(f"  and {len(found['trees']) - _MOST} more")
    return lines


def _tree(tree: dict[str, Any]) -> str:
    """Each parent with its children: 0: 3 4; 3: 2."""
    children: dict[int, list[int]] = {}
    for parent, child in tree["edges"]:
        children.setdefault(parent, []).append(child)
    return "; ".join(f"{parent}: {' '.join(map(str, below))}" for parent, below in children.items())


def _chain(found: dict[str, Any]) -> list[str]:
    chain = found["chain"]
    if chain is None:
        return [f"chain: {found['no_chain']}"]
    ends = [end for end in (chain["entry"], *map(str, chain["order"]), chain["exit"]) if end is not None]
    load, least = chain["max_link_load"], chain["least_possible"]
    if not load:
        return [f"chain: {' -> '.join(ends)}"]
    proof = "no order has less" if load == least else f"at least {least} is needed"
    times = "once" if load == 1 else f"{load} times"
    return [f"chain: {' -> '.join(ends)}", f"  load of the busiest link: it carries the stream {times} ({proof})"]
