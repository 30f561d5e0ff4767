"""What the model chooses that was not tuned, against times that were measured before.

measured_times.json: by `bench/prediction.py --times F` over shared memory: of 4 to 16 ranks the geometric mean of three
runs, of two on machines with 16 CPUs and one with 32; of 2 ranks that of a Xeon's and an EPYC's with two. Calls of two
ranks that are the same by several names have one time. All-gathers and all-reduces of 80 KB and more by `ring` have the
time of the last run alone, the only one since lines are taken over (docs/notes/cpu.md), brought to the others' speed by
the row's other algorithms. No time is taken here: the file's are compared with each other.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paceline.command.bench import algorithm_table
from paceline.prediction import predict

TIMES = json.loads(Path(__file__).with_name("measured_times.json").read_text())
# Of long messages on 3 and 4 ranks, the geometric mean of three machines (Emerald Rapids, 16 CPUs) where so few copy
# past the shared cache, where the communicator has this share (src/tuning/decision.cc).
TIMES_OF_FEW = json.loads(Path(__file__).with_name("measured_times_of_few.json").read_text())
COMMON_SHARE_OF_FEW = 0.6
PASSING_SHARE_OF_TWO = 0.3  # likewise (src/tuning/untuned.cc)
WITHIN = 1.2
# What the model does not know, and how far its choice is off there.
BEYOND = {
    ("all_reduce", 16, 5000): 1.45,  # recursive_doubling, whose messages of 5 to 12 KB take longer than those of 16
}


@pytest.mark.parametrize("ranks", sorted({row[1] for row in TIMES}))
@pytest.mark.parametrize("collective", sorted({row[0] for row in TIMES}))
def test_the_untuned_choice_is_nearly_the_fastest(collective: str, ranks: int) -> None:
    # As communicators in shared memory have it.
    model: dict[str, float] = {"largest_chunk": 131072 if ranks <= 8 else 65536}
    if ranks == 2:
        model["passing_share"] = PASSING_SHARE_OF_TWO
    rows = [row for row in TIMES if row[:2] == [collective, ranks]]
    assert len(rows) >= 10
    for _, _, nbytes, measured in rows:
        within = BEYOND.get((collective, ranks, nbytes), WITHIN)
        _check_choice(collective, ranks, nbytes, measured, model, within)


@pytest.mark.parametrize("collective, ranks, nbytes, measured", TIMES_OF_FEW)
def test_so_it_is_where_few_ranks_copy_past_the_cache(
    collective: str, ranks: int, nbytes: int, measured: dict[str, float]
) -> None:
    model = {"largest_chunk": 131072, "common_share": COMMON_SHARE_OF_FEW}
    _check_choice(collective, ranks, nbytes, measured, model, WITHIN)


def test_the_table_calls_measured_what_has_times_here() -> None:
    for collective in {row[0] for row in TIMES}:
        timed = {algorithm for row in TIMES if row[0] == collective for algorithm in row[3]}
        assert timed == {
            row["name"] for row in algorithm_table() if row["measured"] and collective in row["collectives"]
        }


def _check_choice(
    collective: str, ranks: int, nbytes: int, measured: dict[str, float], model: dict[str, float], within: float
) -> None:
    answer = predict({"collective": collective, "model": model, "ranks": ranks, "sizes": [nbytes]})
    measured_ones = {row["name"] for row in algorithm_table() if row["measured"]}
    predicted = {row["algorithm"]: row["time_us"] for row in answer["rows"] if row["algorithm"] in measured_ones}
    chosen = min(predicted, key=lambda algorithm: predicted[algorithm])
    assert chosen in measured, f"{nbytes} B: {chosen} is chosen, and its time is not known"
    fastest = min(measured, key=lambda algorithm: measured[algorithm])
    assert measured[chosen] <= within * measured[fastest], f"{nbytes} B: {chosen}, {fastest} is the fastest"
