r"""Roofline: the bound on throughput from subsystems that overlap perfectly.

Source: Williams, Waterman & Patterson (2009), doi:10.1145/1498765.1498785, as restated by Lemeire,
Cornelis & Konstantinidis, Eq. (1); mixes of instruction types after Konstantinidis & Cotronis.

No latency; any occupancy is enough. The restatement divides IPC_roof by the alpha of the bounding
subsystem; Eq. (1) counts computations, so it has to be divided by ``alpha_comp`` always, as here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import check_occupancy

_TIE = 1e-12
_KIND_ORDER: tuple[base.Bound, ...] = ("compute", "memory", "barrier", "issue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Throughput that the subsystems of a compute unit allow."""

    wpc: float  # sub-groups per cycle
    bound: str  # the subsystem that bounds it, or ``"issue"``
    kind: base.Bound  # what that is
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
        message = "the kernel has no work: all busy cycles are zero"
        raise ParameterError(message, parameter="alpha")
    if device.issue_limit is not None:
        busy["issue"], kind_of["issue"] = sum(counts.values()) / device.issue_limit, "issue"
    most = max(busy.values())
    bound = next(name for name, cycles in busy.items() if cycles >= most * (1 - _TIE))
    return Roof(wpc=1 / most, bound=bound, kind=kind_of[bound], busy=busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineModel(base.MechanisticModel):
    """Roofline over the subsystems of a compute unit, from counts of instructions."""

    name: ClassVar[str] = "roofline"

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

        :math:`\max(F/\pi, Q/\beta)`: Williams, Waterman & Patterson (2009), unnumbered formula.
        """
        if kernel.launch.occupancy is not None:
            check_occupancy(kernel.launch.occupancy, self.device)
        flops = kernel.profile.require("total_flops", model=self.model)
        moved = kernel.profile.require("total_bytes", model=self.model)
        peak_flops, bandwidth = self.constant("peak_flops"), self.constant("bandwidth_byte_per_s")
        if flops == 0 and moved == 0:
            message = "the kernel has no work: total_flops and total_bytes are zero"
            raise ParameterError(message, parameter="total_flops")
        compute_s, memory_s = flops / peak_flops, moved / bandwidth
        time_s = max(compute_s, memory_s)
        bound: base.Bound = "compute" if compute_s >= memory_s * (1 - _TIE) else "memory"
        intensity = flops / moved if moved else math.inf  # flop/byte, as that of the ridge
        return base.TimeEstimate(
            time_s=time_s,
            bound=bound,
            breakdown={bound: time_s},
            results={"intensity": intensity, "ridge": peak_flops / bandwidth},
        )
