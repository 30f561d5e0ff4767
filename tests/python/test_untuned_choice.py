"""What the model chooses that was not tuned, against times that were measured before.

measured_times.json: by `bench/prediction.py --ranks 2,4,6,8,12,16 --passes 5 --times F` over shared memory, on a
machine with 32 CPUs and nothing else to do. Broadcasts to one rank that are the same by several names have one time. No
time is taken here: the file's are compared with each other.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paceline.prediction import predict

TIMES = json.loads(Path(__file__).with_name("measured_times.json").read_text())
WITHIN = 1.2


@pytest.mark.parametrize("ranks", sorted({row[1] for row in TIMES}))
@pytest.mark.parametrize("collective", sorted({row[0] for row in TIMES}))
def test_the_untuned_choice_is_nearly_the_fastest(collective: str, ranks: int) -> None:
    model = {"largest_chunk": 65536 if ranks <= 8 else 32768}  # as communicators in shared memory have it
    rows = [row for row in TIMES if row[:2] == [collective, ranks]]
    assert len(rows) >= 10
    for _, _, nbytes, measured in rows:
        answer = predict({"collective": collective, "model": model, "ranks": ranks, "sizes": [nbytes]})
        predicted = {row["algorithm"]: row["time_us"] for row in answer["rows"] if row["algorithm"] in measured}
        chosen = min(predicted, key=lambda algorithm: predicted[algorithm])
        fastest = min(measured, key=lambda algorithm: measured[algorithm])
        assert measured[chosen] <= WITHIN * measured[fastest], f"{nbytes} B: {chosen}, {fastest} is the fastest"
