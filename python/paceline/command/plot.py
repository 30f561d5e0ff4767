"""The picture of `paceline bench --plot`: latency and bandwidth against size."""

from __future__ import annotations

import importlib.util
from typing import Any

from .measure import Row
from .sizes import size_text


def missing() -> str | None:
    """What to do before a plot can be drawn, or None."""
    if importlib.util.find_spec("matplotlib") is None:
        return "--plot needs matplotlib: pip install matplotlib"
    return None


def caption(text: str) -> str:
    """The text as matplotlib draws it: no formula, and without what has no character, as in a file's name it may."""
    return text.encode(errors="backslashreplace").decode().replace("$", r"\$")


def draw(rows: list[Row], title: str, path: str) -> None:
    """One line of two panels for each collective: time and bus bandwidth, a curve for each algorithm."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in rows if row.bytes] or rows  # a barrier has no size to draw against
    collectives = list(dict.fromkeys(row.collective for row in rows))
    figure = Figure(figsize=(12, 4.2 * len(collectives)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(caption(title))
    panels: Any = figure.subplots(len(collectives), 2, squeeze=False)
    for (latency, bandwidth), collective in zip(panels, collectives, strict=True):
        of_collective = [row for row in rows if row.collective == collective]
        # With one algorithm at each size the curve is that of the choice, whatever it takes at each size.
        side_by_side = len({(row.bytes, row.algorithm) for row in of_collective}) > len(
            {row.bytes for row in of_collective}
        )
        names = list(dict.fromkeys(row.algorithm for row in of_collective)) if side_by_side else [collective]
        for name in names:
            curve = [row for row in of_collective if not side_by_side or row.algorithm == name]
            _draw_curve(latency, bandwidth, curve, name)
        for panel, what in ((latency, "time (us)"), (bandwidth, "bus bandwidth (GB/s)")):
            _label(panel, collective, what, sorted({row.bytes for row in of_collective}))
        latency.set_yscale("log")
        bandwidth.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def _draw_curve(latency: Any, bandwidth: Any, curve: list[Row], name: str) -> None:
    sizes = [max(row.bytes, 1) for row in curve]
    (drawn,) = latency.plot(sizes, [row.time_us.median for row in curve], marker="o", markersize=3, label=name)
    latency.fill_between(
        sizes, [row.time_us.min for row in curve], [row.time_us.median for row in curve], alpha=0.15,
        color=drawn.get_color(),
    )  # fmt: skip
    bandwidth.plot(sizes, [row.busbw_gbs for row in curve], marker="o", markersize=3, label=name)


def _label(panel: Any, collective: str, what: str, sizes: list[int]) -> None:
    panel.set_title(collective)
    panel.set_xlabel("size (bytes)")
    panel.set_ylabel(what)
    panel.set_xscale("log", base=2)
    panel.set_xticks([max(size, 1) for size in sizes], [size_text(size) for size in sizes], rotation=45)
    panel.minorticks_off()
    panel.grid(alpha=0.3)
