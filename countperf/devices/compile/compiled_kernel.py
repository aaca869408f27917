"""Kernels compiled by an OpenCL runtime for CPUs, and what their groups execute at given sizes."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pymbolic.primitives as p
from loopy.symbolic import TypeCast, get_dependencies
from numpy.typing import NDArray
from pymbolic.mapper.distributor import distribute

from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES, CacheSize
from countperf.counting.taxonomy import UNKNOWN_GROUPS
from countperf.counting.vector import PropertyVector
from countperf.counting.work_groups import GroupKinds, WorkGroups
from countperf.devices.compile.objects import INTEL, POCL, HostCode, objects_of, programs_of
from countperf.devices.device import Device
from countperf.devices.discovery import find_device
from countperf.devices.identity import DeviceIdentity
from countperf.errors import CountingError, KernelBuildError
from countperf.machine_code.classify_x86 import ROOT, count_misses, properties_of
from countperf.machine_code.interpreter import MachineProgram
from countperf.machine_code.machine_state import (
    ArrayData,
    KernelLaunch,
    Machine,
    fill_arrays,
    intel_group,
    pocl_group,
)
from countperf.machine_code.object_file import entry_of
from countperf.machine_code.throughput import AnalyzedBlock, analyze, blocks_of, cycles_of
from countperf.symbolic.isl_sets import names_of
from countperf.symbolic.kernel_sets import as_expression, bounds_of, domain_of

GROUP_STATES: Mapping[str, Callable[[KernelLaunch, Sequence[int]], Machine]] = {
    POCL: pocl_group,
    INTEL: intel_group,
}
"""Function from a launch and a group's number to its registers at entry, by platform."""

BUSIEST, LARGEST = f"{ROOT}.cycles_busiest", f"{ROOT}.cycles_largest"
"""Cycles of the compute unit that has the most, and of the largest group, where groups differ."""

