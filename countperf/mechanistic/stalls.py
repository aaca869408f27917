"""Causes of the cycles in which a subsystem of a simulated compute unit is idle.

Between two instructions of a subsystem there may be a gap. It is gone through backwards from the
instruction that ends it, along what that instruction waited for last:

==============  ===================================================================
cause           what was waited for
==============  ===================================================================
``fill``        the first instructions of the first groups to get to the subsystem
``drain``       the last results of the launch, or of a group whose slot is taken over
``dependency``  the result of a computation, or a computation in the way of the next instruction
``memory``      the result of a memory instruction, or the memory pipeline
``barrier``     the last sub-group at a barrier, and the barrier's latency
``issue``       the valve that limits the starts per cycle
==============  ===================================================================

These are the causes of imperfect overlap that Lemeire, Cornelis & Konstantinidis name. Sub-groups
are taken to start instructions in program order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from countperf.display import ShortRepr
from countperf.errors import ParameterError
from countperf.hardware.parameters import InstructionClass
from countperf.mechanistic.workload import Issue, Simulation, Workload

Cause = Literal["fill", "drain", "dependency", "memory", "barrier", "issue"]

CAUSES: tuple[Cause, ...] = get_args(Cause)

_SAME = 1e-9


class Stall(NamedTuple):
    """A stretch of time in which a subsystem is idle for one cause."""

    start: float  # its ends, cycle
    end: float
    cause: Cause  # why


@dataclass(frozen=True, slots=True, kw_only=True)
class StallReport(ShortRepr):
    """Stalls of one subsystem over a simulation."""

    subsystem: str  # the subsystem: the one that is occupied longest, unless another was asked for
    cycles: float  # length of the simulation, cycle
    busy: float  # cycles within it in which the subsystem is occupied
    stalls: tuple[Stall, ...]  # the others, in order

    @property
    def by_cause(self) -> dict[Cause, float]:
        """Cycles by cause, all causes; with ``busy`` they sum to ``cycles``."""
        found: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
        for stall in self.stalls:
            found[stall.cause] += stall.end - stall.start
        return found


def find_stalls(
    simulation: Simulation, workload: Workload, subsystem: str | None = None
) -> StallReport:
    """Say why a subsystem is idle when it is."""
    if not simulation.issues:
        message = "the simulation did not record its starts; simulate with record=True"
        raise ParameterError(message, parameter="simulation")
    if workload.issue_order != "in_order":
        message = "stalls are found for issue_order='in_order' only"
        raise ParameterError(message, parameter="issue_order")
    chosen = subsystem or max(simulation.fill, key=lambda name: simulation.fill[name])
    if chosen not in simulation.fill:
        known = ", ".join(simulation.fill)
        message = f"no subsystem {chosen!r} in the simulation; there are {known}"
        raise ParameterError(message, parameter="subsystem")
    history = _History(simulation, workload)
    own = [each for each in simulation.issues if each.subsystem == chosen]
    stalls: list[Stall] = []
    free = busy = 0.0
    for place, issue in enumerate(own):
        if issue.time > free + _SAME:
            found = history.reasons(issue, free)
            # what nothing of the subsystem came before is its filling, whatever is waited for
            stalls += [Stall(s, e, "fill") for s, e, _ in found] if place == 0 else found
        free = issue.time + issue.cpi
        busy += min(free, simulation.cycles) - min(issue.time, simulation.cycles)
    if simulation.cycles > free + _SAME:
        stalls.append(Stall(free, simulation.cycles, "drain"))
    return StallReport(subsystem=chosen, cycles=simulation.cycles, busy=busy, stalls=tuple(stalls))


class _Reason(NamedTuple):
    """Last wait of an instruction: its end, its cause, and the instruction before that."""

    ready: float
    cause: Cause
    before: Issue | None


class _History:
    """Starts and results of a simulation, by group, sub-group and instruction."""

    def __init__(self, simulation: Simulation, workload: Workload) -> None:
        self.workload = workload
        self.starts = {(i.group, i.sub_group, i.node): i for i in simulation.issues}
        self.predecessors = [graph.predecessors() for graph in workload.programs]
        self.barriers = [
            [n for n, name in enumerate(graph.nodes) if self._kind(name) == "barrier"]
            for graph in workload.programs
        ]
        self.ends = sorted(self._group_ends(simulation.issues), key=lambda each: each[0])

    def reasons(self, issue: Issue, since: float) -> list[Stall]:
        """Return the causes, in order, for which an instruction did not start at an earlier one."""
        found: list[Stall] = []
        until, current = issue.time, issue
        while until > since + _SAME:
            reason = self._reason(current)
            if current.time > reason.ready + _SAME:  # ready, but something was occupied
                self._add(found, max(since, reason.ready), until, self._occupied(current))
                until = max(since, reason.ready)
            if until <= since + _SAME:
                break
            if reason.before is None:
                self._add(found, since, until, "fill")
                break
            self._add(found, max(since, reason.before.time), until, reason.cause)
            until, current = min(until, reason.before.time), reason.before
        return found[::-1]

    def _add(self, found: list[Stall], start: float, end: float, cause: Cause) -> None:
        if end <= start + _SAME:
            return
        if found and found[-1].cause == cause:  # the list goes backwards in time
            found[-1] = Stall(start, found[-1].end, cause)
        else:
            found.append(Stall(start, end, cause))

    def _occupied(self, issue: Issue) -> Cause:
        """Return why an instruction that was ready did not start: its pipeline, or the valve."""
        own = self._class(issue.name)
        if own.kind == "memory":
            return "memory"
        return "issue" if self.workload.issue_limit is not None else "dependency"

    def _reason(self, issue: Issue) -> _Reason:
        """Return what an instruction waited for last."""
        group, sub_group, node = issue.group, issue.sub_group, issue.node
        program = sub_group % len(self.predecessors)
        reasons = [self._launch(group)]
        if node:
            before = self.starts[group, sub_group, node - 1]
            kind: Cause = "memory" if self._kind(before.name) == "memory" else "dependency"
            reasons.append(_Reason(before.time, kind, before))
        for source in self._waited(program, node):
            producer = self.starts[group, sub_group, source]
            reasons.append(self._result(producer, program))
        return max(reasons, key=lambda each: each.ready)

    def _waited(self, program: int, node: int) -> Sequence[int]:
        """Return the instructions whose results one waits for, with those that barriers imply."""
        barriers = self.barriers[program]
        earlier = [each for each in barriers if each < node]
        if node in barriers:
            return range(earlier[-1] if earlier else 0, node)
        return (*self.predecessors[program][node], *earlier[-1:])

    def _result(self, producer: Issue, program: int) -> _Reason:
        own = self._class(producer.name)
        if own.kind != "barrier":
            cause: Cause = "memory" if own.kind == "memory" else "dependency"
            return _Reason(producer.time + own.latency, cause, producer)
        number = self.barriers[program].index(producer.node)
        arrivals = [
            self.starts[producer.group, other, self.barriers[other % len(self.barriers)][number]]
            for other in range(self.workload.sub_groups_per_group)
        ]
        last = max(arrivals, key=lambda each: each.time)
        return _Reason(last.time + self._class(last.name).latency, "barrier", last)

    def _launch(self, group: int) -> _Reason:
        slots = self.workload.concurrent_groups
        if group < slots:
            return _Reason(0.0, "fill", None)
        end, last = self.ends[group - slots]
        return _Reason(end + self.workload.group_launch_latency, "drain", last)

    def _group_ends(self, issues: Sequence[Issue]) -> list[tuple[float, Issue]]:
        """Return the last result of each group, and the instruction that gives it."""
        ends: dict[int, tuple[float, Issue]] = {}
        for issue in issues:
            end = issue.time + self._class(issue.name).latency
            if issue.group not in ends or end > ends[issue.group][0]:
                ends[issue.group] = (end, issue)
        return list(ends.values())

    def _class(self, name: str) -> InstructionClass:
        return self.workload.classes[name]

    def _kind(self, name: str) -> str:
        return self.workload.classes[name].kind
