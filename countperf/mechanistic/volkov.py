r"""Volkov's occupancy roofline, and transit: throughput over the concurrent sub-groups.

Source: Volkov (2016), "Understanding latency hiding on GPUs", as restated by Lemeire, Cornelis &
Konstantinidis, Eq. (2) and (3). Assumes ideal scheduling: other sub-groups hide completely behind
the first until the roof is reached, so the throughput is an upper bound. Left out: barriers,
groups, fill and drain of pipelines, and Volkov's contention function (a regression).

Transit: of the concurrent sub-groups some compute and the rest wait for memory. Source: Li et al.
(2015) as restated by Lemeire, Cornelis & Konstantinidis, section 2.2.1, Eq. (4) to (14): two
subsystems, no parallelism inside a sub-group, one memory request outstanding per sub-group. Printed
Eq. (9) exchanges its denominators and Eq. (10) mixes dimensions; Eq. (11) to (14) are right and are
used here. Of the sub-groups, :math:`WPC\,\alpha_{comp} \Lambda_{comp}` compute and the rest waits;
where computations are the roof, the fewest wait that are in balance, :math:`WPC\,\alpha_{mem}
\Lambda_{mem}`. Theorem 1: the throughput equals Volkov's without parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ModelNotApplicableError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.roofline import roof


def latency_from_graph(graph: base.InstructionGraph, device: DeviceParameters) -> float:
    """Return the cycles of one sub-group alone, from its instructions and dependencies.

    In-order issue in program order, every subsystem a pipeline, no issue limit. Two instructions of
    different subsystems may start in the same cycle.
    """
    free: dict[str, float] = {}
    finish: list[float] = []
    last = 0.0
    for name, waits in zip(graph.nodes, graph.predecessors, strict=True):
        instruction = device.require_class(name, model="volkov")
        ready = max((finish[index] for index in waits), default=0.0)
        last = max(last, free.get(instruction.subsystem, 0.0), ready)
        free[instruction.subsystem] = last + instruction.cpi
        finish.append(last + instruction.known_latency)
    return max(finish)


def latency_from_counts(counts: Mapping[str, float], device: DeviceParameters) -> float:
    """Return the cycles of one sub-group alone without any parallelism: an upper value."""
    return sum(
        count * device.require_class(name, model="volkov").known_latency
        for name, count in counts.items()
    )


def latency_alone(
    profile: base.KernelProfile, device: DeviceParameters, *, model: str = "volkov"
) -> float:
    """Return the cycles of one sub-group alone: from its graph, else from counts."""
    if profile.idg is not None:
        latency = latency_from_graph(profile.idg, device) * profile.repetitions()
    elif profile.alpha:
        latency = latency_from_counts(profile.alpha, device)
    else:
        message = (
            f"kernel {profile.name!r}: {model} needs idg or alpha, to derive latency_app from;"
            " the profile has none of them"
        )
        raise ModelNotApplicableError(message, parameter="latency_app")
    return base.check_positive(latency, "latency_app")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolkovModel(base.MechanisticModel):
    """Occupancy roofline over all subsystems and the issue limit."""

    name: ClassVar[str] = "volkov"

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        r"""Estimate the time: that of the busiest subsystem, and what latency adds to it.

        Lemeire et al., Eq. (3): :math:`WPC = \min(WPC_{roof}, \omega/\Lambda_{app})`.
        """
        geometry = launch_geometry(kernel, self.device)
        top = roof(kernel.profile.counts(model=self.model), self.device)
        latency = latency_alone(kernel.profile, self.device, model=self.model)
        occupancy = geometry.occupancy
        wpc = min(top.wpc, occupancy / latency)
        share = wpc / top.wpc
        return self._at_rate(
            wpc,
            geometry.total_sub_groups,
            top.kind if share >= 1 else "latency",
            {top.kind: share, "latency": 1 - share},
            {
                "cpr": latency if wpc < top.wpc else occupancy / top.wpc,
                "occupancy": occupancy,
                "latency_app": latency,
                "ridge_occupancy": latency * top.wpc,
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSubsystems:
    """One compute and one memory subsystem, and a kernel's use of them."""

    alpha_comp: float  # computations and memory instructions of a sub-group
    alpha_mem: float
    cpi_comp: float  # their costs, cycle/instruction and cycle
    latency_comp: float
    cpi_mem: float
    latency_mem: float

    def __post_init__(self) -> None:
        base.check_fields(self, base.check_positive, "cpi_comp latency_comp cpi_mem latency_mem")
        for name in ("alpha_comp", "alpha_mem"):
            if getattr(self, name) == 0:
                message = f"{name} is 0: the model balances two subsystems, the kernel uses one"
                raise ModelNotApplicableError(message, parameter=name)

    @property
    def wpc_roof(self) -> float:
        """Sub-groups per cycle that the busier subsystem allows."""
        return 1 / max(self.cpi_comp * self.alpha_comp, self.cpi_mem * self.alpha_mem)


def transit_throughput(system: TwoSubsystems, occupancy: float) -> float:
    r"""Return the throughput in closed form, sub-group/cycle.

    Lemeire et al., Eq. (13) below both roofs: :math:`\omega / (\Lambda_{mem} \alpha_{mem} +
    \Lambda_{comp} \alpha_{comp})`, and never above either roof.
    """
    latency = system.latency_comp * system.alpha_comp + system.latency_mem * system.alpha_mem
    return min(system.wpc_roof, occupancy / latency)


def two_subsystems(
    profile: base.KernelProfile, device: DeviceParameters, *, model: str
) -> TwoSubsystems:
    """Merge the classes of a kernel into one computation and one memory instruction.

    Counts add up; costs are the means weighted with the counts. Barriers are left out.
    """
    cpi_comp, latency_comp = profile.mean_cost("compute", device, model=model)
    cpi_mem, latency_mem = profile.mean_cost("memory", device, model=model)
    return TwoSubsystems(
        alpha_comp=profile.count_of("compute", device, model=model),
        alpha_mem=profile.count_of("memory", device, model=model),
        cpi_comp=cpi_comp,
        latency_comp=latency_comp,
        cpi_mem=cpi_mem,
        latency_mem=latency_mem,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitModel(base.MechanisticModel):
    """Transit model of two subsystems."""

    name: ClassVar[str] = "transit"

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        geometry = launch_geometry(kernel, self.device)
        system = two_subsystems(kernel.profile, self.device, model=self.model)
        wpc = transit_throughput(system, geometry.occupancy)
        kind: base.Bound = "memory"
        waiting = geometry.occupancy - wpc * system.alpha_comp * system.latency_comp
        if system.alpha_comp * system.cpi_comp >= system.alpha_mem * system.cpi_mem:
            kind, waiting = "compute", wpc * system.alpha_mem * system.latency_mem
        share = wpc / system.wpc_roof
        return self._at_rate(
            wpc,
            geometry.total_sub_groups,
            kind if share >= 1 else "latency",
            {kind: share, "latency": 1 - share},
            {
                "occupancy": geometry.occupancy,
                "waiting": waiting,
                "computing": geometry.occupancy - waiting,
            },
        )
