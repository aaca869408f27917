"""Workloads of the simulated compute unit, and results of a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from countperf.display import Drawable, ShortRepr
from countperf.errors import DeviceParameterError, ParameterError
from countperf.hardware.parameters import InstructionClass
from countperf.mechanistic.checks import (
    check_choice,
    check_not_negative,
    check_positive,
    check_whole,
)
from countperf.mechanistic.profile import InstructionGraph

Scheduler = Literal["rr", "oldest", "gto"]
IssueOrder = Literal["in_order", "any"]


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
        check_choice(self.scheduler, "scheduler", ("rr", "oldest", "gto"))
        check_choice(self.issue_order, "issue_order", ("in_order", "any"))
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