_MOST_STEPS = 300_000
"""Steps that kinds of work groups may take together, some seconds, before fewer are followed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledKernel:
    """The compiled code of a translation unit, to be followed at any sizes."""

    platform: str  # of the OpenCL runtime
    units: int  # compute units of the device
    programs: Mapping[str, MachineProgram]  # the code of each of the device's kernels
    host: HostCode  # what launches them
    groups: WorkGroups  # sorts work groups by what they execute
    data_loops: tuple[FilledLoop, ...] = ()  # loops whose trip counts are data

    def counts(
        self,
        parameters: Mapping[str, int],
        statistics: Mapping[str, Any] | None = None,
        *,
        cache: CacheSize = DEFAULT_CACHES.code,
        every_group: bool = False,
    ) -> dict[str, int]:
        """Follow groups of each launch; return instructions of all groups, by property name."""
        followed = self.follow(parameters, statistics, every_group=every_group)
        analyze(block for launch in followed for block in launch.blocks)
        return count_launches(followed, cache)

    def follow(
        self,
        parameters: Mapping[str, int],
        statistics: Mapping[str, Any] | None = None,
        *,
        every_group: bool = False,
    ) -> tuple[FollowedLaunch, ...]:
        """Follow a group of each kind of each launch, or every group."""
        contents = contents_for(self.data_loops, statistics or {})
        followed: list[FollowedLaunch] = []
        for launch in self.host.launches(parameters):
            if (program := self.programs.get(launch.kernel)) is None:
                raise CountingError(f"there is no code of kernel {launch.kernel!r}")
            args = launch.kernel, launch.groups, parameters, launch.integers
            is_each = every_group or launch.number_of_groups == 1
            kinds = GroupKinds.of_each(launch.groups) if is_each else self.groups.kinds(*args)
            most_steps = math.inf if is_each else _MOST_STEPS
            groups = self._follow_groups(program, launch, kinds, contents, most_steps)
            if len(groups) < len(kinds.kinds):
                kinds = self.groups.kinds(*args, most=0)
                groups = self._follow_groups(program, launch, kinds, contents, math.inf)
            followed.append(
                FollowedLaunch(
                    program=program,
                    groups=tuple(groups),
                    kinds=kinds,
                    number_of_groups=launch.number_of_groups,
                    units=self.units,
                    in_chunks=self.platform == POCL,
                )
            )
        return tuple(followed)

    def _follow_groups(
        self,
        program: MachineProgram,
        launch: KernelLaunch,
        kinds: GroupKinds,
        contents: Mapping[str, ArrayData],
        most_steps: float,
    ) -> list[FollowedGroup]:
        """Follow a group of each kind, until all of them took too many steps."""
        entry = entry_of(program, launch.kernel, launch.group_shape)
        groups: list[FollowedGroup] = []
        steps = 0
        for kind in kinds.kinds:
            machine = GROUP_STATES[self.platform](launch, kind.point)
            fill_arrays(machine, launch, contents)
            try:
                executed = program.follow_function(entry, machine)
            except CountingError as error:
                raise CountingError(
                    f"the compiled code of {launch.kernel!r} cannot be followed: {error};"
                    " predict with a model that does not read it"
                ) from error
            groups.append(FollowedGroup(kind.times, executed, machine.accessed))
            steps += machine.steps
            if steps > most_steps:
                break
        return groups


@dataclass(frozen=True, slots=True)
class FollowedGroup:
    """Instructions that a group of a launch executes."""

    times: int | Fraction  # for so many groups it stands
    executed: Mapping[int, int]  # how often each line is executed, by number
    accessed: Mapping[int, int]  # where lines accessed memory when they were executed first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FollowedLaunch:
    """Instructions that the groups of a launch execute."""

    program: MachineProgram  # its code
    groups: tuple[FollowedGroup, ...]  # one of each kind
    kinds: GroupKinds  # which groups these stand for
    number_of_groups: int
    units: int  # compute units of the device
    in_chunks: bool  # whether units take several groups at a time

    @property
    def blocks(self) -> list[AnalyzedBlock]:
        """Blocks to be analyzed."""
        return [b for group in self.groups for b in blocks_of(self.program, group.executed)]

    def total(self, cycles: Sequence[int]) -> float:
        """Return the cycles of all groups, from those of each that was followed."""
        return float(sum(g.times * c for g, c in zip(self.groups, cycles, strict=True)))

    def busiest(self, cycles: Sequence[int]) -> float:
        """Return the cycles of the compute unit with the most, from the same."""
        order = self.kinds.order
        if order is None:
            return self.total(cycles) / self.units
        of_kinds = [float(g.times) * c for g, c in zip(self.groups, cycles, strict=True)]
        work = (np.array(of_kinds) / np.bincount(order))[order]
        return busiest_unit(work, self.units, in_chunks=self.in_chunks)


def busiest_unit(work: NDArray[np.float64], units: int, *, in_chunks: bool) -> float:
    """Return the work of the unit with the most, if the one that is free takes what is next.

    In chunks, it takes its share of what is left, but no more than 32 pieces times the units, as
    PoCL's threads do (Polychronopoulos and Kuck, 1987, "Guided Self-Scheduling").
    """
    busy = [0.0] * units
    first = 0
    while first < len(work):
        chunk = min(-(-(len(work) - first) // units), 32 * units) if in_chunks else 1
        heapq.heapreplace(busy, busy[0] + float(work[first : first + chunk].sum()))
        first += chunk
    return max(busy)


def count_launches(followed: Sequence[FollowedLaunch], cache: CacheSize) -> dict[str, int]:
    """Return what all groups of launches execute, by property name."""
    counts: defaultdict[str, float | Fraction] = defaultdict(int)
    is_uneven = any(len(launch.groups) > 1 for launch in followed)
    full_groups = 0.0  # of the largest ones, how many execute as much as all
    for launch in followed:
        program = launch.program
        cycles_of_groups: list[int] = []
        for group in launch.groups:
            for number_of_line, count in group.executed.items():
                line = program.lines[number_of_line]
                for name, number in properties_of(line.mnemonic, line.operands):
                    counts[name] += number * count * group.times
            misses = count_misses(program, group.executed, group.accessed, cache)
            for name, number in misses.items():
                counts[name] += number * group.times
            cycles = cycles_of(program, group.executed)
            for name, number in cycles.items():
                counts[f"{ROOT}.{name}"] += number * group.times
            cycles_of_groups.append(cycles["cycles"])
        if is_uneven and any(cycles_of_groups):
            counts[BUSIEST] += launch.busiest(cycles_of_groups)
            full_groups += launch.total(cycles_of_groups) / max(cycles_of_groups)
        if not launch.kinds.is_known:
            counts[UNKNOWN_GROUPS] += launch.number_of_groups
    if full_groups:
        counts[LARGEST] = counts[f"{ROOT}.cycles"] / full_groups
    return dict(sorted((name, round(number)) for name, number in counts.items() if number))


def counts_of_many(
    requests: Sequence[tuple[CompiledKernel, Mapping[str, int], Mapping[str, Any], CacheSize]],
) -> list[dict[str, int] | CountingError]:
    """Count what kernels execute, with one run of the analyzer for all."""
    outcomes: list[tuple[FollowedLaunch, ...] | CountingError] = []
    for kernel, parameters, statistics, _ in requests:
        try:
            outcomes.append(kernel.follow(parameters, statistics))
        except CountingError as error:
            outcomes.append(error)
    followed = [launches for launches in outcomes if not isinstance(launches, CountingError)]
    analyze(block for launches in followed for launch in launches for block in launch.blocks)
    return [
        launches if isinstance(launches, CountingError) else count_launches(launches, cache)
        for launches, (*_, cache) in zip(outcomes, requests, strict=True)
    ]


def read_compiled(
    units: Sequence[tuple[Any, Mapping[str, int]]], device: Device
) -> tuple[CompiledKernel | KernelBuildError, ...]:
    """Compile kernels with an OpenCL runtime for CPUs, in one process, and read their code."""
    return tuple(
        objects
        if isinstance(objects, KernelBuildError)
        else kernel_of(unit, programs_of(objects), device.identity)
        for (unit, _), objects in zip(units, objects_of(units, device), strict=True)
    )


def add_code(
    vector: PropertyVector,
    unit: Any,
    sizes: Mapping[str, int],
    device: str,
    statistics: Mapping[str, Any] | None,
    *,
    every_group: bool = False,
) -> PropertyVector:
    """Compile a kernel for some sizes, and add what its code executes to its counts."""
    (compiled,) = read_compiled([(unit, sizes)], find_device(device))
    if isinstance(compiled, KernelBuildError):
        raise compiled
    cache = (vector.caches or DEFAULT_CACHES).code
    return vector.with_counts_at(
        lambda at: compiled.counts(at, statistics, cache=cache, every_group=every_group), "code"
    )


def kernel_of(
    unit: Any, programs: Mapping[str, MachineProgram], device: DeviceIdentity
) -> CompiledKernel:
    """Join a translation unit and the code that a runtime made of it."""
    return CompiledKernel(
        platform=device.platform,
        units=device.compute_units,
        programs=programs,
        host=HostCode.of(unit),
        groups=WorkGroups(unit),
        data_loops=data_loops_of(unit.default_entrypoint),
    )


ValueOfPlace = Callable[[Fraction, int], int]
"""Function from a mean length and a place in an array to the integer there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledLoop:
    """A loop whose trip count is data."""

    iname: str  # its name in the kernel
    bounds: str  # what bounds it, as text
    arrays: Mapping[str, tuple[int, ValueOfPlace]]  # bytes of an element, and contents
    constant: int  # what is added to what the arrays say


