r"""Traffic of a launch: bytes that sub-groups ask for, and those that L1, L2 and memory serve.

What sub-groups ask for are the sectors of their loads and stores; what a compiler keeps in
registers is asked for once. Caches are taken to be fully associative, with least recent use (GPUs
hash addresses to sets). Groups start in order, and as many as are resident go through their loops
together. The footprint of a window of time is the distinct bytes that it touches: a window that
fits into a cache is fetched once, and each step beyond the longest that fits fetches what the
footprint grows by (Xiang, Ding, Luo & Bao 2013, "HOTL: a higher order theory of locality",
doi:10.1145/2451116.2451153). L1 is that of a compute unit, holds loads only, and shares its memory
with local memory where it is stated to be no smaller than that. A launch finds caches empty.

``R`` of Lemeire, Cornelis & Konstantinidis, section 6.3, is bytes of memory over bytes asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TypeAlias

from countperf.counting.access_analysis import AccessAnalysis
from countperf.counting.device_programs import Item, Loop, ids_in
from countperf.counting.execution.reuse import find_extent
from countperf.counting.programs import AccessPlace, KernelProgram
from countperf.devices.parameters import DeviceParameters
from countperf.text import ShortRepr, format_quantity

Steps: TypeAlias = Sequence[tuple[int, float]]  # byte, and how many of them follow each other
Open: TypeAlias = Mapping[str, float]  # iterations of the loops that a window does not run whole
_WAVES = "waves of groups"  # a loop around the program, by a name that no variable has


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(ShortRepr):
    """Bytes of one launch."""

    asked: float  # sectors that sub-groups ask for
    compulsory: float  # distinct bytes, of loads and of stores
    l2: float  # bytes that reach L2
    memory: float  # bytes that reach memory
    charged: float  # bytes that the costs of instruction classes stand for, no less than asked for
    l1_bytes: int | None = None  # sizes of the device's caches; None where it states none
    l2_bytes: int | None = None
    resident: int | None = None  # groups on each compute unit; None where nothing is cached
    assumptions: tuple[str, ...] = ()  # in the place of what neither kernel nor device states
    measured: str = ""  # metric that gave the bytes of memory, if any

    @property
    def ratio(self) -> float:
        """R: bytes of memory over bytes asked for."""
        return self.memory / self.asked if self.asked else 1.0

    @property
    def charge_ratios(self) -> tuple[float, float]:
        """Bytes of memory, and of L2, over those that costs of instruction classes stand for."""
        if not self.charged:
            return 1.0, 1.0
        memory = self.memory / self.charged
        return memory, max(self.l2 / self.charged, min(memory, 1.0))

    @property
    def text(self) -> str:
        """The assumptions in words."""
        parts = [
            f"{format_quantity(self.compulsory, 'B')} compulsory",
            f"{format_quantity(self.asked, 'B')} asked for",
        ]
        for name, size in (("L1", self.l1_bytes), ("L2", self.l2_bytes)):
            if self.resident is not None:
                parts.append(f"{name} {format_quantity(size, 'B') if size else 'none'}")
        if self.measured:
            parts.append(f"{format_quantity(self.memory, 'B')} measured ({self.measured})")
        elif self.resident is not None:
            parts.append(f"{format_quantity(self.memory, 'B')} from memory")
        if self.resident is not None:
            parts.append(f"groups resident on a compute unit: {self.resident}")
        return f"memory bytes: {'; '.join([', '.join(parts), *self.assumptions])}"

    def scale_requests(self, factor: float) -> Traffic:
        """Return the traffic where machine code asks for more or fewer bytes."""
        asked, charged = factor * self.asked, factor * self.charged
        memory = self.memory if self.measured else min(self.memory, asked)
        return replace(self, asked=asked, charged=charged, l2=min(self.l2, asked), memory=memory)


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Addresses of an access at given sizes, byte."""

    name: str  # id of its instruction
    array: str
    direction: str
    size: int  # of an element
    offset: int
    items: Steps
    groups: Mapping[int, int]  # step by axis
    loops: Mapping[str, tuple[int, float]]  # step and iterations
    executions: float  # by all work items of the launch
    extent: float  # of the array
    is_known: bool  # whether steps are; else each execution touches a sector of its own
    asked: float  # bytes that sub-groups ask for, of the launch


