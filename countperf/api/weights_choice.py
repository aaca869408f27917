"""Choosing the weights that predict: one place for every function and command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from countperf.api.fits import why_not_compiled
from countperf.api.kernels import Kernel
from countperf.devices.discovery import find_device
from countperf.devices.identity import DeviceIdentity
from countperf.errors import (
    CountperfError,
    DeviceMismatchError,
    KernelBuildError,
    ParameterError,
    option,
)
from countperf.models.library import find_fit, fits_for, load_weights, named_fits, short_name
from countperf.models.shipped import COMPILED
from countperf.models.validity import Level, refuse_negative
from countperf.models.weights import WeightSet
from countperf.text import ShortRepr

if TYPE_CHECKING:
    from countperf.models.correction import Anchor
    from countperf.models.predictions import Prediction


COMPILED_CHOICE = (
    f"model {COMPILED}: the device of the weights is here, and the compiled code can be followed"
)
"""Line that says that the model that reads compiled code was chosen."""

KNOWN_CODE_CHOICE = f"model {COMPILED}: the compiled code is known"
"""The same where the code comes with the kernels."""

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
        if self.choose_by_counts is not None:
            return self.apply(
                lambda used, is_attempt: used.predict(
                    kernel,
                    incomplete_ok=incomplete_ok and not is_attempt,
                    level=level,
                    anchors=anchors,
                )
            )
        made = self.weights.predict_counts(
            kernel.count_for(self.weights),
            kernel.sizes,
            incomplete_ok=incomplete_ok,
            level=level,
            device=self.device,
        )
        made = made.anchored(*anchors) if anchors else made
        refuse_negative(made.model, made.kernel, made.time_s)
        return replace(made, model_choice=self.why, given_as=kernel.name)

    def apply(self, use: Callable[[ChosenWeights, bool], _Result]) -> _Result:
        """Use the weights, and those that read no code where reading it is an attempt that fails.

        The function is told whether it is an attempt, which has to fail where a property has no
        weight. What Loopy or the compiler refuses to build takes no time by any model.
        """
        if self.choose_by_counts is None:
            return use(self, False)
        try:
            return use(replace(self, choose_by_counts=None), True)
        except CountperfError as error:
            if isinstance(error, KernelBuildError) and error.stage == "build":
                raise
            reason = _explain_failure(error)
        return use(self.choose_by_counts(reason), False)


def choose_weights(
    weights: WeightSet | Path | str | None = None,
    *,
    model: str | None = None,
    device: str | DeviceIdentity | None = None,
    force: bool = False,
    without_code: str = "",
    has_code: bool = False,
) -> ChosenWeights:
    """Choose the weights that predict.

    Parameters
    ----------
    weights : WeightSet, Path or str, optional
        Weights, which are taken as they are; or their name or path, by default those for `device`.
    model : str, optional
        Which model's weights, where they are looked up. By default the one that reads compiled code
        where the device of the weights and its compiler are here, else `DEFAULT_STEMS`.
    device : str or DeviceIdentity, optional
        The device to predict for, which has to be that of the weights unless `force` is given.
    without_code : str, optional
        Why no compiled code can be read, whichever weights there are.
    has_code : bool
        Whether the code is known, and need not be read here.

    Raises
    ------
    DeviceMismatchError, PredictionError, DocumentError, ParameterError
        No weights are of this device; they are of other counting rules; none have such a name.
    """
    identity = find_device(device).identity if isinstance(device, str) else device
    wanted = find_device().identity if weights is None and identity is None else identity

    def choose(why: str = "") -> ChosenWeights:
        usual = _load(weights, wanted, model)
        _check(usual, wanted, force=force)
        why = why and f"model {short_name(usual.model)}: {why}"
        return ChosenWeights(weights=usual, why=why, device=identity, force=force)

    is_fit = isinstance(weights, str | Path) and find_fit(str(weights)) is not None
    if model is not None or not (weights is None or is_fit):
        return choose()
    reading = without_code or reading_weights(weights, wanted, has_code)
    if isinstance(reading, str):
        return choose(reading)
    try:
        _check(reading, wanted, force=force)
    except CountperfError as error:
        return choose(_explain_failure(error))
    return ChosenWeights(
        weights=reading,
        why=KNOWN_CODE_CHOICE if has_code else COMPILED_CHOICE,
        device=identity,
        force=force,
        choose_by_counts=choose,
    )


def _check(weights: WeightSet, device: DeviceIdentity | None, *, force: bool) -> None:
    weights.check_counting_rules()
    weights.check_device(device, force=force)


def _explain_failure(error: CountperfError) -> str:
    return f"the one that reads compiled code fails: {error}"


def _load(weights: object, device: DeviceIdentity | None, model: str | None) -> WeightSet:
    """Return the weights that are named, else those for the device."""
    if isinstance(weights, WeightSet):
        return weights
    if weights is None:
        return default_weights(device, model=model)
    if isinstance(weights, Path | str):
        return load_weights(weights, model=model)
    message = (
        f"weights are a name, a path or what load_weights returns, not {weights!r};"
        " countperf.available_weights() lists the names"
    )
    raise ParameterError(message, parameter="weights")


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
