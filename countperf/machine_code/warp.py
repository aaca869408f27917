"""Executed instructions of a function of NVIDIA's machine code, followed for one sub-group.

Lanes at the lowest address go first, so that they meet again where ways join. An instruction counts
once for a sub-group, also if its predicate is false in all lanes, as profilers count it. A forward
branch that depends on data is not taken, but past calls: the slow way of a division or root. Other
predicates that depend on data are taken to be true. Loops that end by data are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from countperf.errors import CountingError
from countperf.machine_code.sass_instruction import CALLS, SassInstruction
from countperf.machine_code.warp_unit import LANES, Bits, WarpState, execute, lanes_of

MOST_BLOCKS = 300_000  # runs of instructions without a branch after which a sub-group is given up

_SCOPES = {"SSY": "SYNC", "PBK": "BRK", "PCNT": "CONT"}
_RETURNS = {end: begin for begin, end in _SCOPES.items()}
_BRANCHES = ("BRA", "EXIT", *_RETURNS, *CALLS)
_NEVER = ("DIV", "CONV")


@dataclass(frozen=True, slots=True)
class Executed:
    """Executed instructions of sub-groups."""

    instructions: Counter[int]  # how often sub-groups execute each instruction, by place
    lanes: Counter[int]  # how often lanes do whose predicate is true
    order: Sequence[tuple[int, int]] = ()  # runs of instructions: the first, and behind the last


class WarpProgram:
    """A function, ready to be followed."""

    def __init__(self, instructions: Sequence[SassInstruction], name: str = "the kernel") -> None:
        self.instructions = tuple(instructions)
        self.name = name

    @cached_property
    def block_ends(self) -> list[int]:
        """Place behind the block that an instruction is in, by the place of the instruction."""
        starts = {instruction.target for instruction in self.instructions}
        ends = [0] * len(self.instructions)
        end = len(ends)
        for index in reversed(range(len(ends))):
            if self.instructions[index].base in _BRANCHES or index + 1 in starts:
                end = index + 1
            ends[index] = end
        return ends

    @cached_property
    def needed(self) -> frozenset[int]:
        """Instructions whose results may decide a branch or a predicate."""
        before: list[frozenset[str]] = [frozenset()] * (len(self.instructions) + 1)
        needed: set[int] = set()
        while True:
            known = [*before]
            for index, instruction in reversed([*enumerate(self.instructions)]):
                live = frozenset[str]().union(*(before[to] for to in self._followers(index)))
                before[index] = live | {name.lstrip("!") for name in instruction.conditions}
                if live.intersection(instruction.results):
                    needed.add(index)
                    if not instruction.guard:
                        before[index] -= {*instruction.results}
                    if not instruction.is_data:
                        before[index] |= instruction.reads
            if before == known:
                return frozenset(needed)

    def _followers(self, index: int) -> tuple[int, ...]:
        instruction = self.instructions[index]
        following = (index + 1,) if index + 1 < len(self.instructions) else ()
        begin = _RETURNS.get(instruction.base)
        named = [other for other in self.instructions if other.base == begin]
        named += [instruction] if instruction.base == "BRA" else []
        jumps = tuple(other.target for other in named if other.target is not None)
        is_jump = instruction.base in ("EXIT", "RET") or bool(jumps)
        return (*jumps, *following) if instruction.conditions or not is_jump else jumps

    def follow_lanes(self, state: WarpState, lanes: int = LANES) -> Executed:
        """Follow a sub-group to its end."""
        return _Walk(self, state, lanes).walk()

    def decide(self, index: int, unfollowed: str) -> bool:
        """Return how a condition of an instruction is taken to be that depends on data.

        ``unfollowed`` names what is not followed, if that decides it.
        """
        instruction = self.instructions[index]
        target = instruction.target if instruction.base == "BRA" else None
        if any(skipped.base in CALLS for skipped in self.instructions[index : target or index]):
            return True
        if unfollowed:
            raise CountingError(
                f"{self.name}: {unfollowed}, which is not followed, decides whether"
                f" instruction {index} ({instruction.opcode}) is executed"
            )
        if target is not None and target <= index:
            raise CountingError(
                f"{self.name}: the loop that ends at instruction {index} depends on data"
            )
        return instruction.base not in _BRANCHES


class _Walk:
    """One sub-group on its way."""

    def __init__(self, program: WarpProgram, state: WarpState, lanes: int) -> None:
        self.program, self.state = program, state
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
                break
            start = int(self.places[self.alive].min())
            active = self.alive & (self.places == start)
            if active.sum() == self.alive.sum():  # a scope ends where all lanes are
                for targets in self.scopes.values():
                    while targets and targets[-1] == start:
                        targets.pop()
            end = ends[start]
            self.runs[start, end] += 1
            self.order.append((start, end))
            self.lanes[start, end] += int(active.sum())
            self._run_block(start, end, active)
        else:
            raise CountingError(
                f"{self.program.name}: a sub-group executes more than {MOST_BLOCKS:,} runs of"
                " instructions; count at smaller sizes"
            )
        instructions, lanes = Counter[int](), Counter[int]()
        for run, times in self.runs.items():
            instructions.update(dict.fromkeys(range(*run), times))
            lanes.update(dict.fromkeys(range(*run), self.lanes[run]))
        lanes.subtract(self.idle)
        return Executed(instructions, lanes, self.order)

    def _run_block(self, start: int, end: int, active: Bits) -> None:
        instructions = self.program.instructions
        for index in range(start, end):
            instruction = instructions[index]
            own = active
            if instruction.guard or instruction.base == "BRA":
                own = self._condition(index, active)
                self.idle[index] += int((active & ~own).sum())
            if index in self.program.needed:
                try:
                    execute(instruction, self.state, own)
                except (IndexError, KeyError, TypeError, ValueError) as error:
                    raise CountingError(
                        f"{self.program.name}: instruction {index}, {instruction.opcode}"
                        f" {', '.join(instruction.operands)}, lacks operands, or has ones of"
                        " another kind; list the code again"
                    ) from error
            elif instruction.base in _SCOPES and instruction.target is not None:
                self.scopes[instruction.base].append(instruction.target)
            elif instruction.base in _BRANCHES:
                self._branch(index, active, own)
                return
        self.places[active] = end
        if end >= len(instructions):
            self.alive &= ~active

    def _condition(self, index: int, active: Bits) -> Bits:
        """Return the active lanes in which an instruction is executed."""
        instruction = self.program.instructions[index]
        condition = active
        for name in instruction.conditions:
            value = self.state.read(name)
            holds = value == 1
            doubtful = active & (value < 0)
            if doubtful.any():
                reason = self.state.name_of(int(value[doubtful].min()))
                holds = holds | (doubtful & self.program.decide(index, reason))
            condition = condition & holds
        return condition

    def _branch(self, index: int, active: Bits, own: Bits) -> None:
        instruction = self.program.instructions[index]
        self.places[active] = index + 1
        if not own.any():
            return
        if instruction.base in CALLS:
            raise CountingError(
                f"{self.program.name} calls a function, or jumps to a computed address"
            )
        if instruction.base == "EXIT":
            self.alive &= ~own
            return
        target = instruction.target
        if instruction.base in _RETURNS:
            target = [index + 1, *self.scopes[_RETURNS[instruction.base]]][-1]
        elif set(instruction.opcode.split(".")) & set(_NEVER):
            return  # taken only by sub-groups that went apart
        if target is None:
            raise CountingError(
                f"{self.program.name}: the target of {instruction.opcode} is not known"
            )
        self.places[own] = target


def launch_sub_group(
    constants: Mapping[int, int | None], group: Sequence[int], shape: Sequence[int], number: int
) -> tuple[WarpState, int]:
    """Return a sub-group as it starts, and its lanes."""
    items = LANES * number + np.arange(LANES)
    special = {"SR_LANEID": np.arange(LANES)}
    for axis, index, extent in zip("XYZ", group, shape, strict=True):
        special |= {f"SR_CTAID.{axis}": lanes_of(index), f"SR_TID.{axis}": items % extent}
        items = items // extent
    return WarpState(constants, special), min(LANES, int(np.prod(shape)) - LANES * number)
