r"""Search of a finite set of configurations without a model, or with one that only ranks them.

The logarithm of a configuration's time is a Gaussian process over the values of its parameters,

.. math:: K_{xx'} = \exp\Bigl(-\sum_q \frac{|u_q - u'_q|}{l_q}\Bigr) + \sigma^2 \delta_{xx'},

where :math:`u_q` runs from 0 to 1 over the values of parameter q: by their logarithm where they are
positive and span a factor of four or more, else by their rank; texts and truth values are apart by
1. Length scales :math:`l_q` and noise :math:`\sigma^2` are those of the largest posterior
probability under log-normal priors; the variance of the process is integrated out up to a
constant. The next configuration is the one with the largest expected improvement over the time that
measuring it is expected to take; one that failed counts as slower than the slowest. The first
configurations are spread over the space.

Predicted times of a model that ranks configurations, if given, are the mean of the process, up to a
power and a factor that are learnt as well; the logarithm of the prediction is one of the inputs.

Sources: Rasmussen, Williams (2006), "Gaussian processes for machine learning", equations 2.25, 2.26
(prediction), 5.8 (evidence), 4.18 (Ornstein-Uhlenbeck kernel); Jones, Schonlau, Welch (1998),
doi:10.1023/A:1008306431147 (expected improvement); Snoek, Larochelle, Adams (2012),
arXiv:1206.2944, section 3.2 (improvement per second).

Kernel, inputs and the number of first configurations were chosen on recorded spaces of KTT
(convolution and point-in-polygon on the RTX 2080 Ti and 3090) and of dedispersion (A100, MI250X).
The recorded convolutions of five other GPUs were searched afterwards (`docs/search-score.md`);
fewer first configurations, which looked better on the former, were worse on them and were rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.errors import ParameterError
from countperf.tuning.space import Choice, Value

Array = NDArray[np.float64]

FIRST = 8
"""Configurations that are spread over the space before any is chosen by what is known."""

_LOGARITHMIC_SPAN = 4.0
_LENGTH, _LENGTH_SPREAD = 2.0, 1.0  # prior of length scales: median, deviation of the logarithm
_NOISE, _NOISE_SPREAD = 0.03, 1.0  # prior of the noise's variance, likewise
_JITTER = 1e-6
_SPREAD_FROM = 40  # configurations among which the one farthest from those before is taken
_ITERATIONS = 15
_OFTEN = 20  # measurements up to which length scales are found anew after each
_SELDOM = 5  # of that many, one more is waited for beyond
_MOST_SCALED = 256  # measurements by which length scales are found
_FAILED = 1.5  # what failed counts as this multiple of the slowest time
_SLOPE_VARIANCE = 0.25  # of the power of predicted times, whose mean is 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scales:
    lengths: Array
    noise: float


@dataclass(slots=True, kw_only=True)
class _Factors:
    """Factors of the covariances under some scales, to which measurements are appended."""

    scales: _Scales
    places: list[int]  # positions of n measured configurations
    lower: Array  # cholesky factor of their covariance
    rows: Array  # covariances with all N configurations, solved by that factor, in the first n rows
    explained: Array  # sum of the squares of those n rows

    @property
    def white(self) -> Array:
        """The rows that are in use, shape (n, N)."""
        return self.rows[: len(self.places)]

    def extend(self, rows: Array) -> None:
        """Add rows; their places are added by the caller."""
        known, more = len(self.places), len(rows)
        if known + more > len(self.rows):
            room = np.empty((max(2 * len(self.rows), known + more), self.rows.shape[1]))
            room[:known] = self.rows[:known]
            self.rows = room
        self.rows[known : known + more] = rows
        self.explained += np.einsum("ij,ij->j", rows, rows)


class ConfigurationSearch:
    """Search that is asked which configuration to measure next, and told what that took."""

    def __init__(
        self,
        configurations: Sequence[Choice],
        *,
        predicted_s: Sequence[float] | Array | None = None,
        first: int = FIRST,
        seed: int = 0,
    ) -> None:
        if not configurations:
            raise ParameterError(
                "there is no configuration to search: pass at least one", parameter="configurations"
            )
        self._random = np.random.default_rng(seed)
        self._inputs = inputs_of(configurations)
        self._prior = _prior(predicted_s, len(configurations))
        if self._prior is not None:
            self._inputs = np.column_stack([self._inputs, _unit(self._prior)])
            first = max(2, first // 4)
        self._first = first
        self._log_times: dict[int, float] = {}  # nan of those that failed
        self._costs_s: dict[int, float] = {}
        self._factors: _Factors | None = None
        self._scaled_at = 0
        self._slopes = np.zeros(len(self._inputs))
        if self._prior is not None:
            self._slopes = np.sqrt(_SLOPE_VARIANCE) * (_unit(self._prior) - 0.5)

    @property
    def told(self) -> tuple[int, ...]:
        """Positions of the configurations that were measured or failed, in that order."""
        return tuple(self._log_times)

    @property
    def best(self) -> int | None:
        """Position of the fastest configuration so far; None if none ran."""
        ran = {
            position: value for position, value in self._log_times.items() if not np.isnan(value)
        }
        return min(ran, key=ran.__getitem__) if ran else None

    def tell(self, position: int, time_s: float | None, *, cost_s: float | None = None) -> None:
        """Learn what a configuration took."""
        if not 0 <= position < len(self._inputs):
            raise ParameterError(
                f"there is no configuration {position}: there are {len(self._inputs)}",
                parameter="position",
            )
        for name, value in (("time_s", time_s), ("cost_s", cost_s)):
            if value is not None and not 0 < value < np.inf:
                raise ParameterError(
                    f"{name}={value} of configuration {position} is not positive and finite; pass"
                    " None for one that failed",
                    parameter=name,
                )
        self._log_times[position] = np.nan if time_s is None else float(np.log(time_s))
        if cost_s is not None:
            self._costs_s[position] = cost_s

    def ask(self) -> int | None:
        """Return the position of the configuration to measure next; None if all were told."""
        if len(self._log_times) == len(self._inputs):
            return None
        if self._prior is not None and not self._log_times:
            return int(np.argmin(self._prior))
        if len(self._log_times) < self._first or self.best is None:
            return self._spread()
        gain = self._gains()
        gain[list(self._log_times)] = -np.inf
        return int(np.argmax(gain))

    def _spread(self) -> int:
        """Return the farthest from those told, of some that are drawn."""
        left = np.setdiff1d(np.arange(len(self._inputs)), list(self._log_times))
        drawn = self._random.choice(left, min(len(left), _SPREAD_FROM), replace=False)
        if not self._log_times:
            return int(drawn[0])
        there = self._inputs[list(self._log_times)]
        apart = np.abs(self._inputs[drawn][:, None] - there[None]).sum(axis=2)
        return int(drawn[np.argmax(apart.min(axis=1))])

    def _gains(self) -> Array:
        """Return the logarithm of each configuration's expected improvement per second."""
        from scipy.special import log_ndtr

        places = np.array(list(self._log_times))
        logs = np.array(list(self._log_times.values()))
        failed = np.isnan(logs)
        slowest = float(np.nanmax(logs)) + np.log(_FAILED)
        offset = np.zeros(len(self._inputs)) if self._prior is None else self._prior
        ratios = np.where(failed, slowest, logs) - offset[places]
        center, spread = float(ratios.mean()), float(ratios.std()) + 1e-9
        mean, deviation = self._process(places, (ratios - center) / spread)
        mean = offset + center + spread * mean
        deviation = deviation * spread
        z = (float(np.nanmin(logs)) - mean) / deviation
        return np.log(deviation) + _log_improvement(z, log_ndtr) - self._log_cost(mean)

    def _process(self, places: NDArray[np.intp], values: Array) -> tuple[Array, Array]:
        """Return mean and deviation of all configurations, given standardised values of some."""
        every = 1 if len(places) < _OFTEN else len(places) // _SELDOM
        factors = self._factors
        if factors is None or len(places) >= self._scaled_at + every:
            scales = self._scales_of(places, values, None if factors is None else factors.scales)
            factors = self._factors = _Factors(
                scales=scales,
                places=[],
                lower=np.zeros((0, 0)),
                rows=np.zeros((0, len(self._inputs))),
                explained=np.zeros(len(self._inputs)),
            )
            self._scaled_at = len(places)
        self._append(factors, places[len(factors.places) :])
        whitened = _solved(factors.lower, values)
        square = (whitened @ whitened + 1) / (len(values) + 1)
        whole = 1 + factors.scales.noise + _JITTER + self._slopes**2
        left = np.maximum(whole - factors.explained, _JITTER)
        return whitened @ factors.white, np.sqrt(square * left)

    def _scales_of(self, places: NDArray[np.intp], values: Array, start: _Scales | None) -> _Scales:
        """Find length scales and noise, by some of the measurements where there are many."""
        if len(places) > _MOST_SCALED:
            drawn = np.random.default_rng(0).permutation(len(places))[:_MOST_SCALED]
            places, values = places[drawn], values[drawn]
        base = np.outer(self._slopes[places], self._slopes[places])
        return _most_probable(self._inputs[places], values, base, start)

    def _append(self, factors: _Factors, places: NDArray[np.intp]) -> None:
        """Add measured configurations to the factors."""
        if not len(places):
            return
        scales = factors.scales
        reach = _similarity(self._inputs[places], self._inputs, scales.lengths)
        reach += np.outer(self._slopes[places], self._slopes)
        known = len(factors.places)
        there = factors.white[:, places]
        among = reach[:, places] + (scales.noise + _JITTER) * np.eye(len(places))
        corner = np.asarray(np.linalg.cholesky(among - there.T @ there), np.float64)
        size = known + len(places)
        lower = np.zeros((size, size))
        lower[:known, :known] = factors.lower
        lower[known:, :known] = there.T
        lower[known:, known:] = corner
        factors.extend(_solved(corner, reach - there.T @ factors.white))
        factors.lower = lower
        factors.places += [int(position) for position in places]

    def _log_cost(self, mean: Array) -> Array:
        """Return the logarithm of what measuring is expected to take: as told, by the run time."""
        known = [place for place in self._costs_s if not np.isnan(self._log_times[place])]
        if len(known) < self._first:
            return np.zeros(len(mean))
        times = np.exp([self._log_times[place] for place in known])
        costs = np.array([self._costs_s[place] for place in known])
        from scipy.optimize import nnls

        scale = 1 / costs  # relative errors
        matrix = np.stack([scale, times * scale], axis=1)
        fixed, runs = nnls(matrix, np.ones(len(known)))[0]
        return np.log(fixed + runs * np.exp(mean))