class TrafficCounter:
    """Finds the traffic of a device program's launch at given sizes."""

    def __init__(
        self,
        program: KernelProgram,
        values: Mapping[str, int],
        asked: Mapping[AccessPlace, float],
        sector_bytes: int,
    ) -> None:
        self.program, self.sector_bytes = program, sector_bytes
        self.extents = {a: int(n.evaluate(values)) for a, n in sorted(program.grid.groups.items())}
        self.groups = prod(self.extents.values())
        launches = int(program.launches.evaluate(values)) or 1
        places: defaultdict[AccessPlace, list[AccessAnalysis]] = defaultdict(list)
        for access in program.accesses:
            if access.access.address_space == "global":
                places[access.instruction, access.access].append(access)
        self.walks = [
            _walk(some, values, launches, asked.get(place, 0.0)) for place, some in places.items()
        ]

    def count(
        self,
        device: DeviceParameters,
        resident: int,
        local_bytes: int,
        charged: float,
        assumptions: Sequence[str] = (),
    ) -> Traffic:
        """Return the traffic where so many groups are resident on each compute unit.

        ``assumptions`` say why so many are, where that is not known.
        """
        loads = [walk for walk in self.walks if walk.direction == "load"]
        asked = sum(walk.asked for walk in self.walks)
        whole = _Window(self, self.walks, self.groups, self.groups)
        compulsory = min(whole.touch(ids_in(self.program.body), {})[1], asked)
        found = Traffic(
            asked=asked,
            compulsory=compulsory,
            l2=asked,
            memory=asked,
            charged=charged,
            l1_bytes=device.l1_bytes_per_compute_unit,
            l2_bytes=device.l2_bytes,
        )
        units, said = device.num_compute_units, [*assumptions]
        if unknown := sorted({walk.array for walk in self.walks if not walk.is_known}):
            said.append(f"no two accesses touch the same bytes of {', '.join(unknown)}")
        if device.l2_bytes is None or units is None:
            lacks = "l2_bytes" if device.l2_bytes is None else "num_compute_units"
            said = [f"nothing is taken to be cached: the device states no {lacks}"]
            return replace(found, assumptions=tuple(said))
        l1, l2 = device.l1_bytes_per_compute_unit or 0, asked
        if (device.local_bytes_per_compute_unit or l1 + 1) <= l1 and local_bytes:
            l1 -= resident * local_bytes
            said.append(f"local memory takes {format_quantity(resident * local_bytes, 'B')} of L1")
        if l1 > 0:
            busy = min(units, self.groups)
            unit = _Window(self, loads, resident, self.groups / busy, jump=units, times=busy)
            l2 = asked - sum(walk.asked for walk in loads) + unit.fetch(l1)
        window = _Window(self, self.walks, resident * units, self.groups)
        memory = min(l2, window.fetch(device.l2_bytes)) if device.l2_bytes else l2
        return replace(found, l2=l2, memory=memory, resident=resident, assumptions=tuple(said))


