"""A mechanistic model as the cost function of rankings and searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from countperf.display import ShortRepr
from countperf.errors import DeviceParameterError, ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import DeviceParameters
from countperf.harness.profiles import profile_kernel
from countperf.mechanistic.model import MechanisticPrediction
from countperf.mechanistic.predict_all import ALL, chosen_models, predict_all
from countperf.properties.taxonomy import View

_RESOURCES = ("work_items_per_group", "registers_per_work_item", "local_bytes_per_group")


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanisticCost(ShortRepr):
    """Predicts variants by a mechanistic model, in the place of fitted weights."""

    model: str  # name of the model, see `countperf.mechanistic.predict_all.model_names`
    device: DeviceParameters  # the device
    # options of `countperf.profile_kernel`, such as ``registers_per_work_item``
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.model == ALL or not isinstance(self.model, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
            message = f"variants are put in order by one model, not by {self.model!r}; name one"
            raise ParameterError(message, parameter="model")
        chosen_models(self.model)

    @property
    def view(self) -> View:
        """``"source"``: how variants are counted."""
        return "source"

    def to_object(self) -> dict[str, Any]:
        """Return what the predictions depend on, for the header of a search."""
        return {
            "model": self.model,
            "device": self.device.to_object(),
            "options": {name: repr(value) for name, value in sorted(self.options.items())},
        }

    def predict_unit(self, unit: Any, sizes: Mapping[str, int]) -> MechanisticPrediction:
        """Predict a variant."""
        profiler = profile_kernel(unit, self.device, **self.options)
        (answer,) = predict_all(profiler, self.device, dict(sizes), models=self.model).values()
        if isinstance(answer, MechanisticPrediction):
            return answer
        raise answer


def is_beyond_limits(error: ParameterError | DeviceParameterError) -> bool:
    """Return whether a variant is refused because it does not fit on a compute unit."""
    return (
        isinstance(error, ParameterError)
        and not isinstance(error, ModelNotApplicableError)
        and error.parameter in _RESOURCES
    )
