"""The pictures of `paceline predict`: time and bandwidth against size, and the load of each link."""

from __future__ import annotations

from typing import Any

from .plot import caption, missing
from .sizes import counted, size_text

__all__ = ["draw", "draw_links", "missing"]


# What a question can have several of. Not the rows' "bytes": they also differ where counts are rounded.
_AXES = {"asked_bytes": "size (bytes)", "ranks": "ranks", "sources": "sources"}


def varied(rows: list[dict[str, Any]]) -> str:
    """The field of the rows that a picture has along its axis."""
    return next((key for key in _AXES if len({row[key] for row in rows}) > 1), "asked_bytes")


def draw(rows: list[dict[str, Any]], title: str, path: str) -> None:
    """Time and bandwidth, a curve for each algorithm, against whatever there are several of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axis = varied(rows)
    for key in _AXES:
        if key != axis and rows[0][key] and len({row[key] for row in rows}) == 1:
            value = rows[0][key]
            title += f", {size_text(value)}B" if key == "asked_bytes" else f", {counted(value, key)}"
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(caption(title))
    panels: Any = figure.subplots(1, 2)
    points = sorted({max(row[axis], 1) for row in rows})
    for panel, key, what in zip(panels, ("time_us", "busbw_gbs"), ("time (us)", "bus bandwidth (GB/s)"), strict=True):
        for name in dict.fromkeys(row["algorithm"] for row in rows):
            curve = sorted((max(row[axis], 1), row[key]) for row in rows if row["algorithm"] == name)
            panel.plot(*zip(*curve, strict=True), marker="o", markersize=3, label=name)
        panel.set_xlabel(_AXES[axis])
        panel.set_ylabel(what)
        panel.set_xscale("log", base=2)
        if len(points) <= 24:
            panel.set_xticks(points, [size_text(point) if axis == "asked_bytes" else str(point) for point in points],
                             rotation=45)  # fmt: skip
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    if any(row["time_us"] > 0 for row in rows):
        panels[0].set_yscale("log")
    panels[1].legend(fontsize="small")
    figure.savefig(path, dpi=90)


def draw_links(links: list[dict[str, Any]], title: str, path: str) -> None:
    """One bar a link: what part of the time it works; the busiest first, at most 64."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = sorted(links, key=lambda link: -link["share"])[:64]
    figure = Figure(figsize=(8, 1 + 0.2 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(caption(title))
    panel: Any = figure.subplots()
    names = [f"{link['from']} -> {link['to']}" for link in shown]
    panel.barh(range(len(shown)), [100 * link["share"] for link in shown])
    panel.set_yticks(range(len(shown)), names, fontsize=7)
    panel.invert_yaxis()
    panel.set_xlim(0, 100)
    panel.set_xlabel("load (% of the link's bandwidth, over the whole time)")
    panel.grid(alpha=0.3, axis="x")
    figure.savefig(path, dpi=120)
