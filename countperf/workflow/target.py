"""Weights that predict and the device to predict for, named, chosen and loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from countperf.display import ShortRepr
from countperf.errors import CountperfError, DeviceMismatchError, ParameterError
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.devices import discover, find_device
from countperf.models.compiled import COMPILED
from countperf.models.library import find_fit, fits_for, load_weights, named_fits, short_name
from countperf.models.validity import Level
from countperf.models.weights import WeightSet

COMPILED_CHOICE = (
    f"model {COMPILED}: the device of the weights is here, and the compiled code can be followed"
)
"""Line that says that the model that reads compiled code was chosen."""


_Found = TypeVar("_Found")


def choice_text(model: str, reason: str) -> str:
    """Say that a model was chosen, and why it is not the one that reads compiled code."""
    return f"model {short_name(model)}: {reason}"


def failed_reading(error: object) -> str:
    """Say that the model that reads compiled code was tried, as a reason for another one."""
    return f"the one that reads compiled code fails: {error}"


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
        """Whether the model is free: none is named, and no document is."""
        return self.model is None and (self.weights is None or is_fit(self.weights))

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
        self, predicted: Callable[[WeightSet, bool], _Found], unreadable: str = ""
    ) -> tuple[_Found, str]:
        """Predict by compiled code wherever device and compiler are at hand, else without it."""
        if not self.has_choice:
            return predicted(self.checked(), False), ""
        reason = unreadable or reading_weights(self.weights, self.identity)
        if not isinstance(reason, str):
            try:
                return predicted(self._checked(reason), True), COMPILED_CHOICE
            except CountperfError as error:
                reason = failed_reading(error)
        usual = self.checked()
        return predicted(usual, False), choice_text(usual.model, reason)


def is_fit(weights: object) -> bool:
    """Return whether weights are given by the name of a fit or its folder, not by themselves."""
    return isinstance(weights, str | Path) and find_fit(str(weights)) is not None


def reading_weights(weights: object, identity: DeviceIdentity | None) -> WeightSet | str:
    """Return weights of the model that reads compiled code if its device is here, or why not."""
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
        f"there is no fit for {identity.slug} ({identity.name}); fits there are: {there}; choose "
        "one with weights=NAME, or make one with 'countperf measure' and 'countperf fit'",
        expected=there,
        found=identity.slug,
    )
