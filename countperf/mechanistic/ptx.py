"""The instruction graph of a work item from PTX instead of from Loopy.

PTX has what Loopy's counts leave out: address arithmetic, loop control, and what NVIDIA's front end
simplified. It is no machine code yet: ``ptxas`` still schedules, allocates and simplifies.

Rules
-----
1. An instruction waits for the instructions that last wrote the registers that it reads, its
   predicate among them; barriers as in `countperf.counting.recorder`.
2. Moves, parameters and address-space conversions are free and pass on what they are made from.
3. A branch back to a label is a loop of as many iterations as are given for the label. Other
   conditional branches are not taken: their targets skip what is guarded.
4. Classes are those of `countperf.mechanistic.classes`; a multiplication with addition of integers
   counts as a multiplication. Vector accesses are wide ones. What PTX does not say, such as the
   lines that an access touches, is left to the Loopy side.

Source of the syntax: NVIDIA, "PTX ISA", sections 4 and 9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from countperf.counting.recorder import Recorder
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic.classes import BARRIER
from countperf.mechanistic.profile import InstructionGraph

MAX_INSTRUCTIONS = 200_000
"""Longest program that is written out."""

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(")
_LABEL = re.compile(r"^(\$?\w+):")
_INSTRUCTION = re.compile(r"^(?:@(!?%\w+)\s+)?([a-z][\w.:]*)\s*(.*);")
_REGISTER = re.compile(r"%(?!ctaid|ntid|tid|nctaid|laneid|warpid|clock)[a-z]+\d+")
_FREE = {"mov", "cvta", "ret", "exit", "pragma"}
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
class PtxInstruction:
    """An instruction of PTX.

    Attributes
    ----------
    name : str
        Its class; empty if it is free.
    writes, reads : tuple of str
        Registers.
    target : str
        Label of a branch; empty for others.
    is_conditional : bool
        Whether a predicate guards it.
    """

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    target: str = ""
    is_conditional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxProgram:
    """A kernel in PTX.

    Attributes
    ----------
    name : str
        Its name.
    instructions : tuple of PtxInstruction
        In order.
    labels : Mapping from str to int
        Instruction that follows each label.
    """

    name: str
    instructions: tuple[PtxInstruction, ...]
    labels: Mapping[str, int]

    def loops(self) -> tuple[str, ...]:
        """Return the labels of loops, in order."""
        found = {
            each.target
            for place, each in enumerate(self.instructions)
            if each.target and self.labels[each.target] <= place
        }
        return tuple(sorted(found, key=lambda label: self.labels[label]))

    def graph(
        self, trips: Mapping[str, int], *, max_instructions: int = MAX_INSTRUCTIONS
    ) -> InstructionGraph:
        """Write the instructions of a work item out.

        Parameters
        ----------
        trips : mapping from str to int
            Iterations of each loop, by its label, each time that it is entered; at least 1.
        max_instructions : int, optional
            Longest program.

        Raises
        ------
        ParameterError
            The trips of a loop are missing or below 1, a name is no loop, or there are too many
            instructions; ``parameter`` is ``trips``, or ``max_instructions``.
        ModelNotApplicableError
            A loop has no condition at its end.
        """
        return _Walk(self, trips, max_instructions).graph()


def parse_ptx(text: str) -> dict[str, PtxProgram]:
    """Read the kernels of a PTX file.

    Raises
    ------
    ModelNotApplicableError
        An instruction has no class, such as an atomic one.

    Examples
    --------
    >>> text = '''.entry scale(.param .u64 p) {
    ... ld.global.f32 %f1, [%rd1];
    ... mul.f32 %f2, %f1, 0f40000000;
    ... st.global.f32 [%rd1], %f2;
    ... ret;
    ... }'''
    >>> parse_ptx(text)["scale"].graph({}).nodes
    ('load.global.32', 'mul.f32', 'store.global.32')
    """
    found: dict[str, PtxProgram] = {}
    parts = _ENTRY.split(text)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        instructions: list[PtxInstruction] = []
        labels: dict[str, int] = {}
        for line in _lines(body):
            if match := _LABEL.match(line):
                labels[match[1]] = len(instructions)
            elif (match := _INSTRUCTION.match(line)) and not line.startswith("."):
                guard = (match[1] or "").lstrip("!")
                instructions.append(_instruction(name, guard, match[2], match[3]))
        found[name] = PtxProgram(name=name, instructions=tuple(instructions), labels=labels)
    return found


def _lines(body: str) -> Iterator[str]:
    depth = 0
    for line in body.split("\n"):
        code = line.partition("//")[0].strip()
        if depth or "{" in code:
            if depth and code not in ("{", "}"):
                yield code
            depth += code.count("{") - code.count("}")
            if depth <= 0:
                return


def _instruction(kernel: str, guard: str, opcode: str, operands: str) -> PtxInstruction:
    head, *suffixes = opcode.split(".")
    guards = (guard,) if guard else ()
    if head == "bra":
        return PtxInstruction(
            name="branch.i32",
            writes=(),
            reads=guards,
            target=operands.strip(),
            is_conditional=bool(guard),
        )
    registers = _REGISTER.findall(operands)
    if head == "st":
        return PtxInstruction(
            name=_memory("store", suffixes), writes=(), reads=(*guards, *registers)
        )
    if head in ("bar", "barrier"):
        return PtxInstruction(name=BARRIER, writes=(), reads=guards)
    own, _, rest = _destination(operands)
    writes = tuple(_REGISTER.findall(own))
    # a guarded instruction may keep what was there
    reads = (*guards, *_REGISTER.findall(rest), *(writes if guard else ()))
    return PtxInstruction(name=_class(kernel, head, suffixes), writes=writes, reads=reads)


def _destination(operands: str) -> tuple[str, str, str]:
    if operands.startswith("{"):
        return operands.partition("}")
    return operands.partition(",")


def _class(kernel: str, head: str, suffixes: list[str]) -> str:
    if head in _FREE or (head == "ld" and "param" in suffixes):
        return ""
    if head in ("ld", "ldu"):
        return _memory("load", suffixes)
    types = [part for part in suffixes if re.fullmatch(r"[fsub]\d+|pred", part)]
    if head in _FUNCTIONS and types:
        return f"special.{types[-1]}.{head}"
    if head in _KINDS:
        kind = _KINDS[head]
        name = types[0] if types else "s32"
        if name.startswith("f"):
            return f"{kind}.{name}"
        bits = "32" if name == "pred" else name[1:]
        return f"{kind}.i{bits}"
    opcode = ".".join((head, *suffixes))
    message = (
        f"kernel {kernel!r}: the instruction {opcode} of PTX has no class; take the graph from"
        " Loopy, or declare it"
    )
    raise ModelNotApplicableError(message, parameter="idg")


def _memory(direction: str, suffixes: list[str]) -> str:
    space = next((_SPACES[part] for part in suffixes if part in _SPACES), "global")
    bits = int(suffixes[-1][1:])
    width = next((int(part[1:]) for part in suffixes if re.fullmatch(r"v\d", part)), 1)
    return f"{direction}.{space}.{bits * width}"


class _Walk:
    """Steps through a program as one work item does."""

    def __init__(
        self, program: PtxProgram, trips: Mapping[str, int], max_instructions: int
    ) -> None:
        self.program = program
        self.trips = trips
        self.most = max_instructions
        loops = program.loops()
        for label in loops:
            if trips.get(label, 0) < 1:
                message = (
                    f"kernel {program.name!r}: loop {label!r} needs its number of iterations"
                    f" (loops: {', '.join(loops)}); pass trips={{{label!r}: 16}}"
                )
                raise ParameterError(message, parameter="trips")
        for label in trips:
            if label not in loops:
                message = f"kernel {program.name!r} has no loop {label!r} ({', '.join(loops)})"
                raise ParameterError(message, parameter="trips")

    def graph(self) -> InstructionGraph:
        recorder = Recorder()
        names: list[str] = []
        last: dict[str, frozenset[int]] = {}
        for instruction in self._executed():
            waits = frozenset[int]().union(
                *(last.get(name, frozenset()) for name in instruction.reads)
            )
            if instruction.name:
                if len(names) >= self.most:
                    message = (
                        f"kernel {self.program.name!r} executes more than {self.most} instructions"
                        " at these trips; pass fewer, or a larger max_instructions"
                    )
                    raise ParameterError(message, parameter="max_instructions")
                names.append(instruction.name)
                is_barrier = instruction.name == BARRIER
                number = recorder.barrier() if is_barrier else recorder.add(waits)
                waits = frozenset([number])
            for register in instruction.writes:
                last[register] = waits
        return InstructionGraph(names, recorder.edges)

    def _executed(self) -> Iterator[PtxInstruction]:
        instructions, labels = self.program.instructions, self.program.labels
        remaining: dict[int, int] = {}
        place = 0
        while place < len(instructions):
            instruction = instructions[place]
            yield instruction
            place += 1
            if not instruction.target:
                continue
            target = labels[instruction.target]
            if target >= place:
                place = place if instruction.is_conditional else target
                continue
            if not instruction.is_conditional:
                message = (
                    f"kernel {self.program.name!r}: the loop {instruction.target!r} has no"
                    " condition at its end; take the graph from Loopy, or declare it"
                )
                raise ModelNotApplicableError(message, parameter="idg")
            left = remaining.pop(place, self.trips[instruction.target] - 1)
            if left:
                remaining[place] = left - 1
                place = target
