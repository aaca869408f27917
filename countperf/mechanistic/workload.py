"""Workloads of the simulated compute unit, and results of a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
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
