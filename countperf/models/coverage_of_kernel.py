"""Holding a kernel against the measurements that weights were fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.errors import ParameterError
from countperf.models.charge import Charge
from countperf.models.correction import CORRECTION
from countperf.models.coverage import Coverage, FeatureCoverage, Part, Status, verdict_of
from countperf.models.exercise import Exercise, properties_behind
from countperf.models.fitted_weights import FittedWeights
from countperf.models.function import ModelInputs
from countperf.models.loans import Loan
from countperf.models.records import IndistinguishableGroup, Range
from countperf.models.unmeasured import ExercisingKernels
from countperf.models.validity import EXTRAPOLATION_FACTOR, broken_groups
from countperf.properties.taxonomy import describe

if TYPE_CHECKING:
    from countperf.properties.vector import PropertyVector

_NOT_PER_GROUP = ("groups", "launches")


def coverage(
    weights: FittedWeights,
    vector: PropertyVector,
    parameters: Mapping[str, Any],
    *,
    exercise: Mapping[str, Exercise] | None = None,
    exercising_kernels: ExercisingKernels | None = None,
) -> Coverage:
    """Say what a fit knows of the features of a kernel; see `WeightSet.coverage`."""
    if array := [name for name, value in parameters.items() if np.ndim(value)]:
        raise ParameterError(
            f"coverage is of one size at a time, and {array[0]} has several", parameter=array[0]
        )
    needs_sizes = bool(vector.parameters) and not parameters
    counts = _stand_ins(vector) if needs_sizes else vector.evaluate(parameters)
    inputs = weights.inputs(counts)
    known = weights.exercise if exercise is None else exercise
    asked = exercising_kernels or (lambda name: weights.exercising_kernels.get(name, ()))
    charge = None if needs_sizes else weights.charge(inputs)
    time_s, correction = None, None
    if charge is not None:
        time_s, parts, correction = weights.corrected(charge)
        charge = replace(charge, parts=parts)
    table = _Table(
        weights,
        inputs,
        [name for name, count in counts.items() if count],
        charge=charge,
        groups=float(counts.get("groups", 0)),
        exercise=known,
        exercising_kernels=asked,
        loans=weights.loans(counts),
    )
    features = sorted(
        table.rows(), key=lambda row: (row.status != "unmeasured", -abs(row.share or 0.0))
    )
    grade, verdict = verdict_of(features, needs_sizes=needs_sizes)
    return Coverage(
        kernel=vector.kernel,
        device=weights.device.slug,
        model=weights.model,
        parameters={name: int(value) for name, value in parameters.items()},
        needs_sizes=needs_sizes,
        time_s=None if time_s is None else float(time_s),
        correction=correction,
        weights_error=_weights_error(weights, charge),
        features=tuple(features),
        ignored=inputs.ignored,
        recorded=bool(known),
        grade=grade,
        verdict=verdict,
    )


def _stand_ins(vector: PropertyVector) -> dict[str, float]:
    """Return values, no two alike, so that every property that can be other than zero is seen."""
    return {name: 1e6 + 7919.0 * i for i, name in enumerate(vector)}


class _Table:
    """The rows of a coverage."""

    def __init__(
        self,
        weights: FittedWeights,
        inputs: ModelInputs,
        present: Sequence[str],
        *,
        charge: Charge | None,
        groups: float,
        exercise: Mapping[str, Exercise],
        exercising_kernels: ExercisingKernels,
        loans: Sequence[Loan] = (),
    ) -> None:
        self.weights = weights
        self.inputs = inputs
        self.present = present
        self.charge = charge
        self.groups = groups
        self.exercise = exercise
        self.exercising_kernels = exercising_kernels
        self.loans = loans
        self.behind = properties_behind(weights.function, present)
        self.whole = 0.0 if charge is None else sum(abs(float(p)) for p in charge.parts.values())
        self.apart = self._groups_taken_apart()

    def rows(self) -> list[FeatureCoverage]:
        weights = self.weights
        rows = [
            self._of_weight(key, column)
            for key, column in zip(weights.function.keys, weights.function.columns, strict=False)
            if column in self.inputs.values
        ]
        rows += [
            self._measured(
                name,
                float(value),
                weights.ranges[name],
                unit=self._unit(name),
            )
            for name, value in self.inputs.variables.items()
            if name in weights.ranges and value
        ]
        if self.charge is not None and CORRECTION in self.charge.parts:
            rows.append(
                FeatureCoverage(name=CORRECTION, status="covered", share=self._share(CORRECTION))
            )
        missing = weights.missing(self.inputs)
        rows += [
            FeatureCoverage(
                name=name,
                status="unmeasured",
                exercising_kernels=tuple(self.exercising_kernels(name)),
            )
            for name in missing
        ]
        return rows

    def _of_weight(self, key: str, column: tuple[str, str]) -> FeatureCoverage:
        weight = self.weights.by_feature[key]
        return self._measured(
            key,
            float(self.inputs.values[column]),
            Range(smallest=weight.smallest, largest=weight.largest),
            unit=weight.unit,
            relative_error=_relative(weight.value_s, weight.standard_error_s),
            idle=weight.value_s == 0,
        )

    def _measured(
        self, key: str, value: float, measured: Range, *, unit: str, **more: Any
    ) -> FeatureCoverage:
        exercise = self.exercise.get(key)
        sized = self.charge is not None
        counted = key not in _NOT_PER_GROUP and self.groups > 0
        per_group = value / self.groups if sized and counted else None
        each = exercise.per_group if exercise is not None and counted else None
        beyond, where = self._beyond(value, measured, per_group, each) if sized else (1.0, "")
        below, below_in = self._below(value, measured, per_group, each) if sized else (1.0, "")
        substituted = (
            tuple(n for n in self.behind.get(key, ()) if n not in exercise.properties)
            if exercise is not None
            else ()
        )
        known = substituted
        substituted += tuple(loan.name for loan in self.loans if loan.lender == _feature(key))
        status: Status = "covered"
        if beyond > EXTRAPOLATION_FACTOR:
            status = "extrapolated"
        if substituted:
            status = "substituted"
        if self._is_apart(key):
            status = "inseparable"
        return FeatureCoverage(
            name=key,
            status=status,
            unit=unit,
            value=value if sized else None,
            per_group=per_group,
            share=self._share(key),
            measured=measured,
            measured_per_group=each,
            beyond=beyond,
            beyond_in=where,
            below=below,
            below_in=below_in,
            exercise=exercise,
            together_with=self._together_with(key),
            substituted=substituted,
            exercising_kernels=tuple(
                dict.fromkeys(
                    [
                        *self._separators(key),
                        *(k for n in known for k in self.exercising_kernels(n)),
                    ]
                )
            ),
            **more,
        )

    def _unit(self, name: str) -> str:
        """Return the unit of a counted name of the expression; derived ones are their own."""
        base = self.weights.definition.base_properties.get(name)
        return name if base is None else describe(base).unit

    @staticmethod
    def _beyond(
        value: float, measured: Range, per_group: float | None, each: Range | None
    ) -> tuple[float, Part]:
        launch = value / measured.largest if measured.largest > 0 else 1.0
        group = per_group / each.largest if per_group and each and each.largest > 0 else 1.0
        if max(launch, group) <= 1:
            return 1.0, ""
        return (launch, "launch") if launch >= group else (group, "work group")

    @staticmethod
    def _below(
        value: float, measured: Range, per_group: float | None, each: Range | None
    ) -> tuple[float, Part]:
        launch = measured.smallest / value if value > 0 else 1.0
        group = each.smallest / per_group if per_group and each and per_group > 0 else 1.0
        if max(launch, group) <= 1:
            return 1.0, ""
        return (launch, "launch") if launch >= group else (group, "work group")

    def _share(self, key: str) -> float | None:
        if self.charge is None or (key in self.weights.ranges and key not in self.charge.parts):
            return None
        part = float(self.charge.parts.get(key, 0.0))
        return part / self.whole if self.whole else 0.0

    def _groups_taken_apart(self) -> list[IndistinguishableGroup]:
        """Return the groups that the kernel has in another proportion; for sure, without sizes."""
        groups = self.weights.indistinguishable
        if self.charge is not None:
            return broken_groups(groups, self.charge.changes)
        has = {
            key
            for key, column in zip(
                self.weights.function.keys, self.weights.function.columns, strict=False
            )
            if column in self.inputs.values
        }
        return [g for g in groups if any(len(has & set(r)) == 1 for r in g.relations)]

    def _is_apart(self, key: str) -> bool:
        return any(key in group.features for group in self.apart)

    def _together_with(self, key: str) -> tuple[str, ...]:
        return tuple(
            other
            for group in self.weights.indistinguishable
            if key in group.features
            for other in group.features
            if other != key
        )

    def _separators(self, key: str) -> tuple[str, ...]:
        """Return kernels that have a feature without those that it is not told apart from."""
        others = self._together_with(key)
        if not self._is_apart(key):
            return ()
        with_others = {
            kernel for other in others for kernel in self.exercising_kernels(_feature(other))
        }
        return tuple(k for k in self.exercising_kernels(_feature(key)) if k not in with_others)


def _feature(key: str) -> str:
    return key.rpartition(":")[2]


def _relative(value: float, error: float | None) -> float | None:
    return None if error is None or value == 0 else abs(error / value)


def _weights_error(weights: FittedWeights, charge: Charge | None) -> float | None:
    if charge is None or weights.covariance_s2 is None or not float(charge.time_s) > 0:
        return None
    changes = np.array(list(charge.changes.values()), np.float64)
    variance = float(changes @ np.array(weights.covariance_s2, np.float64) @ changes)
    return max(variance, 0.0) ** 0.5 / float(charge.time_s)
