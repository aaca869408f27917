"""Predicting the time of a kernel: one way for Python, `WeightSet.predict` and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from countperf.api.fits import why_not_compiled
from countperf.api.kernels import count_at_sizes, counted, kernel_itself, load_kernel
from countperf.counting.frontend.producers import translation_unit
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES
from countperf.counting.transactions import with_transactions as added
from countperf.counting.vector import PropertyVector
from countperf.devices.discovery import find_device
from countperf.devices.identity import DeviceIdentity, counted_caches_of
from countperf.display import ShortRepr
from countperf.errors import (
    CountperfError,
    DeviceMismatchError,
    KernelBuildError,
    ParameterError,
    option,
)
from countperf.models.function import model_inputs
from countperf.models.library import find_fit, fits_for, load_weights, named_fits, short_name
from countperf.models.shipped import COMPILED
from countperf.models.validity import ExplainedPart, Explanation, Level, refuse_negative
from countperf.models.weights import WeightSet
from countperf.sizes import checks_keywords, given_sizes

if TYPE_CHECKING:
    from countperf.measuring import InstructionCounts, Statistic
    from countperf.models.anchored import Anchor
    from countperf.models.predictions import Prediction


COMPILED_CHOICE = (
    f"model {COMPILED}: the device of the weights is here, and the compiled code can be followed"
)
"""Line that says that the model that reads compiled code was chosen."""

KNOWN_CODE_CHOICE = f"model {COMPILED}: the compiled code is known"
"""The same where the code comes with the kernels."""


_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target(ShortRepr):
    """Weights that predict and the device to predict for, as callers of `predict` name them."""

    weights: WeightSet | Path | str | None = None  # weights, or their name or path
    model: str | None = None  # which model's weights, where they are looked up
    device: str | DeviceIdentity | None = None  # the device
    force: bool = False  # whether weights of another device are used
    incomplete_ok: bool = False  # whether what has no weight is left out
    level: Level = 0.95  # in which share of cases an interval is to hold the time

    @property
    def has_choice(self) -> bool:
        """True if the model is free: none is named, and weights are the name of a fit or none."""
        named = self.weights
        is_fit = isinstance(named, str | Path) and find_fit(str(named)) is not None
        return self.model is None and (named is None or is_fit)

    @property
    def identity(self) -> DeviceIdentity | None:
        """The device that is named; None if none is."""
        if self.device is None or isinstance(self.device, DeviceIdentity):
            return self.device
        return find_device(self.device).identity

    def loaded(self) -> WeightSet:
        """Return the weights that are named, else those for the device.

        Errors are those of `load_weights` and `default_weights`.
        """
        if self.weights is None:
            return default_weights(self.device, model=self.model)
        if isinstance(self.weights, WeightSet):
            return self.weights
        if not isinstance(self.weights, Path | str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
            message = (
                f"weights are a name, a path or what load_weights returns, not {self.weights!r};"
                " countperf.available_weights() lists the names"
            )
            raise ParameterError(message, parameter="weights")
        return load_weights(self.weights, model=self.model)

    def checked(self) -> WeightSet:
        """Return the weights as `loaded` does; they have to match the device unless forced."""
        return self._checked(self.loaded())

    def _checked(self, weights: WeightSet) -> WeightSet:
        weights.check_counting_rules()
        weights.check_device(self.identity, force=self.force)
        return weights

    def by_choice(
        self,
        predicted: Callable[[WeightSet, bool], _Found],
        unreadable: str = "",
        *,
        has_code: bool = False,
    ) -> tuple[_Found, str]:
        """Predict by compiled code wherever it is known or can be read, else without it."""
        if not self.has_choice:
            return predicted(self.checked(), False), ""
        reason = unreadable or reading_weights(self.weights, self.identity, has_code)
        if not isinstance(reason, str):
            try:
                return predicted(self._checked(reason), True), (
                    KNOWN_CODE_CHOICE if has_code else COMPILED_CHOICE
                )
            except CountperfError as error:
                if isinstance(error, KernelBuildError) and error.stage == "build":
                    raise  # Loopy or the compiler refuses the kernel: it takes no time
                reason = f"the one that reads compiled code fails: {error}"
        usual = self.checked()
        return predicted(usual, False), f"model {short_name(usual.model)}: {reason}"


def reading_weights(
    weights: object, identity: DeviceIdentity | None, has_code: bool = False
) -> WeightSet | str:
    """Return weights of the model that reads compiled code if it can predict, or why not."""
    if weights is None and identity is not None:
        fit = next(iter(fits_for(identity)), None)
    else:
        fit = find_fit(str(weights))
    if fit is None:
        name = identity.slug if weights is None and identity is not None else weights
        return f"{name} has no weights of the model {COMPILED}"
    reason = why_not_compiled(fit, identity, has_code=has_code)
    return reason or load_weights(fit.name, model=COMPILED)


def default_weights(
    device: str | DeviceIdentity | None = None, *, model: str | None = None
) -> WeightSet:
    """Load the weights for a device of this machine."""
    identity = device if isinstance(device, DeviceIdentity) else find_device(device).identity
    for fit in fits_for(identity):
        return load_weights(fit.name, model=model)
    if find_fit(identity.slug) is not None:  # of the same slug, but not the same device
        weights = load_weights(identity.slug, model=model)
        weights.check_device(identity)
        return weights
    there = ", ".join(named_fits()) or "none"
    raise DeviceMismatchError(
        f"there is no fit for {identity.slug} ({identity.name}); fits there are: {there}; choose"
        f" one with {option('weights', 'NAME')}, or make one with 'countperf measure' and"
        " 'countperf fit'"
    )


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
    sizes = given_sizes(parameters, more)
    loaded = load_kernel(kernel) if isinstance(kernel, str) else kernel
    is_counted = isinstance(loaded, PropertyVector | Mapping)
    loaded = loaded if is_counted else translation_unit(loaded)
    target = Target(weights=weights, model=model, device=device, force=force)
    identity = target.identity
    target = replace(
        target, device=identity or (find_device().identity if weights is None else None)
    )

    def predicted(used: WeightSet, is_attempt: bool) -> Prediction:
        vector = count_at_sizes(
            kernel,
            statistics,
            sizes,
            lambda known: vector_for(loaded, known, used, sizes, instruction_counts),
        )
        made = used.predict_counts(
            vector,
            sizes,
            incomplete_ok=incomplete_ok and not is_attempt,
            level=level,
            device=identity,
            force=force,
        )
        made = made.anchored(*anchors) if anchors else made
        refuse_negative(made.model, made.kernel, made.time_s)
        return made

    unreadable = "counts without a kernel have no code to compile" if is_counted else ""
    made, choice = target.by_choice(predicted, unreadable)
    is_text = isinstance(kernel, str) and not kernel.endswith(".json")
    given_as = kernel.rpartition(":")[2] if is_text else ""
    return replace(made, model_choice=choice, given_as=given_as)


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
    values = weights.charge(model_inputs(weights.definition, counts)).values
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


def vector_for(
    kernel: Any,
    statistics: Mapping[str, Statistic] | None,
    weights: WeightSet,
    parameters: Mapping[str, Any],
    instruction_counts: InstructionCounts | None = None,
) -> PropertyVector:
    """Count a kernel as weights need it; leave a vector as it is, for the weights to check."""
    loaded = load_kernel(kernel) if isinstance(kernel, str) else kernel
    if isinstance(loaded, PropertyVector | Mapping):
        wanted = None if isinstance(loaded, PropertyVector) else weights.view
        return counted(
            loaded, statistics=statistics, view=wanted, instruction_counts=instruction_counts
        )
    loaded = translation_unit(loaded)
    vector = counted(
        loaded,
        statistics=statistics,
        view=weights.view,
        instruction_counts=instruction_counts,
        caches=weights.counted_caches,
    )
    if weights.definition.reads_code:
        checked = vector.checked_parameters(parameters, {})
        sizes = {name: int(np.max(value)) for name, value in checked.items()}
        vector = _with_code(vector, loaded, sizes, weights.device.slug, statistics)
    return added(vector, loaded, weights.definition.named_transactions, statistics)


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
        Of the structure view; `WeightSet.predict` takes it, also of models that read no code.

    Raises
    ------
    CountingError, KernelBuildError, DeviceError, ParameterError
        The kernel is a property vector, or cannot be counted or compiled.
    """
    unit = kernel_itself(kernel, "code to compile")
    label = device or "pocl:0"
    vector = counted(
        unit,
        statistics=statistics,
        view="structure",
        instruction_counts=instruction_counts,
        caches=counted_caches_of(find_device(label).identity, is_here=True),
    )
    sizes = given_sizes(parameters, more)
    return _with_code(vector, unit, sizes, label, statistics, every_group=every_group)


def _with_code(
    vector: PropertyVector,
    kernel: Any,
    sizes: Mapping[str, int],
    device: str,
    statistics: Mapping[str, Statistic] | None = None,
    *,
    every_group: bool = False,
) -> PropertyVector:
    """Compile a kernel on a device, and add what its code executes to its counts."""
    from countperf.devices.compile.compiled_kernel import read_compiled

    (compiled,) = read_compiled([(kernel, sizes)], find_device(device))
    if isinstance(compiled, KernelBuildError):
        raise compiled
    cache = (vector.caches or DEFAULT_CACHES).code
    return vector.with_counts_at(
        lambda at: compiled.counts(at, statistics, cache=cache, every_group=every_group), "code"
    )
