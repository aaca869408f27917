"""Event-driven simulation of the sub-groups on one compute unit.

Every subsystem is a pipeline that starts one instruction per ``cpi`` cycles and delivers after
``latency``; a valve limits the starts per cycle over all subsystems; a scheduler picks among the
instructions that can start; sub-groups live in groups and meet at barriers. Rules:

1. Sub-groups are ordered by (number of the group in launch order, index in the group).
2. A barrier waits for all earlier instructions of its sub-group; all later ones wait for it.
3. An instruction is ready when its sub-group has started, the results it uses are there, and
   the instruction before it has started.
4. It can start when it is ready, its subsystem is free, and the valve is open.
5. When it starts at t, its subsystem is free again at t + cpi, the valve opens at t + 1/issue
   limit, and its result is there at t + latency.
6. The n-th barriers of a group complete ``latency`` after the last of them has started.
7. A group ends with its last result; its slot launches the next group then.
   Launches come before starts at the same time.

All times are exact: they are counted in ticks, the largest unit of which all costs are multiples
(costs are first rounded to fractions with a denominator of at most a million).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from countperf.display import ShortRepr
from countperf.errors import DeviceParameterError, ParameterError
from countperf.hardware.parameters import InstructionClass
from countperf.mechanistic.checks import (
    check_choice,
    check_positive,
    check_whole,
)
from countperf.mechanistic.profile import InstructionGraph

Scheduler = Literal["rr", "oldest", "gto"]


class Issue(NamedTuple):
    """The start of one instruction."""

    time: float  # when it starts, cycle
    subsystem: str  # where
    group: int  # launch number of the group, and index of the sub-group in it
    sub_group: int
    node: int  # position of the instruction in its program
    name: str  # class of the instruction
    cpi: float  # how long it occupies its subsystem, cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(ShortRepr):
    """Result of a simulation."""

    cycles: float  # end of the last group, with the drain of the pipelines
    instructions: int  # what was executed
    sub_groups: int
    fill: Mapping[str, float]  # share of the cycles in which a subsystem was occupied
    occupied_any: float  # share of the cycles in which at least one subsystem was occupied
    overlap: float  # share of those in which at least two were
    issues: tuple[Issue, ...] = ()  # every start in order, if it was asked for

    @property
    def wpc(self) -> float:
        """Sub-groups per cycle; ``inf`` where no result takes any time."""
        return self.sub_groups / self.cycles if self.cycles else math.inf

    @property
    def ipc(self) -> float:
        """Instructions per cycle; ``inf`` where no result takes any time."""
        return self.instructions / self.cycles if self.cycles else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Workload of a simulation."""

    # the program of all sub-groups, or one per sub-group of a group (divergence)
    programs: tuple[InstructionGraph, ...]
    classes: Mapping[str, InstructionClass]  # costs
    sub_groups_per_group: int = 1  # size of a group, and groups resident at a time
    concurrent_groups: int = 1
    total_groups: int | None = None  # groups to execute
    issue_limit: float | None = None  # starts per cycle over all subsystems
    scheduler: Scheduler = "rr"

    def __post_init__(self) -> None:
        check_whole(self.sub_groups_per_group, "sub_groups_per_group")
        check_whole(self.concurrent_groups, "concurrent_groups")
        if self.total_groups is not None:
            check_whole(self.total_groups, "total_groups")
        if self.issue_limit is not None:
            check_positive(self.issue_limit, "issue_limit")
        check_choice(self.scheduler, "scheduler", ("rr", "oldest", "gto"))
        if len(self.programs) not in (1, self.sub_groups_per_group):
            message = (
                f"{len(self.programs)} programs for {self.sub_groups_per_group} sub-groups of a"
                " group; give one, or one for each"
            )
            raise ParameterError(message, parameter="sub_group_programs")
        barriers: set[int] = set()
        for program in self.programs:
            for name in program.nodes:
                if name not in self.classes:
                    known = ", ".join(self.classes) or "none"
                    message = f"no costs of instruction class {name!r} (known: {known})"
                    raise DeviceParameterError(message, field=f"classes.{name}")
            barriers.add(sum(self.classes[name].kind == "barrier" for name in program.nodes))
        if len(barriers) > 1:
            message = (
                "the sub-groups of a group have different numbers of barriers"
                f" ({', '.join(map(str, sorted(barriers)))}) and would wait forever"
            )
            raise ParameterError(message, parameter="sub_group_programs")

    @property
    def groups(self) -> int:
        """Number of groups to execute."""
        return self.concurrent_groups if self.total_groups is None else self.total_groups


_DENOMINATOR = 10**6


def simulate(workload: Workload, *, record: bool = False) -> Simulation:
    """Simulate the sub-groups of one compute unit."""
    run = _Run(workload, _compile(workload), record)
    run.run()
    return run.result()


