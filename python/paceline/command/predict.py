"""`paceline predict`: what a collective would take on a topology, or by a measured profile, by each algorithm."""

from __future__ import annotations

import argparse
import itertools
import json
from math import inf
from typing import Any

from .. import _native
from ..errors import InvalidArgument
from ..prediction import predict
from ..trace import events_by_rank, merge_events
from . import predict_plot
from .bench import algorithm_table
from .collectives import COLLECTIVES
from .files import input_text, named_file, output_file, picture_file, write_json, write_text
from .interrupts import interrupt_ends
from .progress import Progress
from .question import add_question, asked_sizes
from .sizes import counted, counts, not_negative, positive, ranks_text, size, size_text
from .topology_source import add_source, source_request

_LINE = "{:>12} {:>13}  {:<20} {:>8} {:>13} {:>9} {:>9}  {}"


def slow(text: str) -> tuple[str, float]:
    """A straggler: GPU, as the shortest number says it, or link, and how many times as long it takes: 3:2.5."""
    name, colon, factor = text.rpartition(":")
    try:
        if colon and 0 < float(factor) < inf:
            return (str(not_negative(name)) if name.isdecimal() else name), float(factor)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no straggler: write WHICH:FACTOR, as 3:2.5")


def microseconds(text: str) -> float:
    """A finite number >= 0. What the library takes of these, it says itself."""
    try:
        if 0 <= (number := float(text)) < inf:
            return number
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no number of microseconds >= 0")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        allow_abbrev=False,
        help="say how long a collective would take on a topology",
        description="Simulate a collective's algorithms on a machine or cluster that need not be here, or predict them "
        "from a profile that `paceline tune` has measured.",
        epilog="example: paceline predict all_reduce --preset dgx-a100 --nodes 4 --sizes 1M,64M,1G",
    )
    add = parser.add_argument
    source = add_source(parser, required=True, gpus="the ranks' GPUs in the order of ranks, as 0,1,4-7")
    source.add_argument("--profile", type=named_file, metavar="F", help="a profile that `paceline tune` has written")
    add(
        "--nodes",
        type=counts,
        metavar="K",
        help="how many nodes of the preset, or several as 8:512:x8 (default: its own)",
    )
    add("-n", "--ranks", type=positive, metavar="N", help="how many ranks (default: one a GPU; the first of --profile)")
    add("--placement", choices=("gpu", "socket", "node"), default=None,
        help="ranks go to the GPUs in their order, or in turn to the sockets or nodes (default: gpu)")  # fmt: skip
    add("--transport", metavar="T", help="of the profile: shm, tcp, ... (default: its first)")
    add_question(parser, "1M:256M:x4")
    add(
        "--algorithm",
        default="all",
        metavar="NAME",
        help="one algorithm, or several as ring,double_tree (default: all)",
    )
    add("--radix", type=positive, default=0, metavar="K",
        help="ranks that meet in a step, of algorithms with a radix (default: their own)")  # fmt: skip
    add("--chunk", type=size, default=0, metavar="SIZE", help="the longest chunk (default: the algorithm's own)")
    add(
        "--sources", type=counts, metavar="M", help="so many ranks broadcast at once, each a message; or several counts"
    )
    add("--servers", type=positive, default=0, metavar="S", help="of reduction_server (default: one a rank)")
    add(
        "--start",
        type=microseconds,
        default=None,
        metavar="US",
        help="what a message takes before its bytes (default: 0.5)",
    )
    add("--delay", type=microseconds, default=None, metavar="US", help="how much later a message comes (default: 2)")
    add("--ports", choices=("connections", "one"), default=None,
        help="a GPU sends to several ranks at once, or to one after the other (default: connections)")  # fmt: skip
    add("--multicast", action="store_true", help="a message to several ranks passes each link once")
    add("--slow-gpu", type=slow, action="append", default=[], metavar="GPU:FACTOR", help="a straggler, as 3:2.5")
    add("--slow-link", type=slow, action="append", default=[], metavar="LINK:FACTOR",
        help="a slow link, as 'gpu0 -> switch0:2'")  # fmt: skip
    add("--json", type=output_file, metavar="F", help="write the rows to this file")
    add("--plot", type=picture_file, metavar="F", help="draw time and bus bandwidth against size")
    add("--trace", type=output_file, metavar="F",
        help="write the timeline of one algorithm at one size (open it in Perfetto)")  # fmt: skip
    add("--link-plot", type=picture_file, metavar="F", help="draw the load of each link, of one algorithm at one size")
    parser.set_defaults(job=job, parser=parser)


