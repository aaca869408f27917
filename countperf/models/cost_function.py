"""The predicted time of a kernel as a fast function of its parameters, for search loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from countperf.models.unmeasured import Unmeasured
from countperf.predictions import ParameterValue, Quantity


class CompiledCounts(Protocol):
    """Property values as one function of the parameters (``PropertyVector.compile``)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Property of each row of the result."""
        ...

    def __call__(self, **parameters: ParameterValue) -> NDArray[Any]:
        """Return the values, shape ``(len(names), *broadcast shape of the parameters)``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostFunction:
    """Predicted time of a kernel on a device, s, at parameters; microseconds per call; picklable.

    Attributes
    ----------
    kernel, device : str
        Name of the kernel, slug of the device.
    vector : CompiledCounts
        The kernel's property values.
    seconds_per_unit : ndarray, shape (n_properties,)
        What a unit of each property costs, s.
    unweighted : tuple of int
        Positions of the properties whose cost is not known.
    unmeasured : Unmeasured or None
        What to complain of where one of them is not zero; None to leave them out.
    """

    kernel: str
    device: str
    vector: CompiledCounts
    seconds_per_unit: NDArray[np.float64]
    unweighted: tuple[int, ...] = ()
    unmeasured: Unmeasured | None = None

    def __call__(self, **parameters: ParameterValue) -> Quantity:
        """Return the predicted time, s; an array where a parameter is one.

        Raises
        ------
        UnmeasuredPropertyError
            A property without a weight is not zero at these parameters.
        ParameterError
            A parameter is missing or outside the kernel's assumptions.
        """
        values = self.vector(**parameters)
        if self.unmeasured is not None and np.any(values[list(self.unweighted)] != 0):
            raise self.unmeasured.error()
        if values.ndim == 1:
            return float(self.seconds_per_unit @ values)
        return np.tensordot(self.seconds_per_unit, values.astype(np.float64), axes=1)
