r"""Kernel analysis from NVIDIA machine code (SASS): issue slots, core instructions, critical path.

Automates what Gajger & Czarnul (2018), sections 5.1 and 5.2, do by hand, from the text that
``cuobjdump -sass`` or ``nvdisasm`` prints. The code is cut at its loops (backward branches) into
segments; a segment's critical path is the longest way through these edges, in cycles:

- from an instruction to the next: the latency of issuing one after the other; 0 where both are
  issued at once (braces in the listing, up to Pascal); that of a branch after a conditional branch
  or exit, which is taken to be not taken but for the branch that closes a loop;
- from an instruction to one that uses its result (a register, predicate or the carry): its latency;
- to the end of the segment: the latency of results that later segments use, and that of replacing
  the group after the last exit.

The latency bound is the sum over segments, times the trip counts of loops. Results that are still
on their way when a loop starts are waited for there, as in the source.

Left out: nested loops (refused), calls (refused), scoreboards and stall counts of the control
words, and which side of other branches is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from countperf.errors import ParameterError
from countperf.mechanistic.checks import check_not_negative
from countperf.mechanistic.merpsys import critical_path, issue_slots
from countperf.mechanistic.profile import ProfiledKernel

_FUNCTION = re.compile(r"^\s*(?:Function\s*:\s*(\S+)|\.text\.(\S+):)")
_LABEL = re.compile(r"^\s*(\.L_\w+):")
_LINE = re.compile(
    r"^\s*(\{)?\s*/\*([0-9a-fA-F]+)\*/\s+(\{)?\s*(?:@(!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_.]*)\s*"
    r"([^;]*?)\s*(?:;\s*(\})?|(\}))"
)
_REGISTER = re.compile(r"\b(U?R)(\d+)\b|\b(U?P)(\d)\b|\.(CC)\b")
_GLOBAL = ("LDG", "STG", "LD", "ST", "LDL", "STL", "ATOM", "ATOMG", "RED", "TLD", "TEX")
_SHARED = ("LDS", "STS", "ATOMS", "LDSM")
_CONSTANT = ("LDC", "ULDC")
_NO_RESULT = ("ST", "STG", "STS", "STL", "RED", "BRA", "EXIT", "BAR", "NOP", "SYNC", "BSYNC")
_OTHER_UNITS = ("MUFU", "DADD", "DMUL", "DFMA", "DSETP")
_JUMPS = ("BRA", "SSY", "PBK", "PCNT", "BSSY", "CALL", "CAL", "JCAL")
_REFUSED = ("CALL", "JCAL", "RET", "BRX", "JMP", "JMX")


@dataclass(frozen=True, slots=True, kw_only=True)
class SassLatencies:
    """Latencies of instructions, cycles; by default Maxwell's (Gajger & Czarnul, Table 4.1).

    Attributes
    ----------
    arithmetic, global_memory : float
        Until a result can be used.
    shared_memory, constant_memory : float or None
        The same; None: not known, and code that uses it is refused.
    issue : float
        From one instruction to the next of the same sub-group.
    branch_taken, branch_not_taken : float
        From a branch to the next instruction.
    group_replacement : float
        From the last exit of a group to the start of the next.
    """

    arithmetic: float = 6.0
    global_memory: float = 350.0
    shared_memory: float | None = None
    constant_memory: float | None = None
    issue: float = 3.0
    branch_taken: float = 12.0
    branch_not_taken: float = 10.0
    group_replacement: float = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SassInstruction:
    """One instruction.

    Attributes
    ----------
    address : int
        Its place in the code, byte.
    opcode : str
        Its name with modifiers.
    writes, reads : frozenset of str
        Registers, predicates, and ``CC`` (the carry).
    is_conditional : bool
        Whether a predicate guards it.
    target : str
        Label or address that a branch names; empty for others.
    with_previous : bool
        Whether it is issued together with the one before.
    guard : str
        The predicate that guards it, ``!P0`` for its inverse; empty if none does.
    operands : tuple of str
        As they are printed.
    """

    address: int
    opcode: str
    writes: frozenset[str]
    reads: frozenset[str]
    is_conditional: bool = False
    target: str = ""
    with_previous: bool = False
    guard: str = ""
    operands: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """Its name without modifiers."""
        return self.opcode.split(".")[0]

    @property
    def kind(self) -> Literal["global", "shared", "constant", "other unit", "core"]:
        """Unit that executes it; a core, unless it is known otherwise (control included)."""
        if self.base in _GLOBAL:
            return "global"
        if self.base in _SHARED:
            return "shared"
        if self.base in _CONSTANT:
            return "constant"
        return "other unit" if self.base in _OTHER_UNITS else "core"


@dataclass(frozen=True, slots=True, kw_only=True)
class SassSegment:
    """Instructions that are executed as often: between loops, or a loop's body.

    Attributes
    ----------
    is_loop : bool
        Whether it is a loop's body.
    instructions : tuple of SassInstruction
        In order.
    critical_path : float
        Cycles of one pass.
    """

    is_loop: bool
    instructions: tuple[SassInstruction, ...]
    critical_path: float

    @property
    def pairs(self) -> int:
        """Pairs of instructions that are issued at once."""
        return sum(each.with_previous for each in self.instructions)

    def count(self, *kinds: str) -> int:
        """Return the instructions of some kinds."""
        return sum(each.kind in kinds for each in self.instructions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SassAnalysis:
    """A kernel's segments.

    Attributes
    ----------
    kernel : str
        Name of the function.
    segments : tuple of SassSegment
        In the order of the code.
    """

    kernel: str
    segments: tuple[SassSegment, ...]

    @property
    def loops(self) -> int:
        """Number of loops."""
        return sum(each.is_loop for each in self.segments)

    def latency_bound(self, *trips: float) -> float:
        """Return the cycles of the critical path for the trip counts of the loops, in order.

        Raises
        ------
        ParameterError
            Another number of trip counts, or a negative one.
        """
        return sum(t * s.critical_path for t, s in self._executed(trips))

    def ins_cuda(self, *trips: float) -> float:
        """Return the instructions of a sub-group on the cores; errors as of `latency_bound`."""
        return sum(t * s.count("core") for t, s in self._executed(trips))

    def ins_issued(self, *trips: float) -> float:
        """Return the issue slots of a sub-group, without re-issues; errors as of `latency_bound`.

        A pair that is issued at once takes one slot each time it is executed.
        """
        executed = sum(t * len(s.instructions) for t, s in self._executed(trips))
        pairs = sum(t * s.pairs for t, s in self._executed(trips))
        return issue_slots(executed, dual_issued_pairs=pairs)

    def applied(self, profiled: ProfiledKernel, *trips: float) -> ProfiledKernel:
        """Return a profile with latency bound, core instructions and issue slots of this code."""
        profile = replace(
            profiled.profile,
            latency_bound=self.latency_bound(*trips),
            ins_cuda=self.ins_cuda(*trips),
            ins_issued=self.ins_issued(*trips),
        )
        return replace(profiled, profile=profile)

    def _executed(self, trips: Sequence[float]) -> list[tuple[float, SassSegment]]:
        if len(trips) != self.loops:
            message = (
                f"{self.kernel} has {self.loops} loops, but {len(trips)} trip counts are given"
            )
            raise ParameterError(message, parameter="trips")
        rest = iter(trips)
        return [
            (check_not_negative(next(rest), "trips") if each.is_loop else 1.0, each)
            for each in self.segments
        ]


def analyze_sass(text: str, latencies: SassLatencies | None = None) -> dict[str, SassAnalysis]:
    """Analyze the kernels of a listing.

    Parameters
    ----------
    text : str
        What ``cuobjdump -sass`` or ``nvdisasm`` prints.
    latencies : SassLatencies, optional
        Those of the architecture; by default Maxwell's.

    Returns
    -------
    dict from str to SassAnalysis
        By name of the kernel.

    Raises
    ------
    ParameterError
        There is no instruction, a kernel has calls or nested loops, or a latency is not known.
    """
    known = latencies or SassLatencies()
    return {
        name: SassAnalysis(
            kernel=name,
            segments=_segments(name, _analyzable(code.instructions), code.labels, known),
        )
        for name, code in parse_sass(text).items()
    }


def _analyzable(code: Sequence[SassInstruction]) -> list[SassInstruction]:
    """Return instructions without those that do nothing; refuse calls and computed jumps."""
    for each in code:
        if each.base in _REFUSED:
            message = (
                f"{each.opcode} at {each.address:#x}: code with calls or computed jumps is not"
                " analyzed"
            )
            raise ParameterError(message, parameter="text")
    return [each for each in code if each.base != "NOP"]


@dataclass(frozen=True, slots=True)
class SassCode:
    """A function of a listing.

    Attributes
    ----------
    instructions : list of SassInstruction
        In order.
    labels : dict from str to int
        Addresses of labels.
    """

    instructions: list[SassInstruction]
    labels: dict[str, int]

    def place_of(self, target: str) -> int | None:
        """Return the place of the instruction at a label or an address; None if there is none."""
        address = self.labels.get(target)
        if address is None and target.startswith("0x"):
            address = int(target, 16)
        return next(
            (p for p, each in enumerate(self.instructions) if each.address == address), None
        )


def parse_sass(text: str) -> dict[str, SassCode]:
    """Read the functions of a listing.

    Parameters
    ----------
    text : str
        What ``cuobjdump -sass`` or ``nvdisasm`` prints.

    Returns
    -------
    dict from str to SassCode
        By name, functions without instructions left out.

    Raises
    ------
    ParameterError
        There is no instruction.
    """
    found: dict[str, SassCode] = {}
    code = found.setdefault("kernel", SassCode([], {}))
    pending: list[str] = []
    in_braces = opened = False
    for line in text.splitlines():
        if (title := _FUNCTION.match(line)) is not None:
            code = found.setdefault(title[1] or title[2], SassCode([], {}))
            continue
        if (label := _LABEL.match(line)) is not None:
            pending.append(label[1])
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        opens = bool(match[1] or match[3])
        in_braces, opened = (True, True) if opens else (in_braces, False)
        instruction = _instruction(
            int(match[2], 16), match[4] or "", match[5], match[6], in_braces and not opened
        )
        if match[7] or match[8]:
            in_braces = False
        code.labels.update(dict.fromkeys(pending, instruction.address))
        pending.clear()
        code.instructions.append(instruction)
    kernels = {name: each for name, each in found.items() if each.instructions}
    if not kernels:
        message = "no instruction in the listing; pass what cuobjdump -sass or nvdisasm prints"
        raise ParameterError(message, parameter="text")
    return kernels


def _instruction(
    address: int, guard: str, opcode: str, operands: str, with_previous: bool
) -> SassInstruction:
    base = opcode.split(".")[0]
    parts = [part.strip() for part in operands.split(",")] if operands else []
    reads: set[str] = set(_names(guard)) if guard else set()
    writes: set[str] = set()
    number = 0 if base in _NO_RESULT else 2 if base.endswith("SETP") else 1
    for place, part in enumerate(parts):
        names = _names(part)
        if place < number and "[" not in part:
            writes |= set(names)
            if names and ".64" in opcode and names[0].startswith("R"):
                writes.add(f"R{int(names[0][1:]) + 1}")
        else:
            reads |= set(names)
            if "[" in part and ".E" in opcode and names and names[0].startswith("R"):
                reads.add(f"R{int(names[0][1:]) + 1}")  # an address of 64 bits
    if ".X" in opcode:
        reads.add("CC")
    target = ""
    if base in _JUMPS and parts:
        target = parts[-1].strip("`() ")
    return SassInstruction(
        address=address,
        opcode=opcode,
        writes=frozenset(writes),
        reads=frozenset(reads),
        is_conditional=bool(guard) and guard not in ("PT", "!UPT"),
        target=target,
        with_previous=with_previous,
        guard=guard,
        operands=tuple(parts),
    )


def _names(text: str) -> list[str]:
    """Return the registers, predicates and the carry that an operand names."""
    return [
        f"{match[1]}{match[2]}" if match[1] else f"{match[3]}{match[4]}" if match[3] else "CC"
        for match in _REGISTER.finditer(text)
    ]


def _segments(
    name: str,
    code: Sequence[SassInstruction],
    labels: dict[str, int],
    latencies: SassLatencies,
) -> tuple[SassSegment, ...]:
    loops: list[tuple[int, int]] = []
    for place, each in enumerate(code):
        if each.base != "BRA":
            continue
        address = labels.get(each.target)
        if address is None and each.target.startswith("0x"):
            address = int(each.target, 16)
        first = None if address is None else _first_at(code, address)
        # the code ends in a branch to itself, which is never executed
        if first is not None and first < place:
            loops.append((first, place + 1))
    loops.sort()
    if any(later[0] < earlier[1] for earlier, later in pairwise(loops)):
        message = f"{name} has nested loops, which are not analyzed"
        raise ParameterError(message, parameter="text")
    end = next((p + 1 for p, i in reversed(list(enumerate(code))) if i.base == "EXIT"), len(code))
    cuts: list[tuple[int, int, bool]] = []
    start = 0
    for first, after in loops:
        cuts += [(start, first, False), (first, after, True)]
        start = after
    cuts.append((start, end, False))
    return tuple(
        SassSegment(
            is_loop=is_loop,
            instructions=tuple(code[first:after]),
            critical_path=_path(code, first, after, is_loop=is_loop, end=end, latencies=latencies),
        )
        for first, after, is_loop in cuts
        if after > first
    )


def _first_at(code: Sequence[SassInstruction], address: int) -> int | None:
    """Return the place of the first instruction at an address or behind it."""
    return next((place for place, each in enumerate(code) if each.address >= address), None)


def _path(
    code: Sequence[SassInstruction],
    first: int,
    after: int,
    *,
    is_loop: bool,
    end: int,
    latencies: SassLatencies,
) -> float:
    size = after - first
    edges: list[tuple[int, int, float]] = []
    producers: dict[str, int] = {}
    later = frozenset[str]().union(*(each.reads for each in code[after:end]))
    if is_loop:
        later |= frozenset[str]().union(*(each.reads for each in code[first:after]))
    for place in range(size):
        each = code[first + place]
        for register in each.reads & producers.keys():
            source = producers[register]
            edges.append((source, place, _latency(code[first + source], latencies)))
        is_last = place + 1 == size
        follows = not is_last and code[first + place + 1].with_previous
        gap = 0.0 if follows else latencies.issue
        if each.base in ("BRA", "EXIT"):
            if is_last and not is_loop and each.base == "EXIT":
                gap = latencies.group_replacement
            elif is_last and is_loop:
                gap = latencies.branch_taken
            elif each.is_conditional:
                gap = latencies.branch_not_taken
        edges.append((place, place + 1, gap))
        producers.update(dict.fromkeys(each.writes, place))
    for register, source in producers.items():
        if register in later:
            edges.append((source, size, _latency(code[first + source], latencies)))
    return critical_path(size + 1, edges)


def _latency(instruction: SassInstruction, latencies: SassLatencies) -> float:
    match instruction.kind:
        case "global":
            return latencies.global_memory
        case "shared":
            found, field = latencies.shared_memory, "shared_memory"
        case "constant":
            found, field = latencies.constant_memory, "constant_memory"
        case "core" | "other unit":
            return latencies.arithmetic
    if found is None:
        message = f"{instruction.opcode} needs the latency {field}; pass it in SassLatencies"
        raise ParameterError(message, parameter=field)
    return found
