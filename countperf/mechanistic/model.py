"""Interface of mechanistic models: a prediction that names the bound of the time.

A model derives from `MechanisticModel` and states its `estimate`; `MechanisticModel.predict` turns
it into a `Prediction`, so that fitted and mechanistic models can stand side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from countperf.errors import ParameterError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.profile import (
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
    check_positive,
)
from countperf.predictions import ParameterValue, Prediction, largest_first

Bound = Literal["compute", "memory", "barrier", "latency", "issue", "launch", "transfer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimate of a kernel's time before the cost of the launch."""

    time_s: float  # the time, s
    bound: Bound  # what bounds it
    # seconds by part (``"compute"``, ``"memory"``, ``"latency"``...)
    breakdown: Mapping[str, float]
    # other results under their names in the vocabulary, such as ``wpc`` and ``cpr``
    results: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanisticPrediction(Prediction):
    """A prediction that also says what bounds the time."""

    bound: Bound  # the part of the device that bounds the time
    # other results of the model by name, such as ``wpc``
    results: Mapping[str, float] = field(default_factory=dict[str, float])

    __repr__ = Prediction.__repr__


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanisticModel(ABC):
    """Base of the mechanistic models; a subclass states its name and its estimate."""

    charges: ClassVar[frozenset[str]] = frozenset()  # of "barriers" and "divergence"

    device: DeviceParameters  # constants of the device

    @property
    @abstractmethod
    def model(self) -> str:
        """Name of the model, with its variant."""

    @abstractmethod
    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> Estimate:
        """Estimate the time of one launch from its profile."""

    def predict(
        self, kernel: object, parameters: Mapping[str, ParameterValue] | None = None, /
    ) -> MechanisticPrediction:
        """Predict the time of one launch of a kernel."""
        if not isinstance(kernel, ProfiledKernel):
            message = (
                f"a mechanistic model predicts a ProfiledKernel, not a {type(kernel).__name__};"
                " give the kernel's profile and launch"
            )
            raise ParameterError(message, parameter="kernel")
        estimate = self.estimate(kernel.profile, kernel.launch)
        overhead = self.device.launch_overhead_s or 0.0
        breakdown = {name: part for name, part in estimate.breakdown.items() if part}
        if overhead:
            breakdown["launch"] = breakdown.get("launch", 0.0) + overhead
        return MechanisticPrediction(
            kernel=kernel.profile.name,
            device=self.device.slug,
            model=self.model,
            parameters=dict(parameters or {}),
            time_s=estimate.time_s + overhead,
            interval_s=None,
            breakdown=largest_first(breakdown),
            ignored=tuple(sorted(self._ignored(kernel.profile))),
            bound="launch" if overhead > estimate.time_s else estimate.bound,
            results=dict(estimate.results),
        )

    def _ignored(self, profile: KernelProfile) -> set[str]:
        ignored: set[str] = set()
        names = {*profile.alpha, *(profile.idg.nodes if profile.idg is not None else ())}
        kinds = {self.device.classes[name].kind for name in names if name in self.device.classes}
        if "barrier" in kinds or profile.alpha_sync:
            ignored.add("barriers")
        if profile.sub_group_idgs is not None and len(set(profile.sub_group_idgs)) > 1:
            ignored.add("divergence")
        cost = self.device.classes.get("barrier")
        is_free = cost is not None and cost.cpi < 1e-6  # nobody stated what barriers cost
        charged = self.charges - {"barriers"} if is_free else self.charges
        return ignored - charged


def seconds_from_throughput(
    wpc: float, total_sub_groups: float, device: DeviceParameters, *, model: str
) -> float:
    """Turn sub-groups per cycle of one compute unit into the time of all sub-groups, s."""
    check_positive(wpc, "wpc")
    units = device.require("num_compute_units", model=model)
    return total_sub_groups / (wpc * units * device.require("clock_hz", model=model))
