"""Predicting the time of a kernel: one way for Python, `WeightSet.predict` and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.counting.producers import translation_unit
from countperf.errors import CountperfError, DeviceMismatchError, KernelBuildError
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.compile.compiled_kernel import read_compiled
from countperf.harness.devices import discover, find_device
from countperf.measurements import TimingDocument
from countperf.models.compiled import COMPILED
from countperf.models.explanation import explain as explain_prediction
from countperf.models.library import find_fit, fits_for, load_weights, named_fits, short_name
from countperf.models.weights import WeightSet
from countperf.properties.transactions import with_transactions as added
from countperf.properties.vector import PropertyVector
from countperf.workflow.kernels import counted, kernel_itself, kernel_statistics, load_kernel

if TYPE_CHECKING:
    from countperf.measurements import InstructionCounts, Statistic
    from countperf.models.explanation import Explanation
    from countperf.predictions import Prediction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DetailedPrediction:
    """A prediction with what it was made from.

    Attributes
    ----------
    prediction : Prediction
        The prediction.
    weights : WeightSet
        The weights that were used.
    vector : PropertyVector
        The counts of the kernel, with what its compiled code executes if the weights are of a model
        that reads it.
    """

    prediction: Prediction
    weights: WeightSet
    vector: PropertyVector


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
    level: float = 0.95,
    anchors: Sequence[tuple[Mapping[str, int], float] | TimingDocument | Path | str] = (),
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
        Which model's weights, where they are looked up by name. By default the best one that can be
        had: the one that reads compiled code, where the device of the weights is at hand and the
        code can be followed at one size, else the one chosen for the device. The attribute
        ``model_choice`` of the prediction says which it is and why.
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
    statistics : mapping from str to float or str, optional
        What data decides, as for `count_kernel`; a kernel of the catalogue brings its own.
    instruction_counts : mapping from str to mapping from str to number, optional
        What one execution of an instruction without a counting rule does, as for `count_kernel`.

    Returns
    -------
    Prediction

    Raises
    ------
    ParameterError
        A size is missing, or none of the kernel's; the message lists these.
    CountperfError
        The kernel cannot be counted, a property has no weight, the device does not match; a timing
        is of another kernel or device.
    """
    return predict_in_detail(
        kernel,
        {**(parameters or {}), **more},
        weights=weights,
        model=model,
        device=device,
        force=force,
        incomplete_ok=incomplete_ok,
        level=level,
        anchors=anchors,
        statistics=statistics,
        instruction_counts=instruction_counts,
    ).prediction


def explain(
    kernel: Any, parameters: Mapping[str, Any] | None = None, /, **options: Any
) -> Explanation:
    """Predict the time of one launch of a kernel, and say where it goes term by term.

    Parameters and errors are those of `predict`; arrays are refused by a `ParameterError`.
    """
    names = predict_in_detail.__kwdefaults__ or {}
    sizes = {name: value for name, value in options.items() if name not in names}
    found = predict_in_detail(
        kernel,
        {**(parameters or {}), **sizes},
        **{name: value for name, value in options.items() if name in names},
    )
    return explain_prediction(found.weights, found.vector, found.prediction)


