#!/usr/bin/env python3
"""Tables and the plot of what compare_gpu.py has measured.

python bench/report_gpu.py gpu.json --plot gpu.svg
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from paceline.command.files import picture_file

Row = dict[str, Any]


def distinct(rows: list[Row], key: str) -> list[Any]:
    """A key's values, in the order in which they come."""
    return list(dict.fromkeys(row[key] for row in rows))


def size_text(nbytes: int) -> str:
    for shift, unit in ((30, "GB"), (20, "MB"), (10, "KB")):
        if nbytes >= 1 << shift and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift} {unit}"
    return f"{nbytes} B"


def fastest(rows: list[Row]) -> list[Row]:
    """Of each call the row of the fastest peer that was right."""
    best: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        call = (row["mode"], row["collective"], row["bytes"])
        if row["peer_right"] and (call not in best or row["peer_us"] < best[call]["peer_us"]):
            best[call] = row
    return list(best.values())


def text(rows: list[Row]) -> str:
    """Markdown: a table for each mode, and where Paceline is the slower one."""
    best = fastest(rows)
    lines = []
    for mode in distinct(best, "mode"):
        mine = [row for row in best if row["mode"] == mode]
        sizes = sorted(set(distinct(mine, "bytes")))
        title = "In CUDA graphs" if mode == "graph" else "Without graphs"
        lines += ["", f"{title}: microseconds, and in brackets the fastest peer's time divided by ours.", ""]
        lines.append("| | " + " | ".join(map(size_text, sizes)) + " |")
        lines.append("|---" * (len(sizes) + 1) + "|")
        for collective in distinct(mine, "collective"):
            cells = {row["bytes"]: row for row in mine if row["collective"] == collective}
            shown = [_cell(cells[nbytes]) if nbytes in cells else "" for nbytes in sizes]
            lines.append(f"| {collective.replace('_', '-')} | " + " | ".join(shown) + " |")
    lines.append("")
    slower = [row for row in best if row["ratio"] < 1]
    for row in sorted(slower, key=lambda row: row["ratio"]):
        call = f"{row['mode']} {row['collective']} of {size_text(row['bytes'])}"
        lines.append(f"slower: {call}: {row['ratio']:.2f} of {row['peer']}")
    for row in (row for row in rows if not row["peer_right"]):
        lines.append(f"wrong: {row['peer']}, {row['mode']} {row['collective']} of {size_text(row['bytes'])}")
    lines.append(f"Paceline is the fastest in {len(best) - len(slower)} of {len(best)} calls.")
    return "\n".join(lines)


def _cell(row: Row) -> str:
    time = row["paceline_us"]
    return f"{time:.0f} ({row['ratio']:.2f})" if time >= 100 else f"{time:.3g} ({row['ratio']:.2f})"


def plot_missing() -> bool:
    return importlib.util.find_spec("matplotlib") is None


def draw(document: dict[str, Any], path: str) -> None:
    """A line of panels for each collective, one for each mode: ratio against size, a curve for each peer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows: list[Row] = document["rows"]
    collectives, modes = distinct(rows, "collective"), distinct(rows, "mode")
    peers = distinct(rows, "peer")
    figure = Figure(figsize=(5 * len(modes), 2.3 * len(collectives) + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{document['gpus']} x {document['gpu']}: the peer's time / Paceline's")
    panels: Any = figure.subplots(len(collectives), len(modes), squeeze=False, sharey="row")
    sizes = sorted(set(distinct(rows, "bytes")))
    for collective, line in zip(collectives, panels):
        highest = max(row["ratio"] for row in rows if row["collective"] == collective)
        for mode, panel in zip(modes, line):
            here = [row for row in rows if (row["collective"], row["mode"]) == (collective, mode)]
            for number, peer in enumerate(peers):
                points = sorted((row["bytes"], row["ratio"]) for row in here if row["peer"] == peer)
                if points:
                    panel.plot(*zip(*points), marker="o", markersize=3, color=f"C{number}", label=peer)
            panel.axhline(1, color="black", linewidth=0.8)
            panel.set_title(f"{collective.replace('_', '-')}, {mode}", fontsize="medium")
            panel.set_xscale("log", base=2)
            panel.set_xticks(sizes, [size_text(nbytes) for nbytes in sizes], rotation=45, fontsize="small")
            panel.minorticks_off()
            panel.set_ylim(0, 1.08 * max(highest, 1))
            panel.grid(alpha=0.3)
    handles = {label: handle for panel in panels.flat for handle, label in zip(*panel.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="what compare_gpu.py --json has written")
    parser.add_argument("--plot", type=picture_file, metavar="F")
    chosen = parser.parse_args()
    document = json.loads(Path(chosen.file).read_text())
    print(text(document["rows"]))
    if chosen.plot:
        draw(document, chosen.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