def inputs_of(configurations: Sequence[Choice]) -> Array:
    """Return the values of parameters as numbers from 0 to 1, shape (n, p).

    Parameters that do not vary are left out. Values of a text or truth value get a column each.
    """
    columns: list[Array] = []
    for name in configurations[0]:
        values = [configuration[name] for configuration in configurations]
        distinct = list(dict.fromkeys(values))
        if len(distinct) == 1:
            continue
        if all(isinstance(value, int | float) for value in distinct):
            columns.append(_scaled(np.array(values, np.float64)))
        else:
            columns += _indicators(values, distinct)
    return np.stack(columns, axis=1) if columns else np.zeros((len(configurations), 1))


def _indicators(values: Sequence[Value], distinct: Sequence[Value]) -> list[Array]:
    kept = distinct[1:] if len(distinct) == 2 else distinct
    share = 1.0 if len(distinct) == 2 else 0.5  # two values that differ are apart by 1
    return [np.array([share * (value == one) for value in values]) for one in kept]


def _scaled(values: Array) -> Array:
    low, high = float(values.min()), float(values.max())
    if low > 0 and high / low >= _LOGARITHMIC_SPAN:
        return _unit(np.log(values))
    return _unit(np.searchsorted(np.unique(values), values).astype(np.float64))


