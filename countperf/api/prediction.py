"""Predicting the time of a kernel, and choosing the weights that do: one way for all users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from countperf import errors
from countperf.api.fits import why_not_compiled
from countperf.api.kernels import Kernel
from countperf.counting.vector import PropertyVector
from countperf.devices.discovery import find_device
from countperf.devices.identity import DeviceIdentity, choose_caches
from countperf.models.explanation import ExplainedPart, Explanation
from countperf.models.function import Level, model_inputs, refuse_negative
from countperf.models.library import find_fit, fits_for, list_fits, load_weights, short_name
from countperf.models.shipped import COMPILED
from countperf.models.weights import WeightSet, charge_inputs
from countperf.sizes import checks_keywords, merge_sizes
from countperf.text import ShortRepr

if TYPE_CHECKING:
    from countperf.measuring import InstructionCounts, Statistic
    from countperf.models.correction import Anchor
    from countperf.models.predictions import Prediction


COMPILED_CHOICE = (
    f"model {COMPILED}: the device of the weights is here, and the compiled code can be followed"
)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenWeights(ShortRepr):
    """Weights that predict, why these, and the device to predict for."""

    weights: WeightSet
    why: str = ""  # which model was chosen, and why; empty where it was not free
    device: DeviceIdentity | None = None  # the one named; else that of the weights is meant
    force: bool = False  # whether weights of another device are used
    # chooses the weights that read no code, for a reason, where these were chosen to read it
    choose_by_counts: Callable[[str], ChosenWeights] | None = field(default=None, repr=False)

    def predict(
        self,
        kernel: Kernel,
        *,
        incomplete_ok: bool = False,
        level: Level = 0.95,
        anchors: Sequence[Anchor] = (),
    ) -> Prediction:
        """Predict the time of one launch of a kernel, by counts where its code is not followed.

        The same choice, kernel and sizes give the same bits.
        """

        def predict_by(used: ChosenWeights, is_attempt: bool) -> Prediction:
            made = used.weights.predict_counts(
                kernel.count_for(used.weights),
                kernel.sizes,
                incomplete_ok=incomplete_ok and not is_attempt,
                level=level,
                device=used.device,
            )
            made = made.anchor(*anchors) if anchors else made
            refuse_negative(made.model, made.kernel, made.time_s)
            return replace(made, model_choice=used.why, given_as=kernel.name)

        return self.apply(predict_by)

    def apply(self, use: Callable[[ChosenWeights, bool], _Result]) -> _Result:
        """Use the weights, and those that read no code where reading it is an attempt that fails.

        The function is told whether it is an attempt, which has to fail where a property has no
        weight. What the compiler refuses to build takes no time by any model.
        """
        if self.choose_by_counts is None:
            return use(self, False)
        try:
            return use(replace(self, choose_by_counts=None), True)
        except errors.CountperfError as error:
            if isinstance(error, errors.KernelBuildError) and error.stage == "build":
                raise
            reason = _FAILED.format(error)
        return use(self.choose_by_counts(reason), False)


_FAILED = "the one that reads compiled code fails: {}"


def choose_weights(
    weights: WeightSet | Path | str | None = None,
    *,
    model: str | None = None,
    device: str | DeviceIdentity | None = None,
    force: bool = False,
    without_code: str = "",
    has_code: bool = False,
) -> ChosenWeights:
    """Choose the weights that predict: those given, those of a name or path, or the device's.

    By default, of a fit's models the one that reads compiled code is chosen if the device of the
    weights and its compiler are here, or the code is known (`has_code`), and nothing speaks against
    it (`without_code`); else `DEFAULT_STEMS`.
    """
    identity = find_device(device).identity if isinstance(device, str) else device
    wanted = find_device().identity if weights is None and identity is None else identity
    chosen_for = partial(ChosenWeights, device=identity, force=force)

    def check(found: WeightSet) -> WeightSet:
        found.check_counting_rules()
        found.check_device(wanted, force=force)
        return found

    def choose(why: str = "") -> ChosenWeights:
        if weights is None and wanted is not None:
            usual = default_weights(wanted, model=model)
        elif isinstance(weights, Path | str):
            usual = load_weights(weights, model=model)
        elif isinstance(weights, WeightSet):
            usual = weights
        else:
            raise errors.ParameterError(
                f"weights are a name, a path or what load_weights returns, not {weights!r};"
                " countperf.available_weights() lists the names",
                parameter="weights",
            )
        why = why and f"model {short_name(usual.model)}: {why}"
        return chosen_for(weights=check(usual), why=why)

    is_fit = isinstance(weights, str | Path) and find_fit(str(weights)) is not None
    if model is not None or not (weights is None or is_fit):
        return choose()
    reading = without_code or reading_weights(weights, wanted, has_code)
    if isinstance(reading, str):
        return choose(reading)
    try:
        check(reading)
    except errors.CountperfError as error:
        return choose(_FAILED.format(error))
    why = f"model {COMPILED}: the compiled code is known" if has_code else COMPILED_CHOICE
    return chosen_for(weights=reading, why=why, choose_by_counts=choose)


def reading_weights(
    weights: object, identity: DeviceIdentity | None, has_code: bool = False
) -> WeightSet | str:
    """Return weights of the model that reads compiled code if it can predict, or why not."""
    if weights is None and identity is not None:
        name, fit = identity.slug, next(iter(fits_for(identity)), None)
    else:
        name, fit = weights, find_fit(str(weights))
    if fit is None:
        return f"{name} has no weights of the model {COMPILED}"
    why_not = why_not_compiled(fit, identity, has_code=has_code)
    return why_not or load_weights(fit.name, model=COMPILED)


def default_weights(identity: DeviceIdentity, *, model: str | None = None) -> WeightSet:
    """Load the weights for a device."""
    for fit in fits_for(identity):
        return load_weights(fit.name, model=model)
    if find_fit(identity.slug) is not None:  # of the same slug, but not the same device
        weights = load_weights(identity.slug, model=model)
        weights.check_device(identity)
        return weights
    there = ", ".join(list_fits()) or "none"
    raise errors.DeviceMismatchError(
        f"there is no fit for {identity.slug} ({identity.name}); fits there are: {there}; choose"
        f" one with {errors.option('weights', 'NAME')}, or make one with 'countperf measure' and"
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
    weights, model : optional
        Weights, or their name or path; by default those fitted on `device`. Of a name, which
        model's: by default the one that reads compiled code wherever the device of the weights and
        its compiler are at hand, else the structural one; ``model_choice`` of the prediction says
        why.
    device, force : optional
        Device of this machine to predict for; without it, predictions are for the weights' device,
        which need not be here. Whether to use weights that do not match it.
    incomplete_ok : bool
        Leave out what has no weight and mark the prediction incomplete.
    level : {0.95, 0.9}
        In which share of cases the interval is to hold the time.
    anchors : sequence of Timing, Path, str, or (Mapping from str to int, float)
        Measured runs of the kernel by which to correct: what `countperf.time_kernel` returned, or
        its file; or parameters, and time, s.
    statistics, instruction_counts : mapping, optional
        As for `count_kernel`; a kernel of the catalogue brings its own statistics.

    Raises
    ------
    ParameterError, CountperfError
        A size is missing, or none of the kernel's; the kernel cannot be counted, a property has no
        weight, the device does not match; a timing is of another kernel or device.
    """
    asked = Kernel.of(kernel, merge_sizes(parameters, more), statistics, instruction_counts)
    without_code = "counts without a kernel have no code to compile" if asked.is_counted else ""
    chosen = choose_weights(
        weights, model=model, device=device, force=force, without_code=without_code
    )
    return chosen.predict(asked, incomplete_ok=incomplete_ok, level=level, anchors=anchors)


