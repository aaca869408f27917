r"""Roofline: the bound on throughput from subsystems that overlap perfectly.

Source: Williams, Waterman & Patterson (2009), doi:10.1145/1498765.1498785, as restated by Lemeire,
Cornelis & Konstantinidis, Eq. (1); mixes of instruction types after Konstantinidis & Cotronis.

No latency; any occupancy is enough. The restatement divides IPC_roof by the alpha of the bounding
subsystem; Eq. (1) counts computations, so it has to be divided by ``alpha_comp`` always, as here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import check_occupancy
from countperf.text import extract

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRoof:
    """Roofline of the whole device in flop and byte."""

    time_s: float  # lower bound of the time, s
    bound: Literal["compute", "memory"]  # what attains it
    # operational intensity of the kernel (``inf`` if it moves no data) and of the ridge, flop/byte
    intensity: float
    ridge: float


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


def byte_roof(
    *, total_flops: float, total_bytes: float, peak_flops: float, bandwidth_byte_per_s: float
) -> ByteRoof:
    r"""Bound the time of a kernel by compute peak and memory traffic.

    :math:`\max(F/\pi, Q/\beta)`: Williams, Waterman & Patterson (2009), unnumbered formula.
    """
    if total_flops == 0 and total_bytes == 0:
        message = "the kernel has no work: total_flops and total_bytes are zero"
        raise ParameterError(message, parameter="total_flops")
    compute_s, memory_s = total_flops / peak_flops, total_bytes / bandwidth_byte_per_s
    return ByteRoof(
        time_s=max(compute_s, memory_s),
        bound="compute" if compute_s >= memory_s * (1 - _TIE) else "memory",
        intensity=total_flops / total_bytes if total_bytes else float("inf"),
        ridge=peak_flops / bandwidth_byte_per_s,
    )


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
        """Estimate the time, the same for every launch."""
        if kernel.launch.occupancy is not None:
            check_occupancy(kernel.launch.occupancy, self.device)
        top = byte_roof(
            total_flops=kernel.profile.require("total_flops", model=self.model),
            total_bytes=kernel.profile.require("total_bytes", model=self.model),
            peak_flops=self.constant("peak_flops"),
            bandwidth_byte_per_s=self.constant("bandwidth_byte_per_s"),
        )
        return base.TimeEstimate(
            time_s=top.time_s,
            bound=top.bound,
            breakdown={top.bound: top.time_s},
            results=extract(top, "intensity", "ridge"),
        )
