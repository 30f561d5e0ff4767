"""Prediction against measurement: every algorithm of four collectives, at sizes that the calibration did not see.

    python bench/prediction.py                              shared memory: 2 ranks, and more where there are CPUs
    python bench/prediction.py --ranks 4,6,8,12,16          on a machine with 16 CPUs
    python bench/prediction.py --transport tcp              4 and 8 nodes on shaped links (root, iproute2; Linux)
    python bench/prediction.py --again F --profile P        measure nothing: predict F's rows with this profile

In each of several passes, with ranks started anew, `paceline tune` measures --calibrate's numbers of ranks, and then
every algorithm is measured at other sizes and on all --ranks: in turn, since many a machine is faster in one minute
than in the next. From tune's times comes a profile (--profile F: one that is there is taken as it is), and from this
each prediction. What is measured is the call's slowest rank: the median over the calls of a pass, and of the passes the
geometric mean (of two the shorter); tune does the same, and in both each rank has a CPU of its own. No prediction can
be better than measurements are repeatable: "halves" says how far every other pass is from the rest, as median and 90th
percentile over all rows.

The nodes of --transport tcp are network namespaces around a bridge. Each sends and receives at 1 Gbit/s, the last one
at 200 Mbit/s (token buckets, `tc`), so a ring is as slow as its slowest link.

Two choices are measured too, each with its chunk and protocol: what the tuned table runs, and what the model runs that
was not tuned. Their times over the fastest measured say how good they are. The least of many rows is also the luckiest
one: a choice beyond its bar (5%, untuned 20%) and that fastest are measured again, alone and in turn, and this ratio
counts.

Writes {"rows":[{"collective","algorithm","transport","ranks","bytes","predicted_us","measured_us","error"}],
"median_error","p90_error","halves":[median, p90],"choices":[...]}. error = |predicted / measured - 1|; a chunk that
only the untuned model would take ("ring chunk=4096") is not predicted, and has null for both. "choices" has, for each
size, the fastest measured and the ratios of the tuned and of the untuned choice to it, "first" those before they were
measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.command.files import output_file

ROOT = Path(__file__).resolve().parents[1]
COLLECTIVES = ("broadcast", "all_reduce", "all_gather", "reduce_scatter")
# Between the sizes of the calibration, which are powers of two.
SIZES = {
    "shm": [24, 200, 1000, 5000, 20_000, 80_000, 300_000, 1_000_000, 5_000_000, 20_000_000],
    "tcp": [5000, 20_000, 80_000, 300_000, 1_200_000, 3_000_000],
}
PASSES = {"shm": 8, "tcp": 4}
# Of a choice: its name in a row, that of its ratio, and what the ratio is to be at most.
CHOICES = (("chosen", "ratio", 1.05), ("untuned", "untuned_ratio", 1.2))


def main() -> int:
    chosen = _arguments()
    if chosen.side:
        return _side(chosen)
    if chosen.again:
        before = json.loads(Path(chosen.again).read_text())
        rows = _again(before["rows"], Path(chosen.profile).read_text())
        return _show(_document(rows, before["calibrated_ranks"], []), chosen)
    cpus = len(os.sched_getaffinity(0))
    over_tcp = chosen.transport == "tcp"
    ranks = chosen.ranks or ([4, 8] if over_tcp else [n for n in (2, 3, 4, 6, 8, 12, 16) if n <= cpus])
    calibrated = chosen.calibrate or ([4, 8] if over_tcp else [n for n in (2, 4, 8, 16) if n <= cpus])
    passes = chosen.passes or PASSES[chosen.transport]
    start = _in_namespaces if over_tcp else _here
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(chosen.profile or Path(folder) / "profile.json").absolute()
        result = Path(folder) / "side.json"
        side = [str(Path(__file__).resolve()), "--side", str(result), "--transport", chosen.transport]
        calibrates = not profile.exists()
        found: list[dict[str, Any]] = []
        end = time.monotonic() + (chosen.within or math.inf)
        for _ in range(passes):
            if found and time.monotonic() > end:
                break
            if calibrates:
                seconds = chosen.seconds / passes / len(calibrated)
                _calibrate(start, calibrated, seconds, "512K" if over_tcp else "32M", Path(folder), profile)
            for count in ranks:
                start(count, side, str(profile))
                found += json.loads(result.read_text())
        rows = _again(_typical(found), profile.read_text())
        choices: list[dict[str, Any]] = []
        for count in ranks:
            measured = Path(folder) / "measured.json"
            measured.write_text(json.dumps([row for row in rows if row["ranks"] == count]))
            start(count, [*side, "--measured", str(measured)], str(profile))
            choices += json.loads(result.read_text())
        document = _document(rows, calibrated, choices)
    return _show(document, chosen)


def _calibrate(
    start: Callable[[int, list[str], str], None],
    counts: list[int],
    seconds: float,
    largest: str,
    folder: Path,
    profile: Path,
) -> None:
    """One more pass of `paceline tune` of each number of ranks, and a profile of all that there are by now."""
    from paceline import tuning
    from paceline.command.host_tune import finished

    settings = []
    for count in counts:
        setting = folder / f"setting-{count}.json"
        words = ["-m", "paceline", "tune", "--setting", str(setting), "--seconds", str(max(1, round(seconds)))]
        start(count, [*words, "--largest", largest, "--collectives", ",".join(COLLECTIVES)], "off")
        settings.append(finished(json.loads(setting.read_text())))
    for reason in tuning.merge(profile, settings):
        sys.exit(f"{profile}: {reason}")


def _show(document: dict[str, Any], chosen: argparse.Namespace) -> int:
    print(_report(document))
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(document, indent=1) + "\n")
    if chosen.times:
        lines = [json.dumps(line) for line in _times(document["rows"])]
        Path(chosen.times).write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return 0


def _times(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """[collective, ranks, bytes, {algorithm: us}] of each size."""
    found: dict[tuple[str, int, int], dict[str, float]] = {}
    for row in rows:
        if " " not in row["algorithm"]:
            times = found.setdefault((row["collective"], row["ranks"], row["bytes"]), {})
            times[row["algorithm"]] = round(row["measured_us"], 2)
    return [[*key, times] for key, times in found.items()]


def _arguments() -> argparse.Namespace:
    def counts(text: str) -> list[int]:
        return [int(item) for item in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("shm", "tcp"), default="shm")
    parser.add_argument("--ranks", type=counts, metavar="LIST")
    parser.add_argument("--calibrate", type=counts, metavar="LIST", help="numbers of ranks that tune measures")
    parser.add_argument("--seconds", type=int, default=150, help="of tune's measuring, in all passes")
    parser.add_argument("--passes", type=int, help="each with ranks started anew (8; tcp: 4)")
    parser.add_argument("--within", type=int, metavar="S", help="begin no pass later than this")
    parser.add_argument("--profile", metavar="F", help="the profile: taken if it exists, else made there")
    parser.add_argument("--again", metavar="F", help="what --json has written: predict its rows with --profile")
    parser.add_argument("--json", type=output_file, metavar="F")
    parser.add_argument(
        "--times", type=output_file, metavar="F", help="write the measured times alone, for tests of the untuned model"
    )
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--measured", help=argparse.SUPPRESS)
    return parser.parse_args()


def _here(ranks: int, words: list[str], profile: str) -> None:
    from paceline.launch import launch

    environment = dict(os.environ, PACELINE_TUNING=profile, PACELINE_TRANSPORT="shm")
    if launch([sys.executable, *words], ranks, environment=environment, bind=True) != 0:
        sys.exit("a rank failed")


def _in_namespaces(ranks: int, words: list[str], profile: str) -> None:
    from paceline.launch import rank_environment

    sys.path.insert(0, str(ROOT / "tests" / "python"))
    from namespaces import Namespaces  # type: ignore[import-not-found]

    with Namespaces(ranks) as nodes:
        for node in range(ranks):
            nodes.shape(node, 200 if node == ranks - 1 else 1000)
        shared = dict(os.environ) | rank_environment(ranks) | {"PACELINE_ADDRESS": f"{nodes.address(0)}:29500"}
        shared["PACELINE_TUNING"] = profile
        sides = [
            subprocess.Popen(nodes.command(node, [sys.executable, *words]), env=shared | {"PACELINE_RANK": str(node)})
            for node in range(ranks)
        ]
        codes = [side.wait() for side in sides]
        if any(codes):
            sys.exit("a rank failed")


def _side(chosen: argparse.Namespace) -> int:
    """One rank: predict and measure."""
    import paceline

    with paceline.init() as comm:
        if chosen.measured:
            rows = _choices(comm, chosen.transport, json.loads(Path(chosen.measured).read_text()))
        else:
            rows = _all_rows(comm, chosen.transport)
        if comm.rank == 0:
            Path(chosen.side).write_text(json.dumps(rows))
        comm.barrier()
    return 0


def _trial(comm: Any, name: str, largest: int) -> Any:
    """Calls of a collective on up to `largest` bytes of float32, made until the machine has settled."""
    from paceline.command.collectives import COLLECTIVES as TABLE
    from paceline.command.measure import settle
    from paceline.command.pattern import Pattern
    from paceline.command.trial import HostTrial
    from paceline.datatypes import DATA_TYPES

    dtype = DATA_TYPES["float32"]
    collective = TABLE[name]
    count = collective.count(largest, comm.size, dtype.size)
    trial = HostTrial(comm, collective, Pattern(dtype, "sum", comm.size), 0, count)
    settle(trial, 0.2)
    return trial


def _row_seconds(transport: str) -> float:
    return 0.005 if transport == "shm" else 0.1


def _all_rows(comm: Any, transport: str) -> list[dict[str, Any]]:
    """Every algorithm at every size, and what the model chooses that was not tuned."""
    from paceline import tuning
    from paceline.command.bench import algorithm_table
    from paceline.command.measure import Effort, measure

    profile = json.loads(Path(os.environ["PACELINE_TUNING"]).read_text())
    effort = Effort(seconds=_row_seconds(transport))
    rows: list[dict[str, Any]] = []
    for name in COLLECTIVES:
        trial = _trial(comm, name, max(SIZES[transport]))
        counts = [trial.collective.count(size, comm.size, trial.dtype.size) for size in SIZES[transport]]
        names = [row["name"] for row in algorithm_table() if name in row["collectives"]]
        tuning.use(comm, None)
        untuned = {count: trial.plan(count, None) for count in counts}
        tuning.use(comm, profile)
        for count in counts:
            plan = untuned[count]
            as_planned = trial.plan(count, plan.algorithm).chunk_bytes == plan.chunk_bytes
            untuned_run = plan.algorithm if as_planned else f"{plan.algorithm} chunk={plan.chunk_bytes}"
            runs = list(dict.fromkeys([*names, untuned_run]))
            for run, row in measure(trial, count, runs, effort, False, rounds=1).items():
                rows.append({"collective": name, "algorithm": run, "transport": transport,
                             "ranks": comm.size, "bytes": row.bytes, "measured_us": row.time_us.median,
                             "untuned": run == untuned_run})  # fmt: skip
    return rows


def _choices(comm: Any, transport: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the two choices are at each size of these rows, and their times over the fastest."""
    from paceline import tuning
    from paceline.command.measure import Effort, measure

    profile = json.loads(Path(os.environ["PACELINE_TUNING"]).read_text())
    effort = Effort(seconds=0.5 if transport == "tcp" else 0.1, least=15)
    found = []
    for name in dict.fromkeys(row["collective"] for row in rows):
        trial = _trial(comm, name, max(SIZES[transport]))
        tuning.use(comm, profile)
        for nbytes in dict.fromkeys(row["bytes"] for row in rows if row["collective"] == name):
            same = [row for row in rows if (row["collective"], row["bytes"]) == (name, nbytes)]
            count = trial.collective.count(nbytes, comm.size, trial.dtype.size)
            tuned = _run_by_table(profile, transport, comm.size, name, count * trial.dtype.size)
            choice = _first_choice(same, tuned or trial.plan(count, None).algorithm)
            comm.set_algorithm(None)
            for which, ratio, bar in CHOICES:
                if which not in choice or choice.get(ratio, float("inf")) <= bar:
                    continue
                times = measure(trial, count, [choice[which], choice["best"]], effort, False, rounds=15)
                if ratio in choice:
                    choice.setdefault("first", {})[ratio] = choice[ratio]
                choice[ratio] = times[choice[which]].time_us.median / times[choice["best"]].time_us.median
            found.append(choice)
    return found


