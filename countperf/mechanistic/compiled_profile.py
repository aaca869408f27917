r"""Machine code (SASS) of NVIDIA GPUs: followed, analyzed, and in profiles of Loopy kernels.

A kernel is compiled by nvcc and disassembled, and sub-groups are followed through its code
(`countperf.machine_code.warp`), without a GPU: those of a work group of each kind, which stands for
the others of its kind; with too many kinds, all groups are followed.

The analysis automates what Gajger & Czarnul (2018), sections 5.1 and 5.2, do by hand, from the text
that ``cuobjdump -sass`` or ``nvdisasm`` prints. The code is cut into segments where loops (backward
branches) begin and end; its critical path is the longest way through these edges, in cycles:

- from an instruction to the next: the latency of issuing one after the other; 0 where both are
  issued at once (braces in the listing, up to Pascal); that of a branch after a conditional branch
  or exit, which is taken to be not taken but for the branch that closes a loop;
- from an instruction to one that uses its result (a register, predicate or the carry): its latency;
- to the end of the segment: the latency of results that later segments use, and that of replacing
  the group after the last exit.

The latency bound is the sum over segments, times the trip counts of the loops around them. Results
that are still on their way when a loop starts are waited for there, as in the source.

Left out: loops that overlap without one holding the other (refused), calls (refused), scoreboards
and stall counts of the control words, and which side of other branches is taken.

Models that take a graph of instructions take what a sub-group executes. There an instruction waits
for those that last wrote the registers that it reads, its predicate among them; barriers are as in
`countperf.counting.expansion`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations, pairwise, product
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from countperf import errors
from countperf.counting.expansion import Recorder
from countperf.counting.work_groups import GroupKinds, WorkGroups
from countperf.devices.description import describe_kernel
from countperf.devices.nvcc import compile_for, compile_sass, find_program
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.devices.targets import Launches, Shape, generate_cuda
from countperf.machine_code.sass_instruction import CALLS, SassInstruction, parse_sass
from countperf.machine_code.warp import Executed, WarpProgram, launch_sub_group
from countperf.machine_code.warp_unit import LANES
from countperf.mechanistic.classes import BARRIER, count_charged_bits, kernel_class
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.from_kernel import profile_kernel as profile_declared
from countperf.mechanistic.merpsys import critical_path, issue_slots
from countperf.mechanistic.profile import InstructionGraph, ProfiledKernel
from countperf.symbolic.point_arrays import Kind
from countperf.text import ShortRepr

_MOST_INSTRUCTIONS = 200_000  # longest program that is written out


@dataclass(frozen=True, slots=True, kw_only=True)
class SassLatencies:
    """Latencies of instructions, cycles; by default Maxwell's (Gajger & Czarnul, Table 4.1)."""

    arithmetic: float = 6.0  # until a result can be used
    global_memory: float = 350.0  # the same
    shared_memory: float | None = None
    constant_memory: float | None = None
    issue: float = 3.0  # from one instruction to the next of the same sub-group
    branch_taken: float = 12.0  # from a branch to the next instruction
    branch_not_taken: float = 10.0
    group_replacement: float = 150.0  # from the last exit of a group to the start of the next


