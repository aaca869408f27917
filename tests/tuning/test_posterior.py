from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from countperf.tuning.measuring import chance_of_better, regret_bound
from countperf.tuning.posterior import PART_VARIANCE, PRIOR_FREEDOM, Draw, LogTimes, Posterior
from tests.tuning.spaces import make_space

SPACE = make_space()
CHOICES = list(SPACE.choices())
PREDICTED = np.linspace(1e-3, 2e-3, len(CHOICES))
SAMPLE = [int(place) for place in np.random.default_rng(3).permutation(len(CHOICES))]


def _posterior(**changes: Any) -> Posterior:
    return Posterior(SPACE.parameters, CHOICES, PREDICTED, **changes)


def test_before_anything_is_measured_predictions_stand_with_a_wide_interval() -> None:
    times = _posterior(prior_scatter=0.3).log_times()

    assert times.center_s == pytest.approx(PREDICTED)
    assert times.scale == pytest.approx(0.3 * np.sqrt(PART_VARIANCE + 1))
    assert times.freedom == PRIOR_FREEDOM


def test_a_common_factor_is_learnt() -> None:
    posterior = _posterior()
    for place in SAMPLE[:8]:
        posterior.add(place, 7 * PREDICTED[place])

    times = posterior.log_times()

    assert times.center_s == pytest.approx(7 * PREDICTED, rel=0.1)
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
    assert times.center_s[rest] == pytest.approx((factor * PREDICTED)[rest], rel=0.15)


def test_a_group_of_variants_may_be_off_together() -> None:
    groups = ["" if place % 2 else "gmem.min.32.4ofn" for place in range(96)]
    factor = np.array([3.0 if group else 1.0 for group in groups])
    posterior = _posterior(groups=groups)
    for place in range(40):
        posterior.add(place, factor[place] * PREDICTED[place])

    late = np.log(posterior.log_times().center_s[40:] / PREDICTED[40:])

    assert late[np.array(groups[40:]) == ""] == pytest.approx(0.0, abs=0.25)
    assert late[np.array(groups[40:]) != ""] == pytest.approx(np.log(3), abs=0.25)


def test_a_second_measurement_replaces_the_first() -> None:
    once, twice = _posterior(), _posterior()
    once.add(3, 2e-3)
    twice.add(3, 5e-3)
    twice.add(3, 2e-3)

    assert twice.measured == (3,)
    assert twice.log_times().mean == pytest.approx(once.log_times().mean)


def test_the_factor_of_a_part_is_learnt() -> None:
    """Where one of two parts takes four times as long, unmeasured variants are predicted so."""
    shares = np.linspace(0.05, 0.95, len(CHOICES))[np.random.default_rng(5).permutation(96)]
    parts = [{"memory": share, "arithmetic": 1 - share} for share in shares]
    truth = PREDICTED * (1 + 3 * shares)
    with_parts, without = _posterior(parts=parts), _posterior()
    for place in SAMPLE[:10]:
        with_parts.add(place, truth[place])
        without.add(place, truth[place])

    def error(posterior: Posterior) -> float:
        return float(np.std(np.log(posterior.log_times().center_s / truth)[SAMPLE[10:]]))

    assert error(with_parts) < 0.1
    assert error(without) > 0.25


DRAWS = (
    Draw(matters=np.array([0.3, 0.6, 0.1, 0.2]), own=0.1),
    Draw(matters=np.array([0.9, 0.1, 0.1, 0.5]), own=0.3),
)


@pytest.fixture
def _draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it be known what matters."""
    monkeypatch.setattr("countperf.tuning.posterior.draws", lambda *_, **__: DRAWS)


def _small(ratios: list[float]) -> tuple[Posterior, list[NDArray[np.float64]]]:
    """Three of four variants measured, and the covariance of all given each draw, literally."""
    space = make_space(parameters={"kind": ["a", "b"], "x": [1, 2]})
    choices = [space.at(place) for place in range(4)]
    predicted = np.array([1.0, 1.3, 0.7, 1.1])
    parts = [{"m": 1.0}, {"m": 0.4, "a": 0.6}, {"a": 1.0}, {"m": 0.7, "a": 0.3}]
    posterior = Posterior(space.parameters, choices, predicted, parts=parts)
    for place, ratio in enumerate(ratios):
        posterior.add(place, float(predicted[place] * np.exp(ratio)))
    covariances: list[NDArray[np.float64]] = []
    for draw in DRAWS:
        kind, x, group, time = draw.matters
        whole = np.empty((4, 4))
        for i, (one, ours) in enumerate(zip(choices, parts, strict=True)):
            for j, (other, theirs) in enumerate(zip(choices, parts, strict=True)):
                linear = sum(share * theirs.get(name, 0.0) for name, share in ours.items())
                apart = abs(np.log(predicted[i] / predicted[j])) / 0.5
                factors = [
                    1 if one["kind"] == other["kind"] else 1 - kind,
                    1 if one["x"] == other["x"] else 1 - x + x * np.exp(-1),
                    1 - group + group,
                    1 - time + time * np.exp(-apart),
                ]
                rest = (1 - draw.own) * np.prod(factors) + draw.own * (i == j)
                whole[i, j] = PART_VARIANCE * linear + rest
        covariances.append(whole)
    return posterior, covariances


def _density(ratios: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
    """Logarithm of the density by the library's multivariate Student distribution."""
    law: Any = stats.multivariate_t
    return float(law(np.zeros(len(ratios)), 0.25 * covariance, df=PRIOR_FREEDOM).logpdf(ratios))


