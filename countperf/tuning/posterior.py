r"""Posterior of the errors of predictions for a family, from the variants measured so far.

The ratio of measured to predicted time, :math:`y = \ln(t / \hat t)`, is a Student process over the
variants:

.. math:: y \mid s^2 \sim N(0, s^2 K), \qquad s^2 \sim \text{Inverse-Gamma}(a_0, a_0 s_0^2),

.. math:: K_{xx'} = c \sum_k a_k a'_k + (1 - \lambda) \prod_q (1 - \phi_q + \phi_q k_q)
    + \lambda \delta_{xx'}

where :math:`a_k` is the share of part k in the predicted time. :math:`k_q` tells how alike two
variants are in parameter q: :math:`e^{-|r - r'|}` for the ranks of numbers, 1 or 0 for texts and
truth values; the logarithm of the predicted time is one of them. How much parameter q matters,
:math:`\phi_q`, and how much is each variant's own, :math:`\lambda`, are drawn from their posterior,
each in turn from a grid. Where measured variants, each told from the others, are further off than
that says, distributions are widened.

Sources: Rasmussen, Williams (2006), "Gaussian processes for machine learning", sections 4.2, 5.1,
equations 5.10 to 5.12; Shah, Wilson, Ghahramani (2014), "Student-t processes as alternatives to
Gaussian processes"; Tracey, Wolpert (2018), arXiv:1801.06147 (expected improvement); Snoek,
Larochelle, Adams (2012), arXiv:1206.2944; Ritter, Tanner (1992), "Facilitating the Gibbs sampler",
doi:10.1080/01621459.1992.10475289.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.errors import ParameterError
from countperf.tuning.space import Choice, Value

Array = NDArray[np.float64]
PRIOR_FREEDOM = 4.0
PART_VARIANCE = 2.0
_LEVEL = 0.5  # of the logarithm of predicted times, which is as far apart as two ranks are
JITTER = 1e-9
MATTERS = np.array([0.01, 0.05, 0.15, 0.35, 0.65, 0.95])  # values of how much a parameter matters

OWN = np.array([0.02, 0.08, 0.25, 0.6])  # values of how much is each variant's own

_DRAWS = 8
_BURN_IN = 2  # draws before those
_MIDDLE = 0.2


def draw_scales(
    similar: Array, base: Array, ratios: Array, *, prior_square: float
) -> list[tuple[Array, float]]:
    """Draw how much each parameter matters, and how much is each variant's own; always the same."""
    random, unit = np.random.default_rng(0), np.eye(len(ratios))
    similar = np.moveaxis(similar, 2, 0)

    def pick(grid: Array, among: Array, own: Array | float) -> float:
        """Draw one of some values, of which each has its covariance among the measured."""
        share = np.reshape(own, (-1, 1, 1))
        whole = base + (1 - share) * among + (share + JITTER) * unit
        evidence = find_evidence(whole, ratios, prior_square)
        chances = np.cumsum(np.exp(evidence - evidence.max()))
        return float(grid[np.searchsorted(chances, random.random() * chances[-1])])

    matters, own = np.full(len(similar), _MIDDLE), _MIDDLE
    drawn: list[tuple[Array, float]] = []
    for _ in range(_BURN_IN + _DRAWS):
        matters = matters.copy()
        after = np.ones((len(matters) + 1, *unit.shape))
        after[:-1] = np.cumprod(_factor(similar, matters[:, None, None])[::-1], axis=0)[::-1]
        before = np.ones(unit.shape)
        for position, alike in enumerate(similar):  # each anew, given the others
            among = before * after[position + 1] * _factor(alike, MATTERS[:, None, None])
            matters[position] = pick(MATTERS, among, own)
            before = before * _factor(alike, matters[position])
        own = pick(OWN, before, OWN)
        drawn.append((matters, own))
    return drawn[-_DRAWS:]


def find_evidence(covariances: Array, ratios: Array, prior_square: float) -> Array:
    """Return logarithms of the evidence of covariances, shape (g, n, n), but for a constant."""
    lower = np.linalg.cholesky(covariances)
    right = np.broadcast_to(ratios[:, None], (len(covariances), len(ratios), 1))
    squares = prior_square + (np.linalg.solve(lower, right)[..., 0] ** 2).sum(axis=1)
    logarithms = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return -logarithms - (PRIOR_FREEDOM + len(ratios)) / 2 * np.log(squares)


def product(similar: Array, matters: Array | np.float64) -> Array:
    """Return how alike variants are in all parameters, over the last axis of how alike in each."""
    return np.prod(_factor(similar, matters), axis=-1)


