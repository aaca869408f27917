"""Properties of a kernel without a weight, and kernels whose measurement would supply one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from countperf.display import ShortRepr
from countperf.errors import UnmeasuredPropertyError

ExercisingKernels = Callable[[str], Sequence[str]]
"""From a property to the measurement kernels that exercise it."""

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured(ShortRepr):
    """Feature that a kernel needs and a weight set lacks."""

    kernel: str  # name of the kernel, and slug of the device of the weights
    device: str
    # for each property without a weight, measurement kernels that would supply it
    exercising_kernels: dict[str, tuple[str, ...]]

    def error(self) -> UnmeasuredPropertyError:
        """Return the error that says so."""
        mends = "; ".join(
            f"{name}: measure {_some(kernels)}"
            if kernels
            else f"{name}: no measurement kernel is known to exercise it, 'countperf coverage'"
            " searches the catalogue for one"
            for name, kernels in self.exercising_kernels.items()
        )
        message = (
            f"kernel {self.kernel!r} needs {', '.join(self.exercising_kernels)}, for which the"
            " weights"
            f" of {self.device} have no value ({mends}); refit with such measurements, or ask for a"
            " prediction without their cost (incomplete_ok=True)"
        )
        return UnmeasuredPropertyError(
            message,
            properties=tuple(self.exercising_kernels),
            exercising_kernels=dict(self.exercising_kernels),
        )


def _some(kernels: Sequence[str]) -> str:
    more = len(kernels) - _NAMED
    return " or ".join(kernels[:_NAMED]) + (f" ({more} more)" if more > 0 else "")
