"""The picture of `paceline topo --plot`: vertices in a layer for each kind, links as lines as wide as they are fast."""

from __future__ import annotations

import re
from html import escape
from math import log2
from typing import Any

_LAYERS = ("network switch", "nic", "cpu", "root port", "pcie switch", "gpu", "nvswitch")
_COLOURS = {"network switch": "#8c6bb1", "nic": "#41ab5d", "cpu": "#4292c6", "root port": "#737373",
            "pcie switch": "#969696", "gpu": "#76b900", "nvswitch": "#ec7014"}  # fmt: skip
_LINKS = {"nvlink": "#76b900", "pcie": "#969696", "socket": "#4292c6", "network": "#8c6bb1", "c2c": "#ec7014"}
_WIDTH, _HEIGHT, _SPACE = 96, 28, 120


def svg(found: dict[str, Any]) -> str:
    """The graph of paceTopology's answer as an SVG document."""
    place = _places(found["vertices"])
    columns = max((x for x, _ in place.values()), default=0) + _SPACE
    rows = max((y for _, y in place.values()), default=0) + _SPACE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns:.0f}" height="{rows:.0f}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    drawn = set()
    for link in found["links"]:
        ends = frozenset((link["from"], link["to"]))
        if (ends, link["kind"]) not in drawn:
            drawn.add((ends, link["kind"]))
            parts.append(_line(link, place))
    for vertex in found["vertices"]:
        x, y = place[vertex["name"]]
        parts.append(
            f'<rect x="{x - _WIDTH / 2:.0f}" y="{y - _HEIGHT / 2:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
            f'fill="{_COLOURS.get(vertex["kind"], "#cccccc")}"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="white">{_text(vertex["name"])}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places(vertices: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    layers = [[v["name"] for v in vertices if v["kind"] == kind] for kind in _LAYERS]
    layers = [layer for layer in layers if layer]
    widest = max((len(layer) for layer in layers), default=0) * _SPACE
    return {
        name: (widest * (i + 0.5) / len(layer) + _SPACE / 8, _SPACE * (depth + 0.5))
        for depth, layer in enumerate(layers)
        for i, name in enumerate(layer)
    }


def _line(link: dict[str, Any], place: dict[str, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = place[link["from"]], place[link["to"]]
    colour, width = _LINKS.get(link["kind"], "#000000"), max(0.5, log2(1 + link["gbs"]) / 2)
    title = f"<title>{_text(link['from'])} - {_text(link['to'])}: {link['gbs']:g} GB/s {link['kind']}</title>"
    # Links inside a layer bend, or they would hide behind the vertices between.
    bend = abs(x2 - x1) / 6 + 10 if y1 == y2 else 0
    return (
        f'<path d="M{x1:.0f} {y1:.0f} Q{(x1 + x2) / 2:.0f} {(y1 + y2) / 2 - bend:.0f} {x2:.0f} {y2:.0f}" '
        f'fill="none" stroke="{colour}" stroke-width="{width:.1f}" stroke-opacity="0.7">{title}</path>'
    )


def _text(name: str) -> str:
    """A name as XML can hold it: it has no place for control characters, surrogates, U+FFFE and U+FFFF."""
    return escape(re.sub("[^\\t\\n\\r -\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", "\ufffd", name))
