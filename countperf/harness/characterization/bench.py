"""A device on which microbenchmarks run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from countperf.errors import MeasurementError
from countperf.harness.backend import Program, Session
from countperf.harness.characterization.timing import Estimate, time_per_turn
from countperf.harness.clock import Clock
from countperf.harness.environment import read_clocks

_ITEMS_PER_UNIT = 4096  # two waves on GPUs that hold 2048 work items per compute unit
_GROUP = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Effort of a characterization."""

    shortest_s: float = 1e-3  # the shorter run of each measurement takes this long at least, s
    repetitions: int = 3  # as in `time_per_turn`
    tries: int = 3
    array_bytes: int = 2**30  # largest array, byte
    chase_hops: int = 2**16  # dependent loads of a run of a pointer chase
    classes: tuple[str, ...] = ()  # classes of instructions that are measured


QUICK = Effort(shortest_s=5e-4, repetitions=3, tries=2, array_bytes=2**26, chase_hops=2**14)
FULL = Effort()


class Bench:
    """A session with a clock, and what the device is."""

    def __init__(self, session: Session, clock: Clock, effort: Effort) -> None:
        self.session = session
        self.clock = clock
        self.effort = effort
        limits = session.device.limits
        self.units = session.device.identity.compute_units
        self.lanes = max(1, limits.sub_group_size)
        self.group = min(_GROUP, limits.max_group_size)
        host_mhz = max(read_clocks().values(), default=0.0) if self.is_cpu else 0.0
        self.known_clock_hz = 1e6 * (limits.max_clock_mhz or host_mhz)

    @property
    def clock_hz(self) -> float:
        """The clock, Hz."""
        if self.known_clock_hz > 0:
            return self.known_clock_hz
        raise MeasurementError(
            "cycles are not known: the device has no cycle counter, and its driver states no clock"
        )

    @property
    def is_cpu(self) -> bool:
        """Whether the device is the host's processor, or shares its memory like one."""
        return self.session.device.identity.device_type == "cpu"

    @property
    def full_groups(self) -> int:
        """Groups that keep all compute units busy."""
        per_unit = 4 if self.is_cpu else max(1, _ITEMS_PER_UNIT // self.group)
        return self.units * per_unit

    @property
    def array_bytes(self) -> int:
        """Size of a large array, byte; four of them fit."""
        limits = self.session.device.limits
        return min(
            self.effort.array_bytes,
            limits.max_allocation_bytes // 4,
            limits.global_memory_bytes // 8,
        )

    def run_s(
        self, program: Program, name: str, groups: int, group: int, arguments: Sequence[Any]
    ) -> float:
        """Run a kernel once and return its time, s."""
        return self.clock.time_run(lambda: program.launch(name, groups, group, arguments)).time_s

    def per_turn(
        self,
        program: Program,
        name: str,
        groups: int,
        group: int,
        before: Sequence[Any],
        after: Sequence[Any] = (),
        *,
        first: int = 8,
    ) -> Estimate:
        """Measure the time of a turn of a kernel's loop, s; the number of turns is an argument."""

        def run(turns: int) -> float:
            arguments = (*before, np.int32(turns), *after)
            return self.run_s(program, name, groups, group, arguments)

        return time_per_turn(
            run,
            shortest_s=self.effort.shortest_s,
            repetitions=self.effort.repetitions,
            tries=self.effort.tries,
            first=first,
        )

    def output(self, items: int) -> Any:
        """Return memory for one number of every work item."""
        return self.session.allocate(8 * items)
