r"""How far predictions are off for the family at hand, learnt from the variants measured so far.

The ratio of measured to predicted time, :math:`y = \ln(t / \hat t)`, is a Student process over the
variants: an offset that all share, effects of single parameters, effects of combinations, and a
rest of each variant's own,

.. math:: y \mid s^2 \sim N(0, s^2 K), \qquad s^2 \sim \text{Inverse-Gamma}(a_0, a_0 s_0^2),

.. math:: K_{xx'} = c_0 + c_1 \frac{1}{p} \sum_q k_q + c_2 \prod_q \frac{1 + k_q}{2}
    + c_3 \delta_{xx'}

where :math:`k_q` tells how alike two variants are in parameter q: :math:`e^{-|r - r'|}` for the
ranks of numbers, 1 or 0 for texts and truth values. The shares :math:`c_1 + c_2 + c_3 = 1` are the
most probable of a few, given what was measured. The predictive distribution of an unmeasured
variant is Student's t with :math:`2 a_0 + n` degrees of freedom.

=================  ================  =========================================================
letter             name              unit
=================  ================  =========================================================
:math:`s_0`        prior_scatter     1 (of a natural logarithm): what the prior holds typical
:math:`2 a_0`      PRIOR_FREEDOM     measurements that the prior's scatter is worth
:math:`c_0`        OFFSET_VARIANCE   variance of the offset, in units of s**2
=================  ================  =========================================================

Sources: Shah, Wilson, Ghahramani (2014), "Student-t processes as alternatives to Gaussian
processes" (the predictive distribution; ours has the conjugate inverse gamma spelled out); Tracey,
Wolpert (2018), "Upgrading from Gaussian processes to Student's-T processes", arXiv:1801.06147
(expected improvement), after Jones, Schonlau, Welch (1998), doi:10.1023/A:1008306431147.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.tuning.space import Choice, SearchSpace

Array = NDArray[np.float64]

PRIOR_FREEDOM = 4.0
OFFSET_VARIANCE = 4.0
_SHARES = ((0.0, 0.0, 1.0), (0.7, 0.1, 0.2), (0.45, 0.5, 0.05), (0.1, 0.85, 0.05))
_JITTER = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogTimes:
    """Student distributions of the logarithm of times, one for each variant.

    Attributes
    ----------
    mean, scale : ndarray, shape (n,)
        Center and scale of ``ln(time_s)``.
    freedom : float
        Degrees of freedom.
    """

    mean: Array
    scale: Array
    freedom: float

    def probability_below(self, time_s: float) -> Array:
        """Probability of each variant to take less than a time."""
        from scipy.special import stdtr

        return np.asarray(stdtr(self.freedom, (np.log(time_s) - self.mean) / self.scale))

    def quantile_s(self, probability: float) -> Array:
        """Time that each variant falls below with a probability, s."""
        from scipy.special import stdtrit

        return np.exp(self.mean + self.scale * stdtrit(self.freedom, probability))

    def expected_improvement(self, time_s: float) -> Array:
        """By how much ``ln(time)`` is expected to fall below that of a time, none counting as 0."""
        from scipy.special import gammaln, stdtr

        nu = self.freedom
        gap = np.log(time_s) - self.mean
        z = gap / self.scale
        log_peak = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
        density = np.exp(log_peak - (nu + 1) / 2 * np.log1p(z**2 / nu))
        tail = self.scale * (nu + z**2) / (nu - 1) * density
        return np.maximum(0.0, gap * np.asarray(stdtr(nu, z)) + tail)


class Posterior:
    """Corrected times of the variants of a space, given those that were measured.

    Parameters
    ----------
    space : SearchSpace
        Which parameters there are.
    choices : sequence of Mapping
        The variants.
    predicted_s : array_like, shape (n,)
        Their predicted times, s; positive.
    groups : sequence of str, optional
        A property of each variant that may matter beside its parameters, such as which costs its
        prediction leaves out.
    prior_scatter : float
        How far ``ln(measured / predicted)`` is held to scatter before anything is measured.
    """

    def __init__(
        self,
        space: SearchSpace,
        choices: Sequence[Choice],
        predicted_s: Sequence[float] | Array,
        *,
        groups: Sequence[str] = (),
        prior_scatter: float = 0.5,
    ) -> None:
        self._log_predicted = np.log(np.asarray(predicted_s, np.float64))
        self._codes, self._numeric = ranks(space, choices, groups)
        self._prior_scatter = prior_scatter
        count = len(self._log_predicted)
        self._single = np.empty((count, 0))
        self._joint = np.empty((count, 0))
        self._measured: list[int] = []
        self._ratios: list[float] = []

    @property
    def measured(self) -> tuple[int, ...]:
        """Positions of the variants that were measured, in that order."""
        return tuple(self._measured)

    def add(self, position: int, time_s: float) -> None:
        """Learn from a variant's measured time, s; a second one of the same replaces the first."""
        ratio = float(np.log(time_s) - self._log_predicted[position])
        if position in self._measured:
            self._ratios[self._measured.index(position)] = ratio
            return
        single, joint = self._alike(position)
        self._single = np.column_stack([self._single, single])
        self._joint = np.column_stack([self._joint, joint])
        self._measured.append(position)
        self._ratios.append(ratio)

    def _alike(self, position: int) -> tuple[Array, Array]:
        similar = alike(np.abs(self._codes - self._codes[position]), self._numeric)
        return similar.mean(axis=1), np.prod((1 + similar) / 2, axis=1)

    def log_times(self) -> LogTimes:
        """Return the distributions of all variants' times, those measured included."""
        _, mean, variance, freedom = max(
            (self._solve(shares) for shares in _SHARES), key=lambda solved: solved[0]
        )
        return LogTimes(
            mean=self._log_predicted + mean,
            scale=np.sqrt(np.maximum(variance, 1e-12)),
            freedom=freedom,
        )

    def unknown(self, predicted_s: float) -> LogTimes:
        """Return the distribution of a variant of which nothing but its prediction is known."""
        ratios = np.array(self._ratios)
        freedom = PRIOR_FREEDOM + len(ratios)
        spread = PRIOR_FREEDOM * self._prior_scatter**2
        weight = 1 / OFFSET_VARIANCE + len(ratios)
        mean = float(ratios.sum() / weight)
        spread += float(ratios @ ratios) - weight * mean**2
        scale = np.sqrt(spread / freedom * (1 + 1 / weight))
        return LogTimes(
            mean=np.array([np.log(predicted_s) + mean]),
            scale=np.array([scale]),
            freedom=freedom,
        )

    def _solve(self, shares: tuple[float, float, float]) -> tuple[float, Array, Array, float]:
        """Return the log evidence, mean and variance (scale squared) of ratios, and freedom."""
        one, many, own = shares
        prior_square = PRIOR_FREEDOM * self._prior_scatter**2
        cross = OFFSET_VARIANCE + one * self._single + many * self._joint
        whole = OFFSET_VARIANCE + 1.0
        count = len(self._ratios)
        if not count:
            mean = np.zeros(len(self._log_predicted))
            return 0.0, mean, np.full_like(mean, whole * self._prior_scatter**2), PRIOR_FREEDOM
        among = cross[self._measured] + (own + _JITTER) * np.eye(count)
        lower = np.linalg.cholesky(among)
        white = np.linalg.solve(lower, np.array(self._ratios))
        reach = np.linalg.solve(lower, cross.T)
        freedom = PRIOR_FREEDOM + count
        square = prior_square + float(white @ white)
        evidence = -float(np.log(np.diag(lower)).sum()) - freedom / 2 * float(np.log(square))
        variance = square / freedom * np.maximum(whole - (reach**2).sum(axis=0), 0.0)
        return evidence, reach.T @ white, variance, freedom


def alike(apart: Array, is_number: NDArray[np.bool_] | np.bool_) -> Array:
    """Return how alike values of parameters are whose ranks are so far apart; see the module."""
    return np.where(is_number, np.exp(-apart), apart == 0)


def ranks(
    space: SearchSpace, choices: Sequence[Choice], groups: Sequence[str] = ()
) -> tuple[Array, NDArray[np.bool_]]:
    """Write choices as ranks of values, shape (n, p), and tell which parameters are numbers."""
    columns: list[list[int]] = []
    numeric: list[bool] = []
    for name, values in space.parameters.items():
        is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        ordered = sorted(values, key=float) if is_number else list(values)
        ranks = {value: rank for rank, value in enumerate(ordered)}
        columns.append([ranks[choice[name]] for choice in choices])
        numeric.append(is_number)
    if groups:
        names = {name: rank for rank, name in enumerate(dict.fromkeys(groups))}
        columns.append([names[group] for group in groups])
        numeric.append(False)
    return np.array(columns, np.float64).T.reshape(len(choices), -1), np.array(numeric)
