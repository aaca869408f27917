r"""A model as a function of features and weights.

With features :math:`x_c` of columns :math:`c`, each of a term :math:`t(c)` with scale
:math:`s_{t(c)}`, the time is :math:`T = \sum_c w_c \, s_{t(c)} x_c`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from countperf import errors
from countperf.devices.identity import DeviceIdentity
from countperf.documents import Part
from countperf.models.definition import CountValue, ModelDefinition, Unread, covers, to_float
from countperf.models.predictions import Array, Quantity, Verdict
from countperf.text import ShortRepr

NORMAL_QUANTILES = {0.9: 1.6448536269514722, 0.95: 1.959963984540054}
"""Quantiles of the standard normal distribution for two-sided intervals of these levels."""

_WITHIN = 1 / 3  # share of the variance of a wider scatter that is among sizes of a kernel

ColumnKey = tuple[str, str]  # a term and a feature of it, for which there is one weight


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelInputs(ShortRepr):
    """Feature values of a kernel at given parameters."""

    values: dict[ColumnKey, Quantity]  # features that are not zero, in the order of the model
    variables: dict[str, Quantity]  # scales of terms
    ignored: tuple[str, ...]  # properties that are not zero and that the model ignores
    unknown: tuple[str, ...]  # those that it has no rule for
    issued: Mapping[str, CountValue]  # what `ModelDefinition.count_model_inputs` returns


def model_inputs(model: ModelDefinition, counts: Mapping[str, CountValue]) -> ModelInputs:
    """Sort a kernel's counts, as ``PropertyVector.evaluate`` returns them, into columns."""
    model.check_code(counts)
    seen = model.count_model_inputs(counts)
    present = {name: count for name, count in seen.items() if np.any(count != 0)}
    values: dict[ColumnKey, Quantity] = {}
    covered: set[str] = set()
    for term, spec in model.term_features.items():
        applied = spec.apply(present)
        values.update({(term, feature): value for feature, value in applied.items()})
        covered.update(name for name in present if spec.feature_of(name) is not None)
    names: dict[str, Any] = {}
    for name, wanted in model.base_properties.items():
        among = [other for other in present if covers(wanted, other)]
        covered.update(among)
        names[name] = to_float(sum((present[other] for other in among), start=0))
    for name, formula in model.formulas.items():
        names[name] = formula(names)
    names = {name: to_float(value) for name, value in names.items()}
    for term, definition in model.terms.items():
        for feature in definition.charged:
            if feature in model.derived and np.any(np.asarray(names[feature]) != 0):
                values[term, feature] = names[feature]
    rest = [name for name in present if name not in covered]
    return ModelInputs(
        values=values,
        variables={name: names[name] for name in model.scales},
        ignored=tuple(sorted(name for name in rest if model.features.ignores(name))),
        unknown=tuple(sorted(name for name in rest if not model.features.ignores(name))),
        issued=seen,
    )