class _Window:
    """Groups that are resident together on a compute unit or the device, one wave after another."""

    def __init__(
        self,
        counter: TrafficCounter,
        walks: Sequence[_Addresses],
        resident: float,
        of: float,
        *,
        jump: int = 1,
        times: int = 1,
    ) -> None:
        self.counter, self.walks, self.jump, self.times = counter, walks, jump, times
        self.resident = min(resident, of)
        self.waves = of / self.resident

    def fetch(self, capacity: float) -> float:
        """Return the bytes that caches of some capacity fetch in all, no more than asked for."""
        whole = Loop(_WAVES, self.counter.program.body)
        return min(
            self.times * self._fetch_items([whole], {}, capacity),
            sum(walk.asked for walk in self.walks),
        )

    def _fetch_items(self, items: Sequence[Item], around: Open, capacity: float) -> float:
        """Return what items of the program fetch in one iteration of the loops around them."""
        held, moved = self.touch(ids_in(items), around)
        if held <= capacity:
            return moved
        if len(items) == 1 and isinstance(items[0], Loop):
            return self._fetch_loop(items[0], around, capacity)
        loops = [item for item in items if isinstance(item, Loop)]
        others = [item for item in items if not isinstance(item, Loop)]
        if not loops:
            asked = sum(walk.asked for walk in self.walks if walk.name in set(ids_in(items)))
            return asked / self.times / prod(self._count(name) for name in around)
        parts = [*([others] if others else []), *([loop] for loop in loops)]
        return sum(self._fetch_items(part, around, capacity) for part in parts)

    def _fetch_loop(self, loop: Loop, around: Open, capacity: float) -> float:
        names, count = ids_in(loop.body), self._count(loop.iname)

        def touch(iterations: float) -> tuple[float, float]:
            return self.touch(names, {**around, loop.iname: iterations})

        if touch(1)[0] > capacity:
            return count * self._fetch_items(loop.body, {**around, loop.iname: 1}, capacity)
        fits, beyond = 1, max(2, int(count) + 1)
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            fits, beyond = (middle, beyond) if touch(middle)[0] <= capacity else (fits, middle)
        first = touch(fits)[1]
        return first + max(0.0, count - fits) * (touch(fits + 1)[1] - first)

    def _count(self, loop: str) -> float:
        """Return the iterations of a loop."""
        if loop == _WAVES:
            return self.waves
        return max((walk.loops[loop][1] for walk in self.walks if loop in walk.loops), default=1.0)

    def touch(self, names: Iterable[str], around: Open) -> tuple[float, float]:
        """Return distinct bytes that instructions touch: in a cache, and of loads and of stores.

        Loops that are not around them run whole.
        """
        number = self.resident * min(around.get(_WAVES, self.waves), self.waves)
        inside = set(names)
        by_array: defaultdict[str, defaultdict[str, list[_Part]]]
        by_array = defaultdict(lambda: defaultdict(list))
        for walk in self.walks:
            if walk.name in inside:
                steps = self._list_groups(walk, number)
                share = number / self.counter.groups
                for name, (step, count) in walk.loops.items():
                    kept = min(around.get(name, count), count)
                    steps.append((step, kept, count))
                    share *= kept / count
                moving = [step for step, kept, count in steps if kept < count]
                every = [*walk.items, *((step, kept) for step, kept, _ in steps)]
                by_array[walk.array][walk.direction].append(_Part(walk, every, moving, share))
        held = moved = 0.0
        for parts in by_array.values():
            both = [_count_distinct(of, self.counter.sector_bytes) for of in parts.values()]
            held, moved = held + max(both), moved + sum(both)
        return held, moved

    def _list_groups(self, walk: _Addresses, number: float) -> list[tuple[int, float, float]]:
        """Return steps between so many groups in order, or a jump apart; how many, of how many."""
        jump, steps = float(self.jump), list[tuple[int, float, float]]()
        for axis, extent in self.counter.extents.items():
            if extent <= jump:
                jump /= extent  # it leads to the next along another axis
                continue
            along = min(extent / jump, number)
            steps.append((round(jump * walk.groups.get(axis, 0)), along, extent / jump))
            number, jump = max(1.0, number / along), 1.0
        return steps


