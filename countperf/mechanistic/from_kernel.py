"""From a Loopy kernel to its profile, and to the predictions of all models.

What a sub-group executes comes from `countperf.counting.programs` (counts, symbolic in the sizes)
and `countperf.counting.expansion` (the dependency graph at given sizes). What Loopy does not know
is declared: the registers of a work item, and where addresses are read from data, the lines that a
sub-group touches.

Conventions
-----------
- Counts are means over all sub-groups of a launch. A sub-group executes what at least one of its
  work items does.
- A *transaction* is a line of memory that a sub-group touches (``cache_line_bytes``; 128 bytes on
  NVIDIA devices that state none); traffic moves in sectors (32 bytes there). Nothing is taken to be
  cached.
- A memory instruction is coalesced if it touches no more lines than its bytes fill. An uncoalesced
  one takes as many transactions as it touches lines; on compute capability 1.0 and 1.1, it takes
  one for each work item, and one address for all work items is not coalesced either (Hong & Kim
  2009, section 3.4.5).
- ``total_flops`` counts fused operations twice, functions and powers once; ``work`` counts all
  operations, on integers too; ``ins_issued`` has one more issue for each line beyond the fewest.
- Address arithmetic and loop control are no part of the profile, as they are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from countperf.counting.expansion import Expansion, expand_program
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.programs import (
    AccessCost,
    KernelProgram,
    MemoryShape,
    Node,
    Statement,
    access_cost,
    kernel_programs,
)
from countperf.counting.size_parameters import size_ranges
from countperf.counting.vector import PropertyVector
from countperf.devices.parameters import DeviceParameters
from countperf.errors import ModelNotApplicableError, ParameterError, option
from countperf.mechanistic.classes import BARRIER
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    ProfiledKernel,
)
from countperf.mechanistic.profiler_csv import KernelMetrics, with_measured
from countperf.symbolic.isl_sets import assumptions_text, guards_of
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.text import ShortRepr

_LINE_BYTES = 128
_SECTOR_BYTES = 32
_BANKS = 32
_OLD_BANKS = 16
_FLOPS = {"add": 1, "mul": 1, "div": 1, "pow": 1, "special": 1, "minmax": 1, "fma": 2}
_SPLIT_FULLY = ("1.0", "1.1")
"""Compute capabilities on which an uncoalesced access takes a transaction for each work item."""

_MOST_INSTRUCTIONS = 200_000
"""Instructions of all graphs of a work group together, beyond which one stands for all."""


def memory_shape(device: DeviceParameters) -> MemoryShape:
    """Return how a device's memory is cut up."""
    if device.compute_capability is None:
        stated = device.require_int("cache_line_bytes", model="the kernel's profile")
        return MemoryShape(line_bytes=stated, sector_bytes=stated)
    line = device.cache_line_bytes or _LINE_BYTES
    banks = _OLD_BANKS if device.compute_capability.startswith("1.") else _BANKS
    return MemoryShape(line_bytes=line, sector_bytes=min(line, _SECTOR_BYTES), banks=banks)


@dataclass(slots=True)
class _Instruction:
    """A node of a statement, how often sub-groups execute it, and the lines that it touches."""

    node: Node
    name: str
    sub_group_executions: Fraction
    item_executions: Fraction
    cost: AccessCost | None


