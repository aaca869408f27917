"""A kernel made ready once for everything that is counted in it."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from countperf.counting.device_programs import (
    DeviceProgram,
    RegionOutline,
    Schedule,
    schedule_of,
)
from countperf.counting.domains import Domains
from countperf.counting.instructions import supplied_counts
from countperf.counting.keys import NOWHERE, Grid
from countperf.counting.needs import check_statistics, stating_all_needs
from countperf.counting.schedule import prepared
from countperf.counting.scopes import barrier_passes
from countperf.counting.statistics import Statistics
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.kernel_sets import assumptions_of
from countperf.symbolic.piecewise import ZERO_COUNT, PiecewiseQuasiPolynomial


@dataclass(frozen=True, kw_only=True, eq=False)
class Launch:
    """A device program with its geometry and its barrier regions."""

    program: DeviceProgram
    domains: Domains
    grid: Grid
    regions: tuple[RegionOutline, ...]

    @cached_property
    def number(self) -> PiecewiseQuasiPolynomial:
        """Number of its launches."""
        return self.domains.executions(self.program.launch_loops, (), NOWHERE)

    @cached_property
    def groups(self) -> PiecewiseQuasiPolynomial:
        """Work groups of all launches."""
        return self.grid.work_groups * self.number

    @cached_property
    def barriers(self) -> PiecewiseQuasiPolynomial:
        """Local barriers times the work items that wait at them."""
        total = ZERO_COUNT
        for barrier, times in Multiset(self.program.barriers).items():
            passes = barrier_passes(self.domains, barrier, self.program.launch_loops, self.grid)
            total += passes.scale(times)
        return total


class PreparedKernel:
    """A scheduled kernel, its domains, and what the caller says of it; all views count in it.

    Whatever is counted in it at one place is known at the others.
    """

    def __init__(
        self,
        t_unit: Any,
        *,
        statistics: Mapping[str, Any] | None = None,
        instruction_counts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.kernel, self.callables = prepared(t_unit)
        self.statistics = Statistics(self.kernel, statistics or {})
        counter = Counter(assumptions_of(self.kernel))
        self.domains = Domains(self.kernel, self.callables, counter, self.statistics)
        self.supplied = supplied_counts(self.kernel, instruction_counts or {})
        self._launches: list[Launch] = []

    @classmethod
    def of(cls, kernel: Any, **options: Any) -> PreparedKernel:
        """Return a kernel that is prepared already as it is; prepare a translation unit."""
        return kernel if isinstance(kernel, PreparedKernel) else cls(kernel, **options)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Size parameters, sorted."""
        return tuple(sorted(self.domains.sizes))

    @cached_property
    def schedule(self) -> Schedule:
        """Device programs in order of launch, and global barriers."""
        return schedule_of(self.kernel)

    def launches(self) -> Iterator[Launch]:
        """Yield the device programs in order, each looked at when it is asked for."""
        for program in self.schedule.programs:
            if program.number == len(self._launches):
                launch = Launch(
                    program=program,
                    domains=self.domains,
                    grid=self.domains.grid(program.instruction_ids),
                    regions=program.regions(),
                )
                self._launches.append(launch)
            yield self._launches[program.number]

    @contextmanager
    def counting(self) -> Generator[None]:
        """Have refusals name all statistics that lack, and refuse those that nothing uses."""
        with stating_all_needs(self.domains, supplied=self.supplied):
            yield
        check_statistics(self.domains, supplied=self.supplied)