def _factor(similar: Array, matters: Array | np.float64) -> Array:
    return 1 - matters + matters * similar


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogTimes:
    """Mixtures of Student distributions of the logarithm of times, one for each variant."""

    mean: Array  # center and scale of ``ln(time_s)`` of n variants, in m components of equal weight
    scale: Array
    freedom: float  # degrees of freedom

    def of(self, some: NDArray[np.bool_]) -> LogTimes:
        """Return the distributions of some of the variants."""
        return LogTimes(mean=self.mean[:, some], scale=self.scale[:, some], freedom=self.freedom)

    @property
    def center_s(self) -> Array:
        """Typical time of each variant, s: of the mean logarithm."""
        return np.exp(self.mean.mean(axis=0))

    def probability_below(self, time_s: float) -> Array:
        """Probability of each variant to take less than a time."""
        from scipy.special import stdtr

        below = np.asarray(stdtr(self.freedom, (np.log(time_s) - self.mean) / self.scale))
        return below.mean(axis=0)

    def compute_expected_improvement(self, time_s: float) -> Array:
        """Return the expected improvement: the decrease of ``ln(time)`` below a time, or 0."""
        from scipy.special import gammaln, stdtr

        nu = self.freedom
        gap = np.log(time_s) - self.mean
        z = gap / self.scale
        log_peak = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
        density = np.exp(log_peak - (nu + 1) / 2 * np.log1p(z**2 / nu))
        tail = self.scale * (nu + z**2) / (nu - 1) * density
        return np.maximum(0.0, gap * np.asarray(stdtr(nu, z)) + tail).mean(axis=0)


class Posterior:
    """Corrected times of the variants of a space, given those that were measured."""

    def __init__(
        self,
        parameters: Mapping[str, Sequence[Value]],
        choices: Sequence[Choice],
        predicted_s: Sequence[float] | Array,
        *,
        parts: Sequence[Mapping[str, float]] = (),
        groups: Sequence[str] = (),
        prior_scatter: float = 0.5,
    ) -> None:
        self._log_predicted = np.log(np.asarray(predicted_s, np.float64))
        count = len(self._log_predicted)
        groups = groups or [""] * count  # as one more parameter
        parameters = {**parameters, "": list(dict.fromkeys(groups))}
        choices = [{**c, "": group} for c, group in zip(choices, groups, strict=True)]
        codes, numeric = ranks(parameters, choices)
        self._codes = np.column_stack([codes, self._log_predicted / _LEVEL])
        self._numeric = np.append(numeric, np.True_)
        self._parts = _shares(parts, count)
        self._prior_square = PRIOR_FREEDOM * prior_scatter**2
        self._measured: dict[int, float] = {}  # ratios by position

    def add(self, position: int, time_s: float) -> None:
        """Learn from a variant's measured time, s; a second one of the same replaces the first."""
        self._measured[position] = float(np.log(time_s) - self._log_predicted[position])

    def log_times(self) -> LogTimes:
        """Return the distributions of all variants' times, those measured included."""
        measured, ratios = list(self._measured), np.array([*self._measured.values()])
        whole = PART_VARIANCE * (self._parts**2).sum(axis=1) + 1.0
        if not measured:
            scale = np.sqrt(whole * self._prior_square / PRIOR_FREEDOM)[None]
            return LogTimes(mean=self._log_predicted[None], scale=scale, freedom=PRIOR_FREEDOM)
        similar = alike(np.abs(self._codes[:, None] - self._codes[measured]), self._numeric)
        cross = PART_VARIANCE * self._parts @ self._parts[measured].T
        base = cross[measured]

        freedom = PRIOR_FREEDOM + len(ratios)
        means: list[Array] = []
        scales: list[Array] = []
        excess: list[float] = []  # of squares of measured variants, each told from the others
        prior = self._prior_square
        for matters, own in draw_scales(similar[measured], base, ratios, prior_square=prior):
            reach = cross + (1 - own) * product(similar, matters)
            among = reach[measured] + (own + JITTER) * np.eye(len(ratios))
            inverse = np.linalg.inv(among)
            weights = inverse @ ratios
            square = (prior + float(ratios @ weights)) / freedom
            variance = square * np.maximum(whole - ((reach @ inverse) * reach).sum(axis=1), JITTER)
            means.append(reach @ weights)
            scales.append(np.sqrt(variance))
            excess.append(float((weights**2 / np.diag(inverse) / square).mean()))
        wider = np.sqrt(max(1.0, float(np.mean(excess))))
        mean, scale = self._log_predicted + np.array(means), wider * np.array(scales)
        return LogTimes(mean=mean, scale=scale, freedom=freedom)

    def unknown(self, predicted_s: float) -> LogTimes:
        """Return the distribution of a variant of which nothing but its prediction is known."""
        ratios = np.array([*self._measured.values()])
        freedom = PRIOR_FREEDOM + len(ratios)
        weight = 1 / PART_VARIANCE + len(ratios)
        mean = float(ratios.sum() / weight)
        spread = self._prior_square + float(ratios @ ratios) - weight * mean**2
        scale = np.array([[np.sqrt(spread / freedom * (1 + 1 / weight))]])
        return LogTimes(mean=np.array([[np.log(predicted_s) + mean]]), scale=scale, freedom=freedom)


def alike(apart: Array, is_number: NDArray[np.bool_] | np.bool_) -> Array:
    """Return how alike values of parameters are whose ranks are so far apart; see the module."""
    return np.where(is_number, np.exp(-apart), apart == 0)