@pytest.mark.usefixtures("_draws")
def test_the_predictive_distribution_is_the_conditional_of_a_multivariate_student() -> None:
    """Against the ratio of joint densities, integrated: no formula of ours is used."""
    ratios = [0.2, -0.1, 0.15]
    posterior, covariances = _small(ratios)
    below: list[float] = []
    means: list[float] = []
    for whole in covariances:
        given = _density(np.array(ratios), whole[:3, :3])

        def density(value: float, whole: NDArray[np.float64] = whole, log: float = given) -> float:
            return float(np.exp(_density(np.array([*ratios, value]), whole) - log))

        means.append(integrate.quad(lambda v: v * density(v), -40, 40, points=[0.0], limit=200)[0])
        below.append(integrate.quad(density, -40, 0.1, points=[0.0], limit=200)[0])

    times = posterior.log_times()

    assert times.mean[:, 3] - np.log(1.1) == pytest.approx(means, abs=1e-3)
    chance = times.probability_below(1.1 * float(np.exp(0.1)))[3]
    assert chance == pytest.approx(np.mean(below), abs=1e-4)


@pytest.mark.usefixtures("_draws")
def test_intervals_widen_where_measured_variants_surprise() -> None:
    """Each measured one told from the others, literally; one is off by a factor of 50."""
    ratios = np.array([0.1, 4.0, 0.0])
    posterior, covariances = _small(list(ratios))
    excess: list[float] = []
    scales: list[float] = []
    for whole in covariances:
        among = whole[:3, :3]
        square = (PRIOR_FREEDOM * 0.25 + ratios @ np.linalg.solve(among, ratios)) / (
            PRIOR_FREEDOM + 3
        )
        for left_out in range(3):
            others = [place for place in range(3) if place != left_out]
            weights = np.linalg.solve(among[np.ix_(others, others)], among[others, left_out])
            variance = square * (among[left_out, left_out] - weights @ among[others, left_out])
            excess.append(float((ratios[left_out] - weights @ ratios[others]) ** 2 / variance))
        weights = np.linalg.solve(among, whole[:3, 3])
        scales.append(float(np.sqrt(square * (whole[3, 3] - weights @ whole[:3, 3]))))

    times = posterior.log_times()

    wider = np.sqrt(np.mean(excess))
    assert wider > 1.05
    assert times.scale[:, 3] == pytest.approx(wider * np.array(scales))


def test_what_is_unknown_is_the_conditional_without_similarities() -> None:
    """With the offset alone: a conjugate normal mean with unknown variance."""
    posterior = _posterior(prior_scatter=0.5)
    ratios = np.array([0.3, 0.5, 0.1])
    for place, ratio in enumerate(ratios):
        posterior.add(place, float(PREDICTED[place] * np.exp(ratio)))
    covariance = PART_VARIANCE * np.ones((4, 4)) + np.eye(4)
    inverse = np.linalg.inv(covariance[:3, :3])
    mean = float(covariance[3, :3] @ inverse @ ratios)
    rest = float(covariance[3, 3] - covariance[3, :3] @ inverse @ covariance[:3, 3])
    square = PRIOR_FREEDOM * 0.25 + float(ratios @ inverse @ ratios)

    unknown = posterior.unknown(1.0)

    assert unknown.mean[0] == pytest.approx([mean])
    assert unknown.scale[0] == pytest.approx([np.sqrt(square / unknown.freedom * rest)])
    assert unknown.freedom == PRIOR_FREEDOM + 3


@pytest.mark.parametrize("best_s", [0.2, 1.0, 4.0])
def test_expected_improvement_is_the_integral_over_the_mixture(best_s: float) -> None:
    times = LogTimes(mean=np.array([[0.3], [-0.2]]), scale=np.array([[0.5], [0.1]]), freedom=5.0)
    law: Any = stats.t
    target = float(np.log(best_s))

    def density(value: float) -> float:
        return float(
            np.mean(
                [law(5.0, loc=0.3, scale=0.5).pdf(value), law(5.0, loc=-0.2, scale=0.1).pdf(value)]
            )
        )

    wanted = integrate.quad(lambda v: (target - v) * density(v), -np.inf, target, limit=200)[0]

    assert times.expected_improvement(best_s)[0] == pytest.approx(wanted, rel=1e-5)


def _rest(means: list[float], scale: float, count: int = 1) -> tuple[LogTimes, int]:
    mean = np.log(np.array([means]))
    return LogTimes(mean=mean, scale=np.full(mean.shape, scale), freedom=20.0), count


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
        offset = random.normal(0, scatter * np.sqrt(PART_VARIANCE))
        truth = PREDICTED * np.exp(offset + random.normal(0, scatter, len(PREDICTED)))
        posterior = _posterior()
        for place in range(12):
            posterior.add(place, truth[place])
        times = posterior.log_times()
        best = truth[:12].min()
        bound = regret_bound([(times.of(np.arange(96) >= 12), 1)], best, 0.95)
        misses += bool(truth[12:].min() < best * (1 - bound))
    assert misses <= 20  # binomial(200, 0.05) exceeds 20 with a probability below 0.001
