"""Posterior of errors of predictions: against densities of SciPy, and against what was made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from countperf.tuning import posterior as posteriors
from countperf.tuning.candidates import chance_of_better, regret_bound
from countperf.tuning.posterior import OWN, PART_VARIANCE, PRIOR_FREEDOM, LogTimes, Posterior
from tests.tuning.spaces import make_space

SPACE = make_space()
CHOICES = list(SPACE.choices())
PREDICTED = np.linspace(1e-3, 2e-3, len(CHOICES))
SAMPLE = [int(position) for position in np.random.default_rng(3).permutation(len(CHOICES))]


def _posterior(**changes: Any) -> Posterior:
    return Posterior(SPACE.parameters, CHOICES, PREDICTED, **changes)


def test_before_anything_is_measured_predictions_stand_with_a_wide_interval() -> None:
    times = _posterior(prior_scatter=0.3).log_times()
    assert times.center_s == pytest.approx(PREDICTED)
    assert times.scale == pytest.approx(0.3 * np.sqrt(PART_VARIANCE + 1))
    assert times.freedom == PRIOR_FREEDOM


SHARES = np.linspace(0.05, 0.95, len(CHOICES))[np.random.default_rng(5).permutation(96)]
FANCY = np.array([choice["kind"] == "fancy" for choice in CHOICES])
GROUPS = ["" if position % 2 else "gmem.min.32.4ofn" for position in range(96)]


@pytest.mark.parametrize(
    ("factor", "known", "measured", "error"),
    [
        (np.full(96, 7.0), {}, SAMPLE[:8], 0.1),
        (np.where(FANCY, 2.0, 1.0), {}, SAMPLE[:24], 0.15),
        (np.array([3.0 if group else 1.0 for group in GROUPS]), {"groups": GROUPS}, range(40), 0.3),
        (
            1 + 3 * SHARES,
            {"parts": [{"memory": share, "arithmetic": 1 - share} for share in SHARES]},
            SAMPLE[:10],
            0.25,
        ),
    ],
    ids=["common factor", "parameter", "group of variants", "part of the time"],
)
def test_what_is_off_together_is_learnt(
    factor: NDArray[np.float64], known: dict[str, Any], measured: list[int], error: float
) -> None:
    posterior = _posterior(**known)
    for position in measured:
        posterior.add(position, factor[position] * PREDICTED[position])
    times = posterior.log_times()
    rest = np.setdiff1d(np.arange(96), measured)
    assert times.center_s[rest] == pytest.approx((factor * PREDICTED)[rest], rel=error)


DRAWS = (
    (np.array([0.3, 0.6, 0.1, 0.2]), 0.1),
    (np.array([0.9, 0.1, 0.1, 0.5]), 0.3),
)


@pytest.fixture
def _draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it be known what matters."""
    monkeypatch.setattr("countperf.tuning.posterior.draw_scales", lambda *_, **__: DRAWS)


def _small(ratios: list[float]) -> tuple[Posterior, list[NDArray[np.float64]]]:
    """Three of four variants measured, and the covariance of all given each draw, literally."""
    space = make_space(parameters={"kind": ["a", "b"], "x": [1, 2]})
    choices = [space.at(position) for position in range(4)]
    predicted = np.array([1.0, 1.3, 0.7, 1.1])
    parts = [{"m": 1.0}, {"m": 0.4, "a": 0.6}, {"a": 1.0}, {"m": 0.7, "a": 0.3}]
    posterior = Posterior(space.parameters, choices, predicted, parts=parts)
    for position, ratio in enumerate(ratios):
        posterior.add(position, float(predicted[position] * np.exp(ratio)))
    covariances: list[NDArray[np.float64]] = []
    for (kind, x, group, time), own in DRAWS:
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
                rest = (1 - own) * np.prod(factors) + own * (i == j)
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
            others = [position for position in range(3) if position != left_out]
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
    for position, ratio in enumerate(ratios):
        posterior.add(position, float(PREDICTED[position] * np.exp(ratio)))
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
    parts = law(5.0, loc=0.3, scale=0.5), law(5.0, loc=-0.2, scale=0.1)

    def density(value: float) -> float:
        return float(np.mean([part.pdf(value) for part in parts]))

    wanted = integrate.quad(lambda v: (target - v) * density(v), -np.inf, target, limit=200)[0]
    assert times.compute_expected_improvement(best_s)[0] == pytest.approx(wanted, rel=1e-5)


def _rest(means: list[float], scale: float, count: int = 1) -> tuple[LogTimes, int]:
    mean = np.log(np.array([means]))
    return LogTimes(mean=mean, scale=np.full(mean.shape, scale), freedom=20.0), count


def test_the_chance_of_a_better_one_adds_up() -> None:
    one = chance_of_better([_rest([2.0], 0.5)], 1.0)
    assert one == pytest.approx(stats.t.cdf(-np.log(2) / 0.5, 20))
    for three in ([_rest([2.0], 0.5, count=3)], [_rest([2.0, 2.0], 0.5), _rest([2.0], 0.5)]):
        assert chance_of_better(three, 1.0) == pytest.approx(3 * one)
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
    """Of 100 families whose ratios follow the model, the bound may fail for about 5."""
    random = np.random.default_rng(7)
    misses = 0
    for _ in range(100):
        scatter = 0.5 * np.sqrt(PRIOR_FREEDOM / random.chisquare(PRIOR_FREEDOM))
        offset = random.normal(0, scatter * np.sqrt(PART_VARIANCE))
        truth = PREDICTED * np.exp(offset + random.normal(0, scatter, len(PREDICTED)))
        posterior = _posterior()
        for position in range(12):
            posterior.add(position, truth[position])
        times = posterior.log_times()
        best = truth[:12].min()
        bound = regret_bound([(times.of(np.arange(96) >= 12), 1)], best, 0.95)
        misses += bool(truth[12:].min() < best * (1 - bound))
    assert misses <= 13  # binomial(100, 0.05) exceeds 13 with a probability below 0.001


def _made(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of four truth values the second one decides; return how alike variants are, and ratios."""
    random = np.random.default_rng(1)
    codes = random.integers(0, 2, (count, 4))
    similar = (codes[:, None, :] == codes[None, :, :]).astype(np.float64)
    return similar, 1.2 * codes[:, 1] + random.normal(0, 0.05, count)


def test_the_evidence_of_length_scales_is_that_of_a_multivariate_student() -> None:
    similar, ratios = _made(6)
    base = 2 * np.ones((6, 6))
    among = np.array([similar[..., 0], similar.mean(axis=2)])
    law: Any = stats.multivariate_t
    expected = [
        law(np.zeros(6), (base + (1 - own) * one + own * np.eye(6)) / 4.0, df=4.0).logpdf(ratios)
        for one, own in zip(among, OWN[1:3], strict=True)
    ]
    own = OWN[1:3, None, None]
    evidence = posteriors.find_evidence(base + (1 - own) * among + own * np.eye(6), ratios, 1.0)
    assert evidence[1] - evidence[0] == pytest.approx(expected[1] - expected[0], abs=1e-5)


def test_parameters_that_decide_are_told_from_those_that_do_not_matter() -> None:
    similar, ratios = _made(24)
    drawn = posteriors.draw_scales(similar, np.ones((24, 24)), ratios, prior_square=1.0)
    matters = np.mean([each for each, _ in drawn], axis=0)
    assert matters[1] > 2 * max(matters[[0, 2, 3]])
    assert np.mean([own for _, own in drawn]) < 0.2
