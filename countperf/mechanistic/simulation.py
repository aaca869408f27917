"""Event-driven simulation of the sub-groups on one compute unit.

Every subsystem is a pipeline that starts one instruction per ``cpi`` cycles and delivers after
``latency``; a valve limits the starts per cycle over all subsystems; a scheduler picks among the
instructions that can start; sub-groups live in groups and meet at barriers. Rules:

1. Sub-groups are ordered by (number of the group in launch order, index in the group).
2. A barrier waits for all earlier instructions of its sub-group; all later ones wait for it.
3. An instruction is ready when its sub-group has started, the results it uses are there, and, in
   order, the instruction before it has started.
4. It can start when it is ready, its subsystem is free, and the valve is open.
5. When it starts at t, its subsystem is free again at t + cpi, the valve opens at t + 1/issue
   limit, and its result is there at t + latency.
6. The n-th barriers of a group complete ``latency`` after the last of them has started.
7. A group ends with its last result; its slot launches the next group a launch latency later.
   Launches come before starts at the same time.

All times are exact: they are counted in ticks, the largest unit of which all costs are multiples
(costs are first rounded to fractions with a denominator of at most a million).

Simulations of many instructions run in a core that Numba compiles (`simulation_core`), where that
is installed (``countperf[fast]``); the results are the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np

from countperf.display import Drawable, ShortRepr
from countperf.errors import DeviceParameterError, ParameterError
from countperf.hardware.parameters import InstructionClass
from countperf.mechanistic.checks import check_not_negative, check_positive, check_whole
from countperf.mechanistic.profile import InstructionGraph
from countperf.mechanistic.simulation_core import (
    GREEDY,
    NEVER,
    OLDEST,
    ROUND_ROBIN,
    Core,
    Ticks,
    compiled_core,
)

Scheduler = Literal["rr", "oldest", "gto"]
IssueOrder = Literal["in_order", "any"]
Engine = Literal["auto", "compiled", "python"]

_DENOMINATOR = 10**6
_REBASE = 512
_WORTH_COMPILING = 2_000
_WORTH_LOADING = 300_000  # instructions of a process; loading the core takes as long as they do
_simulated: Counter[str] = Counter()  # instructions of this process, by engine
_SCHEDULERS = {"rr": ROUND_ROBIN, "oldest": OLDEST, "gto": GREEDY}


class Issue(NamedTuple):
    """The start of one instruction.

    Attributes
    ----------
    time : float
        When it starts, cycle.
    subsystem : str
        Where.
    group, sub_group : int
        Launch number of the group, and index of the sub-group in it.
    node : int
        Position of the instruction in its program.
    name : str
        Class of the instruction.
    cpi : float
        How long it occupies its subsystem, cycles.
    """

    time: float
    subsystem: str
    group: int
    sub_group: int
    node: int
    name: str
    cpi: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(ShortRepr, Drawable):
    """Result of a simulation.

    Attributes
    ----------
    cycles : float
        End of the last group, with the drain of the pipelines.
    instructions, sub_groups : int
        What was executed.
    fill : Mapping from str to float
        Share of the cycles in which a subsystem was occupied; an instruction occupies its
        subsystem for ``cpi`` cycles (beyond the end, where its latency is less).
    occupied_any : float
        Share of the cycles in which at least one subsystem was occupied.
    overlap : float
        Share of those in which at least two were.
    issues : tuple of Issue
        Every start in order, if it was asked for.
    """

    cycles: float
    instructions: int
    sub_groups: int
    fill: Mapping[str, float]
    occupied_any: float
    overlap: float
    issues: tuple[Issue, ...] = ()

    @property
    def wpc(self) -> float:
        """Sub-groups per cycle; ``inf`` where no result takes any time."""
        return self.sub_groups / self.cycles if self.cycles else math.inf

    @property
    def ipc(self) -> float:
        """Instructions per cycle; ``inf`` where no result takes any time."""
        return self.instructions / self.cycles if self.cycles else math.inf

    def timeline(self) -> dict[tuple[int, int], tuple[Issue, ...]]:
        """Return the starts of each sub-group, by (group, sub-group), in order.

        `countperf.report.timeline.timeline_figure` draws them.
        """
        lines: dict[tuple[int, int], list[Issue]] = {}
        for issue in self.issues:
            lines.setdefault((issue.group, issue.sub_group), []).append(issue)
        return {key: tuple(lines[key]) for key in sorted(lines)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Workload of a simulation.

    Attributes
    ----------
    programs : tuple of InstructionGraph
        The program of all sub-groups, or one per sub-group of a group (divergence).
    classes : Mapping from str to InstructionClass
        Costs; classes of kind ``"barrier"`` synchronize the sub-groups of a group.
    sub_groups_per_group, concurrent_groups : int
        Size of a group, and groups resident at a time.
    total_groups : int or None
        Groups to execute; None: the concurrent ones, once.
    issue_limit : float or None
        Starts per cycle over all subsystems.
    scheduler : {"rr", "oldest", "gto"}
        Which of the sub-groups that can start does: the next in order after the last one, the
        oldest, or the last one as long as it can and then the oldest.
    issue_order : {"in_order", "any"}
        Whether a sub-group starts its instructions in program order.
    group_launch_latency : float
        Cycles between the end of a group and the start of the next in its slot.

    Raises
    ------
    ParameterError
        A number is out of range, an unknown scheduler or order, the wrong number of programs, or
        programs of a group with different numbers of barriers (a deadlock).
    DeviceParameterError
        A class without costs.
    """

    programs: tuple[InstructionGraph, ...]
    classes: Mapping[str, InstructionClass]
    sub_groups_per_group: int = 1
    concurrent_groups: int = 1
    total_groups: int | None = None
    issue_limit: float | None = None
    scheduler: Scheduler = "rr"
    issue_order: IssueOrder = "in_order"
    group_launch_latency: float = 0.0

    def __post_init__(self) -> None:
        check_whole(self.sub_groups_per_group, "sub_groups_per_group")
        check_whole(self.concurrent_groups, "concurrent_groups")
        if self.total_groups is not None:
            check_whole(self.total_groups, "total_groups")
        if self.issue_limit is not None:
            check_positive(self.issue_limit, "issue_limit")
        check_not_negative(self.group_launch_latency, "group_launch_latency")
        _check_choice(self.scheduler, "scheduler", ("rr", "oldest", "gto"))
        _check_choice(self.issue_order, "issue_order", ("in_order", "any"))
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