_MASKED_LOCAL = re.compile(r"(issue\.\w+\.lmem\.\w+)\.masked")
_UNMASKED = ("shifted", "next")
"""As which a masked access of local memory without a weight is charged: the likeliest first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFunction(ShortRepr):
    """A model over fixed columns, for each of which there is one weight."""

    model: ModelDefinition
    columns: tuple[ColumnKey, ...]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """A name for each column: the feature, preceded by its term where several have it."""
        number = Counter(feature for _, feature in self.columns)
        return tuple(f if number[f] == 1 else f"{term}:{f}" for term, f in self.columns)

    def find_column(self, column: ColumnKey) -> ColumnKey:
        """Return the column by whose weight a feature is charged: its own, or that of another."""
        match = _MASKED_LOCAL.fullmatch(column[1])
        if match is None or column in self.columns:
            return column
        others = ((column[0], f"{match[1]}.{kind}") for kind in _UNMASKED)
        return next((other for other in others if other in self.columns), column)

    def columns_of(self, name: str) -> set[ColumnKey]:
        """Return the columns that charge a property."""
        specs = self.model.term_features.items()
        found = {(term, feature) for term, spec in specs if (feature := spec.feature_of(name))}
        return {*map(self.find_column, found)}

    @cached_property
    def members(self) -> dict[str, NDArray[np.intp]]:
        """The columns of each term, by position."""
        of_columns = np.array([term for term, _ in self.columns])
        return {term: np.flatnonzero(of_columns == term) for term in self.model.terms}

    def scale_values(self, values: Array, variables: Mapping[str, Quantity]) -> Array:
        """Return features, along the last axis, times the scales of their terms."""
        scaled = np.array(values, np.float64)
        for term, members in self.members.items():
            if (scale := self.model.terms[term].scale) and members.size:
                scaled[..., members] *= np.asarray(variables[scale])[..., np.newaxis]
        return scaled

    @cached_property
    def lower(self) -> Array:
        """Lower bounds of the weights; minus infinity for none."""
        bounds = [self.model.terms[term].lower for term, _ in self.columns]
        return np.array([-np.inf if bound is None else bound for bound in bounds], np.float64)


class Weight(Part):
    """Weight of one feature."""

    feature: str  # the feature: a property name, or the sum of the properties that begin with it
    value_s: float  # seconds per unit of the feature
    standard_error_s: float | None  # standard error, s
    unit: str  # what one unit of the feature is, such as ``operation``
    # of the values above zero over the measurements; None where launches are measured by themselves
    smallest: float | None = None
    largest: float  # value of the feature over the measurements
    term: str = "cost"  # the term of the model that the weight is in

    def scale_by(self, factor: float) -> Self:
        """Return it with its standard error times a factor."""
        error = self.standard_error_s
        error = None if error is None else factor * error
        return self.model_copy(update={"value_s": factor * self.value_s, "standard_error_s": error})


class Range(Part):
    """Largest value of a scale of terms over the measurements of a fit."""

    smallest: Unread = Field(default=(), exclude=True)
    largest: float


class Coverage(Part):
    """In which share of left-out cases intervals made from the *other* families hold the time."""

    share_90: float = Field(ge=0, le=1)  # for intervals of these levels
    share_95: float = Field(ge=0, le=1)
    median_factor_90: float = Field(ge=1)
    families: int = Field(gt=0)  # what was left out, one family at a time
    cases: int = Field(gt=0)


class Calibration(Part):
    """Quantiles of the errors of predictions of left-out families."""

    log_errors_90: float = Field(ge=0)
    log_errors_95: float = Field(ge=0)
    between_kernels: float = Field(ge=0)
    within_kernels: float = Field(ge=0)
    families: int = Field(gt=0)  # left-out families and cases with a prediction
    cases: int = Field(gt=0)

    def widen(self, factor: float, scatter: float) -> Self:
        """Return it for errors that grow by a factor, and by a scatter of logarithms."""
        grown = {
            "log_errors_90": (self.log_errors_90, NORMAL_QUANTILES[0.9]),
            "log_errors_95": (self.log_errors_95, NORMAL_QUANTILES[0.95]),
            "between_kernels": (self.between_kernels, (1 - _WITHIN) ** 0.5),
            "within_kernels": (self.within_kernels, _WITHIN**0.5),
        }
        changes = {n: float(np.hypot(factor * old, z * scatter)) for n, (old, z) in grown.items()}
        return self.model_copy(update=changes)


class IndistinguishableGroup(Part):
    """Features whose weights the measurements cannot tell apart."""

    features: tuple[str, ...] = Field(min_length=1)  # their names
    relations: tuple[dict[str, float], ...] = Field(min_length=1)


class FitQuality(Part):
    """Quality of a fit on its measurements."""

    # geometric mean of the relative errors over the measurements of the fit
    in_sample_error: float = Field(ge=0)
    # the same where each family of kernels is predicted from the others
    held_out_error: float | None = Field(ge=0)
    # factor by which these predictions are off, each family counting the same
    held_out_factor: float | None = Field(default=None, ge=1)
    # standard deviation of log(predicted / measured) of the fit, and of these predictions: robust,
    # or by degrees of freedom where there is no calibration
    in_sample_scatter: float | None = Field(ge=0)
    held_out_scatter: float | None = Field(ge=0)
    calibration: Calibration | None = None  # what intervals are made of
    coverage: Coverage | None = None  # how well such intervals hold
    model_error: float | None = Field(default=None, gt=0)
    objective: str = ""  # what the fit made small, in words


class MeasurementSource(Part):
    """Source of a fit: its measurements."""

    # measured cases in the fit, and those of them whose samples spread too far
    cases: int = Field(gt=0)
    unstable_cases: int = Field(ge=0)
    families: tuple[str, ...]  # families of measurement kernels
    protocol: str  # how and when they were measured
    recorded_at: str
    memory_s: tuple[PositiveFloat, ...] = ()  # copies of 2 MiB in the last cache, in memory, s


DERIVED = "unit"  # unit of a weight of a derived feature, in documents: the feature itself

Level = float  # in which share of cases an interval is to hold the time: 0.9 or 0.95

Where = NDArray[np.bool_]
"""Truth of something at each size of a prediction; of no dimension at a single one."""

EXTRAPOLATION_WIDENING = 1.5
"""Growth of intervals, as logarithms of ratios, far outside the measured range: a choice."""

WORST_LOG_RATIO = float(np.log(1000.0))
"""Times that are off by more count as off by that."""

WIDEST_REACH = float(np.log(10.0))
"""No interval is given that would reach further: not even the order of the time is known then."""

LEAST_SCATTER = 0.01  # least standard deviation of logarithms of a kernel's times

RELATION_TOLERANCE = 1e-6
"""A relation of counts holds if what is left of its terms is below this share of them."""

EXTRAPOLATION_FACTOR = 2.0
"""Factor by which a feature may exceed its largest measured value without a verdict."""

SHORTEST_LAUNCH_S = {"cpu": 0.2e-6, "gpu": 1.08e-6}
"""Time of the shortest launch known of a kind of device, s: measured by PoCL on a Zen 4; the
smallest weight of launches of a shipped fit of a GPU that is well known (GTX Titan Black)."""

LAUNCH = "launch.shortest"  # part by which a time is raised to that of the shortest launch

NOTABLE_SHARE = 0.05
"""Features that take less of the time than this are not checked for their range."""

_MOST_UNCALIBRATED = 2  # families that are predicted from the others where they do not calibrate


def log_quantile(
    quality: FitQuality, level: Level, *, freedom: int = 0, error: Quantity = 0.0
) -> Quantity:
    """Return what ``|log(predicted / measured)|`` of new kernels stays below at a level.

    It is the calibrated quantile over families left out, where the fit has one. Else it is
    Student's quantile of the fit's own scatter and of the relative standard error of the time, or
    that of the scatter of the one or two families left out. Infinite if the cases leave no freedom.
    """
    if level not in NORMAL_QUANTILES:
        there = " and ".join(str(known) for known in sorted(NORMAL_QUANTILES))
        raise errors.ParameterError(f"intervals are of {there}, not of {level}", parameter="level")
    if (own := quality.calibration) is not None:
        quantile = own.log_errors_95 if level == 0.95 else own.log_errors_90
        return max(quantile, NORMAL_QUANTILES[level] * LEAST_SCATTER)
    if freedom < 1 or quality.in_sample_scatter is None:
        return np.inf
    own_error = np.hypot(max(quality.in_sample_scatter, LEAST_SCATTER), error)
    held_out = student_quantile(level, _MOST_UNCALIBRATED) * (quality.held_out_scatter or 0.0)
    return np.maximum(student_quantile(level, freedom) * own_error, held_out)


def student_quantile(level: Level, freedom: int) -> float:
    """Return the quantile of Student's distribution for two-sided intervals of a level.

    From three degrees of freedom on it is the series of Abramowitz and Stegun (1964), 26.7.5.
    """
    if freedom == 1:
        return math.tan(0.5 * math.pi * level)
    if freedom == 2:
        return level * math.sqrt(2.0 / (1.0 - level**2))
    z = NORMAL_QUANTILES[level]
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def interval(time_s: Quantity, reach: Quantity) -> tuple[Quantity, Quantity] | None:
    """Return :math:`T e^{-r}` and :math:`T e^r`; NaN where it says nothing, or None."""
    reach = np.where((np.asarray(time_s) > 0) & (reach < WIDEST_REACH), reach, np.nan)
    if np.all(np.isnan(reach)):
        return None
    factor = np.exp(reach) if isinstance(time_s, np.ndarray) else float(np.exp(reach))
    return time_s / factor, time_s * factor


def make_unmeasured_error(
    kernel: str, device: str, properties: Iterable[str]
) -> errors.UnmeasuredPropertyError:
    """Return the error that a kernel needs properties of which weights of a device have none."""
    names, way = tuple(properties), errors.option("incomplete_ok", "True")
    message = (
        f"kernel {kernel!r} needs {', '.join(names)}, for which the weights of {device} have no"
        " value: measure kernels that have them (countperf measure --profile broad has many) and"
        f" refit, or ask for a prediction without their cost ({way})"
    )
    return errors.UnmeasuredPropertyError(message, properties=names)


REMEDIES: Mapping[str, str] = {
    "complete": "measure kernels that exercise them, and refit",
    "indistinguishable": "measure kernels that have these properties in other proportions, and"
    " refit",
    "extrapolation": "measure kernels of such sizes, and refit",
    "masked": "measure kernels that have them, and refit",
    "launch": "measure launches of little work there, and refit",
    "interval": "take another model of these weights, or measure more classes of kernels, and"
    " refit",
    "groups": "correct predictions by runs: countperf time ... --output FILE, then predict --anchor"
    " FILE",
    "sign": "fit with weights of at least zero (countperf fit FILE --nonnegative), or measure"
    " kernels closer to this one",
    "device": "measure and fit anew on this device",
    "weights": "",
}
"""Advice that mends a problem of a prediction, by the name of its caveat."""


def make_caveats(**problems: Any) -> tuple[Verdict, ...]:
    """Return a verdict for each problem that is a text, and not empty."""
    said = [(name, problem, REMEDIES[name]) for name, problem in problems.items() if problem]
    return tuple(Verdict(name=n, passed=False, message=p, remedy=r) for n, p, r in said)


def describe_guess(groups: Sequence[IndistinguishableGroup], counts: Mapping[str, Quantity]) -> str:
    """Say if the kernel needs weights apart that the measurements left together."""
    names = "; ".join(", ".join(group.features) for group in find_broken_groups(groups, counts))
    return names and (
        f"the measurements cannot tell apart {names}, and this kernel has them in another"
        " proportion: how their cost is shared is a guess"
    )


def find_broken_groups(
    groups: Sequence[IndistinguishableGroup], counts: Mapping[str, Quantity]
) -> list[IndistinguishableGroup]:
    """Return the groups of which a kernel breaks a relation that held in every measurement."""
    return [group for group in groups if np.any(breaks(group, counts))]


def breaks(group: IndistinguishableGroup, counts: Mapping[str, Quantity]) -> Where:
    """Return at which sizes a kernel breaks a relation of a group."""
    return anywhere(~_holds(relation, counts) for relation in group.relations)


def _holds(relation: Mapping[str, float], counts: Mapping[str, Quantity]) -> Where:
    terms = [factor * np.asarray(counts.get(name, 0.0)) for name, factor in relation.items()]
    size = sum((np.abs(term) for term in terms), start=np.zeros(()))
    rest = np.abs(sum(terms, start=np.zeros(())))
    return np.asarray(rest <= RELATION_TOLERANCE * size)


def anywhere(places: Iterable[Where]) -> Where:
    """Return the sizes that are among some of these."""
    return reduce(np.logical_or, places, np.zeros((), np.bool_))


def features_outside(
    weights: Mapping[str, Weight], values: Iterable[Quantity], parts: Mapping[str, Quantity]
) -> tuple[dict[str, Where], dict[str, Where]]:
    """Return the notable features far above the range of the measurements, and those below it."""
    sizes = {name: np.abs(part) for name, part in parts.items() if name != LAUNCH}
    whole = sum(sizes.values(), start=np.zeros(()))
    work = whole - sizes.get("launches", 0.0)
    above: dict[str, Where] = {}
    below: dict[str, Where] = {}
    for (key, weight), count in zip(weights.items(), values, strict=True):
        if key not in parts:
            continue
        is_far = count > EXTRAPOLATION_FACTOR * weight.largest
        if np.any(places := is_far & (sizes[key] >= NOTABLE_SHARE * whole)):
            above[key] = places
        is_less = (count > 0) & (count < (weight.smallest or 0.0))
        if np.any(places := is_less & (sizes[key] >= NOTABLE_SHARE * work)):
            below[key] = places
    return above, below


def describe_range(above: Iterable[str], below: Iterable[str]) -> str:
    """Say what lies far above the range of the measurements, or below it."""
    places = {"far above the largest": above, "below the smallest": below}
    return "; ".join(f"{where} value measured: {', '.join(n)}" for where, n in places.items() if n)


def raise_to_launch(time_s: Quantity, shortest_s: float) -> Quantity:
    """Raise times above zero to that of the shortest launch."""
    if isinstance(time_s, np.ndarray):
        return np.where((time_s > 0) & (time_s < shortest_s), shortest_s, time_s)
    return shortest_s if 0 < time_s < shortest_s else time_s


def describe_interval(reach: Quantity) -> str:
    """Say why there is no interval, where the fit does not know how far off its predictions are."""
    if np.any(np.isinf(reach)):
        return "none: the fit has no more measured cases than weights, so no error is known"
    if np.any(np.asarray(reach) >= WIDEST_REACH):
        return (
            "none: it would reach a factor of 10 or more either way, by the errors of the fit and"
            " of classes of kernels left out of it (times below zero count as a factor of 1000)"
        )
    return ""


def refuse_infinite(model: str, times_s: Array) -> None:
    """Raise `ModelNotApplicableError` for a time that is infinite or no number."""
    if not np.all(np.isfinite(times_s)):
        raise errors.ModelNotApplicableError(
            f"the {model} model gives no finite time here: a derived feature divides by zero, or"
            " takes the logarithm of what is not positive"
        )


def refuse_negative(model: str, kernel: str, time_s: Quantity) -> None:
    """Raise `ModelNotApplicableError` for a time below zero; several at once are all refused."""
    if np.any(np.asarray(time_s) < 0):
        raise errors.ModelNotApplicableError(
            f"the {model} model predicts {float(np.min(time_s)):.3g} s for {kernel!r}: its negative"
            " weights outweigh the others; name a model without them (countperf weights lists"
            " models), or fit with nonnegative=True (countperf fit --nonnegative)"
        )


def describe_device(fitted: DeviceIdentity, asked: DeviceIdentity) -> str:
    """Say in what the device asked for differs from that of the weights."""
    pairs = fitted.differences(asked).items()
    text = "; ".join(f"{field} {old!r}, now {new!r}" for field, (old, new) in pairs)
    return text and f"not quite the device of the weights: {text}"
