"""From a Loopy kernel to its profile: what a sub-group executes, counted or declared.

- Counts are means over all sub-groups of a launch. A sub-group executes what at least one of its
  work items does. Address arithmetic and loop control are no part of the profile.
- Loads and stores that a compiler keeps in a register are executed once (its rules are those of
  `countperf.counting.operations.compiled_view`).
- A *transaction* is a line of memory that a sub-group touches (``cache_line_bytes``; 128 bytes on
  NVIDIA devices that state none). It asks for sectors (32 bytes there); what of them comes from
  caches and from memory, `countperf.mechanistic.traffic` finds.
- A memory instruction is coalesced if it touches no more lines than its bytes fill. An uncoalesced
  one takes as many transactions as it touches lines; on compute capability 1.0 and 1.1, it takes
  one for each work item, and one address for all work items is not coalesced either (Hong & Kim
  2009, section 3.4.5).
- ``total_flops`` counts fused operations twice, functions and powers once; ``work`` counts all
  operations, on integers too; ``ins_issued`` has one more issue for each line beyond the fewest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

from countperf.counting import programs as code
from countperf.counting.expansion import expand_program
from countperf.counting.keys import MemoryAccess, Operation
from countperf.counting.size_parameters import SizeParameters, size_ranges
from countperf.devices.parameters import DeviceParameters
from countperf.errors import CountperfError, ModelNotApplicableError, option
from countperf.mechanistic import profile as base
from countperf.mechanistic.classes import BARRIER, count_charged_bits
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.profiler_csv import KernelMetrics, with_measured
from countperf.mechanistic.traffic import Traffic, TrafficCounter
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


def memory_shape(device: DeviceParameters) -> code.MemoryShape:
    """Return how a device's memory is cut up."""
    if device.compute_capability is None:
        stated = device.require_int("cache_line_bytes", model="the kernel's profile")
        return code.MemoryShape(line_bytes=stated, sector_bytes=stated)
    line = device.cache_line_bytes or _LINE_BYTES
    banks = _OLD_BANKS if device.compute_capability.startswith("1.") else _BANKS
    return code.MemoryShape(line_bytes=line, sector_bytes=min(line, _SECTOR_BYTES), banks=banks)


@dataclass(slots=True)
class _Instruction:
    """A node of a statement, how often it is executed in a launch, and what it costs."""

    statement: str  # its id
    node: code.Node
    name: str
    mean: Fraction  # executions of a sub-group
    items: Fraction  # executions of all work items
    cost: code.AccessCost | None


