r"""Corrections of predictions, by similar measured kernels and by measured runs of the kernel.

**Similar kernels.** The logarithm of measured over predicted time of each measured kernel is taken
as a Gaussian process over what the model makes of it,

.. math::

   \hat r(x) = \sum_i \alpha_i k(x, x_i), \quad
   \alpha = (K + \tau^2 I)^{-1} r, \quad
   k(x, x') = \exp\Bigl(-\sqrt{|\rho - \rho'|^2 + |\lambda - \lambda'|^2 / (4 m)}\Bigr)

with the square roots :math:`\rho` of the shares of the predicted time that the weights take, the
logarithms :math:`\lambda_c = \log(1 + x_c / g)` of what the model charges, for each of :math:`g`
groups, and the median :math:`m` of :math:`|\lambda - \lambda'|^2` over pairs of measured kernels.
Predictions are multiplied by :math:`e^{\hat r}`.

Source: Rasmussen, Williams (2006), "Gaussian Processes for Machine Learning", equations 2.25
(prediction) and 4.18 (the exponential kernel).

**Runs of the kernel.** With :math:`r = \log(m/p)` of measured and predicted times, a kernel's
:math:`r` scatter about a value of its own with :math:`\sigma_w` (within kernels), and those values
about zero with :math:`\sigma_b` (between kernels). From :math:`n` runs with mean :math:`\bar r`

.. math::

   \hat r = \frac{\sigma_b^2}{\sigma_b^2 + \sigma_w^2 / n} \, \bar r, \quad
   v = \left( \frac{1}{\sigma_b^2} + \frac{n}{\sigma_w^2} \right)^{-1}

Intervals follow the calibrated quantile of logarithms, times
:math:`\sqrt{(v + \sigma_w^2) / (\sigma_b^2 + \sigma_w^2)}`.

Source: Searle, Casella, McCulloch (1992), "Variance Components", section 3.4.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, Strict, model_validator
from pydantic_core import from_json

from countperf.documents import Part
from countperf.errors import DeviceMismatchError, ParameterError, PredictionError
from countperf.models import predictions
from countperf.models.function import LEAST_SCATTER, Calibration, ColumnKey, raise_to_launch
from countperf.models.predictions import Array, Prediction, Quantity, Verdict

if TYPE_CHECKING:
    from countperf.counting.vector import PropertyVector
    from countperf.measuring import Measurement, Timing

    Anchor: TypeAlias = tuple[Mapping[str, int], float] | Measurement | Timing | Path | str
    """Parameters of a run and its measured time, s; or what holds runs."""

_COUNT_SHARE = 4.0
"""Scale of the distance of counts relative to the distance of shares, in median distances."""

_AT_ONCE = 256
_CLOSE = 1e-4
_NAMED = 3


def pack(content: Any) -> str:
    """Return lists of numbers or names as text; `unpack` returns the same."""
    text = json.dumps(content, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def unpack(content: Any) -> Any:
    """Return what a text has; `ValueError` if it is damaged."""
    if not isinstance(content, str):
        return content
    try:
        text = zlib.decompress(base64.b64decode(content, validate=True))
        return from_json(text, allow_inf_nan=False)
    except (zlib.error, ValueError) as error:
        raise ValueError(f"packed numbers of a damaged document: {error}") from error


_LISTS = Strict(strict=False)  # are tuples, too
_READ = BeforeValidator(unpack)
_WRITTEN = PlainSerializer(pack, return_type=str, when_used="json")
Names = Annotated[tuple[str, ...], _LISTS, _READ, _WRITTEN]
Floats = Annotated[tuple[float, ...], _LISTS, _READ, _WRITTEN]
FloatRows = Annotated[tuple[Annotated[tuple[float, ...], _LISTS], ...], _LISTS, _READ, _WRITTEN]


class Correction(Part):
    r"""Measured kernels, and what each says of kernels like it."""

    kernels: Names = Field(min_length=1)  # their names
    roots: FloatRows  # for each kernel and weight
    logs: FloatRows
    coefficients: Floats  # for each kernel, :math:`\alpha_i`, natural logarithms
    scale: float = Field(gt=0)  # median squared distance of `logs` over pairs of kernels

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        number = len(self.kernels)
        if {len(self.coefficients), len(self.roots), len(self.logs)} != {number}:
            raise ValueError(f"of {number} kernels, not all have roots, logs and coefficients")
        if len({len(row) for row in (*self.roots, *self.logs)}) != 1:
            raise ValueError("kernels have roots and logs of different numbers of weights")
        return self

    @cached_property
    def _points(self) -> Array:
        return as_points(np.array(self.roots), np.array(self.logs), self.scale)

    @cached_property
    def _alpha(self) -> Array:
        return np.array(self.coefficients)

    @cached_property
    def _parts(self) -> dict[bytes, tuple[Any, ...]]:
        """By columns: axes that are theirs, these, their squared norms, those of all others."""
        return {}

    def find_log_factors(self, roots: Array, logs: Array) -> Array:
        """Return logarithms of corrections; profiles are along the last axis.

        Not by BLAS, which rounds otherwise at several sizes, and whose threads wait for each other.
        """
        points = as_points(roots, logs, self.scale).reshape(-1, 2 * roots.shape[-1])
        columns = [*map(bytes, (roots + logs != 0).reshape(len(points), -1))]
        found = np.empty(len(points))
        for those in set(columns):
            if those not in self._parts:
                own = np.tile(np.frombuffer(those, np.bool_), 2)
                axes, rest = (np.ascontiguousarray(self._points[:, a].T) for a in (own, ~own))
                self._parts[those] = own, axes, (axes**2).sum(axis=0), (rest**2).sum(axis=0)
            own, axes, squares, rest = self._parts[those]
            members = np.flatnonzero([others == those for others in columns])
            for some in np.split(members, range(_AT_ONCE, len(members), _AT_ONCE)):
                rows = np.ascontiguousarray(points[some][:, own])
                products = np.einsum("ni,ij->nj", rows, axes)
                apart = _square_distances(rows, axes, squares, products) + rest
                found[some] = np.vecdot(np.exp(-np.sqrt(apart)), self._alpha)
        return found.reshape(roots.shape[:-1])

    def verdict(self, log_factor: Quantity, told: tuple[Array, Array]) -> Verdict:
        """Say by what a prediction was multiplied, and after which measured kernels."""
        points = as_points(*told, self.scale)
        alike = similarity(points.reshape(-1, points.shape[-1])[:1], self._points)[0]
        nearest = [self.kernels[i] for i in np.argsort(-alike, kind="stable")[:_NAMED]]
        factor = np.exp(np.atleast_1d(log_factor))
        low, high = float(factor.min()), float(factor.max())
        by = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        return Verdict(
            name=predictions.CORRECTION,
            passed=True,
            message=f"multiplied by {by}, by which similar measured kernels were off; most similar:"
            f" {', '.join(nearest)}",
        )


def profile(
    columns: Sequence[ColumnKey], values: Array, scaled: Array, unknowns: Sequence[float] | Array
) -> tuple[Array, Array]:
    """Return roots of shares of time, and logarithms of counts; columns are the last axis."""
    sizes = np.abs(np.asarray(unknowns, np.float64) * scaled)
    whole = sizes.sum(axis=-1, keepdims=True)
    # the weight of groups, by whose number counts are divided
    groups = [i for i, (_, feature) in enumerate(columns) if feature == "groups"][:1]
    number = np.maximum(values[..., groups], 1.0) if groups else 1.0
    roots = np.sqrt(sizes / np.where(whole > 0, whole, 1.0))
    return roots, np.log1p(np.maximum(values, 0.0) / number)


def as_points(roots: Array, logs: Array, scale: float) -> Array:
    """Put both parts of profiles into one space, shape (*shape, 2 * n_columns)."""
    return np.concatenate([roots, logs / np.sqrt(_COUNT_SHARE * scale)], axis=-1)


def similarity(points: Array, others: Array) -> Array:
    """Return the covariance of kernels, shape (n_points, n_others), from points as rows."""
    squares = (others**2).sum(axis=1)
    return np.exp(-np.sqrt(_square_distances(points, others.T, squares, points @ others.T)))


def _square_distances(points: Array, others: Array, squares: Array, products: Array) -> Array:
    """Return the squared distances of points, shape (..., n_axes), from others, as columns."""
    squared_distances = squares - 2.0 * products
    squared_distances += np.einsum("...i,...i->...", points, points)[..., np.newaxis]
    close = np.nonzero(squared_distances < _CLOSE * squares)  # little is left of large numbers
    squared_distances[close] = ((points[close[:-1]] - others.T[close[-1]]) ** 2).sum(axis=-1)
    return squared_distances


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origin:
    """Weights and counts that a prediction is made from."""

    weights: Any  # a `countperf.models.weights.WeightSet`
    kernel: PropertyVector
    options: Mapping[str, Any]  # of `WeightSet.predict_counts`

    def anchor(self, prediction: Prediction, given: Sequence[Anchor]) -> Prediction:
        """Correct the prediction by measured runs of its kernel; see `Prediction.anchor`."""
        quality, device = self.weights.quality, self.weights.device
        if quality is None or quality.calibration is None:
            raise PredictionError(
                f"the weights of {device.slug} do not say how kernels scatter, which anchoring"
                " needs: fit them anew, from at least three classes of kernels that share"
                " properties"
            )
        runs = [run for one in given for run in self._read_runs(one)]
        if not runs:
            raise ParameterError("anchoring needs a measured run", parameter="runs")
        sizes = [dict(at) for at, _ in runs]
        if doubled := [at for position, at in enumerate(sizes) if at in sizes[:position]]:
            listed = ", ".join(f"{name}={value}" for name, value in doubled[0].items())
            said = f"two runs have the same sizes, {listed or 'none'}: give one, the faster"
            raise ParameterError(said, parameter="runs")
        logs = [self._log_error(*run) for run in runs]
        factor, shrink = shrink_errors(quality.calibration, logs)
        made: Prediction = self.weights.predict_counts(
            self.kernel, prediction.parameters, shrink=shrink, **self.options
        )
        ends = made.interval_s
        time_s = raise_to_launch(factor * made.time_s, self.weights.shortest_launch_s)
        others_s = made.time_s - made.breakdown.get(predictions.CORRECTION, 0.0)
        parts = {**made.breakdown, predictions.CORRECTION: time_s - others_s}
        verdict = Verdict(
            name="anchor",
            passed=True,
            message=f"multiplied by {factor:.3g} after {len(runs)} measured run"
            f"{'s' if len(runs) > 1 else ''} of this kernel",
        )
        return replace(
            made,
            model=f"{made.model}, anchored",
            time_s=time_s,
            breakdown=predictions.largest_first(parts),
            interval_s=None if ends is None else (factor * ends[0], factor * ends[1]),
            verdicts=(*made.verdicts, verdict),
        )

    def _read_runs(self, given: Anchor) -> list[tuple[Mapping[str, int], float]]:
        """Return the runs of a timing, which has to be of the kernel and the device."""
        from countperf.measuring import Measurement, Timing

        if isinstance(given, tuple):
            return [given]
        if isinstance(given, Measurement):
            return [(given.parameters, given.time_s)]
        timing = Timing.read_file(given) if isinstance(given, Path | str) else given
        device = self.options["device"] or self.weights.device
        if not device.matches(timing.device):
            raise DeviceMismatchError(
                f"the timing of {timing.kernel!r} is of {timing.device.slug}"
                f" ({timing.device.name}), and the prediction is for {device.slug} ({device.name}),"
                f" which differ in {timing.device.differences_text(device)}: time the kernel there,"
                " or take weights of the timing's device"
            )
        return [(run.parameters, run.time_s) for run in timing.runs_of(self.kernel)]

    def _log_error(self, parameters: Mapping[str, int], time_s: float) -> float:
        if not (math.isfinite(time_s) and time_s > 0):
            raise ParameterError(f"a measured time is positive, not {time_s} s", parameter="time_s")
        made = self.weights.predict_counts(self.kernel, parameters, **self.options)
        predicted_s = float(made.time_s)
        if predicted_s <= 0:
            raise PredictionError(
                f"the {made.model} model predicts {predicted_s} s for {made.kernel!r} at"
                f" {dict(parameters)}, which no factor corrects: use a model with weights >= 0"
            )
        return math.log(time_s / predicted_s)


def shrink_errors(calibration: Calibration, logs: Sequence[float]) -> tuple[float, float]:
    """Return what predictions are multiplied by, and the logarithmic width of intervals."""
    between = max(calibration.between_kernels, LEAST_SCATTER) ** 2
    within = max(calibration.within_kernels, LEAST_SCATTER) ** 2
    shared = between / (between + within / len(logs))
    left = 1.0 / (1.0 / between + len(logs) / within)
    factor = math.exp(shared * sum(logs) / len(logs))
    return factor, math.sqrt((left + within) / (between + within))