def _unit(values: Array) -> Array:
    span = float(np.ptp(values))
    return (values - values.min()) / span if span else np.zeros(len(values))


def _prior(predicted_s: Sequence[float] | Array | None, count: int) -> Array | None:
    """Return logarithms of predicted times; what has none counts as slow as the slowest."""
    if predicted_s is None:
        return None
    times = np.asarray(predicted_s, np.float64)
    known = np.isfinite(times) & (times > 0)
    if times.shape != (count,) or not known.any():
        raise ParameterError(
            f"predicted_s has the shape {times.shape} and {int(known.sum())} positive times:"
            f" pass one time for each of the {count} configurations, nan where there is none",
            parameter="predicted_s",
        )
    return np.log(np.where(known, times, times[known].max()))


def _solved(lower: Array, right: Array) -> Array:
    """Return ``x`` of ``lower @ x = right``."""
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(lower, right, lower=True))


def _similarity(some: Array, others: Array, lengths: Array) -> Array:
    total = np.zeros((len(some), len(others)))
    for column, length in enumerate(lengths):
        total += np.abs(some[:, column, None] - others[None, :, column]) / length
    return np.exp(-total)


def _most_probable(there: Array, values: Array, base: Array, start: _Scales | None) -> _Scales:
    """Find length scales and noise of the largest posterior probability."""
    from scipy.optimize import minimize

    count = there.shape[1]
    evidence = Evidence(apart=np.abs(there[:, None] - there[None]), values=values, base=base)
    at = prior_logs(count)
    if start is not None:
        at = np.append(np.log(start.lengths), np.log(start.noise))
    bounds = [(-5.0, 8.0)] * count + [(-12.0, 3.0)]
    most_probable = minimize(
        evidence, at, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _ITERATIONS}
    ).x
    return _Scales(lengths=np.exp(most_probable[:-1]), noise=float(np.exp(most_probable[-1])))


