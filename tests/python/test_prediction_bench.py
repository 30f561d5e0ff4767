"""What bench/prediction.py makes of its measurements."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "prediction.py"


@pytest.fixture(scope="module")
def prediction() -> Any:
    specification = importlib.util.spec_from_file_location("prediction_bench", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def row(algorithm: str, measured: float, chosen: bool = False, untuned: bool = False) -> dict[str, Any]:
    return {
        "collective": "broadcast",
        "algorithm": algorithm,
        "ranks": 4,
        "bytes": 1000,
        "predicted_us": 11.0,
        "measured_us": measured,
        "chosen": chosen,
        "untuned": untuned,
    }


def test_the_median_of_the_passes_counts(prediction: Any) -> None:
    times = {"direct": (12.0, 10.0, 7.0), "ring": (20.0, 90.0, 25.0)}
    passes = [row(name, times[name][number]) for number in range(3) for name in times]
    direct, ring = prediction._typical(passes)
    assert (direct["measured_us"], direct["error"]) == (10.0, pytest.approx(0.1))
    assert ring["measured_us"] == 25.0
    assert prediction._halves([direct, ring]) == [pytest.approx(0.7778, abs=1e-4)] * 2


def test_halves_are_every_other_pass(prediction: Any) -> None:
    rows = [{"passes_us": [10.0, 12.0, 14.0, 11.0]}, {"passes_us": [20.0]}]
    assert prediction._halves(rows) == [pytest.approx(1 / 11), pytest.approx(1 / 11)]


def test_a_choice_beyond_its_bar_is_measured_again_beside_the_fastest(prediction: Any) -> None:
    rows = prediction._with_errors(
        [row("direct", 10.0), row("ring", 10.6, chosen=True), row("chain", 11, untuned=True)]
    )
    choices = prediction._document(rows, [4])["choices"]
    assert [(one["ratio"], one["untuned_ratio"]) for one in choices] == [(pytest.approx(1.06), pytest.approx(1.1))]
    (doubt,) = prediction._doubts(choices, 4)
    assert (doubt["ratio"], doubt["runs"], doubt["bytes"]) == ("ratio", ["ring", "direct"], 1000)
    assert prediction._doubts(choices, 8) == []
    prediction._settle_doubts(choices, [{**doubt, "times_us": [10.2, 10.0]}])
    assert choices[0]["ratio"] == pytest.approx(1.02)
    assert choices[0]["first"] == {"ratio": pytest.approx(1.06)}
    document = prediction._document(rows, [4]) | {"choices": choices}
    assert "chosen: 1 of 1 within 5% of the fastest, 1 measured again" in prediction._report(document)
