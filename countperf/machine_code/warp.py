"""Executed instructions of a function of NVIDIA's machine code, followed for one sub-group.

Rules
-----
1. The 32 lanes of a sub-group go on together where they are at the same place; where they are not,
   those at the lowest address go first, so that they meet again where ways join.
2. An instruction counts once for a sub-group, also if its predicate is false in all lanes, as
   profilers count it; of lanes, only those count whose predicate is true.
3. Only what decides branches and predicates is computed; numbers of floating point are data. A
   forward branch that depends on data is not taken: what it guards is executed. It is taken if a
   call is on the way that it skips: the slow way of a division or root. Other predicates that
   depend on data are taken to be true. The branch back of a loop that depends on data is refused:
   nobody knows how often.
4. What an instruction decides that is not followed is refused, and so are calls and computed
   jumps that are reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from countperf.errors import CountingError
from countperf.machine_code.ptx_unit import PtxInstruction, PtxState
from countperf.machine_code.sass_instruction import (
    LANES,
    Bits,
    SassInstruction,
    WarpState,
    lanes_of,
)
from countperf.machine_code.warp_unit import execute, is_data

MOST_BLOCKS = 300_000
"""Runs of instructions without a branch after which a sub-group is given up."""

_BRANCHES = (
    "BRA",
    "EXIT",
    "SYNC",
    "BRK",
    "CONT",
    "CALL",
    "CAL",
    "JCAL",
    "RET",
    "BRX",
    "JMP",
    "JMX",
)
_SCOPES = {"SSY": "SYNC", "PBK": "BRK", "PCNT": "CONT"}
_RETURNS = {end: begin for begin, end in _SCOPES.items()}
_REFUSED = ("CALL", "CAL", "JCAL", "RET", "BRX", "JMP", "JMX")
_NEVER = ("DIV", "CONV")


@dataclass(frozen=True, slots=True)
class Executed:
    """Executed instructions of sub-groups."""

    instructions: Counter[int]  # how often sub-groups execute each instruction, by place
    lanes: Counter[int]  # how often lanes do whose predicate is true
    order: Sequence[tuple[int, int]] = ()  # runs of instructions: the first, and behind the last


Instruction: TypeAlias = SassInstruction | PtxInstruction
State: TypeAlias = WarpState | PtxState


class WarpProgram:
    """A function, ready to be followed."""

    def __init__(self, instructions: Sequence[Instruction], name: str = "the kernel") -> None:
        self.instructions = tuple(instructions)
        self.name = name

    @cached_property
    def block_ends(self) -> tuple[int, ...]:
        """Place behind the block that an instruction is in, by the place of the instruction."""
        starts = {
            instruction.target
            for instruction in self.instructions
            if instruction.target is not None
        }
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
        count = len(self.instructions)
        before: list[frozenset[str]] = [frozenset()] * (count + 1)
        needed: set[int] = set()
        changed = True
        while changed:
            changed = False
            for place in reversed(range(count)):
                each = self.instructions[place]
                live = frozenset[str]().union(*(before[to] for to in self._followers(place)))
                found = live | {name.lstrip("!") for name in each.conditions}
                written = set(each.results)
                if written & live:
                    needed.add(place)
                    if not each.guard:
                        found -= written
                    if not self.is_data(place):
                        found |= each.reads
                if found != before[place]:
                    before[place] = found
                    changed = True
        return frozenset(needed)

    def _followers(self, place: int) -> tuple[int, ...]:
        each = self.instructions[place]
        following = (place + 1,) if place + 1 < len(self.instructions) else ()
        if each.base in _RETURNS:
            jumps = tuple(
                other.target
                for other in self.instructions
                if other.base == _RETURNS[each.base] and other.target is not None
            )
        else:
            jumps = (each.target,) if each.base == "BRA" and each.target is not None else ()
        is_jump = each.base in ("EXIT", "RET") or bool(jumps)
        return (*jumps, *following) if each.conditions or not is_jump else jumps

    def executed(self, state: State, lanes: int = LANES) -> Executed:
        """Follow a sub-group to its end."""
        return _Walk(self, state, lanes).walk()

    def executes(self, place: int, state: Any, active: Bits) -> None:
        """Execute an instruction whose results are needed."""
        each = self.instructions[place]
        execute(each.opcode, each.operands, state, active)

    def is_data(self, place: int) -> bool:
        """Return whether an instruction reads memory that kernels write."""
        each = self.instructions[place]
        return is_data(each.opcode, each.operands)

    def decided(self, place: int, unfollowed: str) -> bool:
        """Return how a condition of an instruction is taken to be that depends on data.

        ``unfollowed`` names what is not followed, if that decides it.
        """
        each = self.instructions[place]
        is_jump = each.base == "BRA" and each.target is not None
        if is_jump and self.skips_call(place):
            return True
        if unfollowed:
            raise CountingError(
                f"{self.name}: {unfollowed}, which is not followed, decides whether"
                f" instruction {place} ({each.opcode}) is executed"
            )
        if is_jump and each.target is not None and each.target <= place:
            raise CountingError(
                f"{self.name}: the loop that ends at instruction {place} depends on data"
            )
        return each.base not in _BRANCHES

    def skips_call(self, place: int) -> bool:
        """Say whether a call lies between a forward branch and its target."""
        target = self.instructions[place].target or place
        return any(instruction.base in _REFUSED for instruction in self.instructions[place:target])


class _Walk:
    """One sub-group on its way."""

    def __init__(self, program: WarpProgram, state: State, lanes: int) -> None:
        self.program = program
        self.state = state
        self.places = np.zeros(LANES, dtype=np.int64)
        self.alive = np.arange(LANES) < lanes
        self.scopes: dict[str, list[int]] = {name: [] for name in _SCOPES}
        self.runs: Counter[tuple[int, int]] = Counter()
        self.lanes: Counter[tuple[int, int]] = Counter()
        self.idle: Counter[int] = Counter()
        self.order: list[tuple[int, int]] = []

    def walk(self) -> Executed:
        ends = self.program.block_ends
        for _ in range(MOST_BLOCKS):
            if not self.alive.any():
                return self._counted()
            start = int(self.places[self.alive].min())
            active = self.alive & (self.places == start)
            self._leave_scopes(start)
            end = ends[start]
            self.runs[start, end] += 1
            self.order.append((start, end))
            self.lanes[start, end] += int(active.sum())
            self._run(start, end, active)
        raise CountingError(
            f"{self.program.name}: a sub-group executes more than {MOST_BLOCKS:,} runs of"
            " instructions; count at smaller sizes"
        )

    def _run(self, start: int, end: int, active: Bits) -> None:
        instructions = self.program.instructions
        for place in range(start, end):
            each = instructions[place]
            own = active
            if each.guard or each.base == "BRA":
                own = self._condition(place, active)
                self.idle[place] += int((active & ~own).sum())
            if place in self.program.needed:
                self.program.executes(place, self.state, own)
            elif each.base in _SCOPES and each.target is not None:
                self.scopes[each.base].append(each.target)
            elif each.base in _BRANCHES:
                self._branch(place, active, own)
                return
        self.places[active] = end
        if end >= len(instructions):
            self.alive &= ~active

    def _condition(self, place: int, active: Bits) -> Bits:
        """Return the active lanes in which an instruction is executed."""
        each = self.program.instructions[place]
        condition = active
        for name in each.conditions:
            value = self.state.read(name)
            holds = value == 1
            doubtful = active & (value < 0)
            if doubtful.any():
                reason = self.state.name_of(int(value[doubtful].min()))
                holds = holds | (doubtful & self.program.decided(place, reason))
            condition = condition & holds
        return condition

    def _branch(self, place: int, active: Bits, own: Bits) -> None:
        each = self.program.instructions[place]
        self.places[active] = place + 1
        if not own.any():
            return
        if each.base in _REFUSED:
            raise CountingError(
                f"{self.program.name} calls a function, or jumps to a computed place"
            )
        if each.base == "EXIT":
            self.alive &= ~own
            return
        target = each.target
        if each.base in _RETURNS:
            open_ones = self.scopes[_RETURNS[each.base]]
            target = open_ones[-1] if open_ones else place + 1
        elif set(each.opcode.split(".")) & set(_NEVER):
            return  # taken only by sub-groups that went apart
        if target is None:
            raise CountingError(f"{self.program.name}: the target of {each.opcode} is not known")
        self.places[own] = target

    def _leave_scopes(self, place: int) -> None:
        """Forget a scope once all lanes are where it ends."""
        if (self.places[self.alive] == place).all():
            for targets in self.scopes.values():
                while targets and targets[-1] == place:
                    targets.pop()

    def _counted(self) -> Executed:
        instructions: Counter[int] = Counter()
        lanes: Counter[int] = Counter()
        for (start, end), times in self.runs.items():
            for place in range(start, end):
                instructions[place] += times
                lanes[place] += self.lanes[start, end]
        lanes.subtract(self.idle)
        return Executed(instructions, lanes, self.order)


def launched(
    constants: Mapping[int, int | None], group: Sequence[int], shape: Sequence[int], number: int
) -> tuple[WarpState, int]:
    """Return a sub-group as it starts, and its lanes."""
    items = LANES * number + np.arange(LANES)
    special = {
        f"SR_CTAID.{axis}": lanes_of(place) for axis, place in zip("XYZ", group, strict=True)
    }
    for axis, extent in zip("XYZ", shape, strict=True):
        special[f"SR_TID.{axis}"] = items % extent
        items = items // extent
    special["SR_LANEID"] = np.arange(LANES)
    total = int(np.prod(shape))
    return WarpState(constants, special), min(LANES, total - LANES * number)