def ranks(
    parameters: Mapping[str, Sequence[Value]], choices: Sequence[Choice]
) -> tuple[Array, NDArray[np.bool_]]:
    """Write choices as ranks of values, shape (n, p), and tell which parameters are numbers."""
    columns: list[list[int]] = []
    numeric: list[bool] = []
    for name, values in parameters.items():
        is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        ordered = sorted(values, key=float) if is_number else list(values)
        ranks = {value: rank for rank, value in enumerate(ordered)}
        columns.append([ranks[choice[name]] for choice in choices])
        numeric.append(is_number)
    return np.array(columns, np.float64).T.reshape(len(choices), -1), np.array(numeric)


def _shares(parts: Sequence[Mapping[str, float]], count: int) -> Array:
    """Write shares as a matrix, shape (n, k); what has none is one part."""
    rows = [part or {"": 1.0} for part in parts] or [{"": 1.0}] * count
    names = sorted({name for row in rows for name in row})
    return np.array([[row.get(name, 0.0) for name in names] for row in rows])


_RIDGE = 0.02


def order_by_promise(
    parameters: Mapping[str, Sequence[Value]],
    known: Sequence[tuple[Choice, float | None]],
    choices: Sequence[Choice],
) -> list[int]:
    """Return the positions of choices, those first that should have the shortest times."""
    times = [time_s for _, time_s in known if time_s is not None]
    if not times:
        return list(range(len(choices)))
    slowest = max(times)  # what has no prediction is as good as that
    logarithms = np.log([slowest if time_s is None else time_s for _, time_s in known])
    codes, numeric = ranks(parameters, [*(choice for choice, _ in known), *choices])
    there = codes[: len(known)]
    similar = product(alike(np.abs(codes[:, None] - there), numeric), np.float64(0.5))
    among, asked = similar[: len(known)], similar[len(known) :]
    center = float(np.mean(logarithms))
    weights = np.linalg.solve(among + _RIDGE * np.eye(len(known)), logarithms - center)
    return np.argsort(asked @ weights, kind="stable").tolist()


FIRST = 8
"""Configurations that are drawn at random before any is chosen by what is known; 2 with a model."""

_MOST = 2000  # configurations that are chosen from: the fastest by prediction, or some at random
_OFTEN = 100  # measurements up to which each one is learnt from at once
_SELDOM = 10  # beyond those, so many are waited for
_FAILED = 1.5  # what failed counts as this multiple of the slowest time


class Chooser:
    """Chooses the configuration with the largest expected improvement, as `countperf.tune` does."""

    def __init__(
        self,
        configurations: Sequence[Choice],
        predicted_s: NDArray[np.float64] | None = None,
        *,
        first: int = FIRST,
        seed: int = 0,
    ) -> None:
        if not configurations:
            raise ParameterError(
                "there is no configuration to search: pass at least one", parameter="configurations"
            )
        if predicted_s is None:
            predicted_s = np.ones(len(configurations))
            order = np.random.default_rng(seed).permutation(len(configurations))
        else:
            predicted_s = np.where(np.isnan(predicted_s), np.nanmax(predicted_s), predicted_s)
            order = np.argsort(predicted_s, kind="stable")
            first = max(2, first // 4)
        self._left = dict.fromkeys(order.tolist())
        self._count = len(configurations)

        self._positions = {index: position for position, index in enumerate([*self._left][:_MOST])}
        self._configurations = [configurations[index] for index in self._positions]
        self._predicted_s = predicted_s[list(self._positions)]
        columns = {name: [one[name] for one in self._configurations] for name in configurations[0]}
        self._parameters = {name: list(dict.fromkeys(values)) for name, values in columns.items()}
        self._first = first
        self._posterior: Posterior | None = None
        self._gain: NDArray[np.float64] | None = None
        self._times_s: dict[int, float] = {}

    @property
    def best(self) -> int:
        """Position of the fastest configuration so far; the first one if none ran."""
        return min(self._times_s, key=self._times_s.__getitem__, default=0)

    def tell(self, index: int, time_s: float | None) -> None:
        """Learn what a configuration took, s; None for one that failed."""
        self._left.pop(index, None)
        position = self._positions.get(index)
        if time_s is not None:
            self._times_s[index] = time_s
            if self._posterior is None and position is not None:
                times_s = time_s / self._predicted_s[position] * self._predicted_s
                self._posterior = Posterior(self._parameters, self._configurations, times_s)
        elif self._times_s:
            time_s = _FAILED * max(self._times_s.values())
        if self._posterior is not None and position is not None and time_s is not None:
            self._posterior.add(position, time_s)

    def ask(self) -> int | None:
        """Return the position of the configuration to measure next; None if all were told."""
        if not self._left:
            return None
        told = self._count - len(self._left)
        next_one = next(iter(self._left))
        if self._posterior is None or told < self._first or next_one not in self._positions:
            return next_one
        if self._gain is None or told < _OFTEN or told % _SELDOM == 0:
            best_s = self._times_s[self.best]
            self._gain = self._posterior.log_times().compute_expected_improvement(best_s)
        gains = {i: self._gain[p] for i, p in self._positions.items() if i in self._left}
        return max(gains, key=gains.__getitem__)
