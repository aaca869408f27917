r"""Rooflines: perfect overlap of subsystems (Williams), latency and occupancy (Volkov), transit.

Roofline: Williams, Waterman & Patterson (2009), doi:10.1145/1498765.1498785, as restated by
Lemeire, Cornelis & Konstantinidis, Eq. (1); mixes of instruction types after Konstantinidis &
Cotronis. No latency; any occupancy is enough. The restatement divides IPC_roof by the alpha of the
bounding subsystem; Eq. (1) counts computations, so it has to be divided by ``alpha_comp`` always,
as here.

Volkov (2016), "Understanding latency hiding on GPUs", as restated by Lemeire, Cornelis &
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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import check_occupancy, launch_geometry

_TIE = 1e-12
_KIND_ORDER: tuple[base.Bound, ...] = ("compute", "memory", "barrier", "issue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Throughput that the subsystems of a compute unit allow."""

    wpc: float  # sub-groups per cycle
    kind: base.Bound  # what bounds it
    # cycles per sub-group by subsystem, in the order in which ties are decided
    busy: Mapping[str, float]


def roof(counts: Mapping[str, float], device: DeviceParameters) -> Roof:
    r"""Bound the throughput of a compute unit by its busiest subsystem, and by its issue limit.

    :math:`b_s = \sum_{i \in s} \alpha_i \lambda_i`, :math:`WPC = 1/\max_s b_s`. On a tie
    (relative 1e-12) the first in the order compute, memory, barrier, issue, then by name.
    """
    per_class: dict[str, dict[base.Bound, float]] = {}
    for name, count in counts.items():
        instruction = device.require_class(name, model="roofline")
        cycles = count * instruction.cpi
        kinds = per_class.setdefault(instruction.subsystem, {})
        kinds[instruction.kind] = kinds.get(instruction.kind, 0.0) + cycles
    kind_of: dict[str, base.Bound] = {
        subsystem: max(kinds, key=lambda kind: (kinds[kind], -_KIND_ORDER.index(kind)))
        for subsystem, kinds in per_class.items()
    }
    ordered = sorted(per_class, key=lambda name: (_KIND_ORDER.index(kind_of[name]), name))
    busy = {name: sum(per_class[name].values()) for name in ordered}
    if not any(busy.values()):
        raise ParameterError("the kernel has no work: all busy cycles are zero", parameter="alpha")
    if device.issue_limit is not None:
        busy["issue"], kind_of["issue"] = sum(counts.values()) / device.issue_limit, "issue"
    most = max(busy.values())
    bound = next(name for name, cycles in busy.items() if cycles >= most * (1 - _TIE))
    return Roof(wpc=1 / most, kind=kind_of[bound], busy=busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineModel(base.MechanisticModel):
    """Roofline over the subsystems of a compute unit, from counts of instructions."""

    name: ClassVar[str] = "roofline"
    overlaps_caches: ClassVar[bool] = True

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        if kernel.launch.occupancy is not None:
            check_occupancy(kernel.launch.occupancy, self.device)
        top = roof(kernel.profile.counts(model=self.model), self.device)
        size = self.device.require_int("sub_group_size", model=self.model)
        sub_groups = kernel.launch.total_sub_groups(size)
        busy = {f"busy[{name}]": cycles for name, cycles in top.busy.items()}
        return self._at_rate(top.wpc, sub_groups, top.kind, {top.kind: 1}, busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRooflineModel(base.MechanisticModel):
    """Roofline of the whole device in flop and byte."""

    name: ClassVar[str] = "roofline-bytes"

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        r"""Estimate the time, the same for every launch.

        :math:`\max(F/\pi, Q/\beta)`: Williams, Waterman & Patterson (2009), unnumbered formula; and
        no less than the bytes that reach L2 take at its bandwidth, where that is stated.
        """
        if kernel.launch.occupancy is not None:
            check_occupancy(kernel.launch.occupancy, self.device)
        flops = kernel.profile.require("total_flops", model=self.model)
        moved = kernel.profile.require("total_bytes", model=self.model)
        peak_flops, bandwidth = self.constant("peak_flops"), self.constant("bandwidth_byte_per_s")
        bandwidth *= self.device.achievable_bandwidth_share or 1.0
        if flops == 0 and moved == 0:
            message = "the kernel has no work: total_flops and total_bytes are zero"
            raise ParameterError(message, parameter="total_flops")
        compute_s, memory_s = flops / peak_flops, moved / bandwidth
        traffic, l2_bandwidth = kernel.profile.traffic, self.device.l2_bandwidth_byte_per_s
        if traffic is not None and l2_bandwidth:
            memory_s = max(memory_s, traffic.l2 / l2_bandwidth)
        time_s = max(compute_s, memory_s)
        bound: base.Bound = "compute" if compute_s >= memory_s * (1 - _TIE) else "memory"
        intensity = flops / moved if moved else math.inf  # flop/byte, as that of the ridge
        return base.TimeEstimate(
            time_s=time_s,
            bound=bound,
            breakdown={bound: time_s},
            results={"intensity": intensity, "ridge": peak_flops / bandwidth},
        )


def latency_from_graph(graph: base.InstructionGraph, device: DeviceParameters) -> float:
    """Return the cycles of one sub-group alone, issued in order: every subsystem is a pipeline."""
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


def latency_alone(
    profile: base.KernelProfile, device: DeviceParameters, *, model: str = "volkov"
) -> float:
    """Return the cycles of one sub-group alone: from its graph, else without any parallelism."""
    if profile.idg is not None:
        latency = latency_from_graph(profile.idg, device) * profile.repetitions()
    elif profile.alpha:
        costs = {name: device.require_class(name, model="volkov") for name in profile.alpha}
        latency = sum(count * costs[name].known_latency for name, count in profile.alpha.items())
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
    charges: ClassVar[frozenset[str]] = frozenset({"barriers"})  # issued, and part of the latency

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


def two_subsystems(
    profile: base.KernelProfile, device: DeviceParameters, *, model: str
) -> TwoSubsystems:
    """Merge the classes of a kernel, but for barriers, by weighted means of their costs."""
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
        r"""Estimate the time of one launch.

        Lemeire et al., Eq. (13) below both roofs: :math:`\omega / (\Lambda_{mem} \alpha_{mem} +
        \Lambda_{comp} \alpha_{comp})`, and never above either roof.
        """
        geometry = launch_geometry(kernel, self.device)
        system = two_subsystems(kernel.profile, self.device, model=self.model)
        busy_comp, busy_mem = system.cpi_comp * system.alpha_comp, system.cpi_mem * system.alpha_mem
        alone = system.latency_comp * system.alpha_comp + system.latency_mem * system.alpha_mem
        top = 1 / max(busy_comp, busy_mem)
        wpc = min(top, geometry.occupancy / alone)
        share = wpc / top
        kind: base.Bound = "memory"
        waiting = geometry.occupancy - wpc * system.alpha_comp * system.latency_comp
        if busy_comp >= busy_mem:
            kind, waiting = "compute", wpc * system.alpha_mem * system.latency_mem
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