# What is in no table of algorithms that run, and the collective that it serves: src/tuning/prediction/predictor.cc.
_PREDICTED_ALONE = {"multicast": "broadcast", "reduction_server": "all_reduce"}
_OF_A_TOPOLOGY = ("gpus", "placement", "sources", "servers", "start", "delay", "ports", "multicast", "slow_gpu",
                  "slow_link", "trace", "link_plot")  # fmt: skip


def job(chosen: argparse.Namespace) -> int:
    _refuse_impossible(chosen)
    drawn = chosen.plot or chosen.link_plot
    if drawn and (advice := predict_plot.missing()):
        chosen.parser.error(advice)
    where = chosen.preset or chosen.file or chosen.nccl_xml or chosen.profile
    rows: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    refused: list[InvalidArgument] = []
    cases = [*itertools.product(chosen.nodes or [0], chosen.sources or [0])]
    progress = Progress(len(cases) * len(_algorithms(chosen)))
    for nodes, sources in cases:
        found, left_out = _answers(chosen, nodes, sources, progress)
        refused += left_out
        if len(cases) == 1 and not found:
            break
        if found:
            title = f"{chosen.collective} on {ranks_text(found[0]['ranks'])}, {where}"
            if sources:
                title += f", {counted(sources, 'sources')}"
            some = [_row(row, answer, sources) for answer in found for row in answer["rows"]]
            some.sort(key=lambda row: (row["asked_bytes"], row["time_us"]))
            print(f"# {title}")
            print(table(some))
            for line in lengthened(some):
                print(f"# {line}")
            rows += some
            answers += found
        for line in (*(str(error) for error in left_out), *(line for answer in found for line in answer["left_out"])):
            print(f"# left out: {line}")
    if not answers:
        raise InvalidArgument("\n".join(dict.fromkeys(map(str, refused))))
    if chosen.json:
        document = {"version": _native.version(), "collective": chosen.collective, "topology": where, "rows": rows}
        write_json(chosen.json, document)
    if (chosen.trace and "trace" not in answers[0]) or (chosen.link_plot and rows[0]["links"] is None):
        chosen.parser.error(f"{rows[0]['algorithm']} is predicted by a formula: it has no links and no timeline")
    if chosen.trace:
        write_text(chosen.trace, json.dumps(merge_events(events_by_rank(answers[0]["trace"]))) + "\n")
    if chosen.plot:
        predict_plot.draw(rows, f"{chosen.collective}, {where}", chosen.plot)
    if chosen.link_plot:
        predict_plot.draw_links(rows[0]["links"], title, chosen.link_plot)
    return 0


def _answers(
    chosen: argparse.Namespace, nodes: int, sources: int, progress: Progress
) -> tuple[list[dict[str, Any]], list[InvalidArgument]]:
    """What each algorithm named takes, and why some of them take nothing."""
    asked = request(chosen, nodes, sources)
    found, refused = [], []
    where = [f"{nodes} nodes"] if nodes else []
    where += [counted(sources, "sources")] if sources else []
    for name in _algorithms(chosen):
        what = "all algorithms" if name == "all" else name
        try:
            with progress.during(", ".join([f"{chosen.collective} by {what}", *where])), interrupt_ends():
                found.append(predict({**asked, "algorithm": name}))
        except InvalidArgument as error:
            refused.append(error)
    return found, refused


def _algorithms(chosen: argparse.Namespace) -> list[str]:
    """Each once."""
    return list(dict.fromkeys(chosen.algorithm.split(",")))


def _refuse_unknown(chosen: argparse.Namespace, names: list[str]) -> None:
    """One that there is, but not here, is left out of several; one that is misspelt would be missed."""
    table = algorithm_table()
    known = {"all", *_PREDICTED_ALONE, *(row["name"] for row in table)}
    for name in names:
        if name not in known:
            serving = [row["name"] for row in table if chosen.collective in row["collectives"]]
            serving += [alone for alone, collective in _PREDICTED_ALONE.items() if collective == chosen.collective]
            there_are = ", ".join(serving)
            chosen.parser.error(f"there is no algorithm {name!r}: take one of {there_are}, or all")


