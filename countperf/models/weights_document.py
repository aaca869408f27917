"""The document of the fitted weights of a model on a device."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_serializer, field_validator, model_validator

from countperf.display import Table
from countperf.documents import Document
from countperf.documents.model_names import UNCORRECTED, ModelName
from countperf.execution.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.features import FeatureSpec
from countperf.hardware.identity import DeviceIdentity
from countperf.models.correction import Correction, with_support
from countperf.models.definition import ModelDefinition
from countperf.models.exercise import Exercise, packed, unpacked
from countperf.models.function import ModelFunction
from countperf.models.packing import SquareRows
from countperf.models.records import (
    Candidate,
    FitQuality,
    IndistinguishableGroup,
    MeasurementSource,
    Range,
    Support,
    Weight,
)
from countperf.properties.taxonomy import CountingRules, View


class WeightsDocument(Table, Document):
    """Weights of a fitted model on a device; `WeightSet` documents the fields."""

    format: Literal["countperf-weights"] = "countperf-weights"
    version: Literal[4] = 4
    remade_by = (
        "fit the measurements again, countperf fit STORE --name NAME, or countperf calibrate"
    )
    model: ModelName
    definition: ModelDefinition
    device: DeviceIdentity
    counting_rules: CountingRules
    view: View = "source"
    counted_caches: CountedCaches = DEFAULT_CACHES
    weights: tuple[Weight, ...]
    ranges: dict[str, Range] = Field(default_factory=dict)
    covariance_s2: SquareRows | None = None
    indistinguishable: tuple[IndistinguishableGroup, ...] = ()
    quality: FitQuality | None = None
    source: MeasurementSource | None = None
    exercising_kernels: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    exercise: dict[str, Exercise] = Field(default_factory=dict)
    correction: Correction | None = None
    remark: str = ""
    written_by: str = ""

    @field_validator("weights")
    @classmethod
    def _terms_have_weights(
        cls, weights: tuple[Weight, ...], info: ValidationInfo
    ) -> tuple[Weight, ...]:
        definition = info.data.get("definition")
        if definition is not None and definition.terms and not weights:
            raise ValueError("the model has terms, and there is no weight")
        return weights

    @field_validator("exercise", mode="before")
    @classmethod
    def _unpacked_exercise(cls, content: Any) -> Any:
        return unpacked(content)

    @field_serializer("exercise", when_used="json")
    def _packed_exercise(self, exercise: dict[str, Exercise]) -> dict[str, Any]:
        return packed(exercise)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        columns = [(weight.term, weight.feature) for weight in self.weights]
        if len(set(columns)) < len(columns):
            raise ValueError("two weights are for the same feature")
        if strange := {term for term, _ in columns} - set(self.definition.terms):
            raise ValueError(f"the model has no term {', '.join(sorted(strange))}")
        for key, value, low, high in zip(
            self.function.keys,
            self.unknowns,
            self.function.lower.tolist(),
            self.function.upper.tolist(),
            strict=True,
        ):
            if not low <= value <= high:
                side, bound = ("below", low) if value < low else ("above", high)
                raise ValueError(f"{key} is {value}, {side} the bound of its model, {bound}")
        if strange := set(self.ranges) - set(self.definition.scales):
            raise ValueError(f"no term has the scale {', '.join(sorted(strange))}")
        size = len(columns)
        shape = {size} | {len(row) for row in self.covariance_s2 or ()}
        if self.covariance_s2 is not None and shape != {len(self.covariance_s2)}:
            raise ValueError(f"the covariance of {size} weights must be a square of that size")
        local = self.quality and self.quality.calibration and self.quality.calibration.local
        if local and not _fits(local.support, size):
            raise ValueError(f"the support of the intervals is not of {size} weights")
        if self.correction is not None and self.correction.columns != len(columns):
            raise ValueError(f"the correction is not of {len(columns)} weights")
        grouped = {name for group in self.indistinguishable for name in group.features}
        if unweighted := grouped - set(self.function.keys):
            raise ValueError(f"indistinguishable features without a weight: {sorted(unweighted)}")
        named = {*self.function.keys, *self.definition.scales}
        if strange := set(self.exercise) - named:
            raise ValueError(f"exercise of what the model has not: {', '.join(sorted(strange))}")
        return self

    def to_object(self) -> dict[str, Any]:
        """Return the document as plain values; the source's view goes without saying."""
        content = super().to_object()
        if self.view == "source":
            del content["view"]
        if self.view != "structure":
            del content["counted_caches"]
        if self.correction is None:
            del content["correction"]
        return content

    @property
    def uncorrected(self) -> Self:
        """The same without the correction: the model alone, with intervals of its own."""
        if self.correction is None:
            return self
        quality = self.correction.without
        if self.quality and self.quality.calibration and self.quality.calibration.local:
            quality = with_support(quality, self.quality.calibration.local.support)
        changes = {"model": UNCORRECTED, "quality": quality, "correction": None}
        return self.model_copy(update=changes)

    @property
    def expression(self) -> str:
        """The formula of the model."""
        return self.definition.expression

    @property
    def features(self) -> FeatureSpec:
        """Properties that the model charges, and those that it ignores."""
        return self.definition.features

    @cached_property
    def function(self) -> ModelFunction:
        """The model over the weights."""
        columns = tuple((weight.term, weight.feature) for weight in self.weights)
        return ModelFunction(model=self.definition, columns=columns)

    @cached_property
    def unknowns(self) -> tuple[float, ...]:
        """The weights, s per unit."""
        return tuple(weight.value_s for weight in self.weights)

    @cached_property
    def by_feature(self) -> dict[str, Weight]:
        """The weights by feature; by ``term:feature`` where several terms charge it."""
        return dict(zip(self.function.keys, self.weights, strict=True))


def _fits(support: Support, columns: int) -> bool:
    sizes = {len(profile) for each in support.profiles.values() for profile in each}
    return len(support.largest) == columns and sizes | {len(support.families)} == {columns}
