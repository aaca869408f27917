"""Predictions: what follows from their fields."""

from __future__ import annotations

import numpy as np

from countperf.predictions import Prediction, Verdict, largest_first

PASSED = Verdict(name="sign", passed=True, message="fine")
FAILED = Verdict(name="extrapolation", passed=False, message="far", remedy="measure")


def _prediction(*, missing: tuple[str, ...] = ()) -> Prediction:
    return Prediction(
        kernel="k",
        device="d",
        model="linear",
        parameters={"n": 8},
        time_s=1.0,
        interval_s=None,
        breakdown={"launches": 1.0},
        missing=missing,
        verdicts=(PASSED, FAILED),
    )


def test_a_prediction_is_complete_unless_something_is_missing() -> None:
    assert _prediction().complete
    assert not _prediction(missing=("flop.div.f64",)).complete


def test_caveats_are_the_verdicts_that_failed() -> None:
    assert _prediction().caveats == (FAILED,)


def test_largest_first_puts_negative_parts_last_and_breaks_ties_by_name() -> None:
    parts = {"b": 1.0, "a": 1.0, "c": -5.0, "d": np.array([1.0, 2.0])}

    assert list(largest_first(parts)) == ["d", "a", "b", "c"]