class ProgramAtSizes:
    """One device program at given sizes, on a device."""

    def __init__(
        self,
        program: KernelProgram,
        values: Mapping[str, int],
        device: DeviceParameters,
        *,
        lines: Mapping[str, float],
        max_instructions: int,
    ) -> None:
        self.program = program
        self.values = values
        self.lines = lines
        self.max_instructions = max_instructions
        self.sub_group_size = device.require_int("sub_group_size", model="the kernel's profile")
        self.shape = memory_shape(device)
        self.splits_fully = device.compute_capability in _SPLIT_FULLY
        self.launches = int(program.launches.evaluate(values))
        self.groups = int(program.grid.work_groups.evaluate(values))
        self.per_group = program.sub_groups_per_group(self.sub_group_size)
        self.sub_groups = self.groups * self.per_group  # of one launch

    def profile(self, registers_per_work_item: int | None) -> KernelProfile:
        """Return the profile of one launch."""
        instructions = self._instructions()
        names = {instruction.node: instruction.name for instruction in instructions}
        graphs, is_shortened = self._graphs(names)
        barriers = self._barriers()
        alpha: dict[str, Fraction] = {}
        for each in instructions:
            alpha[each.name] = alpha.get(each.name, Fraction(0)) + self._mean(each)
        if barriers:
            alpha[BARRIER] = barriers
        alpha = {name: count for name, count in alpha.items() if count}
        if not alpha:
            message = f"program '{self.program.name}' executes nothing at {self.values}"
            raise ModelNotApplicableError(message, parameter="kernel")
        exact = sum(alpha.values())
        lengths = [len(graph.nodes) for graph in graphs]
        nearest = min(graphs, key=lambda graph: abs(len(graph.nodes) - exact))
        is_sample = is_shortened or Fraction(sum(lengths), len(lengths)) != exact
        differ = len(graphs) > 1
        return KernelProfile(
            name=self.program.name,
            alpha={name: float(count) for name, count in alpha.items()},
            alpha_comp=float(sum(n for name, n in alpha.items() if _kind(name) == "compute")),
            alpha_mem=float(sum(n for name, n in alpha.items() if _kind(name) == "memory")),
            alpha_sync=float(barriers),
            idg=nearest,
            sub_group_idgs=tuple(graphs) if differ else None,
            idg_is_sample=is_sample or differ,
            registers_per_work_item=registers_per_work_item,
            local_bytes_per_group=self.program.local_bytes(self.values),
            **self._totals(instructions),
            span=_depth(nearest) * float(exact) / len(nearest.nodes),
        )

    def _barriers(self) -> Fraction:
        """Return the barriers of a sub-group."""
        items = self.program.grid.group_size * self.groups * self.launches
        return Fraction(self.program.barriers.evaluate(self.values)) / items

    def _mean(self, instruction: _Instruction) -> Fraction:
        return instruction.sub_group_executions / (self.sub_groups * self.launches)

    def _instructions(self) -> list[_Instruction]:
        instructions: list[_Instruction] = []
        for statement in self.program.statements:
            for node in statement.nodes:
                guarded = (statement.within, node.cases)
                executions = self.program.executions(guarded, self.sub_group_size)
                by_sub_groups = Fraction(executions.evaluate(self.values)) * node.share
                items = self.program.domains.executions(*guarded, self.program.grid)
                cost = self._cost(statement, node) if by_sub_groups else None
                instructions.append(
                    _Instruction(
                        node=node,
                        name=_class_name(node.key, cost),
                        sub_group_executions=by_sub_groups,
                        item_executions=Fraction(items.evaluate(self.values)) * node.share,
                        cost=cost,
                    )
                )
        return instructions

    def _cost(self, statement: Statement, node: Node) -> AccessCost | None:
        if not isinstance(node.key, MemoryAccess):
            return None
        return access_cost(
            self.program,
            statement,
            node,
            self.values,
            sub_group_size=self.sub_group_size,
            shape=self.shape,
            declared=self.lines.get(node.key.array),
        )

    def _graphs(self, names: Mapping[Node, str]) -> tuple[list[InstructionGraph], bool]:
        places = {(s.within, n.cases) for s in self.program.statements for n in s.nodes}
        differ = any(self.program.depends_on_lane(position) for position in places)
        first = self._expand_classes(0)
        if not first.nodes and not differ:
            message = (
                f"program '{self.program.name}': a typical work group executes nothing at "
                f"{dict(self.values)}, so that there is no graph"
            )
            raise ModelNotApplicableError(message, parameter="idg")
        others = self.per_group - 1 if differ and not first.is_shortened else 0
        if others * len(first.nodes) > _MOST_INSTRUCTIONS:
            others = 0
        expansions = [first, *(self._expand_classes(number + 1) for number in range(others))]
        graphs = [self._graph(expansion, names) for expansion in expansions if expansion.nodes]
        is_shortened = any(expansion.is_shortened for expansion in expansions)
        if len(set(graphs)) == 1:
            return graphs[:1], is_shortened
        # a program for each sub-group of the group, or that of one of them for all
        is_whole = len(graphs) == self.per_group and not is_shortened
        return (graphs, False) if is_whole else (graphs[:1], True)

    def _expand_classes(self, number: int) -> Expansion:
        return expand_program(
            self.program,
            self.values,
            sub_group_size=self.sub_group_size,
            number=number,
            max_instructions=self.max_instructions,
        )

    def _graph(self, expansion: Expansion, names: Mapping[Node, str]) -> InstructionGraph:
        nodes = [BARRIER if node is None else names[node] for node in expansion.nodes]
        return InstructionGraph(nodes, expansion.edges)

    def _totals(self, instructions: Sequence[_Instruction]) -> dict[str, Any]:
        coalesced, uncoalesced, split, size, traffic = (Fraction(0) for _ in range(5))
        flops, work, lines, moved, cuda = (Fraction(0) for _ in range(5))
        issued = self._barriers()
        for instruction in instructions:
            key, cost, mean = instruction.node.key, instruction.cost, self._mean(instruction)
            issued += mean
            if isinstance(key, Operation):
                work += instruction.item_executions
                cuda += mean
                if key.type_name.startswith("f"):
                    flops += instruction.item_executions * _FLOPS.get(key.kind, 0)
            elif cost is not None:
                bytes_asked = self.sub_group_size * key.bits // 8
                fewest = -(-bytes_asked // self.shape.line_bytes)
                lines += instruction.sub_group_executions * cost.lines
                moved += instruction.sub_group_executions * cost.bytes_moved
                issued += mean * max(0, cost.lines - fewest)
                if not cost.lines:
                    continue
                size += mean * bytes_asked
                traffic += mean * cost.bytes_moved
                if cost.lines <= fewest and (
                    not self.splits_fully or cost.bytes_moved >= bytes_asked
                ):
                    coalesced += mean
                else:
                    uncoalesced += mean
                    split += mean * (self.sub_group_size if self.splits_fully else cost.lines)
        accesses = coalesced + uncoalesced
        return {
            "alpha_mem_coal": float(coalesced),
            "alpha_mem_uncoal": float(uncoalesced),
            "uncoal_per_mw": float(split / uncoalesced) if uncoalesced else 1.0,
            "load_bytes_per_sub_group": float(size / accesses) if accesses else None,
            "gmem_bytes": float(traffic),
            "total_flops": float(flops / self.launches),
            "total_bytes": float(moved / self.launches),
            "work": float(work / self.launches),
            "transactions": float(lines / self.launches),
            "ins_cuda": float(cuda),
            "ins_issued": float(issued),
        }


def _class_name(key: Operation | MemoryAccess, cost: AccessCost | None) -> str:
    if isinstance(key, Operation):
        return f"{key.kind}.{key.type_name}" + (f".{key.function}" if key.function else "")
    name = f"{key.direction}.{key.address_space}.{key.bits}"
    return f"{name}.x{float(cost.excess):.4g}" if cost is not None and cost.excess > 1 else name


def _kind(name: str) -> str:
    """Return the kind of a class; local memory counts as computation (Hong & Kim 2009)."""
    if name == BARRIER:
        return "barrier"
    return "memory" if name.startswith(("load.global", "store.global")) else "compute"


def _depth(graph: InstructionGraph) -> int:
    """Return the instructions on the longest chain."""
    depths = [1] * len(graph.nodes)
    for source, target in graph.edges:  # sorted by source: all that a source waits for is done
        depths[target] = max(depths[target], depths[source] + 1)
    return max(depths)


MAX_INSTRUCTIONS = 20_000
"""Instructions of a sub-group up to which its graph is written out in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfiler(ShortRepr):
    """A Loopy kernel on a device: gives its profile at any sizes."""

    programs: tuple[KernelProgram, ...]  # its device programs
    device: DeviceParameters  # gives the size of sub-groups and lines
    # declared, for all device programs or by their names
    registers_per_work_item: int | Mapping[str, int] | None = None
    occupancy: float | None = None  # declared, see `LaunchConfiguration`
    active_groups: int | None = None
    # lines that a sub-group touches in accesses to arrays whose addresses are read from data
    lines: Mapping[str, float] = field(default_factory=dict[str, float])
    max_instructions: int = MAX_INSTRUCTIONS  # longest graph of a sub-group
    metrics: tuple[KernelMetrics, ...] = ()  # what a profiler measured, in the place of counts

    def at(self, parameters: Mapping[str, Any], /) -> ProfiledKernel:
        """Return profile and launch at parameter values."""
        if len(self.programs) != 1:
            names = ", ".join(program.name for program in self.programs)
            message = (
                f"kernel '{self.kernel}' has {len(self.programs)} device programs ({names}) and no"
                " single profile; take launches_at() or predict_all()"
            )
            raise ModelNotApplicableError(message, parameter="kernel")
        ((profiled, _),) = self.launches_at(parameters)
        if self.lacks_registers(profiled.profile):
            raise missing_registers(profiled.profile.name, self.device)
        return profiled

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched."""
        values = self._checked(parameters)
        launches: list[tuple[ProfiledKernel, int]] = []
        for program in self.programs:
            at_sizes = ProgramAtSizes(
                program,
                values,
                self.device,
                lines=self.lines,
                max_instructions=self.max_instructions,
            )
            if not at_sizes.launches or not at_sizes.groups:
                continue
            profile = at_sizes.profile(self._registers(program))
            launch = LaunchConfiguration(
                work_items_per_group=program.grid.group_size,
                num_groups=at_sizes.groups,
                occupancy=self.occupancy,
                active_groups=self._active_groups(profile),
            )
            profiled = ProfiledKernel(profile=profile, launch=launch)
            if self.metrics:
                profiled = with_measured(profiled, self.metrics, self.device)
            launches.append((profiled, at_sizes.launches))
        if not launches:
            message = f"kernel '{self.kernel}' launches nothing at {values}"
            raise ModelNotApplicableError(message, parameter="kernel")
        return tuple(launches)

    def _active_groups(self, profile: KernelProfile) -> int | None:
        if self.active_groups is None and profile.local_bytes_per_group:
            device = self.device
            # a CPU core: one group at a time, and local memory that is cache
            is_core = device.max_groups_per_compute_unit == 1
            return 1 if is_core and device.local_bytes_per_compute_unit is None else None
        return self.active_groups

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.programs[0].kernel.name

    @property
    def note(self) -> str:
        """Where instructions come from, if not from Loopy."""
        return ""

    def lacks_registers(self, profile: KernelProfile) -> bool:
        """Return whether the occupancy cannot be known without the registers of a work item."""
        launch = (self.occupancy, self.active_groups)
        return launch == (None, None) and registers_are_missing(profile, self.device)

    def _checked(self, parameters: Mapping[str, Any]) -> dict[str, int]:
        kernel = self.programs[0].kernel
        vector = PropertyVector(
            {},
            kernel=kernel.name,
            parameters=self.programs[0].parameters,
            assumptions=assumptions_text(assumptions_of(kernel)),
            assumption_guards=tuple(guards_of(assumptions_of(kernel))),
            defaults=self.programs[0].domains.defaults,
        )
        vector.hold_sizes_to(size_ranges(kernel))
        values = vector.check_parameters(parameters, {})
        for name, value in values.items():
            if not isinstance(value, int):
                message = f"kernel '{kernel.name}': {name} must be one integer for a profile"
                raise ParameterError(message, parameter=name)
        return values

    def _registers(self, program: KernelProgram) -> int | None:
        declared = self.registers_per_work_item
        if isinstance(declared, Mapping):
            declared = declared.get(program.name)
        # where registers limit nothing (on a CPU), they don't matter
        return None if self.device.registers_per_compute_unit is None else declared


def profile_kernel(
    kernel: Any,
    device: DeviceParameters,
    *,
    statistics: Mapping[str, Any] | None = None,
    contract: bool = True,
    **options: Any,
) -> KernelProfiler:
    """Profile a Loopy kernel for the mechanistic models; options are fields of the profiler."""
    programs = kernel_programs(kernel, statistics=statistics, contract=contract)
    given = {name: value for name, value in options.items() if value is not None}
    return KernelProfiler(programs=programs, device=device, **given)


def registers_are_missing(profile: KernelProfile, device: DeviceParameters) -> bool:
    """Return whether nobody declared or measured registers, which may limit the occupancy."""
    is_known = profile.registers_per_work_item is not None or "occupancy" in profile.measured
    return not is_known and device.registers_per_compute_unit is not None


def missing_registers(name: str, device: DeviceParameters) -> ModelNotApplicableError:
    """Return the error about registers that nobody declared."""
    nvcc = f"; an nvcc that compiles for {device.compute_capability} finds them, if installed"
    message = (
        f"kernel '{name}': its occupancy on {device.slug} depends on the registers of a work item,"
        f" which Loopy does not know{nvcc if device.compute_capability else ''}; state them"
        f" ({option('registers_per_work_item', 'N')})"
    )
    return ModelNotApplicableError(message, parameter="registers_per_work_item")
