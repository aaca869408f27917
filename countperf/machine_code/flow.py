"""Control flow of compiled code: basic blocks, dominators, loops.

Rules
-----
1. A basic block begins at the target of a branch, and behind a branch.
2. A branch whose target is outside the function, or computed, leaves the function.
3. A loop is a natural loop: the blocks from which the source of a back edge (one to a block that
   dominates its source) is reached without passing its target. Back edges to one block are one
   loop, and cycles with several entries are none.

Dominators: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm" (2001), figure 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from countperf.machine_code.trips import Effect


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a function."""

    # what it does, as `countperf.machine_code.code.CompiledRegion.counts` names it
    classes: tuple[str, ...]
    target: int | None = None  # place of the instruction that it branches to
    goes_on: bool = True  # whether the next instruction may follow it
    # what it does to an integer register, as far as that may tell the iterations of a loop
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """Control flow of a function; blocks are numbered in the order of the code."""

    blocks: Sequence[range]  # places of the instructions of each block
    successors: Sequence[Sequence[int]]  # blocks that may follow each block
    dominator: Mapping[int, int]  # the immediate dominator of each block that can be reached
    loops: Mapping[int, frozenset[int]]  # blocks of each loop, by the block at which it is entered

    def dominators(self, block: int) -> Iterator[int]:
        """Yield the block, its immediate dominator, and so on to the first block."""
        yield block
        while self.dominator[block] != block:
            block = self.dominator[block]
            yield block


def flow_of(instructions: Sequence[Instruction]) -> Flow:
    """Find the control flow of a function of at least one instruction, entered at the first."""
    blocks = _blocks(instructions)
    successors = _successors(instructions, blocks)
    order = order_of(successors)
    predecessors: defaultdict[int, list[int]] = defaultdict(list)
    for block in order:
        for follower in successors[block]:
            predecessors[follower].append(block)
    flow = Flow(blocks, successors, _dominators(order, predecessors), {})
    return Flow(blocks, successors, flow.dominator, _loops(flow, order, predecessors))


def _blocks(instructions: Sequence[Instruction]) -> list[range]:
    starts = {0} | {each.target for each in instructions if each.target is not None}
    starts |= {
        place + 1
        for place, each in enumerate(instructions)
        if each.target is not None or not each.goes_on
    }
    inside = sorted(start for start in starts if start < len(instructions))
    ends = [*inside[1:], len(instructions)]
    return [range(start, end) for start, end in zip(inside, ends, strict=True)]


def _successors(instructions: Sequence[Instruction], blocks: Sequence[range]) -> list[list[int]]:
    number = {block.start: k for k, block in enumerate(blocks)}
    found: list[list[int]] = []
    for k, block in enumerate(blocks):
        last = instructions[block[-1]]
        follows = [] if last.target is None else [number[last.target]]
        if last.goes_on and k + 1 < len(blocks):
            follows.append(k + 1)
        found.append(follows)
    return found


def _loops(
    flow: Flow, order: Sequence[int], predecessors: Mapping[int, Sequence[int]]
) -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = {}
    for block in order:
        for head in flow.successors[block]:
            if head not in flow.dominators(block):
                continue
            members = found.setdefault(head, {head})
            waiting = [block]
            while waiting:
                each = waiting.pop()
                if each not in members:
                    members.add(each)
                    waiting += predecessors[each]
    return {head: frozenset(members) for head, members in found.items()}


def order_of(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the blocks that can be reached, each before those that only it leads to."""
    seen = {0}
    left: list[int] = []
    path = [(0, iter(successors[0]))]
    while path:
        block, rest = path[-1]
        follower = next((each for each in rest if each not in seen), None)
        if follower is None:
            left.append(block)
            path.pop()
        else:
            seen.add(follower)
            path.append((follower, iter(successors[follower])))
    return left[::-1]


def _dominators(order: Sequence[int], predecessors: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return the immediate dominator of each block; of the first one, itself."""
    place = {block: k for k, block in enumerate(order)}
    found = {order[0]: order[0]}
    is_settled = False
    while not is_settled:
        is_settled = True
        for block in order[1:]:
            known = [each for each in predecessors[block] if each in found]
            nearest = known[0]
            for other in known[1:]:
                while nearest != other:
                    if place[nearest] > place[other]:
                        nearest = found[nearest]
                    else:
                        other = found[other]
            if found.get(block) != nearest:
                found[block] = nearest
                is_settled = False
    return found
