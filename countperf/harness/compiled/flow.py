"""Control flow of compiled code: its loops, and the way through it that is taken to be taken.

Rules
-----
1. A basic block begins at the target of a branch, and behind a branch.
2. A branch whose target is outside the function, or computed, leaves the function.
3. A loop is a natural loop: the blocks from which the source of a back edge (one to a block that
   dominates its source) is reached without passing its target. Back edges to one block are one
   loop, and cycles with several entries are none.
4. Of ways through the code, one that is worth most is taken, each iteration of a loop the same way;
   what is worth something in a loop is worth ten times as much as outside. So conditions hold, and
   loops run; and of a loop in two versions, between which compilers let the program choose by
   whether arrays overlap, only one is counted.

Dominators: Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm" (2001), figure 3.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_WORTH_OF_LOOP = 10


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a function.

    Attributes
    ----------
    classes : tuple of str
        What it does, as `countperf.harness.compiled.code.CompiledRegion.counts` names it; one that
        computes with a value from memory does two things. Empty if it does nothing.
    target : int or None
        Place of the instruction that it branches to; None if it does not, or leaves the function.
    goes_on : bool
        Whether the next instruction may follow it.
    """

    classes: tuple[str, ...]
    target: int | None = None
    goes_on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop on the way through a function.

    Attributes
    ----------
    path : tuple of int
        Numbers of the loops around it and its own, from outside in, each counted from 1 in the
        order of the code.
    is_innermost : bool
        Whether it has no loop within.
    own : tuple of int
        Places of its instructions on the way, but those of loops within, in order.
    """

    path: tuple[int, ...]
    is_innermost: bool
    own: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way through a function.

    Attributes
    ----------
    body : tuple of int
        Places of the instructions on the way that are in no loop, in order.
    loops : tuple of Loop
        Its loops, each behind those around it.
    aside : tuple of int
        Places of the instructions that are not on the way.
    """

    body: tuple[int, ...]
    loops: tuple[Loop, ...]
    aside: tuple[int, ...]


def find_way(
    instructions: Sequence[Instruction],
    worth: Callable[[Instruction], float] = lambda _: 1.0,
) -> Way:
    """Find the way through a function that is worth most, and the loops on it.

    Parameters
    ----------
    instructions : sequence of Instruction
        Of the function, entered at the first.
    worth : callable, optional
        What an instruction is worth; by default all are worth the same.

    Examples
    --------
    >>> step, back = Instruction(("flop.add.f32.8",)), Instruction(("branch",), target=1)
    >>> way = find_way([step, step, back, step])
    >>> way.body, [(loop.path, loop.own) for loop in way.loops]
    ((0, 3), [((1,), (1, 2))])
    """
    if not instructions:
        return Way(body=(), loops=(), aside=())
    blocks = _blocks(instructions)
    successors = _successors(instructions, blocks)
    members = _members(successors)
    worths = [sum(worth(instructions[place]) for place in block) for block in blocks]
    taken = _best_way(successors, members, worths)
    loops = _loops(blocks, {head: members[head] & taken for head in members if head in taken})
    on_way = {place for block in taken for place in blocks[block]}
    in_loops = {place for loop in loops for place in loop.own}
    return Way(
        body=tuple(sorted(on_way - in_loops)),
        loops=loops,
        aside=tuple(place for place in range(len(instructions)) if place not in on_way),
    )


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


def _loops(blocks: Sequence[range], members: Mapping[int, frozenset[int]]) -> tuple[Loop, ...]:
    """Put together loops, given by the blocks of each and the one at which it is entered."""
    # loops are apart or nested, so that depths are lengths of paths
    depth = {head: sum(head in each for each in members.values()) for head in members}
    owner: dict[int, int] = {}
    paths: dict[int, tuple[int, ...]] = {}
    loops_within: Counter[tuple[int, ...]] = Counter()
    for head in sorted(members, key=lambda head: (depth[head], head)):
        outside = paths[owner[head]] if head in owner else ()
        loops_within[outside] += 1
        paths[head] = (*outside, loops_within[outside])
        owner |= dict.fromkeys(members[head], head)
    own: defaultdict[int, list[int]] = defaultdict(list)
    for block, head in sorted(owner.items()):
        own[head] += blocks[block]
    loops = [
        Loop(path=path, is_innermost=path not in loops_within, own=tuple(own[head]))
        for head, path in paths.items()
    ]
    return tuple(sorted(loops, key=lambda loop: loop.path))


def _members(successors: Sequence[Sequence[int]]) -> dict[int, frozenset[int]]:
    """Return the blocks of each loop, by the block at which it is entered."""
    order = _order(successors)
    predecessors: defaultdict[int, list[int]] = defaultdict(list)
    for block in order:
        for follower in successors[block]:
            predecessors[follower].append(block)
    dominator = _dominators(order, predecessors)
    found: dict[int, set[int]] = {}
    for block in order:
        for head in successors[block]:
            if not _dominates(head, block, dominator):
                continue
            members = found.setdefault(head, {head})
            waiting = [block]
            while waiting:
                each = waiting.pop()
                if each not in members:
                    members.add(each)
                    waiting += predecessors[each]
    return {head: frozenset(members) for head, members in found.items()}


def _order(successors: Sequence[Sequence[int]]) -> list[int]:
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


def _dominates(above: int, block: int, dominator: Mapping[int, int]) -> bool:
    while block != above and dominator[block] != block:
        block = dominator[block]
    return block == above


def _best_way(
    successors: Sequence[Sequence[int]],
    members: Mapping[int, frozenset[int]],
    worths: Sequence[float],
) -> frozenset[int]:
    """Return the blocks on a way to the end that is worth most."""
    forward = [
        [to for follower in follows for to in sorted(_ahead(block, follower, successors, members))]
        for block, follows in enumerate(successors)
    ]
    best: dict[int, float] = {}
    following: dict[int, int | None] = {}
    for block in reversed(_order(forward)):
        known = [each for each in forward[block] if each in best]
        choice = max(known, key=lambda each: best[each], default=None)
        depth = sum(block in inside for inside in members.values())
        rest = 0.0 if choice is None else best[choice]
        best[block] = worths[block] * _WORTH_OF_LOOP**depth + rest
        following[block] = choice
    taken: list[int] = []
    block: int | None = 0
    while block is not None:
        taken.append(block)
        block = following[block]
    return frozenset(taken)


def _ahead(
    block: int,
    follower: int,
    successors: Sequence[Sequence[int]],
    members: Mapping[int, frozenset[int]],
) -> set[int]:
    """Return what follows a block; behind the last iteration of a loop, what follows the loop."""
    inside = members.get(follower, frozenset())
    if block not in inside:
        return {follower}
    left = [(each, to) for each in inside for to in successors[each] if to not in inside]
    return {ahead for each, to in left for ahead in _ahead(each, to, successors, members)}
