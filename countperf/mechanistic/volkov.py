r"""Volkov's occupancy roofline: throughput as a function of the concurrent sub-groups.

Source: Volkov (2016), "Understanding latency hiding on GPUs", as restated by Lemeire, Cornelis &
Konstantinidis, Eq. (2) and (3).

===========  ======================  ========================
letter       name                    unit
===========  ======================  ========================
omega        ``occupancy``           sub-group/compute unit
Lambda_app   ``latency_app``         cycle
WPC          ``wpc``                 sub-group/cycle
===========  ======================  ========================

At low occupancy the latency of one sub-group bounds the throughput (Little's law), above the ridge
the roofline does. Assumes ideal scheduling: other sub-groups hide completely behind the first until
the roof is reached, so the throughput is an upper bound. Left out: barriers, groups, fill and drain
of pipelines, and Volkov's contention function (a regression).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from countperf.errors import ModelNotApplicableError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.model import (
    Bound,
    Estimate,
    MechanisticModel,
    seconds_from_throughput,
)
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    check_not_negative,
    check_positive,
)
from countperf.mechanistic.roofline import profile_roof


@dataclass(frozen=True, slots=True, kw_only=True)
class OccupancyRoof:
    """Throughput at an occupancy."""

    wpc: float  # sub-groups per cycle
    cpr: float  # cycles of ``occupancy`` sub-groups
    ridge_occupancy: float  # occupancy at which the roof is reached


def occupancy_roof(*, occupancy: float, latency_app: float, wpc_roof: float) -> OccupancyRoof:
    r"""Bound the throughput at an occupancy.

    Lemeire et al., Eq. (3): :math:`WPC = \min(WPC_{roof}, \omega/\Lambda_{app})`.
    """
    check_positive(occupancy, "occupancy")
    check_positive(latency_app, "latency_app")
    check_positive(wpc_roof, "wpc_roof")
    below = occupancy / latency_app < wpc_roof
    return OccupancyRoof(
        wpc=min(wpc_roof, occupancy / latency_app),
        cpr=latency_app if below else occupancy / wpc_roof,
        ridge_occupancy=latency_app * wpc_roof,
    )


def latency_from_graph(graph: InstructionGraph, device: DeviceParameters) -> float:
    """Return the cycles of one sub-group alone, from its instructions and dependencies.

    In-order issue in program order, every subsystem a pipeline, no issue limit. Two instructions of
    different subsystems may start in the same cycle.
    """
    free: dict[str, float] = {}
    finish: list[float] = []
    last = 0.0
    for name, waits in zip(graph.nodes, graph.predecessors(), strict=True):
        instruction = device.require_class(name, model="volkov")
        ready = max((finish[index] for index in waits), default=0.0)
        start = max(last, free.get(instruction.subsystem, 0.0), ready)
        free[instruction.subsystem] = start + instruction.cpi
        finish.append(start + instruction.latency)
        last = start
    return max(finish)


def latency_from_counts(counts: Mapping[str, float], device: DeviceParameters) -> float:
    """Return the cycles of one sub-group alone without any parallelism: an upper value."""
    return sum(
        check_not_negative(count, f"alpha[{name}]")
        * device.require_class(name, model="volkov").latency
        for name, count in counts.items()
    )


def latency_alone(
    profile: KernelProfile, device: DeviceParameters, *, model: str = "volkov"
) -> float:
    """Return the cycles of one sub-group alone by the best of what the profile has.

    The graph comes first, then the counts (no parallelism).
    """
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
    return check_positive(latency, "latency_app")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolkovModel(MechanisticModel):
    """Occupancy roofline over all subsystems and the issue limit."""

    @property
    def model(self) -> str:
        """Name of the model."""
        return "volkov"

    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> Estimate:
        """Estimate the time; see `MechanisticModel.estimate`.

        The breakdown has the time of the busiest subsystem, and what latency adds to it.
        """
        geometry = launch_geometry(profile, launch, self.device)
        top = profile_roof(profile, self.device, model=self.model)
        latency = latency_alone(profile, self.device, model=self.model)
        estimate = occupancy_roof(
            occupancy=geometry.occupancy, latency_app=latency, wpc_roof=top.wpc
        )
        return throughput_estimate(
            wpc=estimate.wpc,
            wpc_roof=top.wpc,
            kind=top.kind,
            total_sub_groups=geometry.total_sub_groups,
            device=self.device,
            model=self.model,
            results={
                "wpc": estimate.wpc,
                "cpr": estimate.cpr,
                "occupancy": geometry.occupancy,
                "latency_app": latency,
                "ridge_occupancy": estimate.ridge_occupancy,
            },
        )


def throughput_estimate(
    *,
    wpc: float,
    wpc_roof: float,
    kind: Bound,
    total_sub_groups: float,
    device: DeviceParameters,
    model: str,
    results: Mapping[str, float],
) -> Estimate:
    """Turn a throughput below a roof into a time: the busiest subsystem's, and exposed latency."""
    time_s = seconds_from_throughput(wpc, total_sub_groups, device, model=model)
    busy_s = min(time_s, seconds_from_throughput(wpc_roof, total_sub_groups, device, model=model))
    return Estimate(
        time_s=time_s,
        bound=kind if wpc >= wpc_roof else "latency",
        breakdown={kind: busy_s, "latency": time_s - busy_s},
        results=results,
    )
