from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from countperf.tuning.posterior import OFFSET_VARIANCE, PRIOR_FREEDOM, LogTimes, Posterior
from countperf.tuning.stopping import Rest, chance_of_better, regret_bound
from tests.tuning.spaces import make_space

SPACE = make_space()
CHOICES = list(SPACE.choices())
PREDICTED = np.linspace(1e-3, 2e-3, len(CHOICES))
SAMPLE = [int(place) for place in np.random.default_rng(3).permutation(len(CHOICES))]


def _posterior(**changes: Any) -> Posterior:
    return Posterior(SPACE, CHOICES, PREDICTED, **changes)


def test_before_anything_is_measured_predictions_stand_with_a_wide_interval() -> None:
    times = _posterior(prior_scatter=0.3).log_times()

    assert times.mean == pytest.approx(np.log(PREDICTED))
    assert times.scale == pytest.approx(0.3 * np.sqrt(OFFSET_VARIANCE + 1))
    assert times.freedom == PRIOR_FREEDOM


def test_a_common_factor_is_learnt() -> None:
    posterior = _posterior()
    for place in SAMPLE[:8]:
        posterior.add(place, 7 * PREDICTED[place])

    times = posterior.log_times()

    assert np.exp(times.mean) == pytest.approx(7 * PREDICTED, rel=0.1)
    assert times.scale.max() < 0.4


def test_the_effect_of_a_parameter_is_learnt() -> None:
    """Where "fancy" doubles the time, unmeasured variants are predicted so."""
    factor = np.array([2.0 if choice["kind"] == "fancy" else 1.0 for choice in CHOICES])
    posterior = _posterior()
    measured = SAMPLE[:24]
    for place in measured:
        posterior.add(place, factor[place] * PREDICTED[place])

    times = posterior.log_times()

    rest = np.setdiff1d(np.arange(96), measured)
    assert np.exp(times.mean[rest]) == pytest.approx((factor * PREDICTED)[rest], rel=0.15)


def test_a_group_of_variants_may_be_off_together() -> None:
    groups = ["" if place % 2 else "gmem.min.32.4ofn" for place in range(96)]
    factor = np.array([3.0 if group else 1.0 for group in groups])
    posterior = _posterior(groups=groups)
    for place in range(40):
        posterior.add(place, factor[place] * PREDICTED[place])

    late = posterior.log_times().mean[40:] - np.log(PREDICTED[40:])

    assert late[np.array(groups[40:]) == ""] == pytest.approx(0.0, abs=0.25)
    assert late[np.array(groups[40:]) != ""] == pytest.approx(np.log(3), abs=0.25)


def test_a_second_measurement_replaces_the_first() -> None:
    once, twice = _posterior(), _posterior()
    once.add(3, 2e-3)
    twice.add(3, 5e-3)
    twice.add(3, 2e-3)

    assert twice.measured == (3,)
    assert twice.log_times().mean == pytest.approx(once.log_times().mean)