class ProgramAtSizes:
    """One device program of a kernel at given sizes."""

    def __init__(
        self, program: code.KernelProgram, values: Mapping[str, int], profiler: KernelProfiler
    ) -> None:
        device = profiler.device
        self.program, self.values = program, values
        self.lines, self.max_instructions = profiler.lines, profiler.max_instructions
        self.sub_group_size = device.require_int("sub_group_size", model="the kernel's profile")
        self.shape = memory_shape(device)
        self.splits_fully = device.compute_capability in _SPLIT_FULLY
        self.asked: dict[code.AccessPlace, float] = defaultdict(float)  # byte of a launch
        self.launches = int(program.launches.evaluate(values))
        self.groups = int(program.grid.work_groups.evaluate(values))
        self.per_group = program.sub_groups_per_group(self.sub_group_size)
        self.sub_groups = self.groups * self.per_group  # of a launch

    def profile(self, registers_per_work_item: int | None) -> base.KernelProfile:
        """Return the profile of one launch."""
        items = self.program.grid.group_size * self.groups * self.launches
        barriers = Fraction(self.program.barriers.evaluate(self.values)) / items
        instructions = self._instructions()
        self._note_requests(instructions)
        graphs, is_shortened = self._graphs({each.node: each.name for each in instructions})
        every: dict[str, Fraction] = defaultdict(Fraction)
        for each in instructions:
            every[each.name] += each.mean
        alpha = {name: count for name, count in {**every, BARRIER: barriers}.items() if count}
        if not alpha:
            message = f"program '{self.program.name}' executes nothing at {self.values}"
            raise ModelNotApplicableError(message, parameter="kernel")
        exact = sum(alpha.values())
        nearest = min(graphs, key=lambda graph: abs(len(graph.nodes) - exact))
        mean_length = Fraction(sum(len(graph.nodes) for graph in graphs), len(graphs))
        memory = sum(n for k, n in alpha.items() if k.startswith(("load.global", "store.global")))
        return base.KernelProfile(
            name=self.program.name,
            alpha={name: float(count) for name, count in alpha.items()},
            # local memory counts as computation (Hong & Kim 2009)
            alpha_comp=float(exact - memory - barriers),
            alpha_mem=float(memory),
            alpha_sync=float(barriers),
            idg=nearest,
            sub_group_idgs=tuple(graphs) if len(graphs) > 1 else None,
            idg_is_sample=is_shortened or len(graphs) > 1 or mean_length != exact,
            registers_per_work_item=registers_per_work_item,
            local_bytes_per_group=self.program.local_bytes(self.values),
            **self._totals(instructions, barriers),
            span=_depth(nearest) * float(exact) / len(nearest.nodes),
        )

    def _instructions(self) -> list[_Instruction]:
        instructions: list[_Instruction] = []
        sub_groups = self.sub_groups * self.launches
        for statement in self.program.statements:
            for node in statement.nodes:
                guarded = (statement.within, node.cases)
                executions = self.program.executions(guarded, self.sub_group_size)
                mean = Fraction(executions.evaluate(self.values)) * node.share / sub_groups
                items = self.program.domains.executions(*guarded, self.program.grid)
                cost = None
                if mean and isinstance(node.key, MemoryAccess):
                    cost = code.access_cost(
                        self.program,
                        statement,
                        node,
                        self.values,
                        sub_group_size=self.sub_group_size,
                        shape=self.shape,
                        declared=self.lines.get(node.key.array),
                    )
                each = Fraction(items.evaluate(self.values)) * node.share / self.launches
                name = _class_name(node.key, cost)
                found = _Instruction(statement.name, node, name, mean, each, cost)
                instructions.append(found)
        self._leave_registers(instructions)
        return instructions

    def _note_requests(self, instructions: Sequence[_Instruction]) -> None:
        for each in instructions:
            if isinstance(each.node.key, MemoryAccess) and each.cost is not None:
                moved = each.mean * each.cost.bytes_moved * self.sub_groups
                self.asked[each.statement, each.node.key] += float(moved)

    def find_traffic(self, profiled: base.ProfiledKernel, device: DeviceParameters) -> Traffic:
        """Return the bytes of a launch by where they come from."""
        assumed: list[str] = []
        try:
            resident = launch_geometry(profiled, device).concurrent_groups
            if lacks_registers(profiled, device):
                state = option("registers_per_work_item", "N")
                assumed.append(
                    f"as many as fit, as if registers limited none; state them ({state})"
                )
        except CountperfError as error:
            resident, assumed = 1, [f"one group is taken to be resident: {error}"]
        counter = TrafficCounter(self.program, self.values, self.asked, self.shape.sector_bytes)
        bits = count_charged_bits(profiled.profile.alpha)
        charged = bits / 8 * self.sub_group_size * self.sub_groups
        local_bytes = profiled.profile.local_bytes_per_group or 0
        return counter.count(device, resident, local_bytes, charged, assumed)

    def _leave_registers(self, instructions: Sequence[_Instruction]) -> None:
        """Have accesses executed as often as a compiler leaves them: others are in registers."""
        alike: dict[code.AccessPlace, list[_Instruction]] = defaultdict(list)
        for each in instructions:
            if isinstance(each.node.key, MemoryAccess):
                alike[each.statement, each.node.key].append(each)
        for place, some in alike.items():
            left = self.program.left_accesses.get(place, ())
            counts = (Fraction(one.executions.evaluate(self.values)) for one in left)
            executed = sum(counts, Fraction(0))
            every = sum((each.items for each in some), Fraction(0)) * self.launches
            for each in some:
                share = min(executed / every, Fraction(1)) if every else Fraction(1)
                each.mean, each.items = each.mean * share, each.items * share

    def _graphs(self, names: Mapping[code.Node, str]) -> tuple[list[base.InstructionGraph], bool]:
        """Return a graph of all sub-groups, or one of each; and whether they are no whole ones."""
        options: Any = {"max_instructions": self.max_instructions}
        size = self.sub_group_size
        expand = partial(expand_program, self.program, self.values, sub_group_size=size, **options)
        places = {(s.within, n.cases) for s in self.program.statements for n in s.nodes}
        differ = any(self.program.depends_on_lane(position) for position in places)
        first = expand(number=0)
        if not first.nodes and not differ:
            message = (
                f"program '{self.program.name}': a typical work group executes nothing at "
                f"{dict(self.values)}, so that there is no graph"
            )
            raise ModelNotApplicableError(message, parameter="idg")
        others = self.per_group - 1 if differ and not first.is_shortened else 0
        if others * len(first.nodes) > _MOST_INSTRUCTIONS:
            others = 0
        expansions = [first, *(expand(number=number + 1) for number in range(others))]
        graphs = [
            base.InstructionGraph(
                [BARRIER if node is None else names[node] for node in each.nodes], each.edges
            )
            for each in expansions
            if each.nodes
        ]
        is_shortened = any(expansion.is_shortened for expansion in expansions)
        if len(set(graphs)) == 1:
            return graphs[:1], is_shortened
        # a program for each sub-group of the group, or that of one of them for all
        is_whole = len(graphs) == self.per_group and not is_shortened
        return (graphs, False) if is_whole else (graphs[:1], True)

    def _totals(self, instructions: Sequence[_Instruction], barriers: Fraction) -> dict[str, Any]:
        total: dict[str, Fraction] = defaultdict(Fraction)
        total["ins_issued"] = barriers
        for each in instructions:
            key, cost, mean = each.node.key, each.cost, each.mean
            total["ins_issued"] += mean
            if isinstance(key, Operation):
                total["work"] += each.items
                total["ins_cuda"] += mean
                if key.type_name.startswith("f"):
                    total["total_flops"] += each.items * _FLOPS.get(key.kind, 0)
            elif cost is not None and cost.lines:
                size = self.sub_group_size * key.bits // 8
                fewest = -(-size // self.shape.line_bytes)
                total["lines"] += mean * cost.lines
                total["ins_issued"] += mean * max(0, cost.lines - fewest)
                total["asked"] += mean * size
                is_full = not self.splits_fully or cost.bytes_moved >= size
                if cost.lines <= fewest and is_full:
                    total["alpha_mem_coal"] += mean
                else:
                    lines = self.sub_group_size if self.splits_fully else cost.lines
                    total["alpha_mem_uncoal"] += mean
                    total["split"] += mean * lines
        uncoalesced = total["alpha_mem_uncoal"]
        accesses = total["alpha_mem_coal"] + uncoalesced
        names = "alpha_mem_coal alpha_mem_uncoal total_flops work ins_cuda ins_issued"
        return {
            **{name: float(total[name]) for name in names.split()},
            "uncoal_per_mw": float(total["split"] / uncoalesced) if uncoalesced else 1.0,
            "load_bytes_per_sub_group": float(total["asked"] / accesses) if accesses else None,
            "transactions": float(total["lines"] * self.sub_groups),
        }


def _class_name(key: Operation | MemoryAccess, cost: code.AccessCost | None) -> str:
    if isinstance(key, Operation):
        return f"{key.kind}.{key.type_name}" + (f".{key.function}" if key.function else "")
    name = f"{key.direction}.{key.address_space}.{key.bits}"
    return f"{name}.x{float(cost.excess):.4g}" if cost is not None and cost.excess > 1 else name


def _depth(graph: base.InstructionGraph) -> int:
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

    programs: tuple[code.KernelProgram, ...]  # its device programs
    device: DeviceParameters  # gives the size of sub-groups and lines
    # declared, for all device programs or by their names
    registers_per_work_item: int | Mapping[str, int] | None = None
    occupancy: float | None = None  # declared, see `LaunchConfiguration`
    active_groups: int | None = None
    # lines that a sub-group touches in accesses to arrays whose addresses are read from data
    lines: Mapping[str, float] = field(default_factory=dict[str, float])
    max_instructions: int = MAX_INSTRUCTIONS  # longest graph of a sub-group
    metrics: tuple[KernelMetrics, ...] = ()  # what a profiler measured, in the place of counts
    note: str = ""  # where instructions come from, if not from Loopy

    def at(self, parameters: Mapping[str, Any], /) -> base.ProfiledKernel:
        """Return profile and launch at parameter values."""
        if len(self.programs) != 1:
            names = ", ".join(program.name for program in self.programs)
            message = (
                f"kernel '{self.kernel}' has {len(self.programs)} device programs ({names}) and no"
                " single profile; take launches_at() or predict_all()"
            )
            raise ModelNotApplicableError(message, parameter="kernel")
        ((profiled, _),) = self.launches_at(parameters)
        require_registers(profiled, self.device)
        return profiled

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[base.ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched."""
        domains = self.programs[0].domains
        sizes = SizeParameters.of(domains.kernel, domains.sizes, domains.defaults)
        values = sizes.check_values(parameters, held=size_ranges(domains.kernel))
        launches: list[tuple[base.ProfiledKernel, int]] = []
        for program in self.programs:
            at_sizes = ProgramAtSizes(program, values, self)
            if not at_sizes.launches or not at_sizes.groups:
                continue
            registers = self.registers_per_work_item
            if isinstance(registers, Mapping):
                registers = registers.get(program.name)
            if self.device.registers_per_compute_unit is None:  # as on a CPU
                registers = None
            profile = at_sizes.profile(registers)
            # a CPU core takes one group at a time where local memory is cache
            core = (
                self.device.max_groups_per_compute_unit,
                self.device.local_bytes_per_compute_unit,
            )
            only = 1 if core == (1, None) and profile.local_bytes_per_group else None
            launch = base.LaunchConfiguration(
                work_items_per_group=program.grid.group_size,
                num_groups=at_sizes.groups,
                occupancy=self.occupancy,
                active_groups=self.active_groups or only,
            )
            profiled = base.ProfiledKernel(profile, launch)
            traffic = at_sizes.find_traffic(profiled, self.device)
            profile = profile.with_traffic(traffic, at_sizes.sub_groups)
            profiled = base.ProfiledKernel(profile, launch)
            if self.metrics:
                profiled = with_measured(profiled, self.metrics, self.device)
            launches.append((profiled, at_sizes.launches))
        if not launches:
            message = f"kernel '{self.kernel}' launches nothing at {values}"
            raise ModelNotApplicableError(message, parameter="kernel")
        return tuple(launches)

    @property
    def kernel(self) -> str:
        """Name of the kernel."""
        return self.programs[0].kernel.name


def profile_kernel(
    kernel: Any,
    device: DeviceParameters,
    *,
    statistics: Mapping[str, Any] | None = None,
    **options: Any,
) -> KernelProfiler:
    """Profile a Loopy kernel for the mechanistic models; options are fields of the profiler."""
    found = code.kernel_programs(kernel, statistics=statistics)
    given = {name: value for name, value in options.items() if value is not None}
    return KernelProfiler(programs=found, device=device, **given)


def lacks_registers(kernel: base.ProfiledKernel, device: DeviceParameters) -> bool:
    """Return whether occupancy depends on registers that nobody declared or measured."""
    profile, launch = kernel.profile, kernel.launch
    known = (launch.occupancy, launch.active_groups, profile.registers_per_work_item)
    return known == (None,) * 3 and device.registers_per_compute_unit is not None


def require_registers(kernel: base.ProfiledKernel, device: DeviceParameters) -> None:
    """Refuse a launch whose occupancy depends on registers that nobody declared or measured."""
    if lacks_registers(kernel, device):
        nvcc = f"; an nvcc that compiles for {device.compute_capability} finds them, if installed"
        message = (
            f"kernel '{kernel.profile.name}': its occupancy on {device.slug} depends on the"
            " registers of a work item, which Loopy does not"
            f" know{nvcc if device.compute_capability else ''};"
            f" state them ({option('registers_per_work_item', 'N')})"
        )
        raise ModelNotApplicableError(message, parameter="registers_per_work_item")