def predict_in_detail(
    kernel: Any,
    sizes: Mapping[str, Any],
    *,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    device: str | DeviceIdentity | None = None,
    force: bool = False,
    incomplete_ok: bool = False,
    level: float = 0.95,
    anchors: Sequence[tuple[Mapping[str, int], float] | TimingDocument | Path | str] = (),
    statistics: Mapping[str, Statistic] | None = None,
    instruction_counts: InstructionCounts | None = None,
) -> DetailedPrediction:
    """Predict as `predict` does, and return the weights and counts with the prediction.

    Parameters and errors are those of `predict`.
    """
    runs = [_anchor(each) for each in anchors]
    known = kernel_statistics(kernel, statistics, sizes)
    found = load_kernel(kernel) if isinstance(kernel, str) else kernel
    if not isinstance(found, PropertyVector | Mapping):
        found = translation_unit(found)
    identity = named_device(device)
    target = identity
    if weights is None and target is None:
        target = find_device().identity

    def predicted(used: WeightSet, choice: str, *, is_attempt: bool = False) -> DetailedPrediction:
        used.check_counting_rules()
        used.check_device(identity, force=force)
        vector = vector_for(found, known, used, sizes, instruction_counts)
        if runs:
            anchored = used.anchored(vector, *runs)
            prediction = anchored.predict(vector, sizes, level=level)
        else:
            prediction = used.predict_counts(
                vector,
                sizes,
                incomplete_ok=incomplete_ok and not is_attempt,
                level=level,
                device=identity,
                force=force,
            )
        prediction = replace(prediction, model_choice=choice)
        return DetailedPrediction(prediction=prediction, weights=used, vector=vector)

    if model is not None or not (weights is None or is_fit(weights)):
        return predicted(weights_for(weights, target, model=model), "")
    reason = _why_not_compiled(found, sizes)
    if not reason:
        reading = reading_weights(weights, target)
        if not isinstance(reading, str):
            try:
                return predicted(reading, COMPILED_CHOICE, is_attempt=True)
            except CountperfError as error:
                reason = failed_reading(error)
        else:
            reason = reading
    usual = weights_for(weights, target)
    return predicted(usual, choice_text(usual.model, reason))


def _anchor(given: Any) -> Any:
    """Return a timing that a file keeps; anything else as it is."""
    return TimingDocument.read_file(given) if isinstance(given, Path | str) else given


COMPILED_CHOICE = (
    f"model {COMPILED}: the device of the weights is here, and the compiled code can be followed"
)
"""Line that says that the model that reads compiled code was chosen."""


def choice_text(model: str, reason: str) -> str:
    """Say that a model was chosen, and why it is not the one that reads compiled code."""
    return f"model {short_name(model)}: {reason}"


def failed_reading(error: object) -> str:
    """Say that the model that reads compiled code was tried, as a reason for another one."""
    return f"the one that reads compiled code fails: {error}"


def _why_not_compiled(kernel: Any, sizes: Mapping[str, Any]) -> str:
    """Return why compiled code is not to be read, as far as kernel and sizes say; else nothing."""
    if isinstance(kernel, PropertyVector | Mapping):
        return "counts without a kernel have no code to compile"
    if any(np.ndim(value) for value in sizes.values()):
        return f"several sizes at once; model={COMPILED!r} follows the code at each, which is slow"
    return ""


def is_fit(weights: object) -> bool:
    """Return whether weights are given by the name of a fit or its folder, not by themselves."""
    return isinstance(weights, str | Path) and find_fit(str(weights)) is not None


def reading_weights(weights: object, identity: DeviceIdentity | None) -> WeightSet | str:
    """Return weights of the model that reads compiled code if their device is here, else why not.

    Parameters
    ----------
    weights : Path, str or None
        Name of weights; None for those of the device.
    identity : DeviceIdentity or None
        The device that is asked for; None for that of the weights, if they are named.
    """
    name = identity.slug if weights is None and identity is not None else str(weights)
    fit = find_fit(name)
    if weights is None and identity is not None:
        fit = next(iter(fits_for(identity)), None)
        name = name if fit is None else fit.name
    if fit is None or COMPILED not in fit.models:
        return f"{name} has no weights of the model {COMPILED}"
    found = load_weights(name, model=COMPILED)
    present = [each.identity for each in discover().devices]
    if not any(found.device.matches(each) for each in present):
        return f"the device of the weights, {found.device.slug}, is not here to compile for"
    if identity is not None and not found.device.matches(identity):
        return f"the device asked for, {identity.slug}, is not that of the weights"
    return found


