"""Structure of kernels, transactions, and coverage of kernels by fits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.counting.analysis import analyze_kernel
from countperf.errors import PropertyNameError
from countperf.properties.transactions import transaction_roots
from countperf.properties.transactions import with_transactions as added
from countperf.sizes import given_sizes
from countperf.workflow.fitting import catalogue_vectors, lookup_of
from countperf.workflow.kernels import counted, kernel_itself, kernel_statistics
from countperf.workflow.prediction import Target, vector_for

if TYPE_CHECKING:
    from countperf.counting.analysis import KernelAnalysis
    from countperf.measurements import Statistic
    from countperf.models.coverage import Coverage
    from countperf.models.weights import WeightSet
    from countperf.properties.taxonomy import View
    from countperf.properties.vector import PropertyVector


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


def analyzed(
    kernel: Any,
    *,
    statistics: Mapping[str, Statistic] | None = None,
    sizes: Mapping[str, Any] | None = None,
) -> KernelAnalysis:
    """Return the structure of a kernel, or of the kernel that a text names.

    Statistics are as for `counted`.
    """
    found = kernel_itself(kernel, "structure to analyze")
    known = kernel_statistics(kernel, statistics, sizes or {})
    return analyze_kernel(found, statistics=known)


def with_transactions(
    kernel: Any,
    *transactions: str,
    statistics: Mapping[str, Statistic] | None = None,
    view: View = "structure",
) -> PropertyVector:
    """Count a kernel, and keep with the counts what its sub-groups touch of global memory.

    Parameters
    ----------
    kernel : str or loopy.TranslationUnit
        The kernel, or a text that `load_kernel` understands.
    *transactions : str
        Which, such as ``transactions.32x128``: lines of 128 bytes, sub-groups of 32 work items.
    statistics : mapping from str to float or str, optional
        As for `predict`.
    view : {"structure", "source", "compiled"}, optional
        How the kernel is counted.

    Returns
    -------
    PropertyVector
        Its `evaluate` finds the transactions at the sizes that are asked for, exactly; there is no
        formula of them.

    Raises
    ------
    CountingError, PropertyNameError
        The kernel cannot be counted; a name is none of transactions.

    Examples
    --------
    >>> vector = with_transactions("transpose/stride1-reads/32x16/f32", "transactions.32x128")
    >>> found = vector.evaluate(n=1024, m=1024)
    >>> found["transactions.32x128.load"], found["transactions.32x128.store"]
    (32768, 1048576)
    """
    for name in transactions:
        if transaction_roots([name]) != (name,):
            raise PropertyNameError(
                f"{name!r} names no transactions; name the work items of a sub-group and the bytes"
                " of a line, as in transactions.32x128",
                name=name,
            )
    found = kernel_itself(kernel, "accesses to follow")
    known = kernel_statistics(kernel, statistics, {})
    vector = counted(found, statistics=known, view=view)
    return added(vector, found, transactions, known)
