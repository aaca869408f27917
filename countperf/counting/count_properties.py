"""From a Loopy kernel to its property vector, which is remembered in the process."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import ChainMap, defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any

from loopy.tools import LoopyKeyBuilder

from countperf.counting.access_classes import AccessCount, Footprints, Occurrence
from countperf.counting.execution.sites import count_execution
from countperf.counting.frontend.loopy_patches import forget_kernels
from countperf.counting.frontend.producers import translation_unit
from countperf.counting.keys import NOWHERE, Granularity, MemoryAccess, Operation
from countperf.counting.preparation import (
    Conditions,
    KernelTally,
    Launch,
    PreparedKernel,
    TallyView,
)
from countperf.counting.size_parameters import require_sizes, size_ranges
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CountedCaches
from countperf.counting.structure.site_keys import name_of
from countperf.counting.taxonomy import VIEWS, View, validate_name
from countperf.counting.vector import Count, PropertyVector, granularity_of
from countperf.errors import CountingError, ParameterError, PropertyNameError
from countperf.sizes import checks_keywords
from countperf.symbolic.piecewise import ONE_COUNT, PiecewiseQuasiPolynomial

_MAXIMUM_IN_MEMORY = 512
_COUNTED_BETWEEN = 64  # counts, after which what Loopy keeps in memory (160 kB each) is forgotten

_NOTHING = (None, False, {})  # values of options that state nothing

_memory: dict[str | None, PropertyVector] = {}
_memory_lock = threading.Lock()
_counted = itertools.count(1)


def forget() -> None:
    """Forget what this process remembers."""
    with _memory_lock:
        _memory.clear()


class _KeyBuilder(LoopyKeyBuilder):
    """Loopy's, with exact fractions, NaN without a warning, and fields of structured types."""

    def update_for_float(self, key_hash: Any, key: Any) -> None:
        key_hash.update(repr(key).encode())

    update_for_Fraction = update_for_float  # noqa: N815
    update_for_specific_dtype = update_for_float


def content_key(t_unit: Any, options: Mapping[str, Any]) -> str | None:
    """Return what identifies the counts of a kernel; None if something has no content hash."""
    build: Any = _KeyBuilder()
    entries = sorted(map(str, getattr(t_unit, "entrypoints", ())))
    if any(t_unit[name].overridden_get_grid_sizes_for_insn_ids for name in entries):
        return None  # a function, which Loopy leaves out of its hash
    try:
        stated = sorted((name, value) for name, value in options.items() if value not in _NOTHING)
        content = [build(t_unit), build(tuple(stated))]
    except TypeError:  # "unsupported type for persistent hash keying"
        return None
    return hashlib.sha256(json.dumps([*content, *entries]).encode()).hexdigest()


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
        of pytato and compiled functions of arraycontext stand for the translation unit in them.
    statistics : mapping from str to number or str, optional
        What data decides: mean trip counts by iname; probabilities of conditions by instruction id
        (``*`` and ``?`` match) or by the condition's text; the class of accesses whose address is
        read from data (by default ``indirect``), or whose work items step unevenly, by array or by
        the access's text, such as ``{"x": "stride1"}``. What they enter is not exact.
    view : {"source", "compiled", "structure"}
        Whether what Loopy emits is counted (default), what an optimizing compiler leaves of it, or
        what is emitted and beside it what the compiler leaves by how a device executes it.
    instruction_counts : mapping from str to mapping from str to number, optional
        What one execution of an instruction by one work item does, by property name, by
        instruction id, such as ``{"raw": {"flop.add.f32": 3, "gmem.load.32.stride1": 1}}``: for C
        code, atomic updates and whatever else has no counting rule. It is multiplied by the
        instruction's executions, and marked as not exact.
    caches : CountedCaches, optional
        Caches by which the structure view sorts accesses that come back to a line: those of weights
        are in their ``counted_caches``, those of a processor in
        ``countperf.counting.structure.memory_hierarchy.load_hierarchy("amd-zen4").counted``; by
        default those of AMD Zen 5.
    cache : bool
        Whether counts are remembered in the process.

    Raises
    ------
    CountingError
        Something cannot be counted exactly: `UnsupportedExpressionError` for what has no counting
        rule, `DataDependentControlFlowError` for what depends on data.
    PropertyNameError
        `instruction_counts` has a name that is no property, or one that is derived.

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
    stated = caches if view == "structure" else None
    options = preparing | {"view": view, "caches": stated and stated.model_dump_json()}
    key = content_key(t_unit, options) if cache else None
    with _memory_lock:
        vector = _memory.pop(key, None)
    if vector is None:
        prepared = PreparedKernel(t_unit, **preparing)
        executed = count_execution(prepared, caches=stated) if stated else None
        emitted = count_loopy_kernel(prepared, view="compiled" if view == "compiled" else "source")
        counts = emitted.by_property()
        if executed is not None:
            for part, quantity in executed.counts.items():
                counts[name_of(part)] = _make_count(name_of(part), quantity, executed.reasons)
        counter = prepared.domains.counter
        vector = PropertyVector(
            counts,
            kernel=prepared.kernel.name,
            parameters=prepared.parameters,
            assumptions=counter.context.text,
            assumption_guards=counter.assumption_guards(),
            view=view,
            defaults=prepared.domains.defaults,
            caches=stated,
            ranges=dict(ChainMap(*(size_ranges(t_unit[name]) for name in t_unit.entrypoints))),
        )
        quantities = {name: count.quantity for name, count in vector.items()}
        require_sizes(vector.kernel, prepared.parameters, quantities)
        if next(_counted) % _COUNTED_BETWEEN == 0:
            forget_kernels()
    if key is not None:
        with _memory_lock:
            _memory[key] = vector  # the most recent one is the last
            if len(_memory) > _MAXIMUM_IN_MEMORY:
                del _memory[next(iter(_memory))]
    return vector