def data_loops_of(kernel: Any) -> tuple[FilledLoop, ...]:
    """Return the loops of a kernel whose trip counts are read from arrays.

    Where the caller states how often such a loop runs on average (``statistics={"j": 12.5}``), the
    code is followed with contents of the array that have this mean: lengths that differ by one at
    most; sums of these, if two elements decide; where rows begin and end, if two arrays do.
    """
    temporaries = set(kernel.temporary_variables)
    data_loops: list[FilledLoop] = []
    for iname in sorted(kernel.all_inames()):
        if temporaries.isdisjoint(names_of(domain_of(kernel, [iname]), parameters=True)):
            continue
        _, extent = bounds_of(kernel, iname)[2].get_pieces()[-1]
        trips = as_expression(extent.to_pw_aff())
        if deciding := temporaries & set(get_dependencies(trips)):
            try:
                terms = list(_terms(kernel, trips, 1))
            except _NotToldError:
                terms = []
            values = _find_values([term for term in terms if term[0]])
            sizes = {name: kernel.arg_dict[name].dtype.numpy_dtype.itemsize for name in values}
            loop = FilledLoop(
                iname=iname,
                bounds=", ".join(sorted(deciding)),
                arrays={name: (sizes[name], value_of) for name, value_of in values.items()},
                constant=sum(factor for array, _, factor in terms if not array),
            )
            data_loops.append(loop)
    return tuple(data_loops)


