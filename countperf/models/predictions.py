"""Predictions of time models, with their parts, uncertainty and caveats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf import display
from countperf.display import Drawable, Table, printed
from countperf.errors import CountperfError, PredictionError

Quantity = float | NDArray[np.float64]
"""A number, or an array of them where parameters were given as arrays."""

ParameterValue = int | NDArray[np.integer]
"""Value of a size parameter: an integer, or integers at which to predict in one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Outcome of one check on a fit or a prediction."""

    name: str  # what was checked, such as ``"rank"`` or ``"extrapolation"``
    passed: bool  # whether the result can be used without a caveat, as far as this check goes
    message: str  # what was found
    remedy: str = ""  # what to do about it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction(Table, Drawable):
    """Predicted time of one launch of a kernel.

    Attributes
    ----------
    kernel, device, model, weights : str
        Name of the kernel, slug of the device, name of the model, name of the weights (empty where
        they have none).
    parameters : Mapping from str to int or ndarray
        Values of the size parameters.
    time_s : float or ndarray
        The time, s; of the shape that the parameters broadcast to.
    interval_s : pair of float or ndarray, or None
        Low and high end of where the time is expected in `interval_level` of cases, s; None where
        the model cannot tell, NaN at some of several sizes.
    breakdown : dict from str to float or ndarray
        Where the time goes: seconds per property, largest first. The parts sum to the time.
    missing : tuple of str
        Properties that the kernel has and the model knows no cost of; the time is without them.
    ignored : tuple of str
        Properties that the kernel has and the model leaves out by its definition.
    verdicts : tuple of Verdict
        Checks on the validity of this prediction.
    interval_level : float
        The share of cases whose time the interval is to hold, 0.9 or 0.95.
    model_choice : str
        Which model was chosen and why, where none was asked for; else empty.
    given_as : str
        Name of the kernel as the user gave it, where it was a text; else empty.
    origin : object or None
        Weights and kernel, for `anchored`; None where the model has no weights that scatter.
    """

    kernel: str
    device: str
    model: str
    parameters: Mapping[str, ParameterValue]
    time_s: Quantity
    interval_s: tuple[Quantity, Quantity] | None
    breakdown: dict[str, Quantity]
    weights: str = ""
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    interval_level: float = 0.95
    model_choice: str = ""
    given_as: str = ""
    origin: Any = field(default=None, repr=False)

    __repr__ = printed

    def against(self, other: Prediction) -> Any:
        """Compare with another prediction: of another kernel, size, device or model.

        Parameters
        ----------
        other : Prediction
            What this one is compared with.

        Returns
        -------
        PredictionPair
            Both side by side; its ``cause`` says in a sentence what makes the difference.

        Raises
        ------
        ParameterError
            One of them is of several sizes.
        """
        return display.above.pair(self, other)

    def anchored(self, *runs: Any) -> Prediction:
        """Return the prediction, corrected by measured runs of its kernel.

        Parameters
        ----------
        *runs : Timing, Measurement, or pair of a Mapping from str to int and a float
            What `countperf.time_kernel` returned; or measured runs: parameters and time, s.

        Returns
        -------
        Prediction
            Of the same kernel, parameters and level. It is corrected by these runs alone, also if
            this prediction was corrected by others.

        Raises
        ------
        PredictionError
            The prediction has no fitted weights, or they do not say how kernels scatter; a timing
            is of another kernel.
        DeviceMismatchError
            A timing is of another device.
        ParameterError
            There is no run, or a time is not positive.
        """
        if self.origin is None:
            raise PredictionError(
                f"the prediction of {self.kernel!r} by the {self.model} model was not made with"
                " fitted weights, which is what runs correct: predict with load_weights(...)"
            )
        return self.origin.anchored(*runs)

    @property
    def complete(self) -> bool:
        """True if the model knows the cost of every property that it does not ignore."""
        return not self.missing

    @property
    def caveats(self) -> tuple[Verdict, ...]:
        """The verdicts that did not pass."""
        return tuple(verdict for verdict in self.verdicts if not verdict.passed)


def largest_first(parts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Sort the parts of a time by size, negative ones last; arrays by their sum."""
    return dict(sorted(parts.items(), key=lambda item: (-float(np.sum(item[1])), item[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    """Answer of a device by a model at a size: a prediction, or an error that says why not."""

    device: str  # its slug, or how it was named
    parameters: Mapping[str, int]  # values of the size parameters
    weights: str = ""  # name of the weights; empty for mechanistic models
    model: str = ""  # empty where the device answers by none
    prediction: Prediction | None = None
    lacks: str = ""  # the input that is lacking, such as ``device.latency_steps``
    error: CountperfError | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceAnswers(Table):
    """Predicted times of a kernel on several devices: for each size and model the fastest first."""

    answers: tuple[DeviceAnswer, ...]

    __repr__ = printed
