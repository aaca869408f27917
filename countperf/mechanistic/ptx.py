"""The instruction graph of a sub-group from PTX instead of from Loopy.

PTX has what Loopy's counts leave out: address arithmetic, loop control, and what NVIDIA's front end
simplified. It is no machine code yet: ``ptxas`` still schedules, allocates and simplifies.

Rules
-----
1. An instruction waits for the instructions that last wrote the registers that it reads, its
   predicate among them; barriers as in `countperf.counting.expansion`.
2. Moves, parameters and address-space conversions are free and pass on what they are made from.
3. Branches are followed with the values of a launch (`countperf.machine_code.ptx_unit`); real
   numbers from memory are normal ones. Branches that values do not decide are refused.
4. Classes are those of `countperf.mechanistic.classes`; a multiplication with addition of integers
   counts as a multiplication. Vector accesses are wide ones. What PTX does not say, such as the
   lines that an access touches, is left to the Loopy side.

Source of the syntax: NVIDIA, "PTX ISA", sections 4 and 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from countperf.counting.expansion import Recorder
from countperf.errors import CountperfError, ModelNotApplicableError, ParameterError, option
from countperf.machine_code.ptx_unit import PtxInstruction, PtxState, execute_ptx
from countperf.machine_code.sass_instruction import LANES, Bits
from countperf.machine_code.warp import Executed, Instruction, WarpProgram
from countperf.mechanistic.classes import BARRIER
from countperf.mechanistic.profile import InstructionGraph

MAX_INSTRUCTIONS = 200_000
"""Longest program that is written out."""

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
class GpuLaunch:
    """A launch of a device program, and the work group to follow."""

    kernel: str = ""  # name of the program
    arguments: Sequence[np.generic | None]  # in order; None for arrays
    # groups of the grid, items of a group, and numbers of the group, along three axes
    groups: tuple[int, ...]
    shape: tuple[int, ...]
    group: tuple[int, ...]

    def state(self, parameters: Sequence[str]) -> PtxState:
        """Return the first sub-group of the work group as it starts."""
        special: dict[str, Any] = {"%laneid": np.arange(LANES)}
        items = np.arange(LANES)
        for axis, extent in zip("xyz", self.shape, strict=True):
            special[f"%tid.{axis}"] = items % extent
            items = items // extent
        for name, numbers in (("ntid", self.shape), ("nctaid", self.groups), ("ctaid", self.group)):
            special |= {f"%{name}.{a}": number for a, number in zip("xyz", numbers, strict=True)}
        values = zip(parameters, self.arguments, strict=True)
        return PtxState({name: value for name, value in values if value is not None}, special)

    @property
    def lanes(self) -> int:
        """Work items of that sub-group."""
        return min(LANES, int(np.prod(self.shape)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxProgram:
    """A kernel in PTX."""

    name: str  # its name
    instructions: tuple[PtxInstruction, ...]  # in order
    labels: Mapping[str, int]  # instruction that follows each label
    parameters: tuple[str, ...] = ()  # names of its arguments

    def graph(
        self, launch: GpuLaunch | None = None, *, max_instructions: int = MAX_INSTRUCTIONS
    ) -> InstructionGraph:
        """Write the instructions of a sub-group out; without a launch, as far as none is needed."""
        state = PtxState({}, {}) if launch is None else launch.state(self.parameters)
        lanes = LANES if launch is None else launch.lanes
        executed = _Followed(self.instructions, self.name).executed(state, lanes)
        return graph_of(self.name, self.instructions, executed, max_instructions=max_instructions)


class _Followed(WarpProgram):
    """PTX to be followed."""

    def executes(self, index: int, state: PtxState, active: Bits) -> None:
        instruction = self.instructions[index]
        if instruction.base != "BRA":
            execute_ptx(instruction.opcode, instruction.operands, state, active)

    def is_data(self, index: int) -> bool:
        return self.instructions[index].base in ("ld", "ldu")

    def decided(self, index: int, unfollowed: str) -> bool:
        # an instruction under a predicate is issued all the same
        if self.instructions[index].target is None or self.skips_call(index):
            return True
        why = f"{unfollowed}, which is not followed," if unfollowed else "data"
        message = (
            f"kernel {self.name!r}: {why} decides a branch of PTX at instruction {index}; leave"
            f" {option('analysis')} out"
        )
        raise ParameterError(message, parameter="analysis")


def parse_ptx(text: str) -> dict[str, PtxProgram]:
    """Read the kernels of a PTX file."""
    parts = _ENTRY.split(_COMMENT.sub("", text))
    programs: dict[str, PtxProgram] = {}
    for name, parameters, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        try:
            program = _program(name, tuple(_PARAMETER.findall(parameters)), body)
        except CountperfError:
            raise
        except (IndexError, KeyError, ValueError) as error:
            raise _damaged(name, f"is cut, or lacks {error.args[0]!r}") from error
        if name in programs:
            raise _damaged(name, "stands twice")
        programs[name] = program
    return programs


def _damaged(name: str, what: str) -> ParameterError:
    message = f"kernel {name} of the PTX {what}; pass the whole file, as nvcc -ptx writes it"
    return ParameterError(message, parameter="text")


def _program(name: str, parameters: tuple[str, ...], body: str) -> PtxProgram:
    instructions: list[PtxInstruction] = []
    labels: dict[str, int] = {}
    jumps: dict[int, str] = {}
    for label, text in _statements(body):
        match = _INSTRUCTION.match(text)
        if label in labels:
            raise ValueError(f"one {label}")
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
    raise ValueError("}")


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


def graph_of(
    kernel: str,
    instructions: Sequence[Instruction],
    executed: Executed,
    class_of: Callable[[Any], str] = attrgetter("name"),
    *,
    max_instructions: int = MAX_INSTRUCTIONS,
) -> InstructionGraph:
    """Write out what a sub-group executes of code, by class; empty ones are free."""
    if sum(after - first for first, after in executed.order) > max_instructions:
        message = (
            f"kernel {kernel!r} executes more than {max_instructions} instructions of its code;"
            f" take smaller sizes, or leave {option('analysis')} out"
        )
        raise ParameterError(message, parameter="max_instructions")
    classes = {place: class_of(instructions[place]) for place in executed.instructions}
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
    raise without_class(f"kernel {kernel!r}: the instruction {'.'.join((head, *suffixes))} of PTX")


def without_class(what: str) -> ModelNotApplicableError:
    """Return the error about an instruction of code that no class stands for."""
    message = (
        f"{what} has no class; take what Loopy counts: leave {option('analysis')} out"
        " (predictions), or ask countperf count (counts)"
    )
    return ModelNotApplicableError(message, parameter="idg")


def _memory(direction: str, suffixes: list[str]) -> str:
    space = next((_SPACES[part] for part in suffixes if part in _SPACES), "global")
    bits = int(suffixes[-1][1:])
    width = next((int(part[1:]) for part in suffixes if re.fullmatch(r"v\d", part)), 1)
    return f"{direction}.{space}.{bits * width}"