def _first_choice(rows: list[dict[str, Any]], tuned: str) -> dict[str, Any]:
    """Of the rows of one call, the fastest, and the two choices over it as far as they were measured."""
    best = min(rows, key=lambda row: float(row["measured_us"]))
    choice = {key: best[key] for key in ("collective", "ranks", "bytes")}
    choice |= {"best": best["algorithm"], "chosen": tuned}
    for row in rows:
        if row["untuned"]:
            choice["untuned"] = row["algorithm"]
    for which, ratio, _ in CHOICES:
        for row in rows:
            if row["algorithm"] == choice.get(which):
                choice[ratio] = row["measured_us"] / best["measured_us"]
    return choice


def _run_by_table(profile: dict[str, Any], transport: str, ranks: int, collective: str, nbytes: int) -> str | None:
    """What the tuned table has for a call of this size; None: nothing."""
    from paceline import tuning

    for setting in profile["settings"]:
        if (setting["transport"], setting["ranks"]) != (transport, ranks):
            continue
        for row in setting["table"]:
            if row["collective"] == collective and row["from"] <= nbytes < row.get("below", sys.maxsize):
                return tuning.algorithm(row)
    return None


def _again(rows: list[dict[str, Any]], profile: str) -> list[dict[str, Any]]:
    """Measured rows, with what this profile predicts and how far it is off."""
    from paceline.prediction import predict

    asked: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if " " not in row["algorithm"]:
            asked.setdefault((row["collective"], row["transport"], row["ranks"], row["algorithm"]), []).append(row)
    found = [{**row, "predicted_us": None, "error": None} for row in rows if " " in row["algorithm"]]
    for (collective, transport, ranks, algorithm), same in asked.items():
        answer = predict({"collective": collective, "profile": profile, "transport": transport, "ranks": ranks,
                          "algorithm": algorithm, "sizes": [row["bytes"] for row in same]})  # fmt: skip
        for row, predicted in zip(same, answer["rows"], strict=True):
            us = predicted["time_us"]
            found.append({**row, "predicted_us": us, "error": abs(us / row["measured_us"] - 1)})
    return found


