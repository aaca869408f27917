"""Families left out, scatter, and evaluation on test kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from countperf.errors import FitError, FitNotConvergedError
from countperf.fitting.design import Observation
from countperf.fitting.estimate import estimate, recipe_of
from countperf.fitting.fit import fit
from countperf.fitting.judging import evaluate
from countperf.fitting.leaving_out import HeldOutCase, leave_families_out, log_scatter
from countperf.metrics import Evaluation
from countperf.models.shipped import LINEAR, fitted_model
from countperf.workflow import fitting
from tests.fitting.builders import (
    KERNELS,
    TEST_KERNEL,
    TRUE_WEIGHTS,
    MadeUpKernel,
    measure,
    observe_all,
)


def _left_out(cases: Sequence[Observation]) -> tuple[HeldOutCase, ...]:
    recipe = recipe_of(LINEAR)
    return leave_families_out(cases, estimate(cases, LINEAR, recipe), recipe)


def test_a_family_is_predicted_from_the_others_where_they_determine_it() -> None:
    held_out = {case.name: case for case in _left_out(observe_all())}

    # loads at stride 1 occur nowhere else; "pairs" has the only loads at stride 2
    undetermined = {case.family for case in held_out.values() if case.predicted_s is None}
    assert undetermined == {"stride1", "stride2", "arithmetic"}
    assert [held_out[f"empty/n={n}"].predicted_s for n in (1, 2)] == pytest.approx([4e-6, 4e-6])
    assert len(held_out) == 17


def test_kernels_that_only_launch_are_known_where_machine_code_is_counted() -> None:
    code = {"code.all": 12, "code.other": 12, "spill.all.load": 1}
    cases = [replace(case, counts={**case.counts, **code}) for case in observe_all()]

    held_out = _left_out(cases)

    assert {case.family for case in held_out if case.overhead_only} == {"empty"}


def test_a_fit_that_stops_early_says_so() -> None:
    cases = [
        replace(case, time_s=case.time_s * (1 + place % 3))
        for place, case in enumerate(observe_all())
    ]
    model = fitted_model("linear").model_copy(update={"residual": "log", "loss": "soft_l1"})
    whole = estimate(cases, model, recipe_of(model))
    hasty = recipe_of(model, max_evaluations=1)

    with pytest.raises(FitNotConvergedError, match="without the family"):
        leave_families_out(cases, whole, hasty)


def test_a_family_that_needs_weights_apart_is_not_predicted() -> None:
    kernels = (
        MadeUpKernel(
            name="both",
            family="both",
            counts={"flop.add.f32": "[n] -> { 2n }", "gmem.load.32.stride1": "[n] -> { n }"},
        ),
        MadeUpKernel(name="one", family="one", counts={"flop.add.f32": "[n] -> { n }"}),
        MadeUpKernel(
            name="same",
            family="same",
            counts={"flop.add.f32": "[n] -> { 20n }", "gmem.load.32.stride1": "[n] -> { 10n }"},
        ),
    )
    cases = [case for kernel in kernels for case in kernel.observe()]

    held_out = _left_out(cases)

    assert [case.predicted_s is None for case in held_out if case.family == "one"] == [True] * 3
    assert all(
        case.relative_error == pytest.approx(0, abs=1e-9)
        for case in held_out
        if case.family == "both"
    )


def test_a_single_family_cannot_be_left_out() -> None:
    held_out = _left_out(KERNELS[0].observe())

    assert [case.predicted_s for case in held_out] == [None] * 3


def test_scatter_is_the_standard_deviation_of_normal_logarithms() -> None:
    logs = np.random.default_rng(7).normal(0, 0.3, 20001)

    scatter = log_scatter(np.exp(logs).tolist(), [1.0] * logs.size)

    # the median of 20001 absolute values is known to 1 %
    assert scatter == pytest.approx(0.3, rel=0.03)


def test_scatter_takes_impossible_times_for_bad_ones_and_needs_one() -> None:
    assert log_scatter([-1.0, 0.0, 1e9], [1.0, 1.0, 1.0]) == pytest.approx(
        np.log(1000) / 0.6744897501960817
    )
    assert log_scatter([], []) is None


def test_test_kernels_are_evaluated_with_weights_that_have_not_seen_them() -> None:
    measurements = measure((*KERNELS, TEST_KERNEL))
    weights = fit(measurements).weights

    evaluation = evaluate(weights, measurements.select(lambda m: m.purpose == "test"))

    assert evaluation.device == "pocl-testchip"
    assert [case.parameters["n"] for case in evaluation.cases] == list(TEST_KERNEL.sizes)
    assert evaluation.overall().value == pytest.approx(0, abs=1e-9)
    assert all(case.complete for case in evaluation.cases)


def test_what_judges_fits_is_never_fitted_and_evaluated_by_purpose(tmp_path: Path) -> None:
    slow = {name: 3 * weight for name, weight in TRUE_WEIGHTS.items()}
    unseen = MadeUpKernel(
        name="unseen", family="unseen", purpose="application", counts=TEST_KERNEL.counts
    )
    known = measure((*KERNELS, TEST_KERNEL))
    both = replace(known, measurements=(*measure((unseen,), weights=slow), *known.measurements))
    weights = fit(known).weights

    assert fit(both).weights.weights == weights.weights
    evaluation = fitting.evaluate(both, weights=weights)
    parts = evaluation.by_purpose()
    assert list(parts) == ["test", "application"]
    assert parts["test"].overall().value == pytest.approx(0, abs=1e-9)
    assert parts["application"].worst_factors() == {"unseen": pytest.approx(3)}
    assert parts["application"].overall().value == pytest.approx(2 / 3)
    only = fitting.evaluate(both, weights=weights, purposes=["test"])
    assert only.cases == parts["test"].cases
    path = tmp_path / "evaluation.json"
    evaluation.write_file(path)
    assert Evaluation.read_file(path) == evaluation


def test_an_evaluation_marks_what_has_no_weight() -> None:
    kernel = MadeUpKernel(
        name="divides", family="test", purpose="test", counts={"flop.div.f32": "[n] -> { n }"}
    )
    weights = fit(measure()).weights
    measured = measure((kernel,), weights={"launches": 4e-6, "flop.div.f32": 1e-10})

    evaluation = evaluate(weights, measured)

    assert [case.complete for case in evaluation.cases] == [False] * 3


def test_kernels_that_were_not_counted_cannot_be_evaluated() -> None:
    weights = fit(measure()).weights

    with pytest.raises(FitError, match="no counted measurement"):
        evaluate(weights, measure((TEST_KERNEL,), uncounted=["stencil"]))
