"""Coverage of kernels by fits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.sizes import given_sizes
from countperf.workflow.fitting import catalogue_vectors, lookup_of
from countperf.workflow.kernels import kernel_statistics
from countperf.workflow.prediction import Target, vector_for

if TYPE_CHECKING:
    from countperf.measurements import Statistic
    from countperf.models.coverage import Coverage
    from countperf.models.weights import WeightSet


def coverage(
    kernel: Any,
    parameters: Mapping[str, int] | None = None,
    /,
    *,
    weights: WeightSet | Path | str | None = None,
    model: str | None = None,
    device: str | None = None,
    force: bool = False,
    statistics: Mapping[str, Statistic] | None = None,
    **more: int,
) -> Coverage:
    """Say which features of a kernel a fit's measurements exercise, and how far outside it lies.

    Parameters
    ----------
    kernel, weights, model, device, force, statistics
        As for `predict`.
    parameters, **more : int
        Values of the size parameters; without any, what holds at all sizes is said.

    Returns
    -------
    Coverage

    Raises
    ------
    CountperfError
        As for `predict`, except that properties without a weight are told, not raised.
    """
    weights = Target(weights=weights, model=model, device=device, force=force).checked()
    known = kernel_statistics(kernel, statistics, given_sizes(parameters, more))
    lookup = lookup_of(weights.definition)
    return weights.coverage(
        vector_for(kernel, known, weights, given_sizes(parameters, more)),
        parameters,
        exercising_kernels=lambda name: (
            lookup(name)
            or tuple(kernel for kernel, vector in catalogue_vectors().items() if name in vector)
        ),
        **more,
    )