def simulate(workload: Workload, *, record: bool = False, engine: Engine = "auto") -> Simulation:
    """Simulate the sub-groups of one compute unit.

    Parameters
    ----------
    workload : Workload
        Programs, costs, groups and scheduler.
    record : bool, optional
        Whether to keep every start, for `Simulation.timeline`.
    engine : {"auto", "compiled", "python"}, optional
        Whether the compiled core is used; all give the same results. ``"auto"`` uses it for many
        instructions, where Numba is installed and the core covers the workload.

    Returns
    -------
    Simulation
        Cycles and utilization; deterministic and exact.

    Raises
    ------
    ParameterError
        ``"compiled"`` was asked for, but Numba is not installed, or the core does not cover the
        workload: it starts instructions in order, and counts to 2**61 ticks.

    Examples
    --------
    >>> fma = InstructionClass(name="fma", subsystem="alu", cpi=1, latency=4, kind="compute")
    >>> chain = InstructionGraph.chain(["fma"] * 3)
    >>> workload = Workload(programs=(chain,), classes={"fma": fma}, concurrent_groups=4)
    >>> simulate(workload).cycles
    15.0
    """
    _check_choice(engine, "engine", ("auto", "compiled", "python"))
    compiled = _compile(workload)
    run = _Run(workload, compiled, record)
    core = _core(workload, compiled, engine)
    if core is not None:
        run.in_core(core)
    elif workload.issue_order == "in_order":
        run.in_order()
    else:
        run.any_order()
    return run.result()


