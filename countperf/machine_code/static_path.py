"""Assumed path through compiled code, and its loops.

Of ways through the code, one that is worth most is taken, each iteration of a loop the same way. So
conditions hold, and loops run; and of a loop in two versions, between which compilers let the
program choose by whether arrays overlap or indices overflow, only one is counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from countperf.machine_code.flow import Flow, Instruction, flow_of, order_of
from countperf.machine_code.trips import Effect, constant_trips

DEFAULT_TRIPS = 10.0
"""Iterations that a loop is taken to have where nobody says, each time that it is entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop on the way through a function."""

    path: tuple[int, ...]
    is_innermost: bool  # whether it has no loop within
    # places of its instructions on the way, but those of loops within, in order
    own: tuple[int, ...]
    trips: float | None = None  # iterations each time that it is entered, where the code says so


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPath:
    """A way through a function."""

    body: tuple[int, ...]  # places of the instructions on the way that are in no loop, in order
    loops: tuple[Loop, ...]  # its loops, each behind those around it
    aside: tuple[int, ...]  # places of the instructions that are not on the way


def find_way(
    instructions: Sequence[Instruction],
    worth: Callable[[Instruction], float] = lambda _: 1.0,
) -> StaticPath:
    """Find the way through a function that is worth most, and the loops on it."""
    if not instructions:
        return StaticPath(body=(), loops=(), aside=())
    flow = flow_of(instructions)
    trips = {head: _trips(instructions, flow, head) for head in flow.loops}
    worths = [sum(worth(instructions[place]) for place in block) for block in flow.blocks]
    taken = _best_way(flow, trips, worths)
    kept = {head: inside & taken for head, inside in flow.loops.items() if head in taken}
    loops = _numbered(flow.blocks, kept, trips)
    on_way = {place for block in taken for place in flow.blocks[block]}
    in_loops = {place for loop in loops for place in loop.own}
    return StaticPath(
        body=tuple(sorted(on_way - in_loops)),
        loops=loops,
        aside=tuple(place for place in range(len(instructions)) if place not in on_way),
    )


def _trips(instructions: Sequence[Instruction], flow: Flow, head: int) -> float | None:
    """Return the iterations of a loop, if the code says so."""
    inside = flow.loops[head]
    places = [place for block in sorted(inside) for place in flow.blocks[block]]
    back = [place for place in places if instructions[place].target == flow.blocks[head].start]
    if len(back) != 1:
        return None
    before = [
        place
        for block in flow.dominators(head)
        if block not in inside
        for place in reversed(flow.blocks[block])
    ]
    tested = [place for place in places if place < back[0]]

    def effects(chosen: Iterable[int]) -> list[Effect]:
        return [each for place in chosen if (each := instructions[place].effect)]

    return constant_trips(effects(before), effects(places), effects(reversed(tested)))


def _numbered(
    blocks: Sequence[range],
    members: Mapping[int, frozenset[int]],
    trips: Mapping[int, float | None],
) -> tuple[Loop, ...]:
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
        Loop(
            path=path,
            is_innermost=path not in loops_within,
            own=tuple(own[head]),
            trips=trips[head],
        )
        for head, path in paths.items()
    ]
    return tuple(sorted(loops, key=lambda loop: loop.path))


def _best_way(
    flow: Flow, trips: Mapping[int, float | None], worths: Sequence[float]
) -> frozenset[int]:
    """Return the blocks on a way to the end that is worth most."""
    forward = [
        [to for follower in follows for to in sorted(_ahead(block, follower, flow))]
        for block, follows in enumerate(flow.successors)
    ]
    best: dict[int, float] = {}
    following: dict[int, int | None] = {}
    for block in reversed(order_of(forward)):
        known = [each for each in forward[block] if each in best]
        choice = max(known, key=lambda each: best[each], default=None)
        around = (
            trips[head] or DEFAULT_TRIPS for head, inside in flow.loops.items() if block in inside
        )
        rest = 0.0 if choice is None else best[choice]
        best[block] = worths[block] * prod(around) + rest
        following[block] = choice
    taken: list[int] = []
    block: int | None = 0
    while block is not None:
        taken.append(block)
        block = following[block]
    return frozenset(taken)


def _ahead(block: int, follower: int, flow: Flow) -> set[int]:
    """Return what follows a block; behind the last iteration of a loop, what follows the loop."""
    inside = flow.loops.get(follower, frozenset[int]())
    if block not in inside:
        return {follower}
    left = [(each, to) for each in inside for to in flow.successors[each] if to not in inside]
    return {ahead for each, to in left for ahead in _ahead(each, to, flow)}
