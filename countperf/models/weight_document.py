"""Documents of fitted weights, with their ranges, groups, quality and source."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.taxonomy import COUNTING_RULES_VERSION, CountingRules, View
from countperf.devices.identity import DeviceIdentity
from countperf.documents import Document
from countperf.errors import DeviceMismatchError, PredictionError, option
from countperf.models.correction import Correction
from countperf.models.definition import ModelDefinition, Unread
from countperf.models.function import (
    FitQuality,
    IndistinguishableGroup,
    MeasurementSource,
    ModelFunction,
    Range,
    Weight,
)
from countperf.models.validity import LAUNCH, SHORTEST_LAUNCH_S
from countperf.models.weights_text import lay_out_weights
from countperf.text import Printed, Result

_WELL_FITTED = 3.0
"""Standard errors from zero of a weight of launches that is known."""


class WeightDocument(Document, Result):
    """Weights of a fitted model on a device, as they are stored; see `WeightSet`."""

    format: Literal["countperf-weights"] = "countperf-weights"
    version: Literal[4] = 4
    name: str = Field(default="", exclude=True)  # by which they were loaded
    remade_by = (
        "fit the measurements again, countperf fit STORE --name NAME, or countperf calibrate"
    )
    model: str
    definition: ModelDefinition
    device: DeviceIdentity
    counting_rules: CountingRules
    view: View = "source"
    counted_caches: CountedCaches = DEFAULT_CACHES
    weights: tuple[Weight, ...]
    ranges: dict[str, Range] = Field(default_factory=dict)  # by scale of terms
    # which weights are a choice among many that fit as well
    indistinguishable: tuple[IndistinguishableGroup, ...] = ()
    quality: FitQuality | None = None
    source: MeasurementSource | None = None
    exercising_kernels: Unread = Field(default=(), exclude=True)
    candidates: Unread = Field(default=(), exclude=True)
    correction: Correction | None = None
    probes: Unread = Field(default=(), exclude=True)
    remark: str = ""  # for whoever predicts, such as for which counts they were printed
    written_by: str = ""  # version of countperf

    @field_validator("weights")
    @classmethod
    def _terms_have_weights(
        cls, weights: tuple[Weight, ...], info: ValidationInfo
    ) -> tuple[Weight, ...]:
        definition = info.data.get("definition")
        if definition is not None and definition.terms and not weights:
            raise ValueError("the model has terms, and there is no weight")
        return weights

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        columns = [(weight.term, weight.feature) for weight in self.weights]
        if len(set(columns)) < len(columns):
            raise ValueError("two weights are for the same feature")
        if strange := {term for term, _ in columns} - set(self.definition.terms):
            raise ValueError(f"the model has no term {', '.join(sorted(strange))}")
        function = self.function
        lower = function.lower.tolist()
        for key, value, low in zip(function.keys, self.unknowns, lower, strict=True):
            if value < low:
                raise ValueError(f"{key} is {value}, below the bound of its model, {low}")
        if strange := set(self.ranges) - set(self.definition.scales):
            raise ValueError(f"no term has the scale {', '.join(sorted(strange))}")
        if self.correction is not None and len(self.correction.roots[0]) != len(columns):
            raise ValueError(f"the correction is not of {len(columns)} weights")
        grouped = {name for group in self.indistinguishable for name in group.features}
        if unweighted := grouped - set(self.function.keys):
            raise ValueError(f"indistinguishable features without a weight: {sorted(unweighted)}")
        return self

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

    @cached_property
    def resources(self) -> dict[str, str]:
        """Resources by part of a time, where the model states them."""
        keys = zip(self.function.keys, self.function.columns, strict=True)
        stated = {key: self.definition.resource_of(*column) for key, column in keys}
        return {LAUNCH: "launch", **{key: one for key, one in stated.items() if one is not None}}

    @property
    def shortest_launch_s(self) -> float:
        """Shortest time of a launch, s: known of the kind of device, or well fitted here."""
        known = SHORTEST_LAUNCH_S.get(self.device.device_type, 0.0)
        fitted = [
            weight.value_s
            for weight in self.weights
            if weight.feature == "launches"
            and weight.standard_error_s is not None
            and weight.value_s > _WELL_FITTED * weight.standard_error_s
        ]
        return min(known, *fitted) if fitted else known

    def check_counting_rules(self) -> None:
        """Raise `PredictionError` if kernels are now counted by other rules than in the fit."""
        if self.counting_rules != COUNTING_RULES_VERSION:
            raise PredictionError(
                f"the weights for {self.device.slug} were fitted under counting rules"
                f" {self.counting_rules}, and kernels are now counted under"
                f" {COUNTING_RULES_VERSION}: refit from measurements"
            )

    def check_device(self, device: DeviceIdentity | None, *, force: bool = False) -> None:
        """Raise `DeviceMismatchError` if the weights belong to another device."""
        if device is None or force or self.device.matches(device):
            return
        raise DeviceMismatchError(
            f"the weights are for {self.device.slug} ({self.device.name}), not for {device.slug}"
            f" ({device.name}), which differ in {self.device.differences_text(device)}: fit weights"
            f" for it, or force the use of these ({option('force', 'True')})"
        )

    __str__ = Result.__str__

    def lay_out(self) -> Printed:
        """Give the weights of a model."""
        return lay_out_weights(self)
