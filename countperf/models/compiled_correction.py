"""The correction of a kernel's time as part of a function that is written for the kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.models.correction import (
    Corrector,
    ProjectedCorrector,
    groups_column,
    logs_of,
    roots_of,
)
from countperf.models.definition import ModelDefinition
from countperf.models.evaluation import FormulaSource
from countperf.models.fitted_weights import FittedWeights
from countperf.models.proportional_counts import ProportionalCounts
from countperf.predictions import Quantity
from countperf.symbolic.memory import FieldsAlone


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledCorrection(ShortRepr, FieldsAlone):
    """The correction of a kernel's time (`countperf.models.correction`), over its own weights."""

    model: ModelDefinition  # what the time is made of
    corrector: Corrector
    charged: NDArray[np.float64]  # 1 where a weight charges a property, else 0
    # which of the weights charge a derived feature instead, by position, and its name
    derived: tuple[tuple[int, str], ...]
    terms: tuple[str, ...]  # the term of each weight
    value_s: NDArray[np.float64]  # the weights, s per unit
    groups: int | None  # position of the weight of groups

    @classmethod
    def build(
        cls, weights: FittedWeights, properties: Sequence[str], derived: Collection[str]
    ) -> Self | None:
        """Leave out weights that charge nothing of a kernel; None without a correction."""
        if weights.correction is None:
            return None
        model = weights.definition
        features = {
            term: [spec.feature_of(name) for name in properties]
            for term, spec in model.term_features.items()
        }
        rows = np.array(
            [
                [float(found == feature) for found in features[term]]
                for term, feature in weights.function.columns
            ]
        ).reshape(len(weights.weights), len(properties))
        kept = [
            i
            for i, weight in enumerate(weights.weights)
            if rows[i].any() or weight.feature in derived
        ]
        columns = tuple(weights.function.columns[i] for i in kept)
        return cls(
            model=model,
            corrector=weights.correction.corrector.restricted(kept),
            charged=rows[kept],
            derived=tuple((i, f) for i, (_, f) in enumerate(columns) if f in model.derived),
            terms=tuple(term for term, _ in columns),
            value_s=np.array([weights.weights[i].value_s for i in kept]),
            groups=groups_column(columns),
        )

    @cached_property
    def _by_scale(self) -> dict[str, NDArray[np.intp]]:
        """Places of the weights by the scale of their terms."""
        scales = np.array([self.model.terms[term].scale for term in self.terms])
        return {scale: np.flatnonzero(scales == scale) for scale in dict.fromkeys(scales.tolist())}

    def log_factor(self, counts: NDArray[np.float64], named: Mapping[str, Any]) -> Quantity:
        """Return the logarithm by which the time is corrected."""
        values = np.einsum("ij,j...->i...", self.charged, counts)
        for place, feature in self.derived:
            values[place] = named[feature]
        parts = (self.value_s * values.T).T
        for scale, places in self._by_scale.items():
            if scale:
                parts[places] *= named[scale]
        return self.corrector.log_factor(roots_of(parts), logs_of(values, self.groups))

    def written(
        self, source: FormulaSource, shapes: ProportionalCounts
    ) -> tuple[str, ProjectedCorrector]:
        """Write what the correction follows from into a function of shapes.

        Weights are taken together that charge the same, whose logarithms are equal, and those that
        charge what is proportional in terms of one scale, whose shares are proportional. What is
        charged for a group in the same way at all sizes is constant. Derived
        features come first or last, so that the correction may leave them out where they are zero.
        """
        charging = {feature for _, feature in self.derived}
        features = [feature for feature in self.model.needed_derived if feature in charging]
        variables = [*shapes.names, *(source.variables[feature] for feature in features)]
        charged = np.zeros((len(self.terms), len(variables)))
        charged[:, : len(shapes.names)] = self.charged @ shapes.factors
        for place, feature in self.derived:
            charged[place, len(shapes.names) + features.index(feature)] = 1.0
        if variables:
            source.give_up_if(f"min({', '.join([*variables, '0.0'])}) < 0.0")
        logs, of_logs, fixed = self._written_logs(source, charged, variables)
        shares, of_roots = self._written_shares(source, charged, variables)
        projected = self.corrector.projected(roots=of_roots, logs=of_logs, fixed=fixed)
        return f"[{', '.join([*logs, '1.0', '1.0', *shares])}]", projected

    def _written_logs(
        self, source: FormulaSource, charged: NDArray[np.float64], variables: Sequence[str]
    ) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
        per_group = ""
        groups = np.zeros(len(variables))
        if self.groups is not None:
            groups = charged[self.groups]
            number = source.weighted_sum(groups, variables)
            source.give_up_if(f"{number} < 1.0")
            per_group = " * " + source.assigned(f"1.0 / {number}")
        fixed = np.zeros(len(charged))
        equal: dict[tuple[float, ...], list[int]] = {}
        for place, row in enumerate(charged):
            if groups.any() and _direction(row) == _direction(groups):
                fixed[place] = np.log1p(row.sum() / groups.sum())
            else:
                equal.setdefault(tuple(row.tolist()), []).append(place)
        keys = sorted(equal, key=_farthest, reverse=True)
        rows = np.zeros((len(keys), len(charged)))
        for row, key in zip(rows, keys, strict=True):
            row[equal[key]] = 1.0
        logs = [source.weighted_sum(key, variables) + per_group for key in keys]
        return logs, rows, fixed

    def _written_shares(
        self, source: FormulaSource, charged: NDArray[np.float64], variables: Sequence[str]
    ) -> tuple[list[str], NDArray[np.float64]]:
        costs = np.abs(self.value_s) * charged.sum(axis=1)
        proportional: dict[tuple[str, tuple[float, ...]], list[int]] = {}
        for scale, members in self._by_scale.items():
            for place in members[costs[members] > 0].tolist():
                proportional.setdefault((scale, _direction(charged[place])), []).append(place)
        parts: list[str] = []
        rows = np.zeros((len(proportional), len(charged)))
        keys = sorted(proportional, key=lambda key: _farthest(key[1]))
        for row, (scale, direction) in zip(rows, keys, strict=True):
            places = proportional[scale, direction]
            cost = costs[places].sum()
            row[places] = np.sqrt(costs[places] / cost)
            amount = source.weighted_sum(cost * np.array(direction), variables)
            slope = f" * abs({source.variables[scale]})" if scale else ""
            parts.append(source.assigned(amount + slope))
        whole = source.assigned(" + ".join(parts) or "0.0")
        source.give_up_if(f"not {whole} > 0.0")
        per_whole = source.assigned(f"1.0 / {whole}")
        return [f"{part} * {per_whole}" for part in parts], rows


def _farthest(row: Sequence[float] | NDArray[np.float64]) -> int:
    """Return the last position that is not zero."""
    return int(np.flatnonzero(row)[-1])


def _direction(row: NDArray[np.float64]) -> tuple[float, ...]:
    """Return a row's shares of its sum, equal for rows that are proportional."""
    return tuple((row / row.sum()).tolist())