class _Program(NamedTuple):
    subsystem: list[int]
    cpi: list[int]
    latency: list[int]
    barrier: list[bool]
    waits: list[tuple[int, ...]]  # results used, with those implied by barriers; reduced


class _Compiled(NamedTuple):
    ticks_per_cycle: int
    subsystems: tuple[str, ...]
    programs: tuple[_Program, ...]  # one per sub-group of a group
    valve: int


def _compile(workload: Workload) -> _Compiled:
    used = {name: None for program in workload.programs for name in program.nodes}
    costs = {
        name: (_fraction(workload.classes[name].cpi), _fraction(workload.classes[name].latency))
        for name in used
    }
    for name, (cpi, _) in costs.items():
        if cpi == 0:
            message = f"classes.{name}.cpi is too small to be told from zero"
            raise DeviceParameterError(message, field=f"classes.{name}.cpi")
    limit = workload.issue_limit
    valve = Fraction(0) if limit is None else 1 / _fraction(limit)
    fractions = [valve, *(part for pair in costs.values() for part in pair)]
    scale = math.lcm(*(part.denominator for part in fractions))
    ticks = {name: (int(cpi * scale), int(late * scale)) for name, (cpi, late) in costs.items()}
    subsystems = tuple(sorted({workload.classes[name].subsystem for name in used}))
    programs = [
        _Program(
            subsystem=[subsystems.index(workload.classes[name].subsystem) for name in graph.nodes],
            cpi=[ticks[name][0] for name in graph.nodes],
            latency=[ticks[name][1] for name in graph.nodes],
            barrier=[workload.classes[name].kind == "barrier" for name in graph.nodes],
            waits=_waits(graph, workload.classes),
        )
        for graph in workload.programs
    ]
    if len(programs) == 1:
        programs *= workload.sub_groups_per_group
    return _Compiled(scale, subsystems, tuple(programs), int(valve * scale))


def _waits(
    graph: InstructionGraph, classes: Mapping[str, InstructionClass]
) -> list[tuple[int, ...]]:
    waits: list[tuple[int, ...]] = []
    last = -1  # a barrier's result is there after all earlier ones
    for node, (name, own) in enumerate(zip(graph.nodes, graph.predecessors(), strict=True)):
        first = max(last, 0)
        if classes[name].kind == "barrier":
            waits.append(tuple(range(first, node)))
            last = node
        else:
            kept = tuple(index for index in own if index > last)
            waits.append(kept if last < 0 else (last, *kept))
    return waits


