r"""The pipeline model: sub-groups of one compute unit, simulated.

Source: Lemeire, Cornelis & Konstantinidis, sections 3 to 6. Every subsystem is a pipeline that
starts one instruction per ``cpi`` cycles and delivers after ``latency``; a valve limits the starts
per cycle over all subsystems; sub-groups live in groups and meet at barriers. The source names
neither scheduler nor issue order; these rules reproduce what it says of its example:

1. Sub-groups are ordered by (number of the group in launch order, index in the group).
2. A barrier waits for all earlier instructions of its sub-group; all later ones wait for it.
3. An instruction is ready when its sub-group has started, the results it uses are there, and
   the instruction before it has started.
4. It can start when it is ready, its subsystem is free, and the valve is open. Of several, that of
   the next sub-group after the last one that started an instruction does.
5. When it starts at t, its subsystem is free again at t + cpi, the valve opens at t + 1/issue
   limit, and its result is there at t + latency.
6. The n-th barriers of a group complete ``latency`` after the last of them has started.
7. A group ends with its last result; its slot launches the next group then.
   Launches come before starts at the same time.

All times are exact: they are counted in ticks, the largest unit of which all costs are multiples
(costs are first rounded to fractions with a denominator of at most a million). Of many groups, two
waves are simulated; the rate of the second holds for the rest.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import ClassVar, NamedTuple

from countperf.devices.parameters import InstructionClass
from countperf.errors import DeviceParameterError, ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry

_DENOMINATOR = 10**6
_KINDS: tuple[base.Bound, ...] = ("compute", "memory", "barrier", "issue")
"""Bounds that a time may have, in the order in which ties are decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Workload of a simulation."""

    # the program of all sub-groups, or one per sub-group of a group (divergence)
    programs: tuple[base.InstructionGraph, ...]
    classes: Mapping[str, InstructionClass]  # costs
    sub_groups_per_group: int = 1  # size of a group, and groups resident at a time
    concurrent_groups: int = 1
    total_groups: int | None = None  # groups to execute
    issue_limit: float | None = None  # starts per cycle over all subsystems

    def __post_init__(self) -> None:
        if len(self.programs) not in (1, self.sub_groups_per_group):
            message = (
                f"{len(self.programs)} programs for {self.sub_groups_per_group} sub-groups of a"
                " group; give one, or one for each"
            )
            raise ParameterError(message, parameter="sub_group_programs")
        barriers = {
            sum(self.classes[name].kind == "barrier" for name in program.nodes)
            for program in self.programs
        }
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


class _Program(NamedTuple):
    name: tuple[str, ...]  # class of each instruction
    unit: list[int]  # number of the subsystem of each instruction
    cpi: list[int]
    latency: list[int]
    barrier: list[bool]
    waits: list[tuple[int, ...]]  # results used, with those implied by barriers


def _waits(
    graph: base.InstructionGraph, classes: Mapping[str, InstructionClass]
) -> list[tuple[int, ...]]:
    waits: list[tuple[int, ...]] = []
    last = -1  # a barrier's result is there after all earlier ones
    for node, (name, own) in enumerate(zip(graph.nodes, graph.predecessors, strict=True)):
        if classes[name].kind == "barrier":
            waits.append(tuple(range(max(last, 0), node)))
            last = node
        else:
            kept = tuple(index for index in own if index > last)
            waits.append(kept if last < 0 else (last, *kept))
    return waits


class Simulation:
    """A simulation of the sub-groups of one compute unit; times in ticks until it has run."""

    def __init__(self, workload: Workload) -> None:
        used = {name: workload.classes[name] for graph in workload.programs for name in graph.nodes}
        costs = {name: (_fraction(c.cpi), _fraction(c.known_latency)) for name, c in used.items()}
        for name, (cpi, _) in costs.items():
            if cpi == 0:
                message = f"classes.{name}.cpi is too small to be told from zero"
                raise DeviceParameterError(message, field=f"classes.{name}.cpi")
        limit = workload.issue_limit
        valve = Fraction(0) if limit is None else 1 / _fraction(limit)
        fractions = [valve, *(part for pair in costs.values() for part in pair)]
        scale = math.lcm(*(part.denominator for part in fractions))  # ticks of a cycle
        self.subsystems = sorted({cost.subsystem for cost in used.values()})
        self.programs = [
            _Program(
                name=tuple(graph.nodes),
                unit=[self.subsystems.index(used[name].subsystem) for name in graph.nodes],
                cpi=[int(costs[name][0] * scale) for name in graph.nodes],
                latency=[int(costs[name][1] * scale) for name in graph.nodes],
                barrier=[used[name].kind == "barrier" for name in graph.nodes],
                waits=_waits(graph, used),
            )
            for graph in workload.programs
        ]
        self.size, self.groups = workload.sub_groups_per_group, workload.groups
        if len(self.programs) == 1:
            self.programs *= self.size
        self.valve_gap = int(valve * scale)
        self.each_group = sum(len(program.cpi) for program in self.programs)
        self.now = self.valve = self.end = self.launched = 0
        self.last = -1
        self.to_start = self.each_group * self.groups
        self.free = [0] * len(self.subsystems)
        self.ready: list[list[int]] = [[] for _ in self.free]  # sub-groups in order, by subsystem
        # times at which sub-groups are ready, and the class whose result they wait for
        self.wakes: list[tuple[int, int, str]] = []
        self.slots = [(0, "")] * min(workload.concurrent_groups, self.groups)
        self.left = [self.each_group] * self.groups
        self.ends = [(0, "")] * self.groups  # last result of a group, and its class
        self.stalled: Counter[str] = Counter()
        self.arrived: dict[int, list[int]] = {}  # sub-groups that wait at a barrier, by group
        # results of each sub-group: when they are there, and None where a barrier is open
        self.finish: dict[int, list[int | None]] = {}

        self._run()
        self.cycles = self.end / scale  # end of the last group, with the drain of the pipelines
        self.instructions = self.groups * self.each_group
        self.sub_groups = self.groups * self.size
        # share of the cycles in which a subsystem was occupied
        busy: Counter[int] = Counter()  # ticks for which a group occupies each subsystem
        for program in self.programs:
            for cpi, unit in zip(program.cpi, program.unit, strict=True):
                busy[unit] += cpi
        self.fill = {
            name: self.groups * busy[number] / max(self.end, 1)
            for number, name in enumerate(self.subsystems)
        }
        # cycles between starts of instructions in which no sub-group was ready, by the class of
        # the instruction whose result the next one waited for
        self.stalls = {name: ticks / scale for name, ticks in self.stalled.items()}
        # sub-groups and instructions per cycle; ``inf`` where no result takes any time
        self.wpc = self.sub_groups / self.cycles if self.cycles else math.inf
        self.ipc = self.instructions / self.cycles if self.cycles else math.inf

    def _run(self) -> None:
        """Simulate until every instruction has started."""
        while self.to_start:
            self._launch_groups()
            while self.wakes and self.wakes[0][0] <= self.now:
                _, number, _ = heappop(self.wakes)
                unit = self.programs[number % self.size].unit[len(self.finish[number])]
                insort(self.ready[unit], number)
            chosen = self._choose() if self.valve <= self.now else None
            if chosen is None:
                self._pass_to_next_event()
            else:
                self._start(*chosen)
        last, cause = max(self.ends)
        self.stalled[cause] += last - self.now

    def _launch_groups(self) -> None:
        while self.launched < self.groups and self.slots and self.slots[0][0] <= self.now:
            start, cause = heappop(self.slots)
            for number in range(self.launched * self.size, (self.launched + 1) * self.size):
                self.finish[number] = []
                heappush(self.wakes, (start, number, cause))
            self.launched += 1

    def _choose(self) -> tuple[int, int] | None:
        """Return the sub-group and the subsystem of what starts now, if anything can."""
        best: tuple[bool, int, int] | None = None
        for unit, waiting in enumerate(self.ready):
            if waiting and self.free[unit] <= self.now:
                number = waiting[bisect_left(waiting, self.last + 1) % len(waiting)]
                key = (number <= self.last, number, unit)
                best = key if best is None else min(best, key)
        return None if best is None else best[1:]

    def _pass_to_next_event(self) -> None:
        events = [
            (max(free, self.valve), "")
            for free, waiting in zip(self.free, self.ready, strict=True)
            if waiting
        ]
        is_stalled = not events
        if self.wakes:
            events.append((self.wakes[0][0], self.wakes[0][2]))
        if self.launched < self.groups and self.slots:
            events.append(self.slots[0])
        then, cause = min(events)
        if is_stalled:
            self.stalled[cause] += then - self.now
        self.now = then

    def _start(self, number: int, unit: int) -> None:
        program, group = self.programs[number % self.size], number // self.size
        finish = self.finish[number]
        node = len(finish)
        self.ready[unit].remove(number)
        self.last = number
        self.free[unit], self.valve = self.now + program.cpi[node], self.now + self.valve_gap
        self.to_start -= 1
        self.left[group] -= 1
        woken = [number]
        if not program.barrier[node]:
            end = self.now + program.latency[node]
            finish.append(end)
            self.ends[group] = max(self.ends[group], (end, program.name[node]))
        else:
            finish.append(None)
            arrived = self.arrived.setdefault(group, [])
            arrived.append(number)
            if len(arrived) == self.size:
                woken = self.arrived.pop(group)
                for other in woken:
                    results = self.finish[other]
                    latency = self.programs[other % self.size].latency[len(results) - 1]
                    results[-1] = end = self.now + latency
                    self.ends[group] = max(self.ends[group], (end, program.name[node]))
        if not self.left[group]:
            self.end = max(self.end, self.ends[group][0])
            heappush(self.slots, self.ends[group])
            for other in range(group * self.size, (group + 1) * self.size):
                del self.finish[other]
            return
        for other in woken:
            self._wake(other)

    def _wake(self, number: int) -> None:
        """Note when the next instruction of a sub-group is ready, if that is known."""
        waits, finish = self.programs[number % self.size].waits, self.finish[number]
        if len(finish) < len(waits):
            results = [(finish[index], index) for index in waits[len(finish)]]
            known = [(result, index) for result, index in results if result is not None]
            if len(known) == len(results):
                end, last = max(known, default=(0, 0))
                cause = self.programs[number % self.size].name[last]
                heappush(self.wakes, (max(self.now, end), number, cause))


def _fraction(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_DENOMINATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineModel(base.MechanisticModel):
    """Simulation of the fullest compute unit."""

    name: ClassVar[str] = "pipeline-rr"
    charges: ClassVar[frozenset[str]] = frozenset({"barriers", "divergence"})

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch: what is busiest, and the rest as latency."""
        clock_hz, profile = self.constant("clock_hz"), kernel.profile
        geometry = launch_geometry(kernel, self.device)
        graphs = profile.sub_group_idgs or (profile.require("idg", model=self.model),)
        names = dict.fromkeys(name for graph in graphs for name in graph.nodes)
        workload = Workload(  # all groups of the fullest compute unit
            programs=graphs,
            classes={name: self.device.require_class(name, model=self.model) for name in names},
            sub_groups_per_group=geometry.sub_groups_per_group,
            concurrent_groups=geometry.concurrent_groups,
            total_groups=geometry.groups_on_compute_unit,
            issue_limit=self.device.issue_limit,
        )
        run, cycles = _simulate_waves(workload)
        repetitions = profile.repetitions(workload.programs)
        cycles = base.check_positive(cycles, "cycles") * repetitions
        kind, share = _find_busiest(run, workload)
        time_s = cycles / clock_hz
        return base.TimeEstimate(
            time_s=time_s,
            bound=kind if share >= 1 - share else "latency",
            breakdown={kind: share * time_s, "latency": (1 - share) * time_s},
            results={
                "cycles": cycles,
                "wpc": run.wpc / repetitions,
                "ipc": run.ipc,
                "occupancy": geometry.occupancy,
                **{f"fill[{name}]": fill for name, fill in run.fill.items()},
            },
            stalls={name: part * time_s / run.cycles for name, part in run.stalls.items()},
        )


def _simulate_waves(workload: Workload) -> tuple[Simulation, float]:
    """Return the simulation of at most two waves of groups, and the cycles of all groups."""
    few, many = workload.concurrent_groups, 2 * workload.concurrent_groups
    run = Simulation(replace(workload, total_groups=min(many, workload.groups)))
    if many >= workload.groups:
        return run, run.cycles
    rate = (run.cycles - Simulation(replace(workload, total_groups=few)).cycles) / (many - few)
    return run, run.cycles + rate * (workload.groups - many)


def _find_busiest(run: Simulation, workload: Workload) -> tuple[base.Bound, float]:
    shares = dict.fromkeys(_KINDS, 0.0)
    for entry in workload.classes.values():
        shares[entry.kind] = max(shares[entry.kind], run.fill[entry.subsystem])
    if workload.issue_limit is not None:
        shares["issue"] = run.ipc / workload.issue_limit
    kind = max(_KINDS, key=shares.__getitem__)
    return kind, min(1.0, shares[kind])