_Term = tuple[str, Any, int]
"""Part of a trip count: an array (none of a number), the place of an element, and a factor."""


class _NotToldError(Exception):
    """Error for a loop whose bound no array contents can decide."""


def _terms(kernel: Any, expression: Any, factor: int) -> Iterator[_Term]:
    """Yield the elements and numbers that a sum consists of."""
    match expression:
        case int():
            yield "", None, factor * expression
        case p.Sum():
            for child in expression.children:
                yield from _terms(kernel, child, factor)
        case p.Product():
            numbers = [child for child in expression.children if isinstance(child, int)]
            others = [child for child in expression.children if not isinstance(child, int)]
            if len(others) != 1:
                raise _NotToldError
            yield from _terms(kernel, others[0], factor * math.prod(numbers))
        case TypeCast():
            yield from _terms(kernel, expression.child, factor)
        case p.Subscript(aggregate=p.Variable(name=name), index_tuple=(index,)) if (
            name in kernel.arg_dict
        ):
            yield name, index, factor
        case p.Variable(name=name) if name in kernel.temporary_variables:
            writers = [kernel.id_to_insn[writer] for writer in kernel.writer_map().get(name, ())]
            if len(writers) != 1 or not hasattr(writers[0], "expression"):
                raise _NotToldError
            yield from _terms(kernel, writers[0].expression, factor)
        case _:
            raise _NotToldError


def _find_values(elements: Sequence[_Term]) -> dict[str, ValueOfPlace]:
    """Return what arrays hold whose elements make up a trip count; nothing if none can."""
    match sorted(elements, key=lambda term: -term[2]):
        case [(array, _, 1)]:
            return {array: lambda rows, k: (k + 1) * rows // 1 - k * rows // 1}
        case [(end, _, 1), (begin, _, -1)] if end != begin:
            return {begin: lambda rows, k: k * rows // 1, end: lambda rows, k: (k + 1) * rows // 1}
        case [(array, last, 1), (_, first, -1)]:
            apart = distribute(last - first)
            if isinstance(apart, int) and apart > 0:
                return {array: lambda rows, k: k * rows // apart}
        case _:
            pass
    return {}


def contents_for(
    loops: tuple[FilledLoop, ...], statistics: Mapping[str, Any]
) -> dict[str, ArrayData]:
    """Return what arrays hold so that loops run as often as is stated."""
    contents: dict[str, ArrayData] = {}
    for loop in loops:
        mean = statistics.get(loop.iname)
        if not isinstance(mean, int | float | Fraction):
            raise CountingError(
                f"how often the loop {loop.iname!r} runs, bounded by {loop.bounds}, is data: state"
                f" it on average, statistics={{{loop.iname!r}: 12.5}}"
            )
        if not loop.arrays:
            raise CountingError(
                f"what bounds the loop {loop.iname!r}, {loop.bounds}, is neither an element of an"
                " array nor the difference of two, as compiled code is followed with: predict with"
                " a model that does not read it"
            )
        for name, (itemsize, value_of) in loop.arrays.items():
            contents[name] = ArrayData(itemsize, partial(value_of, Fraction(mean) - loop.constant))
    return contents