def prior_logs(count: int) -> Array:
    """Return the prior means of the logarithms of `count` length scales, and of the noise."""
    return np.append(np.full(count, np.log(_LENGTH)), np.log(_NOISE))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Negative logarithm of the posterior density of length scales and noise."""

    apart: Array  # distances of n measured configurations in each of p inputs
    values: Array  # standardised logarithms of their times
    base: Array  # covariance that does not depend on the length scales

    def __call__(self, logs: Array) -> tuple[float, Array]:
        """Return the value but for a constant, and its gradient, at p + 1 logarithms."""
        count = len(self.values)
        lengths, noise = np.exp(logs[:-1]), float(np.exp(logs[-1]))
        similar = np.exp(-(self.apart / lengths).sum(axis=2))
        among = similar + self.base + (noise + _JITTER) * np.eye(count)
        inverse = np.linalg.inv(among)
        solved = inverse @ self.values
        square = float(self.values @ solved) + 1
        spread = np.append(np.full(len(lengths), _LENGTH_SPREAD), _NOISE_SPREAD)
        off = (logs - prior_logs(len(lengths))) / spread
        determinant = float(np.linalg.slogdet(among)[1])
        value = (count + 1) / 2 * np.log(square) + determinant / 2 + off @ off / 2
        inner = inverse - (count + 1) / square * np.outer(solved, solved)
        slopes = 0.5 * np.einsum("ij,ij,ijq->q", inner, similar, self.apart) / lengths
        slope = np.append(slopes, 0.5 * noise * np.trace(inner)) + off / spread
        return float(value), slope


def _log_improvement(z: Array, log_ndtr: np.ufunc) -> Array:
    """Return the logarithm of ``z Phi(z) + phi(z)``, also far below zero."""
    log_phi = -(z**2) / 2 - 0.5 * np.log(2 * np.pi)
    exact = np.log(np.maximum(z * np.exp(log_ndtr(z)) + np.exp(log_phi), 1e-300))
    return np.where(z < -6, log_phi - 2 * np.log(np.maximum(-z, 1.0)), exact)