def simulate_with_first(
    workload: Workload, first: int, *, engine: Engine = "auto"
) -> tuple[Simulation, float]:
    """Simulate a workload, and its first groups alone.

    Both runs are the same until the group after the first ones starts; where Python simulates
    in-order starts, they share that part.

    Parameters
    ----------
    workload : Workload
        As for `simulate`.
    first : int
        Number of groups, at least those that are resident at a time and fewer than all.
    engine : {"auto", "compiled", "python"}, optional
        As for `simulate`.

    Returns
    -------
    Simulation
        Simulation of all groups.
    float
        Cycles of the first groups if there are no others.

    Raises
    ------
    ParameterError
        As `simulate`; or `first` is out of range.

    Examples
    --------
    >>> fma = InstructionClass(name="fma", subsystem="alu", cpi=1, latency=4, kind="compute")
    >>> chain = InstructionGraph.chain(["fma"] * 3)
    >>> workload = Workload(programs=(chain,), classes={"fma": fma}, total_groups=3)
    >>> simulated, alone = simulate_with_first(workload, 1)
    >>> simulated.cycles, alone
    (36.0, 12.0)
    """
    if not workload.concurrent_groups <= first < workload.groups:
        message = (
            f"first = {first}: pass at least concurrent_groups = {workload.concurrent_groups} and"
            f" less than all {workload.groups} groups"
        )
        raise ParameterError(message, parameter="first")
    _check_choice(engine, "engine", ("auto", "compiled", "python"))
    compiled = _compile(workload)
    if workload.issue_order != "in_order" or _core(workload, compiled, engine) is not None:
        alone = simulate(replace(workload, total_groups=first), engine=engine)
        return simulate(workload, engine=engine), alone.cycles
    run = _Run(workload, compiled, record=False)
    alone_end = run.in_order(first)
    return run.result(), alone_end / compiled.ticks_per_cycle


def _core(workload: Workload, compiled: _Compiled, engine: Engine) -> Core | None:
    """Return the compiled core if the workload is to run in it."""
    if engine == "python":
        return None
    instructions = workload.groups * sum(len(program.cpi) for program in compiled.programs)
    is_loaded = compiled_core.cache_info().currsize > 0
    if engine == "auto" and is_loaded and instructions < _WORTH_COMPILING:
        return None
    if engine == "auto" and not is_loaded:
        _simulated["python"] += instructions
        if _simulated["python"] < _WORTH_LOADING:
            return None
    reason = ""
    core = None
    if workload.issue_order != "in_order":
        reason = "the compiled core starts instructions in order, but issue_order is 'any'"
    elif not _fits(compiled, instructions):
        reason = "the costs have too large a common denominator for the compiled core"
    else:
        core = compiled_core()
        if core is None:
            reason = "the compiled core needs Numba; install countperf[fast]"
    if engine == "compiled" and core is None:
        raise ParameterError(f"{reason}; or take engine='auto'", parameter="engine")
    return core


def _fits(compiled: _Compiled, instructions: int) -> bool:
    """Tell whether all times fit the core: after each start, the next waits for one of each."""
    most = max(max(program.cpi) + max(program.latency) for program in compiled.programs)
    return (instructions + 1) * (most + compiled.valve + compiled.launch) < NEVER // 2


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
    launch: int


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
    launch = _fraction(workload.group_launch_latency)
    fractions = [valve, launch, *(part for pair in costs.values() for part in pair)]
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
    return _Compiled(scale, subsystems, tuple(programs), int(valve * scale), int(launch * scale))


def _waits(
    graph: InstructionGraph, classes: Mapping[str, InstructionClass]
) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    last = -1  # a barrier's result is there after all earlier ones
    for node, (name, own) in enumerate(zip(graph.nodes, graph.predecessors(), strict=True)):
        first = max(last, 0)
        if classes[name].kind == "barrier":
            found.append(tuple(range(first, node)))
            last = node
        else:
            kept = tuple(index for index in own if index > last)
            found.append(kept if last < 0 else (last, *kept))
    return found


class _State(NamedTuple):
    """State of an in-order simulation between two of its steps."""

    position: list[int]
    finishes: list[list[int]]
    free: list[int]
    ready: list[int]  # bit k: sub-group base + k
    base: int
    wakes: list[int]  # time * total + number
    slots: list[int]
    launched: int
    left: list[int]
    ends: list[int]
    arrived: list[int]
    to_issue: int
    now: int
    valve: int
    last: int

    def copied(self, *, without: int) -> _State:
        """Return a copy in which `without` fewer instructions are to be issued."""
        return _State(
            position=self.position[:],
            finishes=[own[:] for own in self.finishes],
            free=self.free[:],
            ready=self.ready[:],
            base=self.base,
            wakes=self.wakes[:],
            slots=self.slots[:],
            launched=self.launched,
            left=self.left[:],
            ends=self.ends[:],
            arrived=self.arrived[:],
            to_issue=self.to_issue - without,
            now=self.now,
            valve=self.valve,
            last=self.last,
        )


