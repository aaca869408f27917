r"""The pipeline model: sub-groups of one compute unit, simulated.

Source: Lemeire, Cornelis & Konstantinidis, sections 3 to 6. Every subsystem is a pipeline that
starts one instruction per ``cpi`` cycles and delivers after ``latency``; a valve limits the starts
per cycle over all subsystems; sub-groups live in groups and meet at barriers. The source names
neither scheduler nor issue order; the defaults, ``rr`` and in order, reproduce what it says of its
example:

1. Sub-groups are ordered by (number of the group in launch order, index in the group).
2. A barrier waits for all earlier instructions of its sub-group; all later ones wait for it.
3. An instruction is ready when its sub-group has started, the results it uses are there, and, in
   order, the instruction before it has started. In any order (section 4.1), only results count.
4. It can start when it is ready, its subsystem is free, and the valve is open. Of several, that of
   the first sub-group does (``oldest``); of the last one that started an instruction, if it can
   (``gto``); or of the next one after that (``rr``). Within a sub-group, the first instruction.
5. When it starts at t, its subsystem is free again at t + cpi, the valve opens at t + 1/issue
   limit, and its result is there at t + latency.
6. The n-th barriers of a group complete ``latency`` after the last of them has started.
7. A group ends with its last result; its slot launches the next group a launch latency later.
   Launches come before starts at the same time.

All times are exact: they are counted in ticks, the largest unit of which all costs are multiples
(costs are first rounded to fractions with a denominator of at most a million). Of many groups, two
full waves and the partial one are simulated; the rate of the second holds for the rest.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import ClassVar, Literal, NamedTuple

from countperf.devices.parameters import InstructionClass
from countperf.errors import DeviceParameterError, ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry

Scheduler = Literal["rr", "gto", "oldest"]
"""Round robin, greedy then oldest, oldest first."""

IssueOrder = Literal["in_order", "any"]
"""Order of the instructions of a sub-group: that of the program, or that of the dependencies."""

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
    scheduler: Scheduler = "rr"
    issue_order: IssueOrder = "in_order"
    # cycles from the end of a group to the start of the next one in its place
    group_launch_latency: float = 0.0

    def __post_init__(self) -> None:
        base.check_choice(self.scheduler, "scheduler", Scheduler)
        base.check_choice(self.issue_order, "issue_order", IssueOrder)
        base.check_not_negative(self.group_launch_latency, "group_launch_latency")
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
    users: list[list[int]]  # instructions that wait for each result


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


def _users(waits: Sequence[tuple[int, ...]]) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in waits]
    for node, used in enumerate(waits):
        for index in used:
            users[index].append(node)
    return users


class Start(NamedTuple):
    """Start of an instruction: a line of an execution profile (Lemeire et al., Figs. 8, 9)."""

    time: float  # cycles
    subsystem: str
    group: int  # its number in launch order, and the index of the sub-group in it
    sub_group: int
    node: int  # position of the instruction in its program


class Simulation:
    """A simulation of the sub-groups of one compute unit; times in ticks until it has run."""

    def __init__(self, workload: Workload, *, record: bool = False) -> None:
        used = {name: workload.classes[name] for graph in workload.programs for name in graph.nodes}
        costs = {name: (_fraction(c.cpi), _fraction(c.known_latency)) for name, c in used.items()}
        for name, (cpi, _) in costs.items():
            if cpi == 0:
                message = f"classes.{name}.cpi is too small to be told from zero"
                raise DeviceParameterError(message, field=f"classes.{name}.cpi")
        limit = workload.issue_limit
        valve = Fraction(0) if limit is None else 1 / _fraction(limit)
        launch = _fraction(workload.group_launch_latency)
        fractions = [valve, launch, *(part for pair in costs.values() for part in pair)]
        scale = math.lcm(*(part.denominator for part in fractions))  # ticks of a cycle
        self.subsystems = sorted({cost.subsystem for cost in used.values()})
        self.programs = [
            _Program(
                name=tuple(graph.nodes),
                unit=[self.subsystems.index(used[name].subsystem) for name in graph.nodes],
                cpi=[int(costs[name][0] * scale) for name in graph.nodes],
                latency=[int(costs[name][1] * scale) for name in graph.nodes],
                barrier=[used[name].kind == "barrier" for name in graph.nodes],
                waits=(waits := _waits(graph, used)),
                users=_users(waits),
            )
            for graph in workload.programs
        ]
        self.size, self.groups = workload.sub_groups_per_group, workload.groups
        if len(self.programs) == 1:
            self.programs *= self.size
        self.scheduler, self.is_in_order = workload.scheduler, workload.issue_order == "in_order"
        self.valve_gap, self.launch_gap = int(valve * scale), int(launch * scale)
        self.each_group = sum(len(program.cpi) for program in self.programs)
        self.now = self.valve = self.end = self.launched = 0
        self.last = -1
        self.to_start = self.each_group * self.groups
        self.free = [0] * len(self.subsystems)
        # sub-groups and instructions in order, by subsystem
        self.ready: list[list[tuple[int, int]]] = [[] for _ in self.free]
        # times at which instructions are ready, and the class whose result they wait for
        self.wakes: list[tuple[int, int, int, str]] = []
        self.starts: list[tuple[int, int, int, int]] | None = [] if record else None
        # ticks in which a subsystem is occupied, and two are; until when they are by now
        self.covered_once = self.covered_twice = 0
        self.reach = 0, 0
        self.slots = [(0, "")] * min(workload.concurrent_groups, self.groups)
        self.left = [self.each_group] * self.groups
        self.ends = [(0, "")] * self.groups  # last result of a group, and its class
        self.stalled: Counter[str] = Counter()
        self.arrived: dict[int, list[tuple[int, int]]] = {}  # barriers that wait, by group
        # of each sub-group's instructions: conditions that do not hold yet, and when the last of
        # the others held with the instruction whose result it is
        self.unmet: dict[int, list[int]] = {}
        self.met: dict[int, list[tuple[int, int]]] = {}

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
        # share of the cycles with an occupied subsystem in which two or more were (section 5.3)
        self.overlap = self.covered_twice / self.covered_once
        # the execution profile, if it is recorded
        self.profile = [
            Start(time / scale, self.subsystems[unit], *divmod(number, self.size), node)
            for time, unit, number, node in self.starts or ()
        ]
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
                _, number, node, _ = heappop(self.wakes)
                insort(self.ready[self.programs[number % self.size].unit[node]], (number, node))
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
                waits = self.programs[number % self.size].waits
                # in order, an instruction waits for the start of the one before it, too
                unmet = [len(used) + (self.is_in_order and i > 0) for i, used in enumerate(waits)]
                self.unmet[number], self.met[number] = unmet, [(start, -1)] * len(waits)
                for node, number_unmet in enumerate(unmet):
                    if not number_unmet:
                        heappush(self.wakes, (start, number, node, cause))
            self.launched += 1

    def _choose(self) -> tuple[int, int, int] | None:
        """Return the sub-group, instruction and subsystem that start now, if any can."""
        best: tuple[bool, int, int, int] | None = None
        wanted = {"rr": self.last + 1, "gto": self.last, "oldest": 0}[self.scheduler]
        for unit, waiting in enumerate(self.ready):
            if waiting and self.free[unit] <= self.now:
                number, node = waiting[bisect_left(waiting, (wanted, 0)) % len(waiting)]
                if self.scheduler == "gto" and number != wanted:
                    number, node = waiting[0]
                is_second = number != wanted if self.scheduler == "gto" else number < wanted
                key = (is_second, number, node, unit)
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
            events.append((self.wakes[0][0], self.wakes[0][3]))
        if self.launched < self.groups and self.slots:
            events.append(self.slots[0])
        then, cause = min(events)
        if is_stalled:
            self.stalled[cause] += then - self.now
        self.now = then

    def _start(self, number: int, node: int, unit: int) -> None:
        program, group = self.programs[number % self.size], number // self.size
        self.ready[unit].remove((number, node))
        self.last = number
        self._occupy(unit, self.now + program.cpi[node])
        if self.starts is not None:
            self.starts.append((self.now, unit, number, node))
        self.to_start -= 1
        self.left[group] -= 1
        if self.is_in_order and node + 1 < len(program.cpi):
            self._meet(number, node + 1, self.now, -1)
        if not program.barrier[node]:
            self._deliver(number, node)
        else:
            arrived = self.arrived.setdefault(group, [])
            arrived.append((number, node))
            if len(arrived) == self.size:
                for other, place in self.arrived.pop(group):
                    self._deliver(other, place)
        if not self.left[group]:
            end, cause = self.ends[group]
            self.end = max(self.end, end)
            heappush(self.slots, (end + self.launch_gap, cause))
            for other in range(group * self.size, (group + 1) * self.size):
                del self.unmet[other], self.met[other]

    def _occupy(self, unit: int, over: int) -> None:
        """Occupy a subsystem from now on, and sum up when one and when two are occupied."""
        self.free[unit], self.valve = over, self.now + self.valve_gap
        once, twice = self.reach
        both = min(over, once)
        self.covered_once += max(0, over - max(self.now, once))
        self.covered_twice += max(0, both - max(self.now, twice))
        self.reach = max(over, once), max(both, twice)

    def _deliver(self, number: int, node: int) -> None:
        """Hand the result of an instruction, or of a barrier that is met, to those that use it."""
        program, group = self.programs[number % self.size], number // self.size
        end = self.now + program.latency[node]
        self.ends[group] = max(self.ends[group], (end, program.name[node]))
        for user in program.users[node]:
            self._meet(number, user, end, node)

    def _meet(self, number: int, node: int, time: int, source: int) -> None:
        """Note that one of the conditions of an instruction holds from a time on."""
        met, unmet = self.met[number], self.unmet[number]
        met[node] = max(met[node], (time, source))
        unmet[node] -= 1
        if not unmet[node]:
            then, last = met[node]
            cause = self.programs[number % self.size].name[last] if last >= 0 else ""
            heappush(self.wakes, (then, number, node, cause))


def _fraction(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_DENOMINATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineModel(base.MechanisticModel):
    """Simulation of the fullest compute unit."""

    name: ClassVar[str] = "pipeline-rr"
    charges: ClassVar[frozenset[str]] = frozenset({"barriers", "divergence"})

    scheduler: Scheduler = "rr"
    issue_order: IssueOrder = "in_order"
    group_launch_latency: float = 0.0  # cycles

    @property
    def model(self) -> str:
        """``"pipeline-"`` and the scheduler, with ``"-any"`` where issue is in any order."""
        return f"pipeline-{self.scheduler}{'-any' if self.issue_order == 'any' else ''}"

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
            scheduler=self.scheduler,
            issue_order=self.issue_order,
            group_launch_latency=self.group_launch_latency,
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
                "overlap": run.overlap,
                "occupancy": geometry.occupancy,
                **{f"fill[{name}]": fill for name, fill in run.fill.items()},
            },
            stalls={name: part * time_s / run.cycles for name, part in run.stalls.items()},
        )


def _simulate_waves(workload: Workload) -> tuple[Simulation, float]:
    """Return the simulation of two full waves and the partial one, and the cycles of all groups."""
    wave = workload.concurrent_groups
    few = wave + workload.groups % wave
    many = few + wave
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
