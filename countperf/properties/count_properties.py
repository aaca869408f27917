"""From a Loopy kernel to its property vector."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from countperf.counting.kernel import Counts, count_loopy_kernel
from countperf.properties.cache import remembered
from countperf.properties.taxonomy import View
from countperf.properties.vector import Count, PropertyVector, granularity_of
from countperf.symbolic.cardinality import assumptions_text, guards_of
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial


def count_kernel(
    t_unit: Any,
    *,
    statistics: Mapping[str, Any] | None = None,
    powers: Literal["emitted", "written"] = "emitted",
    approximate: bool = False,
    view: View = "source",
    cache: bool | str | os.PathLike[str] = True,
) -> PropertyVector:
    """Count the properties of a Loopy kernel, symbolic in its size parameters.

    Parameters
    ----------
    t_unit : loopy.TranslationUnit
        With one entry point; preprocessed and scheduled here unless that is done already.
    statistics : mapping from str to number, optional
        What data decides: mean trip counts by iname, probabilities of conditions by instruction id
        or by the condition's text. Counts into which they enter are marked as not exact.
    powers : {"emitted", "written"}
        Whether ``x**2`` is the multiplication that is generated (default) or one ``pow``.
    approximate : bool
        Whether what cannot be counted exactly gets an upper bound instead of an error: a set its
        bounding box's points, a footprint that cannot be found the utilization of each access
        alone. Counts that rest on one are marked as not exact, with the reason.
    view : {"source", "compiled"}
        Whether what Loopy emits is counted (default; shipped weights are fitted to that), or what
        an optimizing compiler leaves of it: `countperf.counting.compiled_view` states the rules.
    cache : bool or path
        Where counts are remembered from one process to the next: True for the folder named by the
        environment variable ``COUNTPERF_CACHE_DIR`` (none if it is empty), else the user's cache
        folder; a path for another one; False to count anew and to remember nothing.

    Returns
    -------
    PropertyVector
        All counts exact, unless `statistics` or an upper bound entered.

    Raises
    ------
    CountingError
        Something cannot be counted exactly: `UnsupportedExpressionError` for what has no counting
        rule, `DataDependentControlFlowError` for what depends on data.

    Notes
    -----
    Stevens & Klöckner (2016), sections 2 and 3. Barriers count once per work item that waits.
    """
    options: dict[str, Any] = {
        "statistics": dict(statistics or {}),
        "powers": powers,
        "approximate": approximate,
        "view": view,
    }

    def count() -> PropertyVector:
        return sorted_by_taxonomy(count_loopy_kernel(t_unit, **options), view=view)

    return remembered(t_unit, options, count, cache)


def sorted_by_taxonomy(counts: Counts, *, view: View = "source") -> PropertyVector:
    """Sort the counts of a kernel into properties."""
    parts: dict[str, list[PiecewiseQuasiPolynomial]] = {}

    def add(name: str, quantity: PiecewiseQuasiPolynomial) -> None:
        parts.setdefault(name, []).append(quantity)

    for operation, quantity in counts.operations.items():
        family = "flop" if operation.type_name.startswith("f") else "iop"
        function = f".{operation.function}" if operation.function else ""
        add(f"{family}.{operation.kind}.{operation.type_name}{function}", quantity)
    for item in counts.accesses:
        access = item.access
        if access.address_space == "local":
            add(f"lmem.{access.direction}.{access.bits}", item.executions)
        for utilization in item.classes:
            add(
                f"gmem.{access.direction}.{access.bits}.{utilization.name}",
                item.executions.restricted(utilization.nonnegative, utilization.zero).approximated(
                    utilization.approximations
                ),
            )
    add("barrier.local", counts.local_barriers)
    add("barrier.global", counts.global_barriers)
    add("groups", counts.work_groups)
    add("launches", counts.launches)
    quantities = {name: PiecewiseQuasiPolynomial.sum(some) for name, some in parts.items()}
    for name in list(quantities):
        if name.startswith("gmem.load."):
            suffix = name.removeprefix("gmem.load.")
            loads, stores = quantities[name], quantities.get(f"gmem.store.{suffix}")
            if stores is not None:
                quantities[f"gmem.min.{suffix}"] = counts.counter.minimum(loads, stores)
    given = {f"the caller's statistics for {counts.is_estimate}"} if counts.is_estimate else set()

    def reason(quantity: PiecewiseQuasiPolynomial) -> str:
        return "; ".join(sorted(given | quantity.approximations))

    return PropertyVector(
        {
            name: Count(
                quantity=quantity,
                granularity=granularity_of(name),
                exact=not reason(quantity),
                reason=reason(quantity),
            )
            for name, quantity in quantities.items()
        },
        kernel=counts.kernel,
        parameters=counts.parameters,
        assumptions=assumptions_text(counts.assumptions),
        assumption_guards=tuple(guards_of(counts.assumptions)),
        view=view,
    )