class _Run:
    """State of a simulation: times in ticks; sub-groups numbered in their order."""

    def __init__(self, workload: Workload, compiled: _Compiled, record: bool) -> None:
        self.workload = workload
        self.compiled = compiled
        self.size = workload.sub_groups_per_group
        self.total = workload.groups * self.size
        self.busy = [0] * len(compiled.subsystems)
        self.trace: list[tuple[int, int, int, int]] | None = [] if record else None
        self.covered_once = 0
        self.covered_twice = 0
        self.end = 0

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
        each_group = sum(len(program.cpi) for program in compiled.programs)
        end = max(self.end, 1)
        return Simulation(
            cycles=self.end / scale,
            instructions=workload.groups * each_group,
            sub_groups=self.total,
            fill={
                name: busy / end for name, busy in zip(compiled.subsystems, self.busy, strict=True)
            },
            occupied_any=self.covered_once / end,
            overlap=self.covered_twice / self.covered_once,
            issues=issues,
        )

    def in_core(self, core: Core) -> None:
        """Simulate in the compiled core."""
        compiled, workload = self.compiled, self.workload
        programs = list({id(program): program for program in compiled.programs}.values())
        first = dict(
            zip(
                map(id, programs),
                accumulate((len(p.cpi) for p in programs), initial=0),
                strict=False,
            )
        )
        waits = [used for program in programs for used in program.waits]
        each_group = sum(len(program.cpi) for program in compiled.programs)
        busy = np.zeros(len(compiled.subsystems), np.int64)
        trace = np.zeros((0 if self.trace is None else workload.groups * each_group, 4), np.int64)
        self.end, self.covered_once, self.covered_twice = map(
            int,
            core(
                _ticks(first[id(program)] for program in compiled.programs),
                _ticks(len(program.cpi) for program in compiled.programs),
                _ticks(unit for program in programs for unit in program.subsystem),
                _ticks(cost for program in programs for cost in program.cpi),
                _ticks(cost for program in programs for cost in program.latency),
                _ticks(waiting for program in programs for waiting in program.barrier),
                _ticks(result for used in waits for result in used),
                _ticks(accumulate(map(len, waits), initial=0)),
                workload.groups,
                min(workload.concurrent_groups, workload.groups),
                compiled.valve,
                compiled.launch,
                _SCHEDULERS[workload.scheduler],
                busy,
                trace,
            ),
        )
        self.busy = busy.tolist()
        if self.trace is not None:
            self.trace = [(start[0], start[1], start[2], start[3]) for start in trace.tolist()]

    def _start(self) -> _State:
        """Return the state of an in-order simulation before its first step."""
        groups = self.workload.groups
        each_group = sum(len(program.cpi) for program in self.compiled.programs)
        return _State(
            position=[0] * self.total,
            finishes=[[]] * self.total,
            free=[0] * len(self.compiled.subsystems),
            ready=[0] * len(self.compiled.subsystems),
            base=0,
            wakes=[],
            slots=[0] * min(self.workload.concurrent_groups, groups),
            launched=0,
            left=[each_group] * groups,
            ends=[0] * groups,
            arrived=[0] * groups,
            to_issue=each_group * groups,
            now=0,
            valve=0,
            last=-1,
        )

    def _alone(self, state: _State, first: int) -> int:
        """Return when the first groups end without the others, from the state at their launch."""
        alone = _Run(self.workload, self.compiled, record=False)
        alone.end = self.end
        others = self.workload.groups - first
        each_group = sum(len(program.cpi) for program in self.compiled.programs)
        alone.in_order(state=state.copied(without=others * each_group))
        return alone.end

    def in_order(self, first: int = 0, state: _State | None = None) -> int:
        """Simulate sub-groups that start their instructions in program order.

        Each sub-group then has one candidate. Those that are ready are bits in an integer per
        subsystem, so that the choice of any scheduler is a few operations on integers; those that
        will be are in a heap.

        Parameters
        ----------
        first : int
            Of how many groups alone the end is wanted; 0: of none.
        state : _State, optional
            Where to go on, without further launches; by default from the start.

        Returns
        -------
        int
            End of the first groups alone, ticks.
        """
        compiled, size, trace = self.compiled, self.size, self.trace
        programs, valve_step, launch_step = compiled.programs, compiled.valve, compiled.launch
        of_subsystem = [program.subsystem for program in programs]
        subsystems = tuple(range(len(compiled.subsystems)))
        total, busy = self.total, self.busy
        scheduler = self.workload.scheduler
        round_robin, greedy = scheduler == "rr", scheduler == "gto"
        begin = self._start() if state is None else state
        position, finishes, free, ready, base, wakes, slots, launched, left, ends = begin[:10]
        arrived, to_issue, now, valve, last = begin[10:]
        groups = self.workload.groups if state is None else launched
        alone_end = 0
        once = twice = reach_once = reach_twice = 0
        while to_issue:
            while launched < groups and slots and slots[0] <= now:
                if launched == first and first:
                    reached = _State(
                        position, finishes, free, ready, base, wakes, slots, launched, left, ends,
                        arrived, to_issue, now, valve, last,
                    )  # fmt: skip
                    alone_end = self._alone(reached, first)
                heappop(slots)
                start = launched * size
                if start - base > _REBASE:
                    oldest = next(
                        number
                        for number in range(base, total)
                        if position[number] < len(programs[number % size].cpi)
                    )
                    ready = [mask >> (oldest - base) for mask in ready]
                    base = oldest
                for index in range(size):
                    finishes[start + index] = [0] * len(programs[index].cpi)
                    ready[programs[index].subsystem[0]] |= 1 << (start + index - base)
                launched += 1
            bound = (now + 1) * total
            while wakes and wakes[0] < bound:
                number = heappop(wakes) % total
                ready[of_subsystem[number % size][position[number]]] |= 1 << (number - base)
            able = 0
            if valve <= now:
                for subsystem in subsystems:
                    if free[subsystem] <= now:
                        able |= ready[subsystem]
            if not able:
                following = -1
                for subsystem in subsystems:
                    if ready[subsystem] and (following < 0 or free[subsystem] < following):
                        following = free[subsystem]
                if 0 <= following < valve:
                    following = valve
                if wakes and (following < 0 or wakes[0] // total < following):
                    following = wakes[0] // total
                if launched < groups and slots and (following < 0 or slots[0] < following):
                    following = slots[0]
                now = following
                continue
            number = -1
            shift = last - base
            if round_robin:
                if shift >= 0 and (later := able >> (shift + 1)):
                    number = last + (later & -later).bit_length()
            elif greedy and shift >= 0 and able >> shift & 1:
                number = last
            if number < 0:
                number = base + (able & -able).bit_length() - 1
            last = number
            program = programs[number % size]
            node = position[number]
            subsystem = program.subsystem[node]
            cpi = program.cpi[node]
            ready[subsystem] ^= 1 << (number - base)
            over = now + cpi
            free[subsystem] = over
            valve = now + valve_step
            busy[subsystem] += cpi
            if now >= reach_once:
                once += cpi
                reach_once = over
            else:
                shared = over if over < reach_once else reach_once
                if shared > reach_twice:
                    twice += shared - (now if now > reach_twice else reach_twice)
                    reach_twice = shared
                if over > reach_once:
                    once += over - reach_once
                    reach_once = over
            if trace is not None:
                trace.append((now, subsystem, number, node))
            to_issue -= 1
            group = number // size
            left[group] -= 1
            node += 1
            position[number] = node
            if program.barrier[node - 1]:
                arrived[group] += 1
                if arrived[group] == size:
                    arrived[group] = 0
                    for other in range(group * size, group * size + size):
                        place = position[other]
                        its = programs[other % size]
                        finish = now + its.latency[place - 1]
                        finishes[other][place - 1] = finish
                        ends[group] = max(ends[group], finish)
                        if place < len(its.cpi):
                            heappush(wakes, finish * total + other)
            else:
                finish = now + program.latency[node - 1]
                own = finishes[number]
                own[node - 1] = finish
                if finish > ends[group]:
                    ends[group] = finish
                if node < len(own):
                    time = now
                    for index in program.waits[node]:
                        if own[index] > time:
                            time = own[index]
                    if time <= now:
                        ready[program.subsystem[node]] |= 1 << (number - base)
                    else:
                        heappush(wakes, time * total + number)
            if not left[group]:
                self.end = max(self.end, ends[group])
                heappush(slots, ends[group] + launch_step)
                for other in range(group * size, group * size + size):
                    finishes[other] = []
        self.covered_once, self.covered_twice = once, twice
        return alone_end

    def any_order(self) -> None:
        """Simulate sub-groups that start any instruction that is ready, the earliest first."""
        compiled, size = self.compiled, self.size
        programs = compiled.programs
        groups = self.workload.groups
        followers = [_followers(program.waits) for program in programs]
        free = [0] * len(compiled.subsystems)
        ready: list[dict[int, list[int]]] = [{} for _ in free]  # per subsystem: number -> nodes
        wakes: list[tuple[int, int, int]] = []
        unmet: dict[int, list[int]] = {}
        times: dict[int, list[int]] = {}
        slots = [0] * min(self.workload.concurrent_groups, groups)
        left = [sum(len(program.cpi) for program in programs)] * groups
        ends = [0] * groups
        waiting: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
        to_issue = left[0] * groups
        launched = now = valve = 0
        last = -1
        reach_once = reach_twice = 0

        def deliver(number: int, node: int, finish: int) -> None:
            ends[number // size] = max(ends[number // size], finish)
            for follower in followers[number % size][node]:
                unmet[number][follower] -= 1
                times[number][follower] = max(times[number][follower], finish)
                if not unmet[number][follower]:
                    heappush(wakes, (times[number][follower], number, follower))

        while to_issue:
            while launched < groups and slots and slots[0] <= now:
                start = heappop(slots)
                for number in range(launched * size, launched * size + size):
                    program = programs[number % size]
                    unmet[number] = [len(waits) for waits in program.waits]
                    times[number] = [start] * len(program.cpi)
                    for node, waits in enumerate(program.waits):
                        if not waits:
                            heappush(wakes, (start, number, node))
                launched += 1
            while wakes and wakes[0][0] <= now:
                _, number, node = heappop(wakes)
                subsystem = programs[number % size].subsystem[node]
                heappush(ready[subsystem].setdefault(number, []), node)
            able = [index for index, time in enumerate(free) if time <= now and ready[index]]
            if valve > now or not able:
                events = [max(time, valve) for index, time in enumerate(free) if ready[index]]
                events += [wakes[0][0]] if wakes else []
                events += [slots[0]] if launched < groups and slots else []
                now = min(events)
                continue
            candidates = sorted({number for index in able for number in ready[index]})
            number = self._choose(candidates, last)
            last = number
            node, subsystem = min(
                (ready[index][number][0], index) for index in able if number in ready[index]
            )
            heappop(ready[subsystem][number])
            if not ready[subsystem][number]:
                del ready[subsystem][number]
            program = programs[number % size]
            over = now + program.cpi[node]
            free[subsystem], valve = over, now + compiled.valve
            self.busy[subsystem] += program.cpi[node]
            shared = min(over, reach_once)
            self.covered_twice += max(0, shared - max(now, reach_twice))
            self.covered_once += max(0, over - max(now, reach_once))
            reach_once, reach_twice = max(reach_once, over), max(reach_twice, shared)
            if self.trace is not None:
                self.trace.append((now, subsystem, number, node))
            to_issue -= 1
            group = number // size
            left[group] -= 1
            if program.barrier[node]:
                waiting[group].append((number, node))
                if len(waiting[group]) == size:
                    for other, place in waiting[group]:
                        deliver(other, place, now + programs[other % size].latency[place])
                    waiting[group] = []
            else:
                deliver(number, node, now + program.latency[node])
            if not left[group]:
                self.end = max(self.end, ends[group])
                heappush(slots, ends[group] + compiled.launch)

    def _choose(self, candidates: Sequence[int], last: int) -> int:
        match self.workload.scheduler:
            case "oldest":
                return candidates[0]
            case "gto":
                return last if last in candidates else candidates[0]
            case "rr":
                return next((number for number in candidates if number > last), candidates[0])


def _followers(waits: Sequence[tuple[int, ...]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in waits]
    for node, used in enumerate(waits):
        for index in used:
            found[index].append(node)
    return found


def _ticks(values: Iterable[int]) -> Ticks:
    return np.fromiter(values, np.int64)


def _fraction(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_DENOMINATOR)


def _check_choice(value: str, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        message = f"{name} must be one of {', '.join(choices)}, not {value!r}"
        raise ParameterError(message, parameter=name)
