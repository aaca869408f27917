"""Coverage of a kernel's features by the measurements of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from countperf.display import ShortRepr, Table
from countperf.errors import ParameterError
from countperf.models.correction import CORRECTION
from countperf.models.fitted_weights import Charge, FittedWeights
from countperf.models.function import ModelInputs
from countperf.models.records import IndistinguishableGroup, Range
from countperf.models.unmeasured import ExercisingKernels
from countperf.models.validity import EXTRAPOLATION_FACTOR, NOTABLE_SHARE, broken_groups
from countperf.predictions import Verdict

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector

Status = Literal["covered", "extrapolated", "inseparable", "unmeasured"]
"""Status of a feature, from best to worst; *inseparable* is what the kernel has in another
proportion than all measurements, which nothing tells apart."""

Grade = Literal["covered", "extrapolates", "not covered"]

_ELEMENT_TYPES = ("f32", "f64")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCoverage(ShortRepr):
    """Coverage of one feature of a kernel."""

    name: str  # the feature, as breakdowns name it
    status: Status  # the worst that can be said
    unit: str = ""  # of the value
    value: float | None = None  # the kernel's
    share: float | None = None  # of the predicted time, the parts of which are taken as positive
    measured: Range | None = None  # what the measurements had
    beyond: float = 1.0  # how many times the largest measured value the kernel's is
    relative_error: float | None = None  # standard error of the weight over its value
    idle: bool = False  # whether the weight is zero: what it costs is hidden in others
    together_with: tuple[str, ...] = ()  # features that the measurements cannot tell it apart from
    exercising_kernels: tuple[str, ...] = ()  # measurement kernels that would help

    @property
    def matters(self) -> bool:
        """Whether enough of the time goes to it to matter, or that is not known."""
        return self.share is None or abs(self.share) >= NOTABLE_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(Table, ShortRepr):
    """Coverage of the features of a kernel."""

    kernel: str  # name of the kernel, slug of the device of the weights, name of the model
    device: str
    model: str
    parameters: Mapping[str, int]  # sizes
    # whether the kernel has sizes and none were given, so that ranges could not be looked at
    needs_sizes: bool
    # predicted time, as `WeightSet.predict` gives it, without what was not measured
    time_s: float | None
    correction: Verdict | None  # by what and after which measured kernels it is corrected, if it is
    # those of the kernel, what was never measured first, then by share of the time
    features: tuple[FeatureCoverage, ...]
    # properties that the kernel has and the model leaves out by its definition
    ignored: tuple[str, ...]
    grade: Grade  # the verdict in a word
    verdict: Verdict  # why, and what to measure


def coverage(
    weights: FittedWeights,
    vector: PropertyVector,
    parameters: Mapping[str, Any],
    *,
    exercising_kernels: ExercisingKernels | None = None,
) -> Coverage:
    """Say what a fit knows of the features of a kernel; see `WeightSet.coverage`."""
    if array := [name for name, value in parameters.items() if np.ndim(value)]:
        raise ParameterError(
            f"coverage is of one size at a time, and {array[0]} has several", parameter=array[0]
        )
    needs_sizes = bool(vector.parameters) and not parameters
    # without sizes, no two values alike, so that every property that can be other than zero is seen
    stand_ins = {name: 1e6 + 7919.0 * i for i, name in enumerate(vector)}
    inputs = weights.inputs(stand_ins if needs_sizes else vector.evaluate(parameters))
    lookup = exercising_kernels or (lambda name: weights.exercising_kernels.get(name, ()))
    time_s, correction, charge = None, None, None
    if not needs_sizes:
        charge = weights.charge(inputs)
        time_s, parts, correction = weights.corrected(charge)
        charge = replace(charge, parts=parts)
    rows = _rows(weights, inputs, charge, lookup)
    rows.sort(key=lambda row: (row.status != "unmeasured", -abs(row.share or 0.0)))
    grade, verdict = verdict_of(rows, needs_sizes=needs_sizes)
    return Coverage(
        kernel=vector.kernel,
        device=weights.device.slug,
        model=weights.model,
        parameters={name: int(value) for name, value in parameters.items()},
        needs_sizes=needs_sizes,
        time_s=None if time_s is None else float(time_s),
        correction=correction,
        features=tuple(rows),
        ignored=inputs.ignored,
        grade=grade,
        verdict=verdict,
    )


def _rows(
    weights: FittedWeights,
    inputs: ModelInputs,
    charge: Charge | None,
    lookup: ExercisingKernels,
) -> list[FeatureCoverage]:
    parts = {} if charge is None else charge.parts
    whole = sum(abs(float(part)) for part in parts.values()) or 1.0
    apart = _groups_taken_apart(weights, inputs, charge)

    def row(key: str, value: float, measured: Range, **more: Any) -> FeatureCoverage:
        is_far = charge is not None and measured.largest > 0 and value > measured.largest
        beyond = value / measured.largest if is_far else 1.0
        together = dict.fromkeys(
            f for g in weights.indistinguishable if key in g.features for f in g.features
        )
        together.pop(key, None)
        is_apart = any(key in group.features for group in apart)
        far: Status = "extrapolated" if beyond > EXTRAPOLATION_FACTOR else "covered"
        return FeatureCoverage(
            name=key,
            status="inseparable" if is_apart else far,
            value=None if charge is None else value,
            measured=measured,
            beyond=beyond,
            together_with=tuple(together),
            exercising_kernels=_separators(key, together, lookup) if is_apart else (),
            **more,
        )

    rows: list[FeatureCoverage] = []
    for key, column in zip(weights.function.keys, weights.function.columns, strict=True):
        if column in inputs.values:
            weight = weights.by_feature[key]
            error = weight.standard_error_s
            rows.append(
                row(
                    key,
                    float(inputs.values[column]),
                    Range(smallest=weight.smallest, largest=weight.largest),
                    unit=weight.unit,
                    share=None if charge is None else float(parts.get(key, 0.0)) / whole,
                    relative_error=abs(error / weight.value_s)
                    if error and weight.value_s
                    else None,
                    idle=weight.value_s == 0,
                )
            )
    rows += [
        row(name, float(value), weights.ranges[name], unit=name)
        for name, value in inputs.variables.items()
        if name in weights.ranges and value
    ]
    if CORRECTION in parts:
        share = float(parts[CORRECTION]) / whole
        rows.append(FeatureCoverage(name=CORRECTION, status="covered", share=share))
    rows += [
        FeatureCoverage(name=name, status="unmeasured", exercising_kernels=tuple(lookup(name)))
        for name in weights.missing(inputs)
    ]
    return rows


def _groups_taken_apart(
    weights: FittedWeights, inputs: ModelInputs, charge: Charge | None
) -> list[IndistinguishableGroup]:
    """Return the groups that the kernel has in another proportion; for sure, without sizes."""
    if charge is not None:
        return broken_groups(weights.indistinguishable, charge.changes)
    columns = zip(weights.function.keys, weights.function.columns, strict=True)
    has = {key for key, column in columns if column in inputs.values}
    return [
        group
        for group in weights.indistinguishable
        if any(len(has & set(relation)) == 1 for relation in group.relations)
    ]


def _separators(key: str, others: Mapping[str, Any], lookup: ExercisingKernels) -> tuple[str, ...]:
    """Return kernels that have a feature without those that it is not told apart from."""
    with_others = {kernel for other in others for kernel in lookup(other.rpartition(":")[2])}
    return tuple(k for k in lookup(key.rpartition(":")[2]) if k not in with_others)


def verdict_of(features: Sequence[FeatureCoverage], *, needs_sizes: bool) -> tuple[Grade, Verdict]:
    """Sum up what is known of the features of a kernel, and what to measure."""
    unmeasured, apart = (
        [row for row in features if row.status == status]
        for status in ("unmeasured", "inseparable")
    )
    beyond = [row for row in features if row.beyond > EXTRAPOLATION_FACTOR and row.matters]
    verdict: list[str] = []
    mends: list[str] = []
    if unmeasured:
        verdict.append(f"never measured: {_names(unmeasured)}")
        mends.append(_measuring(unmeasured, "write and measure kernels that have"))
    if apart:
        verdict.append(f"not told apart, and in another proportion here: {_names(apart)}")
        mends.append(_measuring(apart, "write and measure kernels that set apart"))
    if beyond:
        far = (f"{row.beyond:.3g} in {row.name}" for row in beyond)
        verdict.append(f"by factors beyond the largest measured: {', '.join(far)}")
        mends.append("measure this kernel once, for countperf predict --anchor, at such sizes")
    grade: Grade = (
        "not covered" if unmeasured or apart else "extrapolates" if verdict else "covered"
    )
    if not verdict:
        verdict.append(
            "every feature was measured; with sizes, ranges can be looked at"
            if needs_sizes
            else "no feature that matters is more than"
            f" {EXTRAPOLATION_FACTOR:g} times the largest measured"
        )
    return grade, Verdict(
        name="coverage",
        passed=grade == "covered",
        message="; ".join(verdict),
        remedy="; ".join(dict.fromkeys(mends)),
    )


def _names(rows: Sequence[FeatureCoverage]) -> str:
    return ", ".join(row.name for row in rows)


def _measuring(rows: Sequence[FeatureCoverage], otherwise: str) -> str:
    """Say which families to measure, as few as supply all, and what none supplies."""
    offers = {row.name: {_family(kernel) for kernel in row.exercising_kernels} for row in rows}
    left = {name for name, families in offers.items() if families}
    chosen: list[tuple[str, str]] = []
    while left:
        families = sorted({family for name in left for family in offers[name]})
        best = max(families, key=lambda family: sum(family in offers[name] for name in left))
        chosen.append(best)
        left = {name for name in left if best not in offers[name]}
    lacking = [name for name, families in offers.items() if not families]
    said = [_command(chosen)] if chosen else []
    said += [f"{otherwise} {', '.join(lacking)}"] if lacking else []
    return "; ".join(said)


def _family(kernel: str) -> tuple[str, str]:
    """Return family and element type of a kernel of the catalogue, from its name."""
    parts = kernel.split("/")
    return parts[0], parts[-1] if len(parts) > 1 else ""


def _command(chosen: Sequence[tuple[str, str]]) -> str:
    families = " ".join(f"--family {family}" for family in dict.fromkeys(f for f, _ in chosen))
    types = [t for t in dict.fromkeys(t for _, t in chosen) if t in _ELEMENT_TYPES]
    if types in ([], ["f32"]):
        return f"countperf measure {families}"
    return f"countperf measure {families}" + "".join(f" --element-type {t}" for t in types)