class _Run:
    """State of a simulation: times in ticks; sub-groups numbered in their order."""

    def __init__(self, workload: Workload, compiled: _Compiled, record: bool) -> None:
        self.workload = workload
        self.compiled = compiled
        self.programs = compiled.programs
        self.size = workload.sub_groups_per_group
        self.groups = workload.groups
        self.each_group = sum(len(program.cpi) for program in compiled.programs)
        self.scheduler = workload.scheduler
        self.busy = [0] * len(compiled.subsystems)
        self.trace: list[tuple[int, int, int, int]] | None = [] if record else None
        self.covered_once = 0
        self.covered_twice = 0
        self.end = 0
        self.now = self.valve = self.reach_once = self.reach_twice = self.launched = 0
        self.last = -1
        self.to_start = self.each_group * self.groups
        self.free = [0] * len(compiled.subsystems)
        self.ready: list[list[tuple[int, int]]] = [[] for _ in self.free]  # sub-group, instruction
        self.wakes: list[tuple[int, int, int]] = []  # time, sub-group, instruction
        self.slots = [0] * min(workload.concurrent_groups, self.groups)
        self.left = [self.each_group] * self.groups
        self.ends = [0] * self.groups
        self.arrived: dict[int, list[tuple[int, int]]] = {}  # barriers that wait, by group
        self.followers = [_followers(program.waits) for program in compiled.programs]
        self.unmet: dict[int, list[int]] = {}  # conditions of each instruction, by sub-group
        self.times: dict[int, list[int]] = {}  # when the last of those met holds

    def result(self) -> Simulation:
        compiled, workload = self.compiled, self.workload
        scale = compiled.ticks_per_cycle
        issues = tuple(
            Issue(
                time / scale,
                compiled.subsystems[subsystem],
                number // self.size,
                number % self.size,
                node,
                workload.programs[number % self.size % len(workload.programs)].nodes[node],
                compiled.programs[number % self.size].cpi[node] / scale,
            )
            for time, subsystem, number, node in self.trace or ()
        )
        end = max(self.end, 1)
        return Simulation(
            cycles=self.end / scale,
            instructions=self.groups * self.each_group,
            sub_groups=self.groups * self.size,
            fill={
                name: busy / end for name, busy in zip(compiled.subsystems, self.busy, strict=True)
            },
            occupied_any=self.covered_once / end,
            overlap=self.covered_twice / self.covered_once,
            issues=issues,
        )

    def run(self) -> None:
        """Simulate until every instruction has started."""
        while self.to_start:
            self._launch_groups()
            while self.wakes and self.wakes[0][0] <= self.now:
                _, number, node = heappop(self.wakes)
                unit = self.programs[number % self.size].subsystem[node]
                insort(self.ready[unit], (number, node))
            chosen = self._choose() if self.valve <= self.now else None
            if chosen is None:
                self.now = self._next_event()
            else:
                self._start(*chosen)

    def _launch_groups(self) -> None:
        while self.launched < self.groups and self.slots and self.slots[0] <= self.now:
            start = heappop(self.slots)
            for number in range(self.launched * self.size, (self.launched + 1) * self.size):
                waits = self.programs[number % self.size].waits
                # an instruction waits for the start of the one before it, too
                unmet = [len(used) + (node > 0) for node, used in enumerate(waits)]
                self.unmet[number], self.times[number] = unmet, [start] * len(waits)
                for node, number_unmet in enumerate(unmet):
                    if not number_unmet:
                        heappush(self.wakes, (start, number, node))
            self.launched += 1

    def _choose(self) -> tuple[int, int, int] | None:
        """Return what starts now, if anything can: sub-group, instruction and subsystem."""
        best: tuple[bool, int, int, int] | None = None
        is_greedy = self.scheduler == "gto"
        wanted = {"oldest": 0, "rr": self.last + 1, "gto": self.last}[self.scheduler]
        for unit, waiting in enumerate(self.ready):
            if not waiting or self.free[unit] > self.now:
                continue
            place = bisect_left(waiting, (wanted, 0))
            if place == len(waiting) or (is_greedy and waiting[place][0] != wanted):
                place = 0
            number, node = waiting[place]
            is_second_choice = number < wanted or (is_greedy and number != wanted)
            key = (is_second_choice, number, node, unit)
            if best is None or key < best:
                best = key
        return None if best is None else best[1:]

    def _next_event(self) -> int:
        events = [
            max(free, self.valve)
            for free, waiting in zip(self.free, self.ready, strict=True)
            if waiting
        ]
        if self.wakes:
            events.append(self.wakes[0][0])
        if self.launched < self.groups and self.slots:
            events.append(self.slots[0])
        return min(events)

    def _start(self, number: int, node: int, unit: int) -> None:
        now, program, group = self.now, self.programs[number % self.size], number // self.size
        waiting = self.ready[unit]
        del waiting[bisect_left(waiting, (number, node))]
        self.last = number
        self._occupy(unit, now + program.cpi[node], program.cpi[node])
        if self.trace is not None:
            self.trace.append((now, unit, number, node))
        self.to_start -= 1
        self.left[group] -= 1
        if node + 1 < len(program.cpi):
            self._meet(number, node + 1, now)
        if not program.barrier[node]:
            self._deliver(number, node, now + program.latency[node])
        else:
            self.arrived.setdefault(group, []).append((number, node))
            if len(self.arrived[group]) == self.size:
                for other, place in self.arrived.pop(group):
                    latency = self.programs[other % self.size].latency[place]
                    self._deliver(other, place, now + latency)
        if not self.left[group]:
            end = self.ends[group]
            self.end = max(self.end, end)
            heappush(self.slots, end)
            for other in range(group * self.size, (group + 1) * self.size):
                del self.unmet[other], self.times[other]

    def _occupy(self, unit: int, over: int, cpi: int) -> None:
        """Occupy a subsystem from now on, and sum up when one and when two are occupied."""
        self.free[unit], self.valve = over, self.now + self.compiled.valve
        self.busy[unit] += cpi
        shared = min(over, self.reach_once)
        self.covered_twice += max(0, shared - max(self.now, self.reach_twice))
        self.covered_once += max(0, over - max(self.now, self.reach_once))
        self.reach_once = max(self.reach_once, over)
        self.reach_twice = max(self.reach_twice, shared)

    def _deliver(self, number: int, node: int, finish: int) -> None:
        """Hand the result of an instruction to those that use it."""
        group = number // self.size
        self.ends[group] = max(self.ends[group], finish)
        for follower in self.followers[number % self.size][node]:
            self._meet(number, follower, finish)

    def _meet(self, number: int, node: int, time: int) -> None:
        """Note that one of the conditions of an instruction holds from a time on."""
        times, unmet = self.times[number], self.unmet[number]
        times[node] = max(times[node], time)
        unmet[node] -= 1
        if not unmet[node]:
            heappush(self.wakes, (times[node], number, node))


def _followers(waits: Sequence[tuple[int, ...]]) -> list[list[int]]:
    followers: list[list[int]] = [[] for _ in waits]
    for node, used in enumerate(waits):
        for index in used:
            followers[index].append(node)
    return followers


def _fraction(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_DENOMINATOR)
