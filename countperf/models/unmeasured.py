"""Properties of a kernel without a weight, and kernels whose measurement would supply one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from countperf.errors import UnmeasuredPropertyError

ExercisingKernels = Callable[[str], Sequence[str]]
"""From a property to the measurement kernels that exercise it."""

_NAMED = 3


def unmeasured_error(
    kernel: str, device: str, exercising_kernels: Mapping[str, tuple[str, ...]]
) -> UnmeasuredPropertyError:
    """Return the error that a kernel needs what weights of a device (its slug) lack.

    For each property without a weight, measurement kernels are given that would supply it.
    """
    mends = "; ".join(
        f"{name}: measure {_some(kernels)}"
        if kernels
        else f"{name}: no measurement kernel is known to exercise it, 'countperf coverage'"
        " searches the catalogue for one"
        for name, kernels in exercising_kernels.items()
    )
    message = (
        f"kernel {kernel!r} needs {', '.join(exercising_kernels)}, for which the weights"
        f" of {device} have no value ({mends}); refit with such measurements, or ask for a"
        " prediction without their cost (incomplete_ok=True)"
    )
    return UnmeasuredPropertyError(
        message,
        properties=tuple(exercising_kernels),
        exercising_kernels=dict(exercising_kernels),
    )


def _some(kernels: Sequence[str]) -> str:
    more = len(kernels) - _NAMED
    return " or ".join(kernels[:_NAMED]) + (f" ({more} more)" if more > 0 else "")
