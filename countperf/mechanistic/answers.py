"""Answers of mechanistic models about one kernel, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from countperf.display import Drawable, Table, printed
from countperf.errors import DeviceParameterError, ParameterError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.model import MechanisticPrediction

Answer = MechanisticPrediction | ParameterError | DeviceParameterError
"""A prediction, or the error that says what input a model lacks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelAnswers(Mapping[str, Answer], Table, Drawable):
    """Answers of several models by the models' names, in their order."""

    kernel: str  # name of the kernel
    device: str  # slug of the device
    parameters: Mapping[str, int]  # values of the size parameters
    # for each model its prediction, or the error that says which input it lacks
    answers: Mapping[str, Answer]
    described: DeviceParameters  # the device
    # floating-point operations, and bytes that its memory moves, of all launches
    total_flops: float
    total_bytes: float
    # fields of the kernel's profile that a profiler measured, and its metrics
    measured: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str = ""  # where instructions come from, if not from Loopy

    def __getitem__(self, model: str) -> Answer:
        return self.answers[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    __repr__ = printed

    @property
    def predictions(self) -> dict[str, MechanisticPrediction]:
        """Predictions of the models that have one."""
        return {
            name: answer
            for name, answer in self.answers.items()
            if isinstance(answer, MechanisticPrediction)
        }

    @property
    def lacking(self) -> dict[str, str]:
        """Input that each of the other models lacks: a field of the device or of the kernel."""
        return {
            name: lacking_input(answer)
            for name, answer in self.answers.items()
            if not isinstance(answer, MechanisticPrediction)
        }


def lacking_input(error: ParameterError | DeviceParameterError) -> str:
    """Return the name of the input that an error asks for."""
    if isinstance(error, DeviceParameterError):
        return f"device.{error.field}" if error.field else "device"
    return f"kernel.{error.parameter}" if error.parameter else "kernel"
