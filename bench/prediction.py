"""Prediction against measurement: every algorithm of four collectives, at sizes that the calibration did not see.

    python bench/prediction.py                              shared memory: 2 ranks, and more where there are CPUs
    python bench/prediction.py --ranks 4,6,8,12,16          on a machine with 16 CPUs
    python bench/prediction.py --transport tcp              4 and 8 nodes on shaped links (root, iproute2; Linux)

First `paceline tune` makes a profile (--profile F: take this one), of --calibrate's numbers of ranks. Then, with that
profile, each algorithm's time is predicted (paceExplain) and measured. What is measured is the call's slowest rank:
the median over the calls of a pass; of several passes, each with ranks started anew, the least, since a disturbance
only adds. The calibration's own estimator is the same.

The nodes of --transport tcp are network namespaces around a bridge. Each sends and receives at 1 Gbit/s, the last one
at 200 Mbit/s (token buckets, `tc`), so a ring is as slow as its slowest link.

Writes {"rows":[{"collective","algorithm","transport","ranks","bytes","predicted_us","measured_us","error"}],
"median_error","p90_error", "choices":[...]}. error = |predicted / measured - 1|; "choices" compares, for each size,
what the tuned table would run with the fastest measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COLLECTIVES = ("broadcast", "all_reduce", "all_gather", "reduce_scatter")
# Between the sizes of the calibration, which are powers of two.
SIZES = {
    "shm": [24, 200, 1000, 5000, 20_000, 80_000, 300_000, 1_000_000, 5_000_000, 20_000_000],
    "tcp": [5000, 20_000, 80_000, 300_000, 1_200_000, 3_000_000],
}
PASSES = 3


def main() -> int:
    chosen = _arguments()
    if chosen.side:
        return _side(chosen)
    cpus = len(os.sched_getaffinity(0))
    over_tcp = chosen.transport == "tcp"
    ranks = chosen.ranks or ([4, 8] if over_tcp else [n for n in (2, 3, 4, 6, 8, 12, 16) if n <= cpus])
    calibrated = chosen.calibrate or ([4, 8] if over_tcp else [n for n in (2, 4, 8, 16) if n <= cpus])
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(chosen.profile or Path(folder) / "profile.json").absolute()
        start = _in_namespaces if over_tcp else _here
        if not profile.exists():
            seconds = str(chosen.seconds)
            if over_tcp:
                for count in calibrated:
                    words = ["-m", "paceline", "tune", "--output", str(profile), "--seconds", seconds]
                    start(count, [*words, "--largest", "512K", "--collectives", ",".join(COLLECTIVES)], "off")
            else:
                counts = ",".join(map(str, calibrated))
                words = ["tune", "-n", counts, "--transport", "shm", "--seconds", seconds, "--output", str(profile)]
                words += ["--collectives", ",".join(COLLECTIVES)]
                subprocess.run([sys.executable, "-m", "paceline", *words], check=True)
        passes: list[dict[str, Any]] = []
        for _ in range(PASSES):
            for count in ranks:
                result = Path(folder) / "side.json"
                words = [str(Path(__file__).resolve()), "--side", str(result), "--transport", chosen.transport]
                start(count, words, str(profile))
                passes += json.loads(result.read_text())
    rows = _least(passes)
    document = _document(rows, calibrated)
    print(_report(document))
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    def counts(text: str) -> list[int]:
        return [int(item) for item in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=("shm", "tcp"), default="shm")
    parser.add_argument("--ranks", type=counts, metavar="LIST")
    parser.add_argument("--calibrate", type=counts, metavar="LIST", help="numbers of ranks that tune measures")
    parser.add_argument("--seconds", type=int, default=150, help="of tune's measuring")
    parser.add_argument("--profile", metavar="F", help="the profile: taken if it exists, else made there")
    parser.add_argument("--json", metavar="F")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    return parser.parse_args()


def _here(ranks: int, words: list[str], profile: str) -> None:
    from paceline.launch import launch

    environment = dict(os.environ, PACELINE_TUNING=profile, PACELINE_TRANSPORT="shm")
    if launch([sys.executable, *words], ranks, environment=environment) != 0:
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
    from paceline.command.bench import algorithm_table
    from paceline.command.collectives import COLLECTIVES as TABLE
    from paceline.command.measure import Effort, measure
    from paceline.command.pattern import Pattern
    from paceline.command.trial import HostTrial
    from paceline.datatypes import DATA_TYPES

    dtype = DATA_TYPES["float32"]
    rows: list[dict[str, Any]] = []
    with paceline.init() as comm:
        for name in COLLECTIVES:
            collective = TABLE[name]
            counts = [collective.count(size, comm.size, dtype.size) for size in SIZES[chosen.transport]]
            trial = HostTrial(comm, collective, Pattern(dtype, "sum", comm.size), 0, max(counts))
            names = [row["name"] for row in algorithm_table() if name in row["collectives"]]
            for count in counts:
                effort = Effort(seconds=0.02 if chosen.transport == "shm" else 0.1)
                for row in measure(trial, count, names, effort, False).values():
                    predicted = trial.plan(count, row.algorithm).predicted_us
                    comm.set_algorithm(None)
                    rows.append({"collective": name, "algorithm": row.algorithm, "transport": chosen.transport,
                                 "ranks": comm.size, "bytes": row.bytes, "predicted_us": predicted,
                                 "measured_us": row.time_us.median, "chosen": row.chosen})  # fmt: skip
        if comm.rank == 0:
            Path(chosen.side).write_text(json.dumps(rows))
        comm.barrier()
    return 0


def _least(passes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the passes' rows of one call the fastest, with its error."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in passes:
        key = (row["collective"], row["algorithm"], row["ranks"], row["bytes"])
        if key not in rows or row["measured_us"] < rows[key]["measured_us"]:
            rows[key] = row
    for row in rows.values():
        row["error"] = abs(row["predicted_us"] / row["measured_us"] - 1)
    return [*rows.values()]


def _quantile(values: list[float], share: float) -> float:
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def _document(rows: list[dict[str, Any]], calibrated: list[int]) -> dict[str, Any]:
    errors = [row["error"] for row in rows]
    choices = []
    for key in dict.fromkeys((row["collective"], row["ranks"], row["bytes"]) for row in rows):
        same = [row for row in rows if (row["collective"], row["ranks"], row["bytes"]) == key]
        best = min(same, key=lambda row: float(row["measured_us"]))
        taken = next((row for row in same if row["chosen"]), best)
        choices.append({"collective": key[0], "ranks": key[1], "bytes": key[2], "chosen": taken["algorithm"],
                        "best": best["algorithm"], "ratio": taken["measured_us"] / best["measured_us"]})  # fmt: skip
    return {
        "rows": rows,
        "median_error": _quantile(errors, 0.5),
        "p90_error": _quantile(errors, 0.9),
        "calibrated_ranks": calibrated,
        "choices": choices,
    }


def _report(document: dict[str, Any]) -> str:
    rows = document["rows"]
    lines = [f"{'collective':<15} {'ranks':>5} {'rows':>5} {'median':>7} {'p90':>7}   choice over best: median, worst"]
    for name, ranks in dict.fromkeys((row["collective"], row["ranks"]) for row in rows):
        errors = [row["error"] for row in rows if (row["collective"], row["ranks"]) == (name, ranks)]
        ratios = [row["ratio"] for row in document["choices"] if (row["collective"], row["ranks"]) == (name, ranks)]
        seen = "" if ranks in document["calibrated_ranks"] else "   ranks not calibrated"
        lines.append(
            f"{name:<15} {ranks:>5} {len(errors):>5} {_quantile(errors, 0.5):>7.1%} {_quantile(errors, 0.9):>7.1%}"
            f"   {_quantile(ratios, 0.5):.3f} {max(ratios):.3f}{seen}"
        )
    worst = sorted(rows, key=lambda row: -float(row["error"]))[:10]
    lines += ["the ten worst:"]
    lines += [
        f"  {row['collective']} {row['algorithm']} {row['ranks']} ranks {row['bytes']} B: "
        f"{row['predicted_us']:.1f} predicted, {row['measured_us']:.1f} us measured"
        for row in worst
    ]
    lines.append(f"all: median {document['median_error']:.1%}, p90 {document['p90_error']:.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
