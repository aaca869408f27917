"""Weights of a known device that has changed: groups move, and intervals follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import pytest

from countperf.execution.policy import ExecutionPolicy
from countperf.fitting.design import Observation
from countperf.fitting.leaving_out import held_out_figure
from countperf.fitting.transfer.calibrated import (
    TransferFit,
    fit_definition,
    predicted_by,
)
from countperf.fitting.transfer.changed import changed_prior, groups_of
from countperf.fitting.transfer.document import weights_document
from countperf.fitting.transfer.prior import ExpectedErrors, KnownDevice, KnownModel
from countperf.models.definition import ModelDefinition
from countperf.models.terms import Term
from countperf.models.validity import NORMAL_QUANTILES
from countperf.models.weights import WeightSet
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
)
OLD = {
    "launches": 1e-5,
    "flop.add.f32": 1e-9,
    "flop.mul.f32": 2e-9,
    "gmem.load.64.stride1": 8e-9,
}
COLUMNS = (
    ("launch", "launches"),
    ("work", "flop.add.f32"),
    ("work", "flop.mul.f32"),
    ("traffic", "load_beyond_llc"),
)
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


def _fit(cases: Sequence[Observation]) -> TransferFit:
    logs = tuple(math.log(each) for each in (1e-5, 1e-9, 2e-9, 1e-9))
    own = KnownDevice(
        device=make_device(), policy=ExecutionPolicy(width=8), logs=logs, variances=(0.01,) * 4
    )
    known = KnownModel(kind="structural", columns=COLUMNS, error=0.05, devices=(own,))
    prior_of = partial(changed_prior, known, own)
    return fit_definition(cases, MODEL, COLUMNS, prior_of, error=0.05)


def _document(fit: TransferFit, *, noise: float = 0.0, expected: bool = True) -> WeightSet:
    errors = ExpectedErrors(
        kernels=6,
        log_error_90=0.3,
        log_error_95=0.4,
        typical_error=0.1,
        typical_held_out_error=1e-4,
    )
    return weights_document(
        fit,
        _cases(OLD),
        device=make_device(),
        protocol="t",
        recorded_at="",
        expected=errors if expected else None,
        noise=noise,
    )


def test_a_change_of_memory_moves_the_weights_of_memory() -> None:
    slower = {**OLD, "gmem.load.64.stride1": 1.6 * OLD["gmem.load.64.stride1"]}

    found = _fit(_cases(slower)).estimate.solution.coefficients

    assert found == pytest.approx([1e-5, 1e-9, 2e-9, 1.6e-9], rel=0.03)


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


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("expected", [True, False])
def test_intervals_grow_where_a_device_is_unlike_others_and_by_noise(
    noise: float, *, expected: bool
) -> None:
    fit = _fit(_cases({**OLD, "flop.mul.f32": 2e-8}))
    quiet = _document(fit, expected=expected).quality
    noisy = _document(fit, expected=expected, noise=noise).quality

    assert quiet is not None
    assert quiet.calibration is not None
    assert noisy is not None
    assert noisy.calibration is not None
    if expected:
        assert quiet.calibration.log_errors_90 == pytest.approx(0.9)  # 3 times at most
    before, after = quiet.calibration.log_errors_90, noisy.calibration.log_errors_90
    assert after == pytest.approx(math.hypot(before, NORMAL_QUANTILES[0.9] * noise))


def test_weights_that_there_are_are_judged_by_the_cases_that_they_know() -> None:
    weights = _document(_fit(_cases(OLD)))
    slower = case("k5/1", {}, {**OLD, "launches": 2e-5})
    unknown = case("other/1", {"flop.div.f32": 10}, {**OLD, "flop.div.f32": 1e-9})

    assert held_out_figure(predicted_by(weights, _cases(OLD))).factor == pytest.approx(
        1.0, abs=0.02
    )
    found = predicted_by(weights, [slower, unknown])

    assert [each.name for each in found] == ["k5/1"]
    assert held_out_figure(found).factor == pytest.approx(2.0, rel=0.02)
