"""Fitted weights of a model on a device, as a document, and predictions made with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from countperf.devices.identity import DeviceIdentity
from countperf.documents import Document
from countperf.errors import DeviceMismatchError, PredictionError, ViewMismatchError
from countperf.features import FeatureSpec, vector_of
from countperf.models.records import (
    FitQuality,
    IndistinguishableGroup,
    MeasurementSource,
    Weight,
)
from countperf.models.unmeasured import Suppliers, Unmeasured
from countperf.models.validity import (
    device_verdict,
    extrapolation_verdict,
    incomplete_verdict,
    indistinguishable_verdict,
    interval,
    sign_verdict,
)
from countperf.predictions import ParameterValue, Prediction, Quantity, largest_first
from countperf.properties.taxonomy import COUNTING_RULES_VERSION, View

if TYPE_CHECKING:
    from countperf.models.cost_function import CostFunction
    from countperf.properties.vector import PropertyVector


class WeightSet(Document):
    """Weights of a fitted model on a device.

    Attributes
    ----------
    model, expression : str
        Name and formula of the model.
    device : DeviceIdentity
        What they were measured on.
    counting_rules : int
        Version of the counting rules that the property values of the fit follow.
    view : {"source", "compiled"}
        View under which the kernels of the fit were counted; documents without it are of the
        source's view.
    features : FeatureSpec
        Which properties the model charges, and which it ignores.
    weights : tuple of Weight
        One for each feature that the measurements exercise.
    covariance_s2 : tuple of tuple of float, or None
        Of the weights, in their order, s**2.
    indistinguishable : tuple of IndistinguishableGroup
        Which weights are a choice among many that fit as well.
    quality : FitQuality or None
        None for weights that come from elsewhere.
    source : MeasurementSource or None
        The measurements.
    suppliers : dict from str to tuple of str
        For features without a weight, measurement kernels that would supply one.
    written_by : str
        Version of countperf.
    """

    format: Literal["countperf-weights"] = "countperf-weights"
    version: Literal[1] = 1
    model: str
    expression: str
    device: DeviceIdentity
    counting_rules: int
    view: View = "source"
    features: FeatureSpec
    weights: tuple[Weight, ...] = Field(min_length=1)
    covariance_s2: tuple[tuple[float, ...], ...] | None = None
    indistinguishable: tuple[IndistinguishableGroup, ...] = ()
    quality: FitQuality | None = None
    source: MeasurementSource | None = None
    suppliers: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    written_by: str = ""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [weight.feature for weight in self.weights]
        if len(set(names)) < len(names):
            raise ValueError("two weights are for the same feature")
        shape = {len(names)} | {len(row) for row in self.covariance_s2 or ()}
        if self.covariance_s2 is not None and shape != {len(self.covariance_s2)}:
            raise ValueError(
                f"the covariance of {len(names)} weights must be a square of that size"
            )
        grouped = {name for group in self.indistinguishable for name in group.features}
        if unweighted := grouped - set(names):
            raise ValueError(f"indistinguishable features without a weight: {sorted(unweighted)}")
        return self

    def to_object(self) -> dict[str, Any]:
        """Return the document as plain values; the source's view goes without saying."""
        content = super().to_object()
        if self.view == "source":
            del content["view"]
        return content

    @cached_property
    def by_feature(self) -> dict[str, Weight]:
        """The weights by feature."""
        return {weight.feature: weight for weight in self.weights}

    @cached_property
    def _covariance(self) -> NDArray[np.float64] | None:
        return None if self.covariance_s2 is None else np.array(self.covariance_s2, np.float64)

    def predict(
        self,
        kernel: object,
        parameters: Mapping[str, ParameterValue] | None = None,
        /,
        *,
        incomplete_ok: bool = False,
        device: DeviceIdentity | None = None,
        force: bool = False,
        suppliers: Suppliers | None = None,
        **more: ParameterValue,
    ) -> Prediction:
        """Predict the time of one launch of a kernel.

        Parameters
        ----------
        kernel : loopy.TranslationUnit, PropertyVector, or Mapping from str to int or str
            The kernel, its property vector, or counts by property name written by hand.
        parameters : Mapping from str to int or ndarray, optional
            Values of the size parameters; arrays broadcast.
        incomplete_ok : bool, optional
            Leave out what has no weight, and mark the prediction incomplete.
        device : DeviceIdentity, optional
            The device to predict for; by default that of the weights.
        force : bool, optional
            Use the weights even for a device that they do not match.
        suppliers : callable, optional
            From a property to the measurement kernels that exercise it, for messages.
        **more : int or ndarray
            Further parameters, by name.

        Returns
        -------
        Prediction
            Time, interval, breakdown, and verdicts on its validity.

        Raises
        ------
        UnmeasuredPropertyError
            The kernel has properties that the fit has no weight for.
        DeviceMismatchError
            The weights belong to another device, and `force` was not given.
        PredictionError
            The weights were fitted under other counting rules; `ViewMismatchError` if the kernel's
            vector is of another view than the weights.
        ParameterError
            A parameter is missing or outside the kernel's assumptions.
        CountingError
            The kernel cannot be counted exactly.
        """
        self.check_counting_rules()
        self.check_device(device, force=force)
        vector = self._vector_of(kernel)
        values = {**(parameters or {}), **more}
        features = self.features.apply(vector.evaluate(values))
        missing = (*(f for f in features.values if f not in self.by_feature), *features.unknown)
        if missing and not incomplete_ok:
            raise self._unmeasured(vector.kernel, missing, suppliers).error()
        counts = {name: features.values.get(name, 0.0) for name in self.by_feature}
        parts: dict[str, Quantity] = {
            name: self.by_feature[name].value_s * count
            for name, count in counts.items()
            if name in features.values
        }
        time_s = sum(parts.values(), start=0.0)
        verdicts = (
            incomplete_verdict(missing),
            indistinguishable_verdict(self.indistinguishable, counts),
            extrapolation_verdict(self.weights, counts, parts),
            sign_verdict(time_s),
            device_verdict(self.device, device),
        )
        certain = verdicts[0].passed and verdicts[1].passed and self.quality is not None
        return Prediction(
            kernel=vector.kernel,
            device=self.device.slug if device is None else device.slug,
            model=self.model,
            parameters=values,
            time_s=time_s,
            interval_s=interval(
                time_s, tuple(counts.values()), self._covariance, self._scatter if certain else None
            ),
            breakdown=largest_first(parts),
            missing=missing,
            ignored=features.ignored,
            verdicts=verdicts,
        )

    def compile(
        self, kernel: object, *, incomplete_ok: bool = False, suppliers: Suppliers | None = None
    ) -> CostFunction:
        """Return the predicted time of a kernel as a fast function of its parameters.

        Parameters
        ----------
        kernel, incomplete_ok, suppliers
            As in `predict`.

        Raises
        ------
        PredictionError, CountingError
            As in `predict`. A property without a weight raises when the function is called with
            parameters at which it is not zero.
        """
        from countperf.models.cost_function import CostFunction

        self.check_counting_rules()
        vector = self._vector_of(kernel)
        compiled = vector.compile()
        charged = {name: self.features.feature_of(name) for name in compiled.names}
        unweighted = [
            name
            for name, feature in charged.items()
            if feature not in self.by_feature and not self.features.ignores(name)
        ]
        seconds = [
            0.0 if feature not in self.by_feature else self.by_feature[feature].value_s
            for feature in charged.values()
        ]
        return CostFunction(
            kernel=vector.kernel,
            device=self.device.slug,
            vector=compiled,
            seconds_per_unit=np.array(seconds, np.float64),
            unweighted=tuple(compiled.names.index(name) for name in unweighted),
            unmeasured=None
            if incomplete_ok or not unweighted
            else self._unmeasured(
                vector.kernel, [charged[name] or name for name in unweighted], suppliers
            ),
        )

    @property
    def _scatter(self) -> float | None:
        if self.quality is None:
            return None
        held_out = self.quality.held_out_scatter
        return self.quality.in_sample_scatter if held_out is None else held_out

    def _vector_of(self, kernel: object) -> PropertyVector:
        """Return the vector of a kernel, counted under the view of the weights."""
        vector = vector_of(kernel, view=self.view)
        if vector.view == self.view:
            return vector
        raise ViewMismatchError(
            f"kernel '{vector.kernel}' was counted in the {vector.view} view, and the weights for"
            f" {self.device.slug} were fitted to the {self.view} view: count it with"
            f" count_kernel(..., view={self.view!r}), or fit weights to vectors of the other view",
            expected=self.view,
            found=vector.view,
        )

    def check_counting_rules(self) -> None:
        """Raise `PredictionError` if kernels are now counted by other rules than in the fit."""
        if self.counting_rules != COUNTING_RULES_VERSION:
            message = (
                f"the weights for {self.device.slug} were fitted under counting rules"
                f" {self.counting_rules}, and kernels are now counted under"
                f" {COUNTING_RULES_VERSION}: refit from measurements"
            )
            raise PredictionError(message)

    def check_device(self, device: DeviceIdentity | None, *, force: bool = False) -> None:
        """Raise `DeviceMismatchError` if the weights belong to another device."""
        if device is None or force or self.device.matches(device):
            return
        raise DeviceMismatchError(
            f"the weights are for {self.device.slug} ({self.device.name}), not for {device.slug}"
            f" ({device.name}): fit weights for it, or force the use of these",
            expected=self.device.slug,
            found=device.slug,
        )

    def _unmeasured(
        self, kernel: str, missing: Sequence[str], lookup: Suppliers | None
    ) -> Unmeasured:
        return Unmeasured.find(
            missing, kernel=kernel, device=self.device.slug, stored=self.suppliers, lookup=lookup
        )
