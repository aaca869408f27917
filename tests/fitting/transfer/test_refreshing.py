"""Weights of a machine that has changed: groups are scaled, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from countperf.fitting.design import Observation
from countperf.fitting.transfer.calibrated import TransferFit, fit_definition
from countperf.fitting.transfer.document import weights_document
from countperf.fitting.transfer.penalised import LogPrior
from countperf.fitting.transfer.refreshing import (
    changes,
    groups_of,
    refreshed,
    relative_to_old,
    scaled,
)
from countperf.models.definition import ModelDefinition
from countperf.models.terms import Term
from tests.fitting.transfer.builders import case
from tests.models.builders import make_device

MODEL = ModelDefinition(
    name="made-up",
    derived={"load_beyond_llc": "8*gmem_load_64_stride1"},
    terms={
        "launch": Term(charged=("launches",)),
        "work": Term(charged=("flop.add.f32", "flop.mul.f32")),
        "traffic": Term(charged=("load_beyond_llc",)),
    },
    expression="launch + work + traffic",
)
OLD = {
    "launches": 1e-5,
    "flop.add.f32": 1e-9,
    "flop.mul.f32": 2e-9,
    "gmem.load.64.stride1": 8e-9,
}
KERNELS = (
    {"flop.add.f32": 100_000},
    {"flop.mul.f32": 100_000},
    {"gmem.load.64.stride1": 1_000_000},
    {"gmem.load.64.stride1": 100_000, "flop.add.f32": 300_000},
    {"gmem.load.64.stride1": 300_000, "flop.mul.f32": 200_000},
    {},
)


def _cases(weights: dict[str, float]) -> list[Observation]:
    return [case(f"k{i}/1", counts, weights) for i, counts in enumerate(KERNELS)]


def _fit(weights: dict[str, float]) -> TransferFit:
    def prior_of(columns: object, guess: object) -> LogPrior:
        del columns, guess
        mean = np.log([1e-5, 1e-9, 1e-9, 1e-9])
        return LogPrior(mean=mean, covariance=np.diag(np.full(4, 4.0)))

    return fit_definition(_cases(weights), MODEL, (), prior_of, error=0.05)


def test_a_change_of_memory_scales_the_weights_of_memory() -> None:
    fitted = _fit(OLD)
    document = weights_document(
        fitted,
        _cases(OLD),
        device=make_device(),
        protocol="test",
        recorded_at="",
        expected=None,
    )
    slower = {**OLD, "gmem.load.64.stride1": 1.6 * OLD["gmem.load.64.stride1"]}

    outcome = refreshed(document, _cases(slower))
    new = scaled(document, outcome)

    factors = changes(outcome, outcome.design.function.columns)
    assert factors["memory"] == pytest.approx(1.6, rel=0.03)
    assert factors["work on chip"] == pytest.approx(1.0, abs=0.03)
    old, now = document.by_feature, new.by_feature
    assert now["load_beyond_llc"].value_s / old["load_beyond_llc"].value_s == pytest.approx(
        1.6, rel=0.03
    )
    error = old["load_beyond_llc"].standard_error_s
    assert error is not None
    assert now["load_beyond_llc"].standard_error_s == pytest.approx(1.6 * error, rel=0.03)
    assert new.covariance_s2 is not None


def test_groups_are_told_by_the_names_of_features() -> None:
    columns = (
        ("launch", "launches"),
        ("cycles", "code.cycles_loop"),
        ("traffic", "load_beyond_l2"),
        ("traffic", "store_beyond_llc"),
        ("traffic", "load_lines_out_of_reach"),
    )

    found = {name: members.tolist() for name, members in groups_of(columns).items()}

    assert found == {
        "launches": [1, 0, 0, 0, 0],
        "work on chip": [0, 1, 0, 0, 0],
        "last-level cache": [0, 0, 1, 0, 0],
        "memory": [0, 0, 0, 1, 0],
        "address translation": [0, 0, 0, 0, 1],
    }


def test_intervals_of_a_calibration_grow_where_its_device_is_unlike_others() -> None:
    from countperf.fitting.transfer.prior import ExpectedErrors

    fitted = _fit({**OLD, "flop.mul.f32": 2e-8})
    expected = ExpectedErrors(
        kernels=6,
        log_error_90=0.3,
        log_error_95=0.4,
        typical_error=0.1,
        typical_held_out_error=1e-4,
    )

    document = weights_document(
        fitted, _cases(OLD), device=make_device(), protocol="t", recorded_at="", expected=expected
    )

    assert document.quality is not None
    assert document.quality.calibration is not None
    assert document.quality.calibration.log_errors_90 == pytest.approx(0.9)


def test_what_the_model_is_off_by_is_no_change() -> None:
    document = weights_document(
        _fit(OLD), _cases(OLD), device=make_device(), protocol="t", recorded_at="", expected=None
    )
    # every kernel takes 1.5 times what the weights say, before and now; memory is 1.6 times slower
    slower = {**OLD, "gmem.load.64.stride1": 1.6 * OLD["gmem.load.64.stride1"]}
    before = {each.name: 1.5 * each.time_s for each in _cases(OLD)}
    now = [replace(each, time_s=1.5 * each.time_s) for each in _cases(slower)]

    outcome = refreshed(document, relative_to_old(document, now, before))

    factors = changes(outcome, outcome.design.function.columns)
    assert factors["memory"] == pytest.approx(1.6, rel=0.03)
    assert factors["work on chip"] == pytest.approx(1.0, abs=0.03)


def test_a_case_without_an_old_time_counts_for_less() -> None:
    document = weights_document(
        _fit(OLD), _cases(OLD), device=make_device(), protocol="t", recorded_at="", expected=None
    )

    (first, *_) = relative_to_old(document, _cases(OLD), {})

    assert first.time_s == _cases(OLD)[0].time_s
    assert first.noise == pytest.approx(0.4)