def _multivariate(ratios: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
    """Evidence of ratios by the library's multivariate Student distribution."""
    law: Any = stats.multivariate_t
    return float(law(np.zeros(len(ratios)), 0.25 * covariance, df=PRIOR_FREEDOM).logpdf(ratios))


def test_the_predictive_distribution_is_the_conditional_of_a_multivariate_student() -> None:
    """Against the ratio of joint densities, integrated: no formula of ours is used."""
    space = make_space(parameters={"kind": ["a", "b"], "x": [1, 2]})
    choices = [space.at(0), space.at(1), space.at(3)]
    posterior = Posterior(space, choices, [1.0, 1.0, 1.0], prior_scatter=0.5)
    ratios = np.array([0.2, -0.1])
    for place, ratio in enumerate(ratios):
        posterior.add(place, float(np.exp(ratio)))
    near = np.exp(-1)
    alike = np.array(
        [[[1, 1], [1, near], [0, near]], [[1, near], [1, 1], [0, 1]], [[0, near], [0, 1], [1, 1]]]
    )
    candidates: list[tuple[float, float, float]] = []
    for one, many, own in ((0.0, 0.0, 1.0), (0.7, 0.1, 0.2), (0.45, 0.5, 0.05), (0.1, 0.85, 0.05)):
        whole = OFFSET_VARIANCE + one * alike.mean(axis=2) + many * ((1 + alike) / 2).prod(axis=2)
        whole += own * np.eye(3)
        evidence = _multivariate(ratios, whole[:2, :2])

        def density(
            value: float, whole: NDArray[np.float64] = whole, log: float = evidence
        ) -> float:
            return float(np.exp(_multivariate(np.array([*ratios, value]), whole) - log))

        mean = integrate.quad(lambda v: v * density(v), -40, 40, points=[0.0], limit=200)[0]
        below = integrate.quad(density, -40, 0.1, points=[0.0], limit=200)[0]
        candidates.append((evidence, mean, below))
    _, mean, below = max(candidates)

    times = posterior.log_times()

    assert times.mean[2] == pytest.approx(mean, abs=1e-3)
    assert times.probability_below(float(np.exp(0.1)))[2] == pytest.approx(below, abs=1e-4)


def test_what_is_unknown_is_the_conditional_without_similarities() -> None:
    """With the offset alone: a conjugate normal mean with unknown variance."""
    posterior = _posterior(prior_scatter=0.5)
    ratios = np.array([0.3, 0.5, 0.1])
    for place, ratio in enumerate(ratios):
        posterior.add(place, float(PREDICTED[place] * np.exp(ratio)))
    covariance = OFFSET_VARIANCE * np.ones((4, 4)) + np.eye(4)
    inverse = np.linalg.inv(covariance[:3, :3])
    mean = float(covariance[3, :3] @ inverse @ ratios)
    rest = float(covariance[3, 3] - covariance[3, :3] @ inverse @ covariance[:3, 3])
    square = PRIOR_FREEDOM * 0.25 + float(ratios @ inverse @ ratios)

    unknown = posterior.unknown(1.0)

    assert unknown.mean == pytest.approx([mean])
    assert unknown.scale == pytest.approx([np.sqrt(square / unknown.freedom * rest)])
    assert unknown.freedom == PRIOR_FREEDOM + 3


@pytest.mark.parametrize("best_s", [0.2, 1.0, 4.0])
def test_expected_improvement_is_the_integral(best_s: float) -> None:
    times = LogTimes(mean=np.array([0.3]), scale=np.array([0.5]), freedom=5.0)
    law: Any = stats.t(5.0, loc=0.3, scale=0.5)
    target = float(np.log(best_s))

    wanted = integrate.quad(lambda v: (target - v) * law.pdf(v), -np.inf, target)[0]

    assert times.expected_improvement(best_s)[0] == pytest.approx(wanted, rel=1e-6)


def test_quantiles_and_probabilities_are_inverse() -> None:
    times = _posterior().log_times()

    assert times.probability_below(times.quantile_s(0.05)[7])[7] == pytest.approx(0.05)


def _rest(means: list[float], scale: float, count: int = 1) -> Rest:
    mean = np.log(np.array(means))
    return Rest(
        times=LogTimes(mean=mean, scale=np.full(len(means), scale), freedom=20.0), count=count
    )


def test_the_chance_of_a_better_one_adds_up() -> None:
    one = chance_of_better([_rest([2.0], 0.5)], 1.0)

    assert one == pytest.approx(stats.t.cdf(-np.log(2) / 0.5, 20))
    assert chance_of_better([_rest([2.0], 0.5, count=3)], 1.0) == pytest.approx(3 * one)
    assert chance_of_better([_rest([2.0, 2.0], 0.5), _rest([2.0], 0.5)], 1.0) == pytest.approx(
        3 * one
    )
    assert chance_of_better([_rest([0.1] * 9, 0.5)], 1.0) == 1.0
    assert chance_of_better([], 1.0) == 0.0


def test_the_regret_bound_is_where_the_chance_is_as_allowed() -> None:
    rest = [_rest([1.1, 1.3, 2.0], 0.1)]

    bound = regret_bound(rest, 1.0, 0.95)

    assert 0 < bound < 0.2
    assert chance_of_better(rest, 1.0, bound) == pytest.approx(0.05, abs=1e-6)
    assert regret_bound([_rest([9.0], 0.1)], 1.0, 0.95) == 0.0
    assert regret_bound([_rest([1e-9] * 40, 3.0)], 1.0, 0.95) == 1.0


def test_the_stated_confidence_is_kept_on_families_drawn_from_the_prior() -> None:
    """Of 200 families whose ratios follow the model, the bound may fail for about 5 in 100."""
    random = np.random.default_rng(7)
    misses = 0
    for _ in range(200):
        scatter = 0.5 * np.sqrt(PRIOR_FREEDOM / random.chisquare(PRIOR_FREEDOM))
        offset = random.normal(0, scatter * np.sqrt(OFFSET_VARIANCE))
        truth = PREDICTED * np.exp(offset + random.normal(0, scatter, len(PREDICTED)))
        posterior = _posterior()
        for place in range(12):
            posterior.add(place, truth[place])
        times = posterior.log_times()
        rest = LogTimes(mean=times.mean[12:], scale=times.scale[12:], freedom=times.freedom)
        best = truth[:12].min()
        bound = regret_bound([Rest(times=rest)], best, 0.95)
        misses += bool(truth[12:].min() < best * (1 - bound))
    assert misses <= 20  # binomial(200, 0.05) exceeds 20 with a probability below 0.001
