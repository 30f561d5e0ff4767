"""What bench/prediction.py makes of its measurements."""

from __future__ import annotations

from typing import Any

import pytest
from bench_script import load


@pytest.fixture(scope="module")
def prediction() -> Any:
    return load("prediction")


def row(algorithm: str, measured: float, untuned: bool = False) -> dict[str, Any]:
    return {
        "collective": "broadcast",
        "algorithm": algorithm,
        "ranks": 4,
        "bytes": 1000,
        "measured_us": measured,
        "untuned": untuned,
    }


def test_the_geometric_mean_of_the_passes_counts(prediction: Any) -> None:
    times = {"direct": (12.0, 9.0, 16.0), "ring": (20.0, 60.0, 25.0)}
    passes = [row(name, times[name][number]) for number in range(3) for name in times]
    direct, ring = prediction._typical(passes)
    assert direct["measured_us"] == pytest.approx(12.0)
    assert ring["measured_us"] == pytest.approx(30_000 ** (1 / 3))
    assert prediction._halves([direct, ring]) == [pytest.approx(0.6273, abs=1e-4)] * 2


def test_halves_are_every_other_pass(prediction: Any) -> None:
    rows = [{"passes_us": [10.0, 12.0, 14.0, 11.0]}, {"passes_us": [20.0]}]
    assert prediction._halves(rows) == [pytest.approx((140 / 132) ** 0.5 - 1)] * 2


def test_a_choice_is_compared_with_the_fastest_as_far_as_it_was_measured(prediction: Any) -> None:
    rows = [row("direct", 10.0), row("ring", 10.6), row("chain", 13.0, untuned=True)]
    choice = prediction._first_choice(rows, "ring")
    assert (choice["best"], choice["chosen"], choice["untuned"]) == ("direct", "ring", "chain")
    assert (choice["ratio"], choice["untuned_ratio"]) == (pytest.approx(1.06), pytest.approx(1.3))
    assert "ratio" not in prediction._first_choice(rows, "ring chunk=512")


def test_the_report_counts_the_choices_within_their_bars(prediction: Any) -> None:
    rows = [
        row("direct", 10.0) | {"predicted_us": 11.0, "error": 0.1},
        *prediction._again([row("ring chunk=512", 9.0, untuned=True)], ""),
    ]
    assert rows[1]["predicted_us"] is None and rows[1]["error"] is None
    choice = prediction._first_choice(rows, "direct") | {"ratio": 1.04, "first": {"ratio": 1.11}}
    document = prediction._document(rows, [4], [choice])
    assert (document["median_error"], document["p90_error"]) == (0.1, 0.1)
    report = prediction._report(document)
    assert "chosen: 1 of 1 within 5% of the fastest, 1 measured again" in report
    assert "untuned: 1 of 1 within 20% of the fastest, 0 measured again" in report
