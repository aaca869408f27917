"""Fits of sums end at the same place wherever they begin, with cases that cannot be among them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from countperf.fitting.design import Observation, build_design
from countperf.fitting.estimate import problem_of, recipe_of
from countperf.fitting.fit import observations_of
from countperf.fitting.solve import solve
from countperf.models.definition import CODE, ModelDefinition
from countperf.models.weights import WeightSet
from tests.shipped import FITS, shipped_measurements

SAME = 1e-3
TRUTH = {f"flop.{kind}.f{bits}": 10.0**-i for kind, bits, i in [
    ("add", 32, 11), ("mul", 32, 10), ("div", 32, 9), ("add", 64, 11), ("mul", 64, 12),
    ("div", 64, 8),
]}  # fmt: skip
MODEL = ModelDefinition.from_object(
    {
        "format": "countperf-model",
        "version": 3,
        "name": "sum",
        "residual": "log",
        "loss": "soft_l1",
        "loss_scale": 0.3,
        "terms": {"cost": ["launches", "flop.*.*"]},
    }
)


def _cases(impossible: int) -> list[Observation]:
    """Times of known weights, off by 5 %; some of the cases have 1e9 times the counts."""
    random = np.random.default_rng(7)
    cases: list[Observation] = []
    for i in range(400):
        counts = {
            name: int(10 ** random.uniform(-6.5, -3) / weight)
            for name, weight in TRUTH.items()
            if random.random() < 0.5
        }
        time_s = 5e-6 + sum(TRUTH[name] * count for name, count in counts.items())
        if i < impossible:
            counts = {name: 10**9 * count for name, count in counts.items()}
        cases.append(
            Observation(
                name=f"c{i}",
                kernel=f"k{i}",
                family=f"f{i % 20}",
                counts={"launches": 1, **counts},
                time_s=time_s * float(np.exp(0.05 * random.normal())),
            )
        )
    return cases


def test_known_weights_are_found_from_any_start() -> None:
    design = build_design(_cases(0), MODEL)
    problem = problem_of(design, recipe_of(MODEL))
    truth = np.array([TRUTH.get(name, 5e-6) for name in design.names])
    random = np.random.default_rng(1)

    found = solve(problem)
    others = [solve(problem, truth * np.exp(random.normal(0, 2, truth.size))) for _ in range(5)]

    assert found.converged
    assert found.coefficients == pytest.approx(truth, rel=0.03)
    for other in others:
        assert other.cost == pytest.approx(found.cost, rel=SAME)


def test_cases_that_cannot_be_do_not_keep_fits_from_known_weights() -> None:
    design = build_design(_cases(12), MODEL)
    problem = problem_of(design, recipe_of(MODEL))
    truth = np.array([TRUTH.get(name, 5e-6) for name in design.names])

    for start in problem.starts():
        found = solve(problem, start / problem.scale)
        assert found.converged
        assert found.coefficients == pytest.approx(truth, rel=0.05)


def test_a_fit_begins_anew_until_two_ends_agree() -> None:
    design = build_design(_cases(0), MODEL)
    problem = problem_of(design, recipe_of(MODEL))

    assert len(solve(problem).ends) == 2
    assert len(solve(problem, np.ones(len(design.names))).ends) == 1


@cache
def _read_on_zen3() -> tuple[tuple[Observation, ...], tuple[Observation, ...]]:
    """Return a quarter of the cases whose code was read, and those that it cannot have run."""
    measured = [
        line
        for line in shipped_measurements("pocl-epyc-zen3")
        if line.purpose == "measurement" and line.code is not None
    ]
    wrong = [m for m in measured if (m.code or {}).get(f"{CODE}all", 0) > 1e12 * m.time_s]
    found = observations_of([*measured[::4], *wrong])
    return (
        tuple(case for case in found if case.has_code),
        tuple(case for case in found[-len(wrong) :] if not case.has_code),
    )


@pytest.mark.parametrize("with_impossible", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_shipped_store_is_fitted_alike_from_any_start(with_impossible: bool) -> None:
    cases, impossible = _read_on_zen3()
    assert len(impossible) == 15
    model = WeightSet.read_file(FITS / "pocl-epyc-zen3" / "compiled.json").definition
    alone = solve(problem_of(build_design(cases, model), recipe_of(model)))
    every = cases + impossible if with_impossible else cases
    problem = problem_of(build_design(every, model), recipe_of(model))

    ends = [solve(problem, start / problem.scale) for start in problem.starts()]

    best = solve(problem)
    assert all(end.converged for end in (best, *ends))
    assert [end.cost for end in ends] == pytest.approx([best.cost] * len(ends), rel=SAME)
    off, without = (np.median(np.abs(e.residuals[: len(cases)])) for e in (best, alone))
    assert off == pytest.approx(without, rel=0.05)
