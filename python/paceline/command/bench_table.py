"""The table of `paceline bench`, in nccl-tests' columns."""

from __future__ import annotations

from .measure import Row
from .sizes import ranks_text

_LINE = "{:>12} {:>13} {:>10} {:>9} {:>5}  {:<30} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}"


def title(version: str, ranks: int, host: str, device: str) -> str:
    return f"# paceline {version}: {ranks_text(ranks)}, {host}, {device}"


def heading(collective: str) -> str:
    """The lines above a collective's rows."""
    names = ("size", "count", "type", "redop", "root", "algorithm", "time", "min", "max", "algbw", "busbw", "#wrong")
    units = ("(B)", "(elements)", "", "", "", "", "median(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "")
    return "\n".join(("#", f"# {collective}", _LINE.format(*names), _LINE.format(*units).rstrip()))


def line(row: Row, mark_chosen: bool) -> str:
    """A row; beside other algorithms, the chosen one is marked with a star."""
    return _LINE.format(
        row.bytes,
        row.count,
        row.dtype,
        row.op or "none",
        -1 if row.root is None else row.root,
        row.algorithm + (" *" if mark_chosen and row.chosen else ""),
        _time(row.time_us.median),
        _time(row.time_us.min),
        _time(row.time_us.max),
        _rate(row.algbw_gbs),
        _rate(row.busbw_gbs),
        "N/A" if row.wrong is None else row.wrong,
    ).rstrip()


def _time(microseconds: float) -> str:
    return f"{microseconds:.0f}" if microseconds >= 10_000 else f"{microseconds:.2f}"


def _rate(gbs: float) -> str:
    return f"{gbs:.2f}" if gbs >= 0.1 or gbs == 0 else f"{gbs:.4f}"