def default_weights(
    device: str | DeviceIdentity | None = None, *, model: str | None = None
) -> WeightSet:
    """Load the weights for a device of this machine.

    Parameters
    ----------
    device : str or DeviceIdentity, optional
        As for `measure`, or a device that need not be here; by default the working device with the
        highest copy bandwidth.
    model : str, optional
        Which model's; by default the one chosen for the device.

    Raises
    ------
    DeviceError
        No such device, or none that works.
    DeviceMismatchError
        There is no fit for the device.
    """
    identity = device if isinstance(device, DeviceIdentity) else find_device(device).identity
    for fit in fits_for(identity):
        return load_weights(fit.name, model=model)
    if find_fit(identity.slug) is not None:  # of the same slug, but not the same device
        weights = load_weights(identity.slug, model=model)
        weights.check_device(identity)
        return weights
    there = ", ".join(named_fits()) or "none"
    raise DeviceMismatchError(
        f"there is no fit for {identity.slug} ({identity.name}); fits there are: {there}; choose "
        "one with --weights, or make one with 'countperf measure' and 'countperf fit'",
        expected=there,
        found=identity.slug,
    )


def named_device(device: str | DeviceIdentity | None) -> DeviceIdentity | None:
    """Return the identity of a device asked for by name; None if none is named."""
    if device is None or isinstance(device, DeviceIdentity):
        return device
    return find_device(device).identity


def weights_for(
    weights: WeightSet | Path | str | None,
    device: str | DeviceIdentity | None = None,
    *,
    model: str | None = None,
) -> WeightSet:
    """Return weights, those that a slug or path names, or those for a device of this machine.

    Errors are those of `load_weights` and `default_weights`.
    """
    if weights is None:
        return default_weights(device, model=model)
    return weights if isinstance(weights, WeightSet) else load_weights(weights, model=model)


def vector_for(
    kernel: Any,
    statistics: Mapping[str, Statistic] | None,
    weights: WeightSet,
    parameters: Mapping[str, Any],
    instruction_counts: InstructionCounts | None = None,
) -> PropertyVector:
    """Count a kernel as weights need it; leave a vector as it is, for the weights to check."""
    found = load_kernel(kernel) if isinstance(kernel, str) else kernel
    if isinstance(found, PropertyVector | Mapping):
        wanted = None if isinstance(found, PropertyVector) else weights.view
        return counted(
            found, statistics=statistics, view=wanted, instruction_counts=instruction_counts
        )
    found = translation_unit(found)
    vector = counted(
        found,
        statistics=statistics,
        view=weights.view,
        instruction_counts=instruction_counts,
    )
    if weights.definition.reads_code:
        checked = vector.checked_parameters(parameters, {})
        sizes = {name: int(np.max(value)) for name, value in checked.items()}
        vector = _with_code(vector, found, sizes, weights.device.slug, statistics)
    return added(vector, found, weights.definition.named_transactions, statistics)


def with_compiled_code(
    kernel: Any,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    device: str | None = None,
    statistics: Mapping[str, Statistic] | None = None,
    instruction_counts: InstructionCounts | None = None,
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

    Returns
    -------
    PropertyVector
        Of the structure view; `WeightSet.predict` takes it, also of models that read no code.

    Raises
    ------
    CountingError
        The kernel is a property vector, or cannot be counted.
    KernelBuildError, DeviceError, ParameterError
        As of `countperf.machine_code.executed_counts.read_compiled`.
    """
    found = kernel_itself(kernel, "code to compile")
    vector = counted(
        found, statistics=statistics, view="structure", instruction_counts=instruction_counts
    )
    return _with_code(vector, found, {**(parameters or {}), **more}, device or "pocl:0", statistics)


def _with_code(
    vector: PropertyVector,
    kernel: Any,
    sizes: Mapping[str, int],
    device: str,
    statistics: Mapping[str, Statistic] | None = None,
) -> PropertyVector:
    """Compile a kernel on a device, and add what its code executes to its counts."""
    (compiled,) = read_compiled([(kernel, sizes)], find_device(device))
    if isinstance(compiled, KernelBuildError):
        raise compiled
    return vector.with_code(lambda at: compiled.counts(at, statistics))