def explain(
    kernel: Any, parameters: Mapping[str, Any] | None = None, /, **options: Any
) -> Explanation:
    """Say where the time that `predict` gives goes term by term; arrays are refused."""
    return explain_prediction(predict(kernel, parameters, **options))


def explain_prediction(prediction: Prediction) -> Explanation:
    """Say where a predicted time goes term by term."""
    if isinstance(prediction.time_s, np.ndarray):
        raise errors.ParameterError(
            "a prediction is explained at one size at a time, not at an array"
        )
    weights: WeightSet = prediction.origin.weights
    counts = prediction.origin.kernel.evaluate(prediction.parameters)
    values = charge_inputs(weights, model_inputs(weights.definition, counts)).values
    by_feature = weights.by_feature
    numbers = dict(zip(by_feature, values.tolist(), strict=True))
    return Explanation(
        prediction=prediction,
        expression=weights.definition.expression,
        parts=tuple(
            ExplainedPart(
                name=name,
                weight=by_feature.get(name),
                count=numbers.get(name),
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

    `predict` takes the vector, of the structure view, also by models that read no code.

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

    Raises
    ------
    CountingError, KernelBuildError, DeviceError, ParameterError
        The kernel is a property vector, or cannot be counted or compiled.
    """
    asked = Kernel.of(kernel, merge_sizes(parameters, more), statistics, instruction_counts)
    asked.unit_with("code to compile")
    label = device or "pocl:0"
    caches = choose_caches(find_device(label).identity, is_here=True)

    def count(at: Kernel) -> PropertyVector:
        vector = at.count("structure", caches=caches)
        return at.add_code(vector, at.sizes, label, every_group=every_group)

    return asked.count_each(count)
