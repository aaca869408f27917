r"""Roofline: the bound on throughput from subsystems that overlap perfectly.

Source: Williams, Waterman & Patterson (2009), doi:10.1145/1498765.1498785, as restated by Lemeire,
Cornelis & Konstantinidis, Eq. (1); mixes of instruction types after Konstantinidis & Cotronis.

============  ==============================  ====================
letter        name                            unit
============  ==============================  ====================
lambda        ``cpi``                         cycle/instruction
alpha         ``alpha[class]``                instruction/sub-group
IL            ``issue_limit``                 instruction/cycle
WPC_roof      ``wpc``                         sub-group/cycle
============  ==============================  ====================

Assumptions: complete overlap, no latency, any occupancy is enough, work evenly divided. The time is
a lower bound. The restatement divides IPC_roof by the alpha of the bounding subsystem; Eq. (1)
counts computations, so it has to be divided by ``alpha_comp`` always, as here. The original has no
issue limit; a device that states none has no such bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ParameterError
from countperf.mechanistic.occupancy import check_launch
from countperf.mechanistic.profile import (
    Bound,
    KernelProfile,
    LaunchConfiguration,
    MechanisticModel,
    TimeEstimate,
)

_TIE = 1e-12
_KIND_ORDER = ("compute", "memory", "barrier", "issue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Throughput that the subsystems of a compute unit allow."""

    wpc: float  # sub-groups per cycle
    bound: str  # the subsystem that bounds it, or ``"issue"``
    kind: Bound  # what that is
    # cycles per sub-group by subsystem, in the order in which ties are decided
    busy: Mapping[str, float]


def roof(counts: Mapping[str, float], device: DeviceParameters) -> Roof:
    r"""Bound the throughput of a compute unit by its busiest subsystem, and by its issue limit.

    :math:`b_s = \sum_{i \in s} \alpha_i \lambda_i`, :math:`WPC = 1/\max_s b_s`. On a tie
    (relative 1e-12) the first in the order compute, memory, barrier, issue, then by name.
    """
    per_class: dict[str, dict[str, float]] = {}
    for name, count in counts.items():
        instruction = device.require_class(name, model="roofline")
        cycles = count * instruction.cpi
        kinds = per_class.setdefault(instruction.subsystem, {})
        kinds[instruction.kind] = kinds.get(instruction.kind, 0.0) + cycles
    kind_of: dict[str, Bound] = {}
    busy: dict[str, float] = {}
    for subsystem, kinds in per_class.items():
        kind_of[subsystem] = max(kinds, key=lambda kind: (kinds[kind], -_KIND_ORDER.index(kind)))  # pyright: ignore[reportArgumentType] - keys are kinds
        busy[subsystem] = sum(kinds.values())
    if not any(busy.values()):
        message = "the kernel has no work: all busy cycles are zero"
        raise ParameterError(message, parameter="alpha")
    ordered = sorted(busy, key=lambda name: (_KIND_ORDER.index(kind_of[name]), name))
    cycles_of = {name: busy[name] for name in ordered}
    if device.issue_limit is not None:
        cycles_of["issue"] = sum(counts.values()) / device.issue_limit
        kind_of["issue"] = "issue"
    most = max(cycles_of.values())
    bound = next(name for name, cycles in cycles_of.items() if cycles >= most * (1 - _TIE))
    return Roof(wpc=1 / most, bound=bound, kind=kind_of[bound], busy=cycles_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineModel(MechanisticModel):
    """Roofline over the subsystems of a compute unit, from counts of instructions."""

    name: ClassVar[str] = "roofline"

    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> TimeEstimate:
        """Estimate the time; see `MechanisticModel.estimate`."""
        check_launch(launch, self.device)
        estimate = roof(profile.counts(model=self.model), self.device)
        size = self.device.require_int("sub_group_size", model=self.model)
        sub_groups = launch.total_sub_groups(size)
        busy = {f"busy[{name}]": cycles for name, cycles in estimate.busy.items()}
        return self._at_rate(estimate.wpc, sub_groups, estimate.kind, {estimate.kind: 1}, busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRooflineModel(MechanisticModel):
    r"""Roofline of the whole device in flop and byte.

    :math:`\max(F/\pi, Q/\beta)`: Williams, Waterman & Patterson (2009), unnumbered formula.
    """

    name: ClassVar[str] = "roofline-bytes"

    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> TimeEstimate:
        """Estimate the time, the same for every launch; see `MechanisticModel.estimate`."""
        check_launch(launch, self.device)
        flops = profile.require("total_flops", model=self.model)
        moved = profile.require("total_bytes", model=self.model)
        peak_flops = self.device.require("peak_flops", model=self.model)
        bandwidth = self.device.require("bandwidth_byte_per_s", model=self.model)
        if flops == 0 and moved == 0:
            message = "the kernel has no work: total_flops and total_bytes are zero"
            raise ParameterError(message, parameter="total_flops")
        compute_s, memory_s = flops / peak_flops, moved / bandwidth
        time_s = max(compute_s, memory_s)
        bound: Bound = "compute" if compute_s >= memory_s * (1 - _TIE) else "memory"
        return TimeEstimate(
            time_s=time_s,
            bound=bound,
            breakdown={bound: time_s},
            results={  # flop/byte, of the kernel (infinite if it moves no data) and of the ridge
                "intensity": flops / moved if moved else float("inf"),
                "ridge": peak_flops / bandwidth,
            },
        )