def _walk(
    alike: Sequence[AccessAnalysis], values: Mapping[str, int], launches: int, asked: float
) -> _Addresses:
    """Return the addresses of an access, perhaps under several conditions, at given sizes."""
    access, *_ = alike
    scope, size = access.scope, access.access.bits // 8
    items: list[tuple[int, float]] = []
    groups: dict[int, int] = {}
    loops: dict[str, tuple[int, float]] = {}
    is_known = access.address is not None
    for along in access.strides:
        if along.kind == "launch loop":
            continue
        stride, length, step, count = along.stride, find_extent(scope, along), 0, 1.0
        if stride is None or not stride.names() <= values.keys():
            is_known = False
        else:
            step = size * round(stride.evaluate(values))
        if length is not None and length.names() <= values.keys():
            count = max(1.0, float(length.evaluate(values)))
        if along.kind == "group" and along.axis is not None:
            groups[along.axis] = step
        elif along.kind == "local":
            items.append((step, count))
        else:
            loops[along.iname or ""] = (step, count)
    offset = 0
    if access.address is not None:
        zeros = dict.fromkeys(access.address.names() - values.keys(), 0)
        offset = size * round(access.address.evaluate({**values, **zeros}))
    executions = sum(float(a.executions.evaluate(values)) / a.repeats for a in alike) / launches
    return _Addresses(
        *(access.instruction, access.access.array, access.access.direction, size, offset, items),
        *(groups, loops, executions, _find_extent(access, values), is_known, asked),
    )


def _find_extent(access: AccessAnalysis, values: Mapping[str, int]) -> float:
    """Return the bytes of an array; infinity where they are not known."""
    layout = access.scope.domains.layout_of(access.access)
    last = 0.0
    for stride, extent in zip(layout.strides, layout.shape, strict=True):
        if extent is None or not (stride.names() | extent.names()) <= values.keys():
            return float("inf")
        last += abs(float(stride.evaluate(values))) * (float(extent.evaluate(values)) - 1)
    return (last + 1) * access.access.bits / 8


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of an access that a window of time executes."""

    walk: _Addresses
    steps: Steps
    moving: Sequence[int]  # steps that lead from one such window to others
    share: float  # of its executions


def _count_distinct(members: Collection[_Part], sector: int) -> float:
    """Return the distinct bytes that accesses to one array touch, in sectors."""
    total, alike = 0.0, defaultdict[tuple[float, Steps], list[_Part]](list)
    for part in members:
        if part.walk.is_known:
            alike[_join_steps(part.steps, part.walk.size, sector)].append(part)
        else:
            total += min(part.share * part.walk.executions * sector, part.share * part.walk.asked)
    for (run, steps), parts in alike.items():
        total += _count_union(run, steps, parts, sector)
    return min(total, max(part.walk.extent for part in members) + sector)


def _join_steps(steps: Steps, run: float, sector: int) -> tuple[float, Steps]:
    """Return the length of contiguous pieces, and the steps between these."""
    kept: list[tuple[int, float]] = []
    for step, count in sorted((abs(step), count) for step, count in steps if step and count > 1):
        if not kept and step <= max(run, sector):
            run += (count - 1) * step
        elif kept and step % kept[-1][0] == 0 and step <= kept[-1][0] * kept[-1][1]:
            kept[-1] = (kept[-1][0], kept[-1][1] + (count - 1) * (step // kept[-1][0]))
        else:
            kept.append((step, count))
    return run, tuple(kept)


def _count_union(run: float, steps: Steps, parts: Sequence[_Part], sector: int) -> float:
    """Return the bytes of the sectors of pieces that are repeated at some offsets."""
    # offsets are further steps, as far as they are multiples of these
    offsets, size = sorted({part.walk.offset for part in parts}), parts[0].walk.size
    ranges: list[tuple[int, float]] = []
    left, pieces = [offset - offsets[0] for offset in offsets], 1.0
    for step, count in reversed(steps):
        places = [round(offset / step) for offset in left]
        left = [offset - place * step for offset, place in zip(left, places, strict=True)]
        ranges.append((step, count + max(places) - min(places)))
    if (rest := max(left) - min(left)) > max(run, sector):
        pieces = float(len(set(left)))
    else:
        run += rest
    run, steps = _join_steps(ranges, run, sector)
    # pieces begin anywhere in a sector that steps beyond them, and from window to window, lead to
    moving = [step for part in parts for step in part.moving]
    grain = max(gcd(sector, offsets[0], *left, *(step for step, _ in steps), *moving), size)
    touched = (-(-run // grain) - 1) * grain + sector
    executions = sum(part.share * part.walk.executions for part in parts)
    # conditions may leave some out
    return min(pieces * prod(count for _, count in steps), executions * size / run) * touched
