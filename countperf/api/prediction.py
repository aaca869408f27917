"""Predicting the time of a kernel: one way for Python and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.api.kernels import Kernel
from countperf.api.weights_choice import choose_weights
from countperf.counting.vector import PropertyVector
from countperf.devices.discovery import find_device
from countperf.devices.identity import DeviceIdentity, counted_caches_of
from countperf.errors import ParameterError
from countperf.models.explanation import ExplainedPart, Explanation
from countperf.models.function import model_inputs
from countperf.models.validity import Level
from countperf.models.weights import WeightSet, charge_inputs
from countperf.sizes import checks_keywords, given_sizes

if TYPE_CHECKING:
    from countperf.measuring import InstructionCounts, Statistic
    from countperf.models.correction import Anchor
    from countperf.models.predictions import Prediction


@checks_keywords
def predict(
    kernel: Any,
    parameters: Mapping[str, Any] | None = None,
    /,
    *,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    device: str | DeviceIdentity | None = None,
    force: bool = False,
    incomplete_ok: bool = False,
    level: Level = 0.95,
    anchors: Sequence[Anchor] = (),
    statistics: Mapping[str, Statistic] | None = None,
    instruction_counts: InstructionCounts | None = None,
    **more: Any,
) -> Prediction:
    """Predict the time of one launch of a kernel.

    Parameters
    ----------
    kernel : str, loopy.TranslationUnit, PropertyVector or mapping
        The kernel, or a text that `load_kernel` understands.
    parameters, **more : int or ndarray of integers
        Values of the size parameters.
    weights : WeightSet, Path or str, optional
        Weights, or their name or path; by default those fitted on `device`.
    model : str, optional
        Which model's weights, where they are looked up by name. By default the one that reads
        compiled code wherever the device of the weights and its compiler are at hand, for one size
        and for several, else the structural one. The attribute ``model_choice`` of the prediction
        says which it is and why.
    device : str or DeviceIdentity, optional
        Device to predict for: the name of one of this machine. Without it, predictions are for the
        weights' device, which need not be here.
    force : bool
        Use the weights for a device that they do not match.
    incomplete_ok : bool
        Leave out what has no weight and mark the prediction incomplete.
    level : {0.95, 0.9}
        In which share of cases the interval is to hold the time.
    anchors : sequence of Timing, Path, str, or (Mapping from str to int, float)
        Measured runs of the kernel by which to correct: what `countperf.time_kernel` returned, or
        its file; or parameters, and time, s.
    statistics, instruction_counts : mapping, optional
        As for `count_kernel`; a kernel of the catalogue brings its own statistics.

    Returns
    -------
    Prediction

    Raises
    ------
    ParameterError, CountperfError
        A size is missing, or none of the kernel's; the kernel cannot be counted, a property has no
        weight, the device does not match; a timing is of another kernel or device.
    """
    asked = Kernel.of(kernel, given_sizes(parameters, more), statistics, instruction_counts)
    chosen = choose_weights(
        weights,
        model=model,
        device=device,
        force=force,
        without_code="counts without a kernel have no code to compile" if asked.is_counted else "",
    )
    return chosen.predict(asked, incomplete_ok=incomplete_ok, level=level, anchors=anchors)


def explain(
    kernel: Any, parameters: Mapping[str, Any] | None = None, /, **options: Any
) -> Explanation:
    """Predict the time of one launch of a kernel, and say where it goes term by term.

    Parameters and errors are those of `predict`; arrays are refused by a `ParameterError`.
    """
    return explained(predict(kernel, parameters, **options))


def explained(prediction: Prediction) -> Explanation:
    """Say where a predicted time goes term by term."""
    if isinstance(prediction.time_s, np.ndarray):
        raise ParameterError("a prediction is explained at one size at a time, not at an array")
    weights: WeightSet = prediction.origin.weights
    counts = prediction.origin.kernel.evaluate(prediction.parameters)
    values = charge_inputs(weights, model_inputs(weights.definition, counts)).values
    by_feature = weights.by_feature
    return Explanation(
        prediction=prediction,
        expression=weights.definition.expression,
        parts=tuple(
            ExplainedPart(
                name=name,
                weight=by_feature.get(name),
                count=float(values[name]) if name in by_feature else None,
                part_s=float(np.asarray(seconds).item()),
            )
            for name, seconds in prediction.breakdown.items()
        ),
        global_bytes=sum(
            int(name.split(".")[2]) / 8 * float(count)
            for name, count in counts.items()
            if name.startswith(("gmem.load.", "gmem.store."))
        ),
        flops=sum(
            _FLOPS.get(name.split(".")[1], 0.0) * float(count)
            for name, count in counts.items()
            if name.startswith("flop.")
        ),
    )


_FLOPS = {"fma": 2.0, "add": 1.0, "mul": 1.0, "div": 1.0, "pow": 1.0, "special": 1.0}


@checks_keywords
def with_compiled_code(
    kernel: Any,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    device: str | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    instruction_counts: InstructionCounts | None = None,
    every_group: bool = False,
    **more: int,
) -> PropertyVector:
    """Count a kernel, compile it, and keep what its code executes with the counts.

    Parameters
    ----------
    kernel : str or loopy.TranslationUnit
        The kernel, or a text that `load_kernel` understands.
    parameters, **more : int
        Sizes at which to compile: values of all integer arguments. What is returned is for any.
    device : str, optional
        A device of PoCL's or of Intel's runtime, by label or slug; by default ``pocl:0``.
    statistics, instruction_counts
        As for `predict`.
    every_group : bool
        Follow the code of every work group; by default that of one of each kind.

    Returns
    -------
    PropertyVector
        Of the structure view; `predict` takes it, also by models that read no code.

    Raises
    ------
    CountingError, KernelBuildError, DeviceError, ParameterError
        The kernel is a property vector, or cannot be counted or compiled.
    """
    asked = Kernel.of(kernel, given_sizes(parameters, more), statistics, instruction_counts)
    asked.unit_with("code to compile")
    label = device or "pocl:0"
    caches = counted_caches_of(find_device(label).identity, is_here=True)

    def count(at: Kernel) -> PropertyVector:
        vector = at.count("structure", caches=caches)
        return at.add_code(vector, at.sizes, label, every_group=every_group)

    return asked.count_each(count)
