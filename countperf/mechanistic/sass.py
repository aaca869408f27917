r"""Kernel analysis from NVIDIA machine code (SASS): issue slots, core instructions, critical path.

Automates what Gajger & Czarnul (2018), sections 5.1 and 5.2, do by hand, from the text that
``cuobjdump -sass`` or ``nvdisasm`` prints. The code is cut into segments where loops (backward
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

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import prod
from typing import Literal

from countperf.counting.expansion import Recorder
from countperf.devices.parameters import DeviceParameters
from countperf.errors import ModelNotApplicableError, ParameterError, option
from countperf.machine_code.sass_instruction import CALLS, SassInstruction, parse_sass
from countperf.machine_code.warp import Executed
from countperf.mechanistic.classes import BARRIER, kernel_class
from countperf.mechanistic.merpsys import critical_path
from countperf.mechanistic.profile import InstructionGraph, ProfiledKernel

MAX_INSTRUCTIONS = 200_000
"""Longest program that is written out."""


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


def latencies_of(device: DeviceParameters) -> SassLatencies:
    """Return the latencies of a device's instructions.

    Those of multiplications, and of loads from global and local memory, are the device's. Constants
    take as long as local memory. Issue, branches and the replacement of a group are Maxwell's
    (Gajger & Czarnul, Table 4.1), on every device.
    """
    local = kernel_class(device, "load.local.32").known_latency
    return SassLatencies(
        arithmetic=kernel_class(device, "mul.f32").known_latency,
        global_memory=kernel_class(device, "load.global.32").known_latency,
        shared_memory=local,
        constant_memory=local,
    )


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

    kernel: str  # name of the function
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
        return float(sum(t * (len(s.instructions) - s.pairs) for t, s in self._count_runs(trips)))

    def apply_to(self, profiled: ProfiledKernel, *trips: float) -> ProfiledKernel:
        """Return a profile with latency bound, core instructions and issue slots of this code."""
        of_code = {n: getattr(self, n)(*trips) for n in ("latency_bound", "ins_cuda", "ins_issued")}
        return replace(profiled, profile=replace(profiled.profile, **of_code))

    def _count_runs(self, trips: Sequence[float]) -> list[tuple[float, SassSegment]]:
        return [
            (prod((float(trips[loop]) for loop in segment.loops), start=1.0), segment)
            for segment in self.segments
        ]


def analyze_sass(text: str, latencies: SassLatencies | None = None) -> dict[str, SassAnalysis]:
    """Analyze the kernels of a listing."""
    known = latencies or SassLatencies()
    return {name: analyze_function(name, code, known) for name, code in parse_sass(text).items()}


def graph_of(
    kernel: str, instructions: Sequence[SassInstruction], executed: Executed
) -> InstructionGraph:
    """Write out what a sub-group executes, by class; moves and the like are free."""
    if sum(after - first for first, after in executed.order) > MAX_INSTRUCTIONS:
        message = (
            f"kernel {kernel!r} executes more than {MAX_INSTRUCTIONS} instructions of its code;"
            f" take smaller sizes, or leave {option('analysis')} out"
        )
        raise ParameterError(message, parameter="max_instructions")
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
            number = recorder.barrier() if name == BARRIER else recorder.add(waits)
            waits = frozenset([number])
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
    """Return the class of `countperf.mechanistic.classes` of an instruction; empty if it is free.

    Moves, selections and constants cost what an addition does: an issue on the cores.
    """
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
        f" what Loopy counts: leave {option('analysis')} out (predictions), or ask countperf count"
        " (counts)"
    )
    raise ModelNotApplicableError(message, parameter="idg")


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
            raise ParameterError(message, parameter="text")
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
        path = _path(
            code,
            first,
            after,
            closes=any(stop == after for _, stop in loops),
            read_later=[*code[after:end], *code[returns:after]],
            latencies=latencies,
        )
        segments.append(
            SassSegment(
                loops=tuple(around),
                start=places[first],
                instructions=tuple(code[first:after]),
                critical_path=path,
            )
        )
    return SassAnalysis(kernel=name, segments=tuple(segments))


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
            raise ParameterError(message, parameter="text")
    return loops


def _path(
    code: Sequence[SassInstruction],
    first: int,
    after: int,
    *,
    closes: bool,
    read_later: Sequence[SassInstruction],
    latencies: SassLatencies,
) -> float:
    size = after - first
    edges: list[tuple[int, int, float]] = []
    producers: dict[str, int] = {}
    later = frozenset[str]().union(*(_needs(instruction) for instruction in read_later))
    for index in range(size):
        instruction = code[first + index]
        for register in _needs(instruction) & producers.keys():
            source = producers[register]
            edges.append((source, index, _latency(code[first + source], latencies)))
        is_last = index + 1 == size
        follows = not is_last and code[first + index + 1].with_previous
        gap = 0.0 if follows else latencies.issue
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
            edges.append((source, size, _latency(code[first + source], latencies)))
    return critical_path(size + 1, edges)


def _needs(instruction: SassInstruction) -> frozenset[str]:
    """Return what an instruction waits for."""
    return instruction.reads | {condition.lstrip("!") for condition in instruction.conditions}


def _latency(instruction: SassInstruction, latencies: SassLatencies) -> float:
    field = f"{unit_of(instruction)}_memory"
    latency = getattr(latencies, field, latencies.arithmetic)
    if latency is None:
        message = f"{instruction.opcode} needs the latency {field}; pass it in SassLatencies"
        raise ParameterError(message, parameter=field)
    return latency