@dataclass(frozen=True, slots=True, kw_only=True)
class SassSegment:
    """Instructions that are executed equally often: between loops, or in the body of one."""

    # loops around it, the outermost first, numbered in the order in which they begin
    loops: tuple[int, ...]
    start: int  # index of the first among all instructions of the function
    instructions: tuple[SassInstruction, ...]  # in order
    critical_path: float  # cycles of one pass

    @property
    def pairs(self) -> int:
        """Pairs of instructions that are issued at once."""
        return sum(instruction.with_previous for instruction in self.instructions)

    def count(self, unit: str) -> int:
        """Return the instructions of a unit, see `unit_of`."""
        return sum(unit_of(instruction) == unit for instruction in self.instructions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SassAnalysis:
    """A kernel's segments."""

    segments: tuple[SassSegment, ...]  # in the order of the code

    def trips(self, executed: Mapping[int, int]) -> tuple[float, ...]:
        """Return the trip count of each loop from how often instructions are executed."""
        times: dict[int, float] = {}
        counts: dict[int, float] = {}
        for segment in self.segments:
            for around, loop in zip((-1, *segment.loops), segment.loops, strict=False):
                if loop not in times:
                    times[loop] = executed[segment.start]
                    counts[loop] = times[loop] / (times.get(around, 1.0) or 1.0)
        return tuple(counts[loop] for loop in sorted(counts))

    def latency_bound(self, *trips: float) -> float:
        """Return the cycles of the critical path."""
        return sum(t * s.critical_path for t, s in self._count_runs(trips))

    def ins_cuda(self, *trips: float) -> float:
        """Return the instructions of a sub-group on the cores."""
        return sum(t * s.count("core") for t, s in self._count_runs(trips))

    def ins_issued(self, *trips: float) -> float:
        """Return the issue slots of a sub-group, without re-issues; one for each pair."""
        runs = self._count_runs(trips)
        pairs = sum(t * s.pairs for t, s in runs)
        return issue_slots(sum(t * len(s.instructions) for t, s in runs), dual_issued_pairs=pairs)

    def apply_to(self, profiled: ProfiledKernel, *trips: float) -> ProfiledKernel:
        """Return a profile with latency bound, core instructions and issue slots of this code."""
        of_code = {n: getattr(self, n)(*trips) for n in ("latency_bound", "ins_cuda", "ins_issued")}
        of_code["ins_issued"] += profiled.profile.reissues
        return replace(profiled, profile=replace(profiled.profile, **of_code))

    def _count_runs(self, trips: Sequence[float]) -> list[tuple[float, SassSegment]]:
        return [(prod((float(trips[n]) for n in s.loops), start=1.0), s) for s in self.segments]


def analyze_sass(text: str, latencies: SassLatencies | None = None) -> dict[str, SassAnalysis]:
    """Analyze the kernels of a listing."""
    known = latencies or SassLatencies()
    return {name: analyze_function(name, code, known) for name, code in parse_sass(text).items()}


def graph_of(
    kernel: str, instructions: Sequence[SassInstruction], executed: Executed
) -> InstructionGraph:
    """Write out what a sub-group executes, by class; moves and the like are free."""
    if sum(after - first for first, after in executed.order) > _MOST_INSTRUCTIONS:
        message = (
            f"kernel {kernel!r} executes more than {_MOST_INSTRUCTIONS} instructions of its code;"
            f" take smaller sizes, or leave {errors.option('analysis')} out"
        )
        raise errors.ParameterError(message, parameter="max_instructions")
    classes = {place: model_class(instructions[place]) for place in executed.instructions}
    recorder = Recorder()
    names: list[str] = []
    last: dict[str, frozenset[int]] = {}
    for place in (place for run in executed.order for place in range(*run)):
        instruction = instructions[place]
        # a guarded instruction may keep what was there
        kept = (instruction.guard.lstrip("!"), *instruction.results) if instruction.guard else ()
        waits = frozenset[int]().union(
            *(last.get(name, frozenset()) for name in (*kept, *instruction.reads))
        )
        if name := classes[place]:
            names.append(name)
            waits = frozenset([recorder.barrier() if name == BARRIER else recorder.add(waits)])
        last |= dict.fromkeys(instruction.results, waits)
    return InstructionGraph(names, recorder.edges)


def unit_of(
    instruction: SassInstruction,
) -> Literal["global", "shared", "constant", "other unit", "core"]:
    """Return the unit that executes an instruction; a core, unless it is known otherwise."""
    kind, _, rest = instruction.name.partition(".")
    if kind in ("load", "store", "atomic"):
        if rest.startswith("constant"):
            return "constant"
        return "shared" if rest.startswith("local") else "global"
    other = kind == "flop" and (instruction.base.startswith("MUFU") or ".f64." in rest)
    return "other unit" if other else "core"


def model_class(instruction: SassInstruction) -> str:
    """Return the class of an instruction; empty if it is free. Moves cost an issue on the cores."""
    kind, _, rest = instruction.name.partition(".")
    if kind in _ISSUED or rest == "constant":
        return _ISSUED.get(kind, "select.i32")
    if kind in ("load", "store") and rest != "image":
        return instruction.name
    if kind == "flop":
        what, type_name, _ = rest.split(".")
        return f"special.{type_name}.sqrt" if what == "sqrt" else f"{what}.{type_name}"
    if kind == "iop":
        is_product = instruction.base.removeprefix("U").startswith(("IMAD", "IMUL", "XMAD"))
        return "mul.i32" if is_product else "add.i32"
    message = (
        f"{instruction.opcode} at {instruction.address:#x} of the machine code has no class; take"
        f" what Loopy counts: leave {errors.option('analysis')} out (predictions), or ask countperf"
        " count (counts)"
    )
    raise errors.ModelNotApplicableError(message, parameter="idg")


_ISSUED = {
    **{"other": "", "move": "select.i32", "convert": "convert.i32", "branch": "branch.i32"},
    "barrier": BARRIER,
}


def analyze_function(
    name: str, listed: Sequence[SassInstruction], latencies: SassLatencies
) -> SassAnalysis:
    """Analyze one kernel."""
    for instruction in listed:
        if instruction.base in CALLS:
            message = (
                f"{instruction.opcode} at {instruction.address:#x}: code with calls or computed"
                " jumps is not analyzed"
            )
            raise errors.ParameterError(message, parameter="text")
    places = [position for position, instruction in enumerate(listed) if instruction.base != "NOP"]
    code = [listed[place] for place in places]
    code = [
        each if each.target is None else replace(each, target=bisect_left(places, each.target))
        for each in code
    ]
    loops = _loops(name, code)
    end = next((p + 1 for p, i in reversed(list(enumerate(code))) if i.base == "EXIT"), len(code))
    cuts = sorted({0, end, *(position for loop in loops for position in loop if position < end)})
    segments: list[SassSegment] = []
    for first, after in pairwise(cuts):
        around = [n for n, (start, stop) in enumerate(loops) if start <= first and after <= stop]
        returns = loops[around[0]][0] if around else after
        later = frozenset[str]().union(*map(_needs, [*code[after:end], *code[returns:after]]))
        closes = any(stop == after for _, stop in loops)
        segments.append(
            SassSegment(
                loops=tuple(around),
                start=places[first],
                instructions=tuple(code[first:after]),
                critical_path=_path(code[first:after], later, latencies, closes=closes),
            )
        )
    return SassAnalysis(segments=tuple(segments))


def _loops(name: str, code: Sequence[SassInstruction]) -> list[tuple[int, int]]:
    """Return the first instruction of each loop, and the one behind its last, in order."""
    ends: dict[int, int] = {}
    for position, instruction in enumerate(code):
        target = instruction.target if instruction.base == "BRA" else None
        # the code ends in a branch to itself, which is never executed
        if target is not None and target < position:
            ends[target] = position + 1  # continued in several places, it ends at the last
    loops = sorted(ends.items())
    for (_, after), (first, later) in combinations(loops, 2):
        if first < after < later:
            message = f"{name} has loops that overlap, which are not analyzed"
            raise errors.ParameterError(message, parameter="text")
    return loops


def _path(
    code: Sequence[SassInstruction],
    later: frozenset[str],
    latencies: SassLatencies,
    *,
    closes: bool,
) -> float:
    """Return the cycles of a segment, which may close a loop, and of what is read later."""
    edges: list[tuple[int, int, float]] = []
    producers: dict[str, int] = {}
    for index, instruction in enumerate(code):
        for register in _needs(instruction) & producers.keys():
            source = producers[register]
            edges.append((source, index, _latency(code[source], latencies)))
        is_last = index + 1 == len(code)
        gap = 0.0 if not is_last and code[index + 1].with_previous else latencies.issue
        if instruction.base in ("BRA", "EXIT"):
            if is_last and instruction.base == "EXIT" and not instruction.is_conditional:
                gap = latencies.group_replacement
            elif is_last and closes:
                gap = latencies.branch_taken
            elif instruction.is_conditional:
                gap = latencies.branch_not_taken
        edges.append((index, index + 1, gap))
        producers.update(dict.fromkeys(instruction.results, index))
    for register, source in producers.items():
        if register in later:
            edges.append((source, len(code), _latency(code[source], latencies)))
    return critical_path(len(code) + 1, edges)


def _needs(instruction: SassInstruction) -> frozenset[str]:
    """Return what an instruction waits for."""
    return instruction.reads | {condition.lstrip("!") for condition in instruction.conditions}


def _latency(instruction: SassInstruction, latencies: SassLatencies) -> float:
    field = f"{unit_of(instruction)}_memory"
    if (latency := getattr(latencies, field, latencies.arithmetic)) is None:
        message = f"{instruction.opcode} needs the latency {field}; pass it in SassLatencies"
        raise errors.ParameterError(message, parameter=field)
    return latency


_BANKS = {
    **dict.fromkeys((5, 6), (0x140, 0x8, 0x14)),
    **dict.fromkeys((7, 8), (0x160, 0x0, 0xC)),
    9: (0x210, 0x0, 0xC),
    **dict.fromkeys((10, 12), (0x380, 0x360, 0x370)),
}
"""Places in constant bank 0 of arguments, extents of a group, and of the grid, by major number."""

_MOST_GROUPS = 4096  # groups of a launch that are followed without being asked for

_FOR = re.compile(r"^(\s*)for \(\w+ (\w+) =", re.MULTILINE)
_NEGATIVE = re.compile(r"0x[89a-f][0-9a-f]{4}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCounts(ShortRepr):
    """Instructions that all sub-groups of all launches execute."""

    # by class (`countperf.machine_code.sass_instruction`), once for a sub-group
    instructions: Mapping[str, int]
    lanes: Mapping[str, int]  # the same for each lane whose predicate is true
    sub_groups: int  # sub-groups
    # work groups that were not followed: they are taken to execute what one of their kind does
    assumed_groups: int


def _integers(arguments: Sequence[Any]) -> list[int | None]:
    return [int(a) if isinstance(a, np.integer) else None for a in arguments]


class GpuKernel:
    """A kernel compiled for an NVIDIA GPU, to be followed at any sizes."""

    def __init__(
        self,
        t_unit: Any,
        capability: str = "9.0",
        *,
        keeps_loops: bool = False,
        listing: str | None = None,
    ) -> None:
        self._major = int(capability.partition(".")[0])
        if self._major not in _BANKS:
            known = ", ".join(map(str, _BANKS))
            raise errors.CountingError(
                f"machine code for compute capability {capability} is not followed; it is for the"
                f" major numbers {known}"
            )
        self._code = generate_cuda(t_unit)
        self.launches = Launches(self._code, describe_kernel(t_unit))
        self.groups = WorkGroups(t_unit)
        source = self._code.source
        if keeps_loops:  # those that Loopy wrote are not unrolled
            source = _FOR.sub(r"\1#pragma unroll 1\n\g<0>", source)
        self.listing = compile_sass(source, capability) if listing is None else listing

    @cached_property
    def programs(self) -> dict[str, WarpProgram]:
        """The code of each device program, by name."""
        programs = parse_sass(self.listing)
        if lacking := [name for name in self._code.kernels if name not in programs]:
            message = (
                f"the listing has no function {lacking[0]} (it has: {', '.join(programs)}); pass"
                " that of this kernel's code, as Loopy generates it"
            )
            raise errors.ParameterError(message, parameter="sass")
        if self._major in (5, 6):
            programs = {name: [_with_signs(i) for i in code] for name, code in programs.items()}
        return {name: WarpProgram(programs[name], name) for name in self._code.kernels}

    def counts(self, parameters: Mapping[str, int], *, every_group: bool = False) -> GpuCounts:
        """Follow sub-groups of each launch; return instructions of all."""
        instructions: Counter[str] = Counter()
        lanes: Counter[str] = Counter()
        sub_groups = assumed = 0
        for launch in self.launches.list_launches(parameters):
            kernel, extents, shape, arguments = launch
            program = self.programs[kernel]
            constants = self._constants(extents, shape, arguments)
            number = -(-prod(shape) // LANES)
            sub_groups += prod(extents) * number
            kinds = self._kinds(launch, parameters, every_group=every_group)
            assumed += prod(extents) - len(kinds)
            for kind, sub_group in product(kinds, range(number)):
                executed = program.follow_lanes(
                    *launch_sub_group(constants, kind.point, shape, sub_group)
                )
                for position, instruction in enumerate(program.instructions):
                    for name in (instruction.name, "all"):
                        instructions[name] += executed.instructions[position] * int(kind.times)
                        lanes[name] += executed.lanes[position] * int(kind.times)
        return GpuCounts(
            instructions={name: n for name, n in sorted(instructions.items()) if n},
            lanes={name: n for name, n in sorted(lanes.items()) if n},
            sub_groups=sub_groups,
            assumed_groups=assumed,
        )

    def follow_typical(self, parameters: Mapping[str, int]) -> dict[str, Executed]:
        """Follow the first sub-group of a typical group, of each program's first launch."""
        executed: dict[str, Executed] = {}
        for kernel, extents, shape, arguments in self.launches.list_launches(parameters):
            if kernel not in executed:
                group = self.groups.typical(kernel, extents, parameters, _integers(arguments))
                sub_group = launch_sub_group(
                    self._constants(extents, shape, arguments), group, shape, 0
                )
                executed[kernel] = self.programs[kernel].follow_lanes(*sub_group)
        return executed

    def _kinds(
        self,
        launch: tuple[str, Shape, Shape, list[Any]],
        parameters: Mapping[str, int],
        *,
        every_group: bool,
    ) -> Sequence[Kind]:
        """Return a group of each kind, or all groups."""
        kernel, groups, _, arguments = launch
        if not every_group:
            found = self.groups.kinds(kernel, groups, parameters, _integers(arguments))
            if all(kind.is_exact for kind in found.kinds):
                return found.kinds
        if not every_group and prod(groups) > _MOST_GROUPS:
            raise errors.CountingError(
                f"kernel '{kernel}': work groups execute different numbers of instructions, and"
                f" there are {prod(groups)} of them; follow all with"
                f" {errors.option('every_group', 'True')}, which takes long, or take smaller sizes"
            )
        return GroupKinds.of_each(groups).kinds

    def _constants(
        self, groups: Sequence[int], shape: Sequence[int], arguments: Sequence[Any]
    ) -> dict[int, int | None]:
        """Return the words of constant bank 0; places of arrays and real numbers are data."""
        offset, *places = _BANKS[self._major]
        constants: dict[int, int | None] = {
            first + 4 * axis: extent
            for first, extents in zip(places, (shape, groups), strict=True)
            for axis, extent in enumerate(extents)
        }
        for argument in arguments:
            size = argument.nbytes if isinstance(argument, np.generic) else 8
            offset = -(-offset // size) * size
            is_whole = isinstance(argument, np.integer | np.bool_)
            for number, byte in enumerate(argument.tobytes() if is_whole else bytes(size)):
                word = (offset + number) & ~3
                bits = byte << 8 * (offset + number - word)
                constants[word] = (constants.get(word) or 0) | bits if is_whole else None
            offset += size
        return constants


def _with_signs(instruction: SassInstruction) -> SassInstruction:
    """Return an instruction of Maxwell or Pascal whose 20-bit immediates have their sign."""
    if instruction.base != "IADD3":
        return instruction
    operands = tuple(
        hex(int(operand, 16) - (1 << 20)) if _NEGATIVE.match(operand) else operand
        for operand in instruction.operands
    )
    return replace(instruction, operands=operands)


_DECLARED = ("registers_per_work_item", "occupancy", "active_groups")


def profile_kernel(
    kernel: Any, device: DeviceParameters | str | Path, **options: Any
) -> KernelProfiler:
    """Profile a Loopy kernel for the mechanistic models; options are those of `profile_declared`.

    If none of ``registers_per_work_item``, ``occupancy`` and ``active_groups`` is given although
    the device's registers limit its occupancy, ``nvcc`` says how many registers the kernel takes,
    where it is installed and compiles for the device's compute capability.
    """
    described = device if isinstance(device, DeviceParameters) else load_device(device)
    if all(options.get(name) is None for name in _DECLARED):
        options = {**options, "registers_per_work_item": find_compiled_registers(kernel, described)}
    return profile_declared(kernel, described, **options)


def find_compiled_registers(kernel: Any, device: DeviceParameters) -> dict[str, int] | None:
    """Return the registers of a work item by device program, as ``nvcc`` allocates them."""
    capability, limit = device.compute_capability, device.registers_per_compute_unit
    if limit is None or capability is None or find_program("nvcc") is None:
        return None
    try:
        compiled = compile_for(kernel, capability)
    except (errors.KernelBuildError, errors.DeviceError):
        return None
    return {name: resources.registers for name, resources in compiled.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCodeProfiler(KernelProfiler):
    """A Loopy kernel whose first sub-group of a typical group is followed through its SASS."""

    gpu: GpuKernel  # machine code that is followed
    sass: Mapping[str, SassAnalysis]  # segments of the machine code of each device program

    def launches_at(
        self, parameters: Mapping[str, Any], /
    ) -> tuple[tuple[ProfiledKernel, int], ...]:
        """Return profile and launch of each device program, and how often it is launched."""
        executed = self.gpu.follow_typical(parameters)
        launches: list[tuple[ProfiledKernel, int]] = []
        for profiled, times in KernelProfiler.launches_at(self, parameters):
            name = profiled.profile.name
            graph = graph_of(name, self.gpu.programs[name].instructions, executed[name])
            followed = with_graph(profiled, graph, self.max_instructions)
            trips = self.sass[name].trips(executed[name].instructions)
            launches.append((self.sass[name].apply_to(followed, *trips), times))
        return tuple(launches)


def capability_of(device: DeviceParameters) -> str:
    """Return the compute capability of a device, or refuse one that has no such code."""
    if device.compute_capability is None:
        message = (
            f"device {device.slug!r} has no compute capability, and so no machine code that nvcc"
            f" makes; leave {errors.option('analysis')} out, or take an NVIDIA device"
        )
        raise errors.ModelNotApplicableError(message, parameter="device")
    return device.compute_capability


def with_machine_code(
    profiler: KernelProfiler, kernel: Any, listing: str | None = None
) -> MachineCodeProfiler:
    """Return the profiler of a kernel with instructions from a listing of SASS, or nvcc's."""
    given = {field.name: getattr(profiler, field.name) for field in fields(profiler)}
    capability = capability_of(profiler.device)
    given["note"] = f"instructions: machine code for compute capability {capability}"
    gpu = GpuKernel(kernel, capability, keeps_loops=True, listing=listing)
    classes = {"mul.f32": "arithmetic", "load.global.32": "global_memory"}
    classes["load.local.32"] = "shared_memory"
    of_device = {n: kernel_class(profiler.device, c).known_latency for c, n in classes.items()}
    latencies = SassLatencies(**of_device, constant_memory=of_device["shared_memory"])
    sass = {
        name: analyze_function(name, program.instructions, latencies)
        for name, program in gpu.programs.items()
    }
    return MachineCodeProfiler(**given, gpu=gpu, sass=sass)


def with_graph(profiled: ProfiledKernel, graph: InstructionGraph, most: int) -> ProfiledKernel:
    """Return a profile with the instructions and dependencies of code; a long graph is cut."""
    graph = replace(graph, nodes=_with_lines(graph.nodes, profiled.profile.alpha))
    shown = InstructionGraph(graph.nodes[:most], [e for e in graph.edges if max(e) < most])
    profile = replace(
        profiled.profile,
        idg=shown,
        sub_group_idgs=None,
        idg_is_sample=len(graph.nodes) > most,
        alpha={name: float(count) for name, count in graph.counts().items()},
        alpha_comp=None,
        alpha_mem=None,
        alpha_sync=None,
    )
    traffic, before = profile.traffic, count_charged_bits(profiled.profile.alpha)
    if traffic is not None and before:
        traffic = traffic.scale_requests(count_charged_bits(profile.alpha) / before)
        sub_groups = traffic.memory / (profile.gmem_bytes or 1.0) if traffic.memory else 1.0
        profile = profile.with_traffic(traffic, sub_groups)
    return ProfiledKernel(profile=profile, launch=profiled.launch)


def _with_lines(nodes: Sequence[str], alpha: Mapping[str, float]) -> list[str]:
    """Give accesses the mean excess that Loopy's side found for their kind."""
    totals: dict[str, tuple[float, float]] = {}
    for name, count in alpha.items():
        if name.startswith(("load.", "store.")):
            base, _, excess = name.partition(".x")
            number, product = totals.get(base, (0.0, 0.0))
            totals[base] = (number + count, product + count * float(excess or 1.0))
    names = {
        base: f"{base}.x{product / number:.4g}"
        for base, (number, product) in totals.items()
        if number and product > number
    }
    return [names.get(name, name) for name in nodes]