def _refuse_impossible(chosen: argparse.Namespace) -> None:
    """What can be told before anything is predicted."""
    refuse = chosen.parser.error
    if chosen.profile:
        for name in _OF_A_TOPOLOGY:
            if getattr(chosen, name) != chosen.parser.get_default(name):
                refuse(f"--{name.replace('_', '-')} needs a topology, not --profile")
    elif chosen.transport is not None:
        refuse("--transport goes with --profile")
    if chosen.gpus and chosen.placement:
        refuse("either --gpus or --placement")
    if chosen.chunk and chosen.sources:
        refuse("either --chunk or --sources, whose chunks are their own")
    if chosen.radix and chosen.sources:
        refuse("either --radix or --sources, whose trees are binomial")
    names = _algorithms(chosen)
    _refuse_unknown(chosen, names)
    if "all" in names and len(names) > 1:
        refuse("--algorithm is all, or some by name")
    if chosen.servers and "reduction_server" not in names:
        refuse("--servers goes with --algorithm reduction_server")
    if chosen.root and not COLLECTIVES[chosen.collective].rooted:
        refuse(f"{chosen.collective} has no root: leave out --root")
    if chosen.root and chosen.sources:
        refuse("either --root or --sources, which are the first ranks")
    for option, stragglers in (("--slow-gpu", chosen.slow_gpu), ("--slow-link", chosen.slow_link)):
        _refuse_twice(chosen, option, [name for name, _ in stragglers])
    several = len(names) > 1 or names == ["all"] or len(asked_sizes(chosen)) > 1
    several = several or len(chosen.nodes or [0]) > 1 or chosen.sources
    for option, path in (("--trace", chosen.trace), ("--link-plot", chosen.link_plot)):
        if path and several:
            refuse(
                f"{option} shows one algorithm at one size: give one --algorithm, one --size, "
                "at most one number of --nodes, and no --sources"
            )


def _refuse_twice(chosen: argparse.Namespace, option: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            chosen.parser.error(f"{option} names {name!r} twice")


def _row(row: dict[str, Any], answer: dict[str, Any], sources: int) -> dict[str, Any]:
    return {**row, "ranks": answer["ranks"], "sources": sources}


def request(chosen: argparse.Namespace, nodes: int, sources: int) -> dict[str, Any]:
    """The options as pacePredict wants them, but for the algorithm."""
    source = source_request(chosen, nodes)
    asked: dict[str, Any] = {key: getattr(chosen, key) for key in ("collective", "dtype", "root", "servers")}
    asked["sizes"] = asked_sizes(chosen)
    asked["sources"] = sources
    asked["chunk_bytes"] = chosen.chunk
    asked["radix"] = chosen.radix
    asked["links"] = bool(chosen.json)
    asked["detail"] = bool(chosen.trace or chosen.link_plot)
    if chosen.ranks:
        asked["ranks"] = chosen.ranks
    if chosen.profile:
        text = input_text(chosen.profile)
        asked.update(ranks=chosen.ranks or _first_ranks(text, chosen.transport), profile=text)
        return {**asked, "transport": chosen.transport} if chosen.transport is not None else asked
    asked.update(source)
    if chosen.placement is not None:
        asked["placement"] = chosen.placement
    machine: dict[str, Any] = {"multicast": chosen.multicast}
    for key, value in (("start_us", chosen.start), ("delay_us", chosen.delay), ("ports", chosen.ports)):
        if value is not None:
            machine[key] = value
    machine.update(slow_gpus=dict(chosen.slow_gpu), slow_links=dict(chosen.slow_link))
    return {**asked, "machine": machine}


def _first_ranks(profile: str, transport: str | None) -> int:
    """The first number of ranks that a profile has for a transport. The library refuses a text that has none."""
    try:
        settings = json.loads(profile)["settings"]
        return int(next(row["ranks"] for row in settings if transport in (None, row["transport"])))
    except (ValueError, LookupError, TypeError, ArithmeticError, StopIteration, RecursionError):
        return 2


def table(rows: list[dict[str, Any]]) -> str:
    """What a person reads: the fastest first at each size."""
    lines = [_LINE.format("size(B)", "count", "algorithm", "chunk", "time(us)", "algbw", "busbw",
                          "busiest link or method")]  # fmt: skip
    lines.append(_LINE.format("", "", "", "", "", "(GB/s)", "(GB/s)", "").rstrip())
    for row in rows:
        link = f"{row['busiest_link']} {100 * row['busiest_share']:.0f}%" if row["busiest_link"] else row["method"]
        chunk = _short(row["chunk_bytes"]) if row["chunk_bytes"] else "-"
        lines.append(
            _LINE.format(row["bytes"], row["count"], row["algorithm"], chunk, f"{row['time_us']:.1f}",
                         f"{row['algbw_gbs']:.2f}", f"{row['busbw_gbs']:.2f}", link)
        )  # fmt: skip
    return "\n".join(lines)


def lengthened(rows: list[dict[str, Any]]) -> list[str]:
    """Which rows are not of the algorithm's own chunks."""
    return [
        f"{row['algorithm']} at {_short(row['bytes'])}: simulated with chunks of {_short(row['chunk_bytes'])}, "
        f"not its own {_short(row['own_chunk_bytes'])}, to keep it short: it may be faster than this"
        for row in rows
        if row["own_chunk_bytes"]
    ]


def _short(count: int) -> str:
    """About, in at most six characters: 1.3M."""
    if len(text := size_text(count)) <= 6:
        return text
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f}{unit}"
    return str(count)
