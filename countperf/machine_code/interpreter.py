"""Execution counts of a function's instructions, found by following them with concrete sizes.

Integers are followed through the code: sizes, numbers of groups, places of arrays and whatever
loops count are known, data is not.

Rules
-----
1. A branch that depends on data goes on to the next instruction: what it guards is executed. The
   last one back to the beginning of a loop is refused: nobody knows how often.
2. Iterations of a loop that are alike are not followed one by one (`loop_extrapolation`).
3. A function that is called is followed where its code is known, else the call is counted only.
4. In functions that are called, of two ways that depend on data the one is taken that is shorter to
   the end: the other is that of special values.
5. Integer divisions in vectors by Intel's library are known by their name.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence

from countperf.errors import CountingError
from countperf.machine_code.blocks import ENDLESS, BlockEnd, Code, CodeBlock, Line, forget_call
from countperf.machine_code.loop_extrapolation import Loops
from countperf.machine_code.machine_state import STACK_POINTER, Constants, Machine
from countperf.machine_code.operands import Read

MOST_STEPS = 6_000_000
"""Integer instructions after which a group is given up."""

STACK = 0x7FFF_0000_0000
"""Stack pointer at entry of a followed function."""

_DEEPEST = 16


class MachineProgram(Code):
    """Code of an object that can be followed with the values in its registers."""

    def __init__(
        self, lines: Sequence[Line], entries: Mapping[str, int], constants: Constants | None = None
    ) -> None:
        super().__init__(lines, entries)
        self.constants = constants or Constants({})

    def executed(self, entry: str, machine: Machine, most_steps: int = MOST_STEPS) -> Counter[int]:
        """Follow a function to its end; return how often each line is executed, by its number."""
        if entry not in self.entries or self.entries[entry] not in self.places:
            raise CountingError(f"there is no function {entry!r}: {', '.join(self.entries)}")
        machine.registers[STACK_POINTER] = STACK
        machine.constants = self.constants
        start = copy.deepcopy(machine)
        try:
            return self._follow_lines(entry, machine, most_steps)
        except CountingError:
            if self.minds_vectors:
                raise
            # vectors may have written what is read one by one
            self.follow_vectors()
            start.accessed = machine.accessed
            machine.accessed.clear()
            executed = self._follow_lines(entry, start, most_steps)
            machine.steps = start.steps
            return executed

    def _follow_lines(self, entry: str, machine: Machine, most_steps: int) -> Counter[int]:
        counts: Counter[int] = Counter()
        stack: list[int] = []
        position: int | None = self.places[self.entries[entry]]
        steps = 0
        loops = Loops(machine)
        while position is not None:
            block = self.block(position, notes=position not in counts)
            end = block.end
            for action in block.actions:
                action(machine)
            counts[position] += 1
            steps += block.steps
            if steps > most_steps:
                raise CountingError(f"gave up after {most_steps} steps")
            if end.condition is None:
                loops.passed(position)
            if end.called is not None and end.following is not None:
                position = self._enter_call(end.called, end.following, machine, stack)
                continue
            if end.leaves:
                if self.lines[block.lines[-1]].mnemonic.startswith("jmp"):
                    forget_call(machine)  # on to a function of which nothing is known
                position = stack.pop() if stack else None
                continue
            if end.condition is None:
                before = position
                position = end.following if end.target is None else end.target
                if end.target is not None and end.target <= before:
                    counts.update(loops.back(before, end.target))
                continue
            flags = machine.flags
            taken = end.condition(machine)
            if taken is None:
                flags = None
                taken = self._shorter(end) if stack else self._guess(block, position)
            loops.passed(position, end.suffix, taken, flags)
            if taken and end.target is None:  # a tail call
                position = stack.pop() if stack else None
                continue
            if taken and end.target is not None and end.target <= position:
                counts.update(loops.back(position, end.target))
            position = end.target if taken else end.following
        machine.steps += steps
        return self._lines_of(counts)

    def _enter_call(
        self,
        called: int | Read,
        following: int,
        machine: Machine,
        stack: list[int],
    ) -> int:
        """Return where a call leads: past it, if nothing is known of the function."""
        if not isinstance(called, int):
            called = self.places.get(called(machine) or -1, -1)
        if called >= 0 and len(stack) < _DEEPEST:
            stack.append(following)
            return called
        forget_call(machine)
        return following

    def _lines_of(self, blocks: Mapping[int, int]) -> Counter[int]:
        """Return how often each line runs, from how often each block does."""
        lines: Counter[int] = Counter()
        for start, count in blocks.items():
            for line in self.block(start, notes=True).lines:
                lines[line] += count
        return lines

    def _guess(self, block: CodeBlock, position: int) -> bool:
        """Decide a branch that depends on data: on to what it guards."""
        last = block.lines[-1]
        if (
            block.end.target is not None
            and block.end.target <= position
            and self.last_back[block.end.target] == last
        ):
            raise CountingError(
                f"the loop that ends at {self.lines[last].address:#x} depends on data"
            )
        return False

    def _shorter(self, end: BlockEnd) -> bool:
        """Decide a branch that depends on data in a function that is called."""
        if end.target is None or end.following is None:
            return True
        return self.to_end.get(end.target, ENDLESS) < self.to_end.get(end.following, ENDLESS)