def _typical(passes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the passes' rows of one call a row with what counts of them, and the times of all passes."""
    from paceline.command.pass_times import typical

    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in passes:
        key = (row["collective"], row["algorithm"], row["ranks"], row["bytes"])
        before = rows.setdefault(key, {**row, "passes_us": []})
        before["passes_us"].append(row["measured_us"])
        before["measured_us"] = typical(before["passes_us"])
    return [*rows.values()]


def _quantile(values: list[float], share: float) -> float:
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def _document(rows: list[dict[str, Any]], calibrated: list[int], choices: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [row["error"] for row in rows if row["error"] is not None]
    return {
        "rows": rows,
        "median_error": _quantile(errors, 0.5),
        "p90_error": _quantile(errors, 0.9),
        "halves": _halves(rows),
        "calibrated_ranks": calibrated,
        "choices": choices,
    }


def _halves(rows: list[dict[str, Any]]) -> list[float]:
    """How far what counts of every other pass is from that of the rest: median and 90th percentile."""
    from paceline.command.pass_times import apart

    found = apart(row.get("passes_us", []) for row in rows)
    return [_quantile(found, 0.5), _quantile(found, 0.9)]


def _report(document: dict[str, Any]) -> str:
    rows, choices = [row for row in document["rows"] if row["error"] is not None], document["choices"]
    lines = [
        f"{'':<32} {'error':>15}   {'tuned choice':>15}   {'untuned choice':>15}   over the fastest",
        f"{'collective':<15} {'ranks':>5} {'rows':>5}    {'median':>7} {'p90':>7}"
        f"   {'median':>7} {'worst':>7}   {'median':>7} {'worst':>7}",
    ]
    for name, ranks in dict.fromkeys((row["collective"], row["ranks"]) for row in rows):
        errors = [row["error"] for row in rows if (row["collective"], row["ranks"]) == (name, ranks)]
        line = (
            f"{name:<15} {ranks:>5} {len(errors):>5}    {_quantile(errors, 0.5):>7.1%} {_quantile(errors, 0.9):>7.1%}"
        )
        for ratio in ("ratio", "untuned_ratio"):
            ratios = [
                row[ratio] for row in choices if (row["collective"], row["ranks"]) == (name, ranks) and ratio in row
            ]
            line += f"   {_quantile(ratios, 0.5):>7.3f} {max(ratios):>7.3f}" if ratios else f"   {'-':>7} {'-':>7}"
        lines.append(line + ("" if ranks in document["calibrated_ranks"] else "   ranks not calibrated"))
    worst = sorted(rows, key=lambda row: -float(row["error"]))[:10]
    lines += ["the ten worst:"]
    lines += [
        f"  {row['collective']} {row['algorithm']} {row['ranks']} ranks {row['bytes']} B: "
        f"{row['predicted_us']:.1f} predicted, {row['measured_us']:.1f} us measured"
        for row in worst
    ]
    for which, ratio, bar in CHOICES:
        taken = sorted((choice for choice in choices if ratio in choice), key=lambda choice: -choice[ratio])
        if not taken:
            continue  # nothing was measured: --again
        within = sum(choice[ratio] <= bar for choice in taken)
        again = sum(ratio in choice.get("first", {}) for choice in taken)
        lines.append(f"{which}: {within} of {len(taken)} within {bar - 1:.0%} of the fastest, {again} measured again; "
                     "the worst:")  # fmt: skip
        lines += [
            f"  {choice['collective']} {choice['ranks']} ranks {choice['bytes']} B: "
            f"{choice[which]} takes {choice[ratio]:.2f} times as long as {choice['best']}"
            for choice in taken[:3]
        ]
    lines.append(f"all: median {document['median_error']:.1%}, p90 {document['p90_error']:.1%}; "
                 f"halves {document['halves'][0]:.1%}, {document['halves'][1]:.1%} apart")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
