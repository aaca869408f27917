"""Fitted weights, with predictions, explanations and corrections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from countperf import display
from countperf.hardware.identity import DeviceIdentity
from countperf.models.anchored import AnchoredWeights, Run, WeightsAndKernel, anchor
from countperf.models.cost_function import CostFunction, compile_cost
from countperf.models.explanation import Explanation
from countperf.models.fitted_weights import FittedWeights
from countperf.models.validity import Level
from countperf.predictions import ParameterValue, Prediction
from countperf.sizes import given_sizes

if TYPE_CHECKING:
    from countperf.measurements import Measurement, TimingDocument


class WeightSet(FittedWeights):
    """Weights of a fitted model on a device.

    Attributes
    ----------
    model : str
        Name of the model.
    definition : ModelDefinition
        The model: its terms and features.
    device : DeviceIdentity
        What they were measured on.
    counting_rules : int
        Version of the counting rules that the property values of the fit follow.
    view : {"source", "compiled"}
        View under which the kernels of the fit were counted; documents without it are of the
        source's view.
    counted_caches : CountedCaches
        Caches for which the kernels of the fit were counted in the structure view; documents that
        do not state them have those of `countperf.execution.memory_hierarchy.DEFAULT_CACHES`.
    weights : tuple of Weight
        One for each feature of a term that the measurements exercise.
    ranges : dict from str to Range
        For each scale of terms that the measurements exercise, its range.
    indistinguishable : tuple of IndistinguishableGroup
        Which weights are a choice among many that fit as well.
    quality : FitQuality or None
        None for weights that come from elsewhere.
    source : MeasurementSource or None
        The measurements.
    exercising_kernels : dict from str to tuple of str
        For features without a weight, measurement kernels that would supply one.
    correction : Correction or None
        What measured kernels say of kernels like them, by which predictions are corrected; None
        where nothing is.
    remark : str
        For whoever predicts with the weights, such as for which counts they were printed.
    written_by : str
        Version of countperf.
    """

    def predict(
        self,
        kernel: object,
        parameters: Mapping[str, ParameterValue] | None = None,
        /,
        **options: Any,
    ) -> Prediction:
        """Predict the time of one launch of a kernel by these weights.

        Parameters
        ----------
        kernel, parameters, **options
            As for `countperf.predict`, without weights and model: a kernel, its name, its property
            vector or counts written by hand; sizes; ``level``, ``device``, ``anchors`` and so on.

        Returns
        -------
        Prediction
            Time, interval, breakdown, and verdicts on its validity.

        Raises
        ------
        CountperfError
            As for `countperf.predict`.
        """
        sizes = _with_sizes_of(options, parameters)
        return display.above.predict(kernel, sizes, weights=self, **options)

    def predict_counts(
        self,
        kernel: object,
        parameters: Mapping[str, ParameterValue],
        *,
        incomplete_ok: bool = False,
        level: Level = 0.95,
        device: DeviceIdentity | None = None,
        force: bool = False,
    ) -> Prediction:
        """Predict as `FittedWeights.predict_counts`; the prediction can be anchored."""
        prediction = super().predict_counts(
            kernel,
            parameters,
            incomplete_ok=incomplete_ok,
            level=level,
            device=device,
            force=force,
        )
        origin = WeightsAndKernel(weights=self, kernel=kernel, parameters=parameters, level=level)
        return replace(prediction, origin=origin)

    def compile(self, kernel: object, *, incomplete_ok: bool = False) -> CostFunction:
        """Return the predicted time of a kernel as a fast function of its parameters.

        Parameters
        ----------
        kernel, incomplete_ok
            As in `predict`.

        Raises
        ------
        PredictionError, CountingError
            As in `predict`. A property without a weight raises when the function is called with
            parameters at which it is not zero.
        """
        return compile_cost(self, kernel, incomplete_ok=incomplete_ok)

    def explain(
        self,
        kernel: object,
        parameters: Mapping[str, int] | None = None,
        /,
        **options: Any,
    ) -> Explanation:
        """Predict the time of one launch, and say where it goes term by term.

        Parameters
        ----------
        kernel, parameters
            As in `predict`; one value for each parameter.
        **options
            Whatever else `predict` takes: sizes, and ``level``, ``statistics`` and so on.

        Raises
        ------
        PredictionError, CountingError, ParameterError
            As in `predict`; `ParameterError` for arrays too.
        """
        sizes = _with_sizes_of(options, parameters)
        return display.above.explain(kernel, sizes, weights=self, **options)

    def anchored(
        self, kernel: object, *runs: Run | Measurement | TimingDocument
    ) -> AnchoredWeights:
        """Correct a kernel's predictions by measured runs of it.

        Parameters
        ----------
        kernel : loopy.TranslationUnit, PropertyVector, or Mapping from str to int or str
            The kernel.
        *runs : Timing, Measurement, or pair of a Mapping from str to int and a float
            What `countperf.time_kernel` returned; or measured runs: parameters and time, s.

        Returns
        -------
        AnchoredWeights
            Predicts this kernel, at any parameters.

        Raises
        ------
        PredictionError
            The fit does not say how kernels scatter, the kernel cannot be predicted, or a timing
            is of another kernel.
        DeviceMismatchError
            A timing is of another device.
        ParameterError
            There is no run, or a time is not positive.
        """
        return anchor(self, kernel, runs)


def _with_sizes_of(
    options: dict[str, Any], parameters: Mapping[str, ParameterValue] | None
) -> Mapping[str, ParameterValue]:
    """Take what is no option of weights for a size, which the kernel then lacks."""
    named = {name: options.pop(name) for name in ("weights", "model") if name in options}
    return given_sizes(parameters, named)
