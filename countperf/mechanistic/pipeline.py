r"""The pipeline model: sub-groups of one compute unit, simulated.

Source: Lemeire, Cornelis & Konstantinidis, sections 3 to 6. The rules of the simulation are in
`countperf.mechanistic.simulation`; here are the model, costs that depend on context, and the
analytic throughput of their instruction-mix kernel.

==============  ======================  ====================
letter          name                    unit
==============  ======================  ====================
lambda          ``cpi``                 cycle/instruction
Lambda          ``latency``             cycle
IL              ``issue_limit``         instruction/cycle
beta            ``ratio``               1
R, D            ``dram_ratio``,         1, 1
                ``conflict_degree``
==============  ======================  ====================

Limits: one compute unit, static latencies, identical groups. The source names neither scheduler nor
issue order; ``"rr"`` and ``"in_order"`` reproduce what it says of its example. Printed Eq. (44) and
(45) have 1/lambda_2; one instruction of type 2 comes with beta of type 1, so the bound is
beta/lambda_2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from countperf.errors import ParameterError
from countperf.hardware.parameters import InstructionClass
from countperf.mechanistic.checks import check_not_negative, check_positive, check_whole
from countperf.mechanistic.model import Bound, Estimate, MechanisticModel
from countperf.mechanistic.occupancy import LaunchGeometry, launch_geometry
from countperf.mechanistic.profile import KernelProfile, LaunchConfiguration
from countperf.mechanistic.simulation import (
    Scheduler,
    Simulation,
    Workload,
    simulate,
)


def memory_cost(
    dram_ratio: float, *, dram: InstructionClass, cache: InstructionClass
) -> InstructionClass:
    """Return the cost of a memory instruction part of whose bytes come from DRAM."""
    ratio = check_not_negative(dram_ratio, "dram_ratio")
    if ratio > 1:
        return replace(dram, cpi=ratio * dram.cpi, latency=dram.latency + (ratio - 1) * dram.cpi)
    return replace(
        dram,
        cpi=ratio * dram.cpi + (1 - ratio) * cache.cpi,
        latency=ratio * dram.latency + (1 - ratio) * cache.latency,
    )


def conflict_cost(conflict_degree: float, local: InstructionClass) -> InstructionClass:
    """Return the cost of a local memory instruction with bank conflicts."""
    degree = check_not_negative(conflict_degree, "conflict_degree")
    return replace(local, cpi=(1 + degree) * local.cpi, latency=local.latency + degree * local.cpi)


def implied_bandwidth(
    *,
    num_compute_units: int,
    sub_group_size: int,
    bytes_per_work_item: float,
    cpi_mem: float,
    clock_hz: float,
) -> float:
    """Return the bandwidth that the cost of a memory instruction implies, byte/s."""
    check_whole(num_compute_units, "num_compute_units")
    check_whole(sub_group_size, "sub_group_size")
    check_positive(bytes_per_work_item, "bytes_per_work_item")
    check_positive(cpi_mem, "cpi_mem")
    check_positive(clock_hz, "clock_hz")
    return num_compute_units * sub_group_size * bytes_per_work_item / cpi_mem * clock_hz


def mix_throughput(
    ratio: float,
    *,
    cpi_1: float,
    cpi_2: float,
    separate: bool,
    issue_limit: float | None = None,
) -> float:
    r"""Return the throughput of type 1 in a mix of ``ratio`` of type 1 and one of type 2.

    Lemeire et al., Eq. (43): :math:`\beta/(\beta\lambda_1 + \lambda_2)`; (44):
    :math:`\min(1/\lambda_1, \beta/\lambda_2)`; (45): the same and :math:`\beta/(\beta+1) IL`; the
    last two as corrected.
    """
    check_positive(ratio, "ratio")
    check_positive(cpi_1, "cpi_1")
    check_positive(cpi_2, "cpi_2")
    if not separate:
        if issue_limit is not None:
            message = "the formula for a single subsystem has no issue limit"
            raise ParameterError(message, parameter="issue_limit")
        return ratio / (ratio * cpi_1 + cpi_2)
    both = min(1 / cpi_1, ratio / cpi_2)
    if issue_limit is None:
        return both
    return min(both, ratio / (ratio + 1) * check_positive(issue_limit, "issue_limit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineModel(MechanisticModel):
    """Simulation of the fullest compute unit."""

    charges: ClassVar[frozenset[str]] = frozenset({"barriers", "divergence"})

    scheduler: Scheduler = "rr"  # which sub-group starts its instruction
    simulated_groups: int | None = None

    @property
    def model(self) -> str:
        """Name of the model, with the scheduler."""
        return f"pipeline-{self.scheduler}"

    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> Estimate:
        """Estimate the time; see `MechanisticModel.estimate`.

        The breakdown has the time for which the busiest subsystem (or the issue of instructions)
        is occupied, and the rest as latency; the larger part is what bounds the time.
        """
        clock = self.device.require("clock_hz", model=self.model)
        geometry = launch_geometry(profile, launch, self.device)
        workload = self.workload(profile, geometry)
        run, cycles = self._cycles(workload)
        repetitions = profile.repetitions(workload.programs)
        cycles = check_positive(cycles, "cycles") * repetitions
        kind, share = _busiest(run, workload)
        time_s = cycles / clock
        return Estimate(
            time_s=time_s,
            bound=kind if share >= 1 - share else "latency",
            breakdown={kind: share * time_s, "latency": (1 - share) * time_s},
            results={
                "cycles": cycles,
                "wpc": run.wpc / repetitions,
                "ipc": run.ipc,
                "occupancy": geometry.occupancy,
                "occupied_any": run.occupied_any,
                "overlap": run.overlap,
                **{f"fill[{name}]": fill for name, fill in run.fill.items()},
            },
        )

    def workload(self, profile: KernelProfile, geometry: LaunchGeometry) -> Workload:
        """Return what is simulated: all groups of the fullest compute unit."""
        graphs = profile.sub_group_idgs or (profile.require("idg", model=self.model),)
        names = dict.fromkeys(name for graph in graphs for name in graph.nodes)
        return Workload(
            programs=graphs,
            classes={name: self.device.require_class(name, model=self.model) for name in names},
            sub_groups_per_group=geometry.sub_groups_per_group,
            concurrent_groups=geometry.concurrent_groups,
            total_groups=geometry.groups_on_compute_unit,
            issue_limit=self.device.issue_limit,
            scheduler=self.scheduler,
        )

    def _cycles(self, workload: Workload) -> tuple[Simulation, float]:
        if self.simulated_groups is None or workload.groups <= self.simulated_groups:
            run = simulate(workload)
            return run, run.cycles
        waves = max(2, self.simulated_groups // workload.concurrent_groups)
        many, few = waves * workload.concurrent_groups, waves // 2 * workload.concurrent_groups
        if many >= workload.groups:
            run = simulate(workload)
            return run, run.cycles
        run = simulate(replace(workload, total_groups=many))
        rate = (run.cycles - simulate(replace(workload, total_groups=few)).cycles) / (many - few)
        return run, run.cycles + rate * (workload.groups - many)


def _busiest(run: Simulation, workload: Workload) -> tuple[Bound, float]:
    shares: dict[Bound, float] = {}
    for entry in workload.classes.values():
        kind: Bound = entry.kind
        shares[kind] = max(shares.get(kind, 0.0), run.fill[entry.subsystem])
    if workload.issue_limit is not None:
        shares["issue"] = run.ipc / workload.issue_limit
    kind = max(_ordered(shares), key=lambda name: shares[name])
    return kind, min(1.0, shares[kind])


def _ordered(shares: Mapping[Bound, float]) -> list[Bound]:
    order: tuple[Bound, ...] = ("compute", "memory", "barrier", "issue")
    return [kind for kind in order if kind in shares]
