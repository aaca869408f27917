"""From a Loopy kernel to its property vector.

Counts are remembered in the process. The key is the content of the kernel (Loopy's own persistent
hash of the translation unit) and every option of the counting. Errors are not remembered.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from loopy.tools import LoopyKeyBuilder

from countperf.counting.counts import Count, granularity_of
from countperf.counting.execution.sites import ExecutionCounts, count_execution
from countperf.counting.frontend.loopy_patches import forget_kernels
from countperf.counting.frontend.producers import translation_unit
from countperf.counting.kernel import Counts, count_loopy_kernel
from countperf.counting.keys import Granularity
from countperf.counting.preparation import PreparedKernel
from countperf.counting.size_parameters import require_sizes, size_ranges
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.structure.site_keys import name_of
from countperf.counting.taxonomy import VIEWS, View, validate_name
from countperf.counting.vector import PropertyVector
from countperf.errors import CountingError, ParameterError, PropertyNameError
from countperf.sizes import checks_keywords
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

_MAXIMUM_IN_MEMORY = 512
_COUNTED_BETWEEN = 64
"""After so many counts is forgotten what Loopy keeps in memory, 160 kB for each kernel."""

_NOTHING = (None, False, {})
"""Values of options that state nothing."""

_memory: dict[str, PropertyVector] = {}
_memory_lock = threading.Lock()
_counted = itertools.count(1)


def remembered(
    t_unit: Any, options: Mapping[str, Any], count: Callable[[], PropertyVector]
) -> PropertyVector:
    """Return the counts of a kernel from memory, or count and remember them."""
    key = content_key(t_unit, options)
    if key is None:
        return count_anew(count)
    with _memory_lock:
        vector = _memory.pop(key, None)
    if vector is None:
        vector = count_anew(count)
    with _memory_lock:
        _memory[key] = vector  # the most recent one is the last
        if len(_memory) > _MAXIMUM_IN_MEMORY:
            del _memory[next(iter(_memory))]
    return vector


def count_anew(count: Callable[[], PropertyVector]) -> PropertyVector:
    """Count, and have Loopy forget from time to time what it keeps of other kernels."""
    vector = count()
    if next(_counted) % _COUNTED_BETWEEN == 0:
        forget_kernels()
    return vector


def forget() -> None:
    """Forget what this process remembers."""
    with _memory_lock:
        _memory.clear()


def content_key(t_unit: Any, options: Mapping[str, Any]) -> str | None:
    """Return what identifies the counts of a kernel; None if something has no content hash."""
    build = _key_builder()
    entries = sorted(map(str, getattr(t_unit, "entrypoints", ())))
    if any(t_unit[name].overridden_get_grid_sizes_for_insn_ids for name in entries):
        return None  # a function, which Loopy leaves out of its hash
    try:
        stated = sorted((name, value) for name, value in options.items() if value not in _NOTHING)
        content = [build(t_unit), build(tuple(stated))]
    except TypeError:  # "unsupported type for persistent hash keying"
        return None
    return hashlib.sha256(json.dumps([*content, *entries]).encode()).hexdigest()


@lru_cache(maxsize=1)
def _key_builder() -> Callable[[Any], str]:
    class KeyBuilder(LoopyKeyBuilder):
        """Loopy's, exact fractions, which statistics may be, and fields of structured types.

        Loopy's own names all vectors and structures of one size alike, and warns of NaN, which
        statistics are refused for later.
        """

        def update_for_float(self, key_hash: Any, key: float) -> None:
            key_hash.update(repr(key).encode())

        def update_for_Fraction(self, key_hash: Any, key: Any) -> None:  # noqa: N802
            key_hash.update(repr(key).encode())

        def update_for_specific_dtype(self, key_hash: Any, key: Any) -> None:
            key_hash.update(repr(key).encode())

    return KeyBuilder()


@checks_keywords
def count_kernel(
    t_unit: Any,
    *,
    statistics: Mapping[str, Any] | None = None,
    view: View = "source",
    instruction_counts: Mapping[str, Mapping[str, Any]] | None = None,
    caches: CountedCaches = DEFAULT_CACHES,
    cache: bool = True,
) -> PropertyVector:
    """Count the properties of a Loopy kernel, symbolic in its size parameters.

    Parameters
    ----------
    t_unit : loopy.TranslationUnit
        With one entry point; preprocessed and scheduled here unless that is done already. Programs
        of pytato and compiled functions of arraycontext stand for the translation unit in them
        (`countperf.counting.frontend.producers`).
    statistics : mapping from str to number or str, optional
        What data decides: mean trip counts by iname; probabilities of conditions by instruction id
        (``*`` and ``?`` match) or by the condition's text; the class of accesses whose address is
        read from data (without one it is ``indirect``), or whose work items step unevenly, by array
        or by the access's text, such as ``{"x": "stride1"}``. Counts into which they enter are
        marked as not exact.
    view : {"source", "compiled", "structure"}
        Whether what Loopy emits is counted (default), what an optimizing compiler leaves of it
        (`countperf.counting.operations.compiled_view` states the rules), or what is emitted and
        beside it what the compiler leaves by how a device executes it
        (`countperf.counting.execution.sites`).
    instruction_counts : mapping from str to mapping from str to number, optional
        What one execution of an instruction by one work item does, by property name, by
        instruction id, such as ``{"raw": {"flop.add.f32": 3, "gmem.load.32.stride1": 1}}``: for C
        code, atomic updates and whatever else has no counting rule. It takes the place of a rule,
        is multiplied by the instruction's executions, and is marked as not exact.
    caches : CountedCaches, optional
        Caches of the device by which the structure view sorts accesses that come back to a line:
        those of weights are in their ``counted_caches``, those of a processor in
        ``countperf.counting.structure.memory_hierarchy.load_hierarchy("amd-zen4").counted``; by
        default those of AMD Zen 5. The vector says which these were.
    cache : bool
        Whether counts are remembered in the process, by the content of the kernel and the options;
        False to count anew and to remember nothing.

    Returns
    -------
    PropertyVector
        All counts exact, unless `statistics` entered.

    Raises
    ------
    CountingError
        Something cannot be counted exactly: `UnsupportedExpressionError` for what has no counting
        rule, `DataDependentControlFlowError` for what depends on data.
    PropertyNameError
        `instruction_counts` has a name that is no property, or one that is derived.
    CountingError
        `instruction_counts` has a property that work items do not execute.

    Notes
    -----
    Stevens & Klöckner (2016), sections 2 and 3. Barriers count once per work item that waits.
    """
    if view not in VIEWS:
        message = f"there is no view {view!r}; pass one of {', '.join(map(repr, VIEWS))}"
        raise ParameterError(message, parameter="view")
    t_unit = translation_unit(t_unit)
    for instruction_id, numbers in (instruction_counts or {}).items():
        for name in numbers:
            _check_supplied_name(instruction_id, name)
    preparing: dict[str, Any] = {
        "statistics": dict(statistics or {}),
        "instruction_counts": {k: dict(v) for k, v in (instruction_counts or {}).items()},
    }
    options = preparing | {
        "view": view,
        "caches": caches.model_dump_json() if view == "structure" else None,
    }

    def count() -> PropertyVector:
        prepared = PreparedKernel(t_unit, **preparing)
        executed = count_execution(prepared, caches=caches) if view == "structure" else None
        tallied = "compiled" if view == "compiled" else "source"
        emitted = count_loopy_kernel(prepared, view=tallied)
        counts = sort_by_taxonomy(emitted) | _count_executions(executed)
        return _vector(prepared, counts, view, caches)

    vector = remembered(t_unit, options, count) if cache else count_anew(count)
    ranges: dict[str, range] = {}
    for name in getattr(t_unit, "entrypoints", ()):
        ranges |= size_ranges(t_unit[name])
    vector.hold_sizes_to(ranges)
    return vector


def _vector(
    prepared: PreparedKernel, counts: Mapping[str, Count], view: View, caches: CountedCaches
) -> PropertyVector:
    """Return the counts of a kernel, which depend on sizes alone; else that is a fault of ours."""
    counter = prepared.domains.counter
    vector = PropertyVector(
        counts,
        kernel=prepared.kernel.name,
        parameters=prepared.parameters,
        assumptions=counter.context.text,
        assumption_guards=counter.assumption_guards(),
        view=view,
        defaults=prepared.domains.defaults,
        caches=caches if view == "structure" else None,
    )
    quantities = {name: count.quantity for name, count in vector.items()}
    require_sizes(vector.kernel, prepared.parameters, quantities)
    return vector


def _check_supplied_name(instruction_id: str, name: str) -> None:
    """Refuse a property that cannot be given per execution of an instruction."""
    granularity = granularity_of(validate_name(name))
    if granularity is not Granularity.WORK_ITEM:
        raise CountingError(
            f"instruction_counts[{instruction_id!r}][{name!r}]: {name} is counted per "
            f"{granularity.value}, and no instruction executes it"
        )
    if name.startswith(("gmem.min.", "barrier.global")):
        raise PropertyNameError(
            f"instruction_counts[{instruction_id!r}][{name!r}]: {name} is derived from the whole "
            "kernel; pass loads and stores instead",
            name=name,
        )


def sort_by_taxonomy(counts: Counts) -> dict[str, Count]:
    """Sort the counts of a kernel into properties."""
    parts: dict[str, list[PiecewiseQuasiPolynomial]] = {}
    reasons: dict[str, frozenset[str]] = {}

    def add(
        name: str, quantity: PiecewiseQuasiPolynomial, why: frozenset[str] = frozenset()
    ) -> None:
        parts.setdefault(name, []).append(quantity)
        if why and quantity:
            reasons[name] = reasons.get(name, frozenset()) | why

    for key, quantity in counts.operations.items():
        name = key if isinstance(key, str) else key.name
        add(name, quantity, counts.reasons.get(key, frozenset()))
    for item in counts.accesses:
        access = item.access
        if access.address_space == "local":
            add(f"lmem.{access.direction}.{access.bits}", item.executions, item.reasons)
        for utilization in item.classes:
            add(
                f"gmem.{access.direction}.{access.bits}.{utilization.name}",
                item.executions.restrict_to(
                    utilization.nonnegative, utilization.zero
                ).mark_as_bound(utilization.approximations),
                item.reasons,
            )
    synchronization: dict[str, tuple[PiecewiseQuasiPolynomial, str]] = {
        "barrier.local": (counts.local_barriers, "barrier.local"),
        "barrier.global": (counts.global_barriers, "barrier.global"),
        "groups": (counts.work_groups, "groups"),
        "launches": (counts.launches, "launches"),
    }
    for name, (quantity, key) in synchronization.items():
        add(name, quantity, counts.reasons.get(key, frozenset()))
    quantities = {name: PiecewiseQuasiPolynomial.sum(some) for name, some in parts.items()}
    _add_smaller_directions(quantities, reasons, counts)

    def counted(name: str, quantity: PiecewiseQuasiPolynomial) -> Count:
        why = "; ".join(sorted(reasons.get(name, frozenset()) | quantity.approximations))
        return Count(quantity=quantity, granularity=granularity_of(name), exact=not why, reason=why)

    return {name: counted(name, quantity) for name, quantity in quantities.items()}


def _add_smaller_directions(
    quantities: dict[str, PiecewiseQuasiPolynomial],
    reasons: dict[str, frozenset[str]],
    counts: Counts,
) -> None:
    """Add the smaller of loads and stores of each class of accesses to global memory."""
    for name in list(quantities):
        if not name.startswith("gmem.load."):
            continue
        suffix = name.removeprefix("gmem.load.")
        other, smaller = f"gmem.store.{suffix}", f"gmem.min.{suffix}"
        if other not in quantities:
            continue
        quantities[smaller] = counts.counter.minimum(quantities[name], quantities[other])
        why = reasons.get(name, frozenset()) | reasons.get(other, frozenset())
        reasons[smaller] = reasons.get(smaller, frozenset()) | why


def _count_executions(executed: ExecutionCounts | None) -> dict[str, Count]:
    """Return how a kernel is executed, as properties."""
    if executed is None:
        return {}
    reason = "; ".join(sorted(executed.reasons))
    counts = {name_of(key): quantity for key, quantity in executed.counts.items()}
    return {
        name: Count(
            quantity=quantity, granularity=granularity_of(name), exact=not reason, reason=reason
        )
        for name, quantity in counts.items()
    }
