"""Kernels in PTX: the instructions that a sub-group executes, and their graph.

PTX has what Loopy's counts leave out: address arithmetic, loop control, and what NVIDIA's front end
simplified. It is no machine code yet: ``ptxas`` still schedules, allocates and simplifies.

Rules
-----
1. An instruction waits for the instructions that last wrote the registers that it reads, its
   predicate among them; barriers as in `countperf.counting.expansion`.
2. Moves, parameters and address-space conversions are free and pass on what they are made from.
3. Branches are followed with the values of a launch (`countperf.machine_code.ptx_unit`); real
   numbers from memory are normal ones. Without a launch, a loop has as many iterations as are given
   for its label, and what skips such a loop does not. Other branches that values do not decide are
   refused in graphs; in counts, what a forward branch on data guards is executed.
4. An instruction counts once for a sub-group, also if its predicate is false in all lanes, as
   profilers count it; of lanes, only those count whose predicate is true.
5. Classes are those of `countperf.mechanistic.classes`; a multiplication with addition of integers
   counts as a multiplication. Vector accesses are wide ones. What PTX does not say, such as the
   lines that an access touches, is left to the Loopy side.

Source of the syntax: NVIDIA, "PTX ISA", sections 4 and 9.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from countperf.counting.expansion import Recorder
from countperf.errors import CountingError, ModelNotApplicableError, ParameterError
from countperf.machine_code.ptx_unit import LANES, Bits, PtxInstruction, PtxState, execute_ptx
from countperf.mechanistic.classes import BARRIER
from countperf.mechanistic.profile import InstructionGraph

MAX_INSTRUCTIONS = 200_000
"""Longest program that is written out."""
MOST_BLOCKS = 300_000
"""Runs of instructions without a branch after which a sub-group is given up."""
_ENDS = ("ret", "exit")
_REFUSED = ("call", "brx")
_BRANCHES = ("bra", *_ENDS, *_REFUSED)
_LOADS = ("ld", "ldu")

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(([^)]*)\)?")
_PARAMETER = re.compile(r"(\w+)(?:\[\d*\])?\s*(?:,|$)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file|section)\b[^\n]*", re.S | re.M)
_STATEMENT = re.compile(r"\s*(?:([{}])|([\w$%]+):(?!:)|([^;{}]*(?:\{[^}]*\}[^;{}]*)*);)")
_INSTRUCTION = re.compile(r"(?:@(!?%\w+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")
_REGISTER = re.compile(r"%(?!(?:ctaid|ntid|tid|nctaid|laneid|warpid|clock\w*)\b)\w+")
_TYPE = re.compile(r"f16x2|f32x2|[fsub](?:8|16|32|64|128)|pred")
_FREE = {"mov", "cvta", "ret", "exit"}
_FUNCTIONS = {"rsqrt", "sqrt", "rcp", "sin", "cos", "ex2", "lg2", "tanh"}
_KINDS = {
    **dict.fromkeys(("add", "sub", "neg", "abs", "sad", "addc", "subc"), "add"),
    **dict.fromkeys(("mul", "mad", "mul24", "mad24"), "mul"),
    **dict.fromkeys(("min", "max"), "minmax"),
    **dict.fromkeys(("setp", "set"), "compare"),
    **dict.fromkeys(("selp", "slct"), "select"),
    **dict.fromkeys(("shl", "shr", "shf", "bfe", "bfi", "prmt"), "shift"),
    **dict.fromkeys(("and", "or", "xor", "not", "lop3", "cnot", "popc", "clz"), "bitwise"),
    **{"fma": "fma", "div": "div", "rem": "mod", "cvt": "convert", "copysign": "bitwise"},
}
_SPACES = {"global": "global", "shared": "local", "local": "private", "const": "constant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxLaunch:
    """A launch of a kernel in PTX, and the sub-group to follow."""

    kernel: str = ""  # its name
    arguments: Sequence[np.generic | None]  # in order; None for arrays
    # groups of the grid, items of a group, and numbers of the group, along three axes
    groups: tuple[int, ...]
    shape: tuple[int, ...]
    group: tuple[int, ...]
    number: int = 0  # of the sub-group in its group

    def state(self, parameters: Sequence[str]) -> PtxState:
        """Return the sub-group as it starts."""
        special: dict[str, Any] = {"%laneid": np.arange(LANES)}
        items = LANES * self.number + np.arange(LANES)
        for axis, extent in zip("xyz", self.shape, strict=True):
            special[f"%tid.{axis}"] = items % extent
            items = items // extent
        for name, numbers in (("ntid", self.shape), ("nctaid", self.groups), ("ctaid", self.group)):
            special |= {f"%{name}.{a}": number for a, number in zip("xyz", numbers, strict=True)}
        values = zip(parameters, self.arguments, strict=True)
        return PtxState({name: each for name, each in values if each is not None}, special)

    @property
    def lanes(self) -> int:
        """Work items of that sub-group."""
        return min(LANES, int(np.prod(self.shape)) - LANES * self.number)


@dataclass(frozen=True, slots=True)
class Executed:
    """Executed instructions of a sub-group."""

    instructions: Counter[int]  # how often the sub-group executes each instruction, by place
    lanes: Counter[int]  # how often lanes do whose predicate is true
    order: Sequence[tuple[int, int]]  # runs of instructions: the first, and behind the last


@dataclass(frozen=True, kw_only=True)
class PtxProgram:
    """A kernel in PTX."""

    name: str  # its name
    instructions: tuple[PtxInstruction, ...]  # in order
    labels: Mapping[str, int]  # instruction that follows each label
    parameters: tuple[str, ...] = ()  # names of its arguments

    @cached_property
    def loop_ends(self) -> dict[int, int]:
        """Place of the last branch back to each place that branches lead back to, in order."""
        ends = {
            each.target: place
            for place, each in enumerate(self.instructions)
            if each.target is not None and each.target <= place
        }
        return dict(sorted(ends.items()))

    def loops(self) -> tuple[str, ...]:
        """Return the labels of loops, in order."""
        return tuple(label for label, place in self.labels.items() if place in self.loop_ends)

    def around(self, head: int) -> list[int]:
        """Return the heads of the loops around one, the outermost first."""
        end = self.loop_ends[head]
        return [other for other, last in self.loop_ends.items() if other < head and end <= last]

    def trips(self, launch: PtxLaunch) -> tuple[float, ...]:
        """Return how often the loops run, in order, each time that those around them do."""
        executed = self.executed(launch).instructions
        counts: list[float] = []
        for head in self.loop_ends:
            outer = executed[self.around(head)[-1]] if self.around(head) else 1
            counts.append(executed[head] / (outer or 1))
        return tuple(counts)

    def executed(self, launch: PtxLaunch) -> Executed:
        """Follow a sub-group to its end; what a branch on data guards is executed."""
        return _Walk(self, launch.state(self.parameters), launch.lanes, runs_guarded=True).walk()

    def graph(
        self,
        trips: Mapping[str, int] | None = None,
        *,
        launch: PtxLaunch | None = None,
        max_instructions: int = MAX_INSTRUCTIONS,
    ) -> InstructionGraph:
        """Write the instructions of a sub-group out."""
        given = dict(trips or {})
        loops = self.loops()
        for label, number in given.items():
            if label not in loops or number < 1:
                message = (
                    f"kernel {self.name!r}: trips of {label!r} are {number}, but it is at least 1"
                    f" for one of the loops ({', '.join(loops) or 'none'})"
                )
                raise ParameterError(message, parameter="trips")
        state = PtxState({}, {}) if launch is None else launch.state(self.parameters)
        lanes = LANES if launch is None else launch.lanes
        heads = {self.labels[label]: number for label, number in given.items()}
        order = _Walk(self, state, lanes, trips=heads).walk().order
        if sum(after - first for first, after in order) > max_instructions:
            message = (
                f"kernel {self.name!r} executes more than {max_instructions} instructions of PTX;"
                " take smaller sizes, or leave analysis= out"
            )
            raise ParameterError(message, parameter="max_instructions")
        return _graph(self.instructions[place] for run in order for place in range(*run))

    @cached_property
    def block_ends(self) -> tuple[int, ...]:
        """Place behind the block that an instruction is in, by the place of the instruction."""
        starts = {each.target for each in self.instructions}
        ends = [0] * len(self.instructions)
        end = len(ends)
        for place in reversed(range(len(ends))):
            if self.instructions[place].base in _BRANCHES or place + 1 in starts:
                end = place + 1
            ends[place] = end
        return tuple(ends)

    @cached_property
    def needed(self) -> frozenset[int]:
        """Instructions whose results may decide a branch or a predicate."""
        before: list[frozenset[str]] = [frozenset()] * (len(self.instructions) + 1)
        needed: set[int] = set()
        changed = True
        while changed:
            changed = False
            for place in reversed(range(len(self.instructions))):
                each = self.instructions[place]
                live = frozenset[str]().union(*(before[to] for to in self._followers(place)))
                found = live | ({each.guard.lstrip("!")} if each.guard else set())
                if set(each.results) & live:
                    needed.add(place)
                    if not each.guard:
                        found -= set(each.results)
                    if each.base not in _LOADS:
                        found |= each.reads
                if found != before[place]:
                    before[place] = found
                    changed = True
        return frozenset(needed)

    def _followers(self, place: int) -> tuple[int, ...]:
        each = self.instructions[place]
        jumps = () if each.target is None else (each.target,)
        ends = each.base in _ENDS or jumps
        return jumps if ends and not each.guard else (*jumps, place + 1)


class _Walk:
    """One sub-group on its way."""

    def __init__(
        self,
        program: PtxProgram,
        state: PtxState,
        lanes: int,
        *,
        trips: Mapping[int, int] = MappingProxyType({}),
        runs_guarded: bool = False,
    ) -> None:
        self.program = program
        self.state = state
        self.trips = trips  # declared ones, by the first instruction of a loop
        self.left: dict[int, int] = {}
        self.runs_guarded = runs_guarded
        self.places = np.zeros(LANES, dtype=np.int64)
        self.alive = np.arange(LANES) < lanes
        self.lanes: Counter[int] = Counter()
        self.order: list[tuple[int, int]] = []

    def walk(self) -> Executed:
        """Follow the lanes: those at the lowest place go first, and meet again where ways join."""
        count = len(self.program.instructions)
        for _ in range(MOST_BLOCKS):
            self.alive &= self.places < count
            if not self.alive.any():
                executed: Counter[int] = Counter()
                for run, times in Counter(self.order).items():
                    executed.update(dict.fromkeys(range(*run), times))
                return Executed(executed, self.lanes, self.order)
            start = int(self.places[self.alive].min())
            end = self.program.block_ends[start]
            self.order.append((start, end))
            self._run(start, end, self.alive & (self.places == start))
        raise CountingError(
            f"kernel {self.program.name!r}: a sub-group executes more than {MOST_BLOCKS:,} runs of"
            " instructions; take smaller sizes"
        )

    def _run(self, start: int, end: int, active: Bits) -> None:
        self.places[active] = end
        for place in range(start, end):
            each = self.program.instructions[place]
            own = active
            if each.guard or each.base == "bra":
                own = self._condition(place, active)
            self.lanes[place] += int(own.sum())
            if place in self.program.needed:
                execute_ptx(each.opcode, each.operands, self.state, own)
            elif each.base in _ENDS:
                self.alive &= ~own
            elif each.target is not None:
                self.places[own] = each.target
            elif each.base in _REFUSED and own.any():
                message = (
                    f"kernel {self.program.name!r} calls a function, or jumps to a computed place"
                )
                raise CountingError(message)

    def _condition(self, place: int, active: Bits) -> Bits:
        """Return the active lanes in which an instruction is executed."""
        guard = self.program.instructions[place].guard
        if not guard:
            return active
        value = self.state.read(guard)
        holds = value == 1
        doubtful = active & (value < 0)
        if doubtful.any():
            reason = self.state.name_of(int(value[doubtful].min()))
            holds = holds | (doubtful & self._decided(place, reason))
        return active & holds

    def _decided(self, place: int, unfollowed: str) -> bool:
        """Return how a condition of an instruction is taken to be that depends on data."""
        program = self.program
        target = program.instructions[place].target
        if target is None:
            return True  # an instruction under a predicate is issued all the same
        if target <= place and target in self.trips:
            left = self.left.pop(place, self.trips[target] - 1)
            if left:
                self.left[place] = left - 1
            return bool(left)
        if any(place < head < target for head in self.trips):
            return False  # it skips a loop that has iterations
        if any(each.base in _REFUSED for each in program.instructions[place:target]):
            return True  # the slow way of a division or root
        if self.runs_guarded and target > place and not unfollowed:
            return False
        why = f"{unfollowed}, which is not followed," if unfollowed else "data"
        loops = program.loops()
        message = (
            f"kernel {program.name!r}: {why} decides a branch of PTX at instruction {place}; leave"
            f" analysis= out. Without a launch, pass the trips of loops"
            f" ({', '.join(loops) or 'there are none'}), such as"
            f" trips={{{(loops or ('label',))[0]!r}: 16}}"
        )
        raise ParameterError(message, parameter="trips")


def parse_ptx(text: str) -> dict[str, PtxProgram]:
    """Read the kernels of a PTX file."""
    parts = _ENTRY.split(_COMMENT.sub("", text))
    return {
        name: _program(name, tuple(_PARAMETER.findall(parameters)), body)
        for name, parameters, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


def _program(name: str, parameters: tuple[str, ...], body: str) -> PtxProgram:
    instructions: list[PtxInstruction] = []
    labels: dict[str, int] = {}
    jumps: dict[int, str] = {}
    for label, text in _statements(body):
        match = _INSTRUCTION.match(text)
        if label:
            labels[label] = len(instructions)
        elif match is not None:
            operands = tuple(_OPERAND.findall(match[3]))
            if match[2].startswith("bra"):
                jumps[len(instructions)] = operands[-1]
            instructions.append(_instruction(name, match[1] or "", match[2], operands))
    placed = [
        replace(instruction, target=labels[jumps[position]]) if position in jumps else instruction
        for position, instruction in enumerate(instructions)
    ]
    return PtxProgram(name=name, instructions=tuple(placed), labels=labels, parameters=parameters)


def _statements(body: str) -> Iterator[tuple[str, str]]:
    """Yield labels and instructions between the outermost braces; scopes within are left out."""
    position, depth = body.index("{"), 0
    while match := _STATEMENT.match(body, position):
        position = match.end()
        brace, label, text = match.groups()
        if brace:
            depth += 1 if brace == "{" else -1
            if depth == 0:
                return
        elif label or not text.startswith("."):
            yield label or "", text or ""


def _instruction(kernel: str, guard: str, opcode: str, operands: tuple[str, ...]) -> PtxInstruction:
    head, *suffixes = opcode.split(".")
    if head == "bra":
        return PtxInstruction(name="branch.i32", opcode=opcode, operands=operands, guard=guard)
    if head in ("bar", "barrier"):
        return PtxInstruction(name=BARRIER, opcode=opcode, guard=guard)
    if head == "st":
        name, own, rest = _memory("store", suffixes), "", operands
    else:
        name, own, rest = _class(kernel, head, suffixes), "".join(operands[:1]), operands[1:]
    return PtxInstruction(
        name=name,
        opcode=opcode,
        operands=operands,
        guard=guard,
        results=tuple(_REGISTER.findall(own)),
        reads=frozenset(_REGISTER.findall(" ".join(rest))),
    )


def _graph(executed: Iterator[PtxInstruction]) -> InstructionGraph:
    recorder = Recorder()
    names: list[str] = []
    last: dict[str, frozenset[int]] = {}
    for instruction in executed:
        # a guarded instruction may keep what was there
        kept = (instruction.guard.lstrip("!"), *instruction.results) if instruction.guard else ()
        waits = frozenset[int]().union(
            *(last.get(name, frozenset()) for name in (*kept, *instruction.reads))
        )
        if instruction.name:
            names.append(instruction.name)
            is_barrier = instruction.name == BARRIER
            number = recorder.barrier() if is_barrier else recorder.add(waits)
            waits = frozenset([number])
        for register in instruction.results:
            last[register] = waits
    return InstructionGraph(names, recorder.edges)


def _class(kernel: str, head: str, suffixes: list[str]) -> str:
    if head in _FREE or (head == "ld" and "param" in suffixes):
        return ""
    if head in ("ld", "ldu"):
        return _memory("load", suffixes)
    if head == "call":
        return head
    types = [part for part in suffixes if _TYPE.fullmatch(part)]
    if head in _FUNCTIONS and types:
        # approximations of f64 are those of the upper half, by the unit for f32
        name = "f32" if "approx" in suffixes else types[-1]
        return f"special.{name}.{head}"
    if head in _KINDS and types:
        kind, name = _KINDS[head], types[0]
        if name.startswith("f"):
            return f"{kind}.{name}"
        bits = "32" if name == "pred" else name[1:]
        return f"{kind}.i{bits}"
    opcode = ".".join((head, *suffixes))
    message = (
        f"kernel {kernel!r}: the instruction {opcode} of PTX has no class; take what Loopy counts:"
        " leave analysis= out (predictions), or ask countperf count (counts)"
    )
    raise ModelNotApplicableError(message, parameter="idg")


def _memory(direction: str, suffixes: list[str]) -> str:
    space = next((_SPACES[part] for part in suffixes if part in _SPACES), "global")
    bits = int(suffixes[-1][1:])
    width = next((int(part[1:]) for part in suffixes if re.fullmatch(r"v\d", part)), 1)
    return f"{direction}.{space}.{bits * width}"
