r"""Transit: of the concurrent sub-groups some compute and the rest wait for memory.

Source: Li et al. (2015) as restated by Lemeire, Cornelis & Konstantinidis, section 2.2.1, Eq. (4)
to (14).

========  =================  ======================
letter    name               unit
========  =================  ======================
omega     ``occupancy``      sub-group/compute unit
k         ``waiting``        sub-group
WPC       ``wpc``            sub-group/cycle
========  =================  ======================

Two subsystems, no parallelism inside a sub-group, one memory request outstanding per sub-group,
steady state. Printed Eq. (9) exchanges its denominators and Eq. (10) mixes dimensions; Eq. (11) to
(14) are right and are used here. Of the sub-groups, :math:`WPC\,\alpha_{comp} \Lambda_{comp}`
compute and the rest waits; where computations are the roof, the fewest wait that are in balance,
:math:`WPC\,\alpha_{mem} \Lambda_{mem}`. Theorem 1: the throughput equals Volkov's without
parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from countperf.errors import ModelNotApplicableError
from countperf.hardware.parameters import DeviceParameters, InstructionKind
from countperf.mechanistic.model import Estimate, MechanisticModel
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.profile import (
    KernelProfile,
    LaunchConfiguration,
    check_not_negative,
    check_positive,
)
from countperf.mechanistic.volkov import throughput_estimate


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
        for name in ("alpha_comp", "alpha_mem"):
            if check_not_negative(getattr(self, name), name) == 0:
                message = f"{name} is 0: the model balances two subsystems, the kernel uses one"
                raise ModelNotApplicableError(message, parameter=name)
        for name in ("cpi_comp", "latency_comp", "cpi_mem", "latency_mem"):
            check_positive(getattr(self, name), name)

    @property
    def wpc_roof(self) -> float:
        """Sub-groups per cycle that the busier subsystem allows."""
        return 1 / max(self.cpi_comp * self.alpha_comp, self.cpi_mem * self.alpha_mem)


def transit_throughput(system: TwoSubsystems, occupancy: float) -> float:
    r"""Return the throughput in closed form, sub-group/cycle.

    Lemeire et al., Eq. (13) below both roofs: :math:`\omega / (\Lambda_{mem} \alpha_{mem} +
    \Lambda_{comp} \alpha_{comp})`, and never above either roof.
    """
    check_positive(occupancy, "occupancy")
    latency = system.latency_comp * system.alpha_comp + system.latency_mem * system.alpha_mem
    return min(system.wpc_roof, occupancy / latency)


def two_subsystems(
    profile: KernelProfile, device: DeviceParameters, *, model: str
) -> TwoSubsystems:
    """Merge the classes of a kernel into one computation and one memory instruction.

    Counts add up; costs are the means weighted with the counts. Barriers are left out.
    """
    counts = profile.counts(model=model)

    def mean(kind: InstructionKind, constant: Literal["cpi", "latency"]) -> float:
        found = [(count, device.require_class(name, model=model)) for name, count in counts.items()]
        chosen = [(count, entry) for count, entry in found if entry.kind == kind]
        total = sum(count for count, _ in chosen)
        if not total:
            message = f"kernel {profile.name!r}: no instruction of kind {kind}, which {model} needs"
            parameter = "alpha_comp" if kind == "compute" else "alpha_mem"
            raise ModelNotApplicableError(message, parameter=parameter)
        return sum(count * getattr(entry, constant) for count, entry in chosen) / total

    return TwoSubsystems(
        alpha_comp=profile.count_of("compute", device, model=model),
        alpha_mem=profile.count_of("memory", device, model=model),
        cpi_comp=mean("compute", "cpi"),
        latency_comp=mean("compute", "latency"),
        cpi_mem=mean("memory", "cpi"),
        latency_mem=mean("memory", "latency"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitModel(MechanisticModel):
    """Transit model of two subsystems."""

    @property
    def model(self) -> str:
        """Name of the model."""
        return "transit"

    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> Estimate:
        """Estimate the time; see `MechanisticModel.estimate`."""
        geometry = launch_geometry(profile, launch, self.device)
        system = two_subsystems(profile, self.device, model=self.model)
        wpc = transit_throughput(system, geometry.occupancy)
        computing = wpc * system.alpha_comp * system.latency_comp
        waiting = geometry.occupancy - computing
        busy_comp = system.alpha_comp * system.cpi_comp
        is_compute = busy_comp >= system.alpha_mem * system.cpi_mem
        if is_compute:
            waiting = wpc * system.alpha_mem * system.latency_mem
        return throughput_estimate(
            wpc=wpc,
            wpc_roof=system.wpc_roof,
            kind="compute" if is_compute else "memory",
            total_sub_groups=geometry.total_sub_groups,
            device=self.device,
            model=self.model,
            results={
                "wpc": wpc,
                "occupancy": geometry.occupancy,
                "waiting": waiting,
                "computing": geometry.occupancy - waiting,
            },
        )