def _make_count(name: str, quantity: PiecewiseQuasiPolynomial, reasons: AbstractSet[str]) -> Count:
    why = "; ".join(sorted(reasons))
    return Count(quantity=quantity, granularity=granularity_of(name), exact=not why, reason=why)


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


class Counts:
    """Everything that is counted in one kernel, symbolic in its parameters."""

    def __init__(self, prepared: PreparedKernel) -> None:
        self.kernel, self.parameters = prepared.kernel.name, prepared.parameters
        self.counter = prepared.domains.counter
        # operations of all work items; by property name what the caller says of instructions, and
        # barriers times the work items that wait at them, work groups of all launches, and launches
        self.parts: defaultdict[Operation | str, list[PiecewiseQuasiPolynomial]] = defaultdict(list)
        # accesses of all work items, by the loops around them
        self.occurrences: defaultdict[tuple[MemoryAccess, frozenset[str]], list[Occurrence]]
        self.occurrences = defaultdict(list)
        self.accesses: tuple[AccessCount, ...] = ()
        # arrays that instructions without a counting rule access, with the direction
        self.opaque: dict[tuple[str, str], str] = {}
        # why counts of operations and of accesses in loops are not exact; empty if they are
        self.reasons: defaultdict[Any, frozenset[str]] = defaultdict(frozenset)

    @cached_property
    def operations(self) -> dict[Operation | str, PiecewiseQuasiPolynomial]:
        """Sums of the parts."""
        return {key: PiecewiseQuasiPolynomial.sum(some) for key, some in self.parts.items()}

    def add_launches(self, launch: Launch, prepared: PreparedKernel) -> None:
        """Count launches, work groups and barriers of a device program."""
        program, given = launch.program, prepared.statistics
        given.used.clear()
        groups = launch.grid.work_groups * launch.number
        for name, number in (("launches", launch.number), ("groups", groups)):
            self.parts[name].append(number)
            self.reasons[name] |= given.reasons(program.launch_loops)
        self.parts["barrier.local"].append(launch.barriers)
        for barrier in program.barriers:
            self.reasons["barrier.local"] |= given.reasons(barrier.within | program.launch_loops)
        if program is prepared.schedule.programs[-1]:
            items = launch.grid.work_groups * ONE_COUNT.scale(launch.grid.group_size)
            for within in prepared.schedule.global_barriers:
                passes = launch.domains.executions(within, (), NOWHERE)
                self.parts["barrier.global"].append(passes * items)
                self.reasons["barrier.global"] |= given.reasons(within | program.launch_loops)

    def add_program(self, launch: Launch, tally: KernelTally) -> None:
        """Count what a device program executes."""
        # what instructions have in common is multiplied with its executions once
        numbers: defaultdict[tuple[frozenset[str], Conditions], dict[Any, Any]] = defaultdict(dict)
        for instruction in tally.instructions(launch):
            within, loopy = instruction.scope.within, instruction.loopy
            if instruction.is_supplied:
                self.opaque |= {(name, "load"): loopy.id for name in loopy.read_dependency_names()}
                written = loopy.write_dependency_names()
                self.opaque |= {(name, "store"): loopy.id for name in written}
            for part in instruction.parts:
                key, here = part.key, numbers[within, part.conditions]
                here[key] = here.get(key, 0) + part.times
                where = (key, within) if isinstance(key, MemoryAccess) else key
                self.reasons[where] |= instruction.reasons
        for (within, cases), occurring in numbers.items():
            executions = launch.domains.executions(within, cases, launch.grid)
            for key, number in occurring.items():
                executed = executions.scale(number)
                if isinstance(key, MemoryAccess):
                    occurrence = Occurrence(executed, cases, launch.grid, number)
                    self.occurrences[key, within].append(occurrence)
                else:
                    self.parts[key].append(executed)

    def by_property(self) -> dict[str, Count]:
        """Sort the counts into properties."""
        parts: defaultdict[str, list[PiecewiseQuasiPolynomial]] = defaultdict(list)
        reasons: defaultdict[str, frozenset[str]] = defaultdict(frozenset)

        def add(name: str, quantity: PiecewiseQuasiPolynomial, why: frozenset[str]) -> None:
            parts[name].append(quantity)
            if quantity:
                reasons[name] |= why

        for key, quantity in self.operations.items():
            add(key if isinstance(key, str) else key.name, quantity, self.reasons[key])
        for item in self.accesses:
            access = item.access
            if access.address_space == "local":
                add(f"lmem.{access.direction}.{access.bits}", item.executions, item.reasons)
            for kind in item.classes:
                where = item.executions.restrict_to(kind.nonnegative, kind.zero)
                name = f"gmem.{access.direction}.{access.bits}.{kind.name}"
                add(name, where.mark_as_bound(kind.approximations), item.reasons)
        quantities = {name: PiecewiseQuasiPolynomial.sum(some) for name, some in parts.items()}
        for name in list(quantities):  # the smaller of loads and stores of each class
            other, smaller = (name.replace("gmem.load.", f"gmem.{w}.") for w in ("store", "min"))
            if name.startswith("gmem.load.") and other in quantities:
                quantities[smaller] = self.counter.minimum(quantities[name], quantities[other])
                reasons[smaller] |= reasons[name] | reasons[other]
        return {
            name: _make_count(name, quantity, reasons[name] | quantity.approximations)
            for name, quantity in quantities.items()
        }


def count_loopy_kernel(kernel: Any, *, view: TallyView = "source", **options: Any) -> Counts:
    """Count a unit, prepared with options of `countperf.count_kernel`, or a prepared kernel."""
    prepared = PreparedKernel.of(kernel, **options)
    with prepared.count_with_advice():
        counts = Counts(prepared)
        for launch in prepared.launches():
            counts.add_program(launch, prepared.tally(view))
            counts.add_launches(launch, prepared)
        footprints = Footprints(prepared.domains, counts.occurrences, counts.opaque)
        counts.accesses = tuple(footprints.count_accesses(counts.reasons))
    return counts
