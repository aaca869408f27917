"""MWP-CWP as Lemeire, Cornelis & Konstantinidis restate it, and their correction MWP-CWP*.

Notation, assumptions and the original model: `countperf.mechanistic.mwp_cwp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from countperf.mechanistic.checks import check_choice, check_positive
from countperf.mechanistic.model import (
    Estimate,
    MechanisticModel,
    seconds_from_throughput,
)
from countperf.mechanistic.mwp_cwp import BOUNDS, Case, Variant
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.profile import KernelProfile, LaunchConfiguration
from countperf.mechanistic.transit import TwoSubsystems, two_subsystems
from countperf.mechanistic.volkov import latency_alone


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Cycles of a run, that is of the concurrent sub-groups of a compute unit."""

    mwp: float  # the two degrees of parallelism
    cwp: float
    case: Case  # what bounds the run
    parts: dict[str, float]  # cycles by part
    cpr: float  # cycles of the run
    wpc: float  # sub-groups per cycle


def restated_cycles(
    system: TwoSubsystems, occupancy: float, *, spaced_departures: bool = False
) -> RunResult:
    """Return the cycles of a run by the restated model.

    Lemeire et al., Eq. (15)-(16), (26)-(28). The printed conditions leave the tie MWP = CWP below
    the occupancy open; it is taken as bound by memory, as Hong & Kim do.
    """
    check_positive(occupancy, "occupancy")
    mwp, cwp, comp_p = _parallelism(system)
    if occupancy <= min(mwp, cwp):  # Eq. (28)
        return _run(
            system,
            occupancy,
            "occupancy",
            {
                "latency": system.alpha_mem * system.latency_mem,
                "compute": system.alpha_comp * system.cpi_comp + comp_p * (occupancy - 1),
            },
        )
    if mwp <= cwp:  # Eq. (26), (29)
        spaced = comp_p + (mwp - 1) * system.cpi_mem
        return _run(
            system,
            occupancy,
            "memory",
            {
                "memory": system.alpha_mem * occupancy * system.cpi_mem,
                "compute": spaced if spaced_departures else comp_p * mwp,
            },
        )
    return _run(system, occupancy, "compute", _compute_parts(system, occupancy))


def corrected_cycles(system: TwoSubsystems, occupancy: float, latency_app: float) -> RunResult:
    """Return the cycles of a run by MWP-CWP*: the longest of the three cases."""
    check_positive(occupancy, "occupancy")
    check_positive(latency_app, "latency_app")
    mwp, _, comp_p = _parallelism(system)
    candidates: dict[Case, dict[str, float]] = {
        "occupancy": {"latency": latency_app, "compute": comp_p * (occupancy - 1)},
        "memory": {
            "memory": system.alpha_mem * occupancy * system.cpi_mem,
            "compute": comp_p * min(mwp, occupancy),
        },
        "compute": _compute_parts(system, occupancy),
    }
    case = max(candidates, key=lambda name: sum(candidates[name].values()))  # ties: the first
    return _run(system, occupancy, case, candidates[case])


def _parallelism(system: TwoSubsystems) -> tuple[float, float, float]:
    """Return MWP, Eq. (15), CWP, Eq. (16), and the cycles of a computation period, Eq. (22)."""
    comp_p = system.alpha_comp / system.alpha_mem * system.cpi_comp
    return system.latency_mem / system.cpi_mem, system.latency_mem / comp_p + 1, comp_p


def _compute_parts(system: TwoSubsystems, occupancy: float) -> dict[str, float]:
    """Return the terms of Eq. (27)."""
    busy = system.alpha_comp * system.cpi_comp * occupancy
    return {"compute": busy, "latency": system.latency_mem}


def _run(system: TwoSubsystems, occupancy: float, case: Case, parts: dict[str, float]) -> RunResult:
    mwp, cwp, _ = _parallelism(system)
    cpr = float(sum(parts.values()))
    return RunResult(mwp=mwp, cwp=cwp, case=case, parts=parts, cpr=cpr, wpc=occupancy / cpr)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestatedMwpCwpModel(MechanisticModel):
    """MWP-CWP in costs and latencies: restated as published, or MWP-CWP*."""

    variant: Variant = "corrected"  # eq

    def __post_init__(self) -> None:
        check_choice(self.variant, "variant", get_args(Variant))

    @property
    def model(self) -> str:
        """``"mwp-cwp-restated"`` or ``"mwp-cwp-corrected"``."""
        return "mwp-cwp-corrected" if self.variant == "corrected" else "mwp-cwp-restated"

    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> Estimate:
        """Estimate the time of one launch; errors as in the base class."""
        device, model = self.device, self.model
        system = two_subsystems(profile, device, model=model)
        geometry = launch_geometry(profile, launch, device)
        result = (
            corrected_cycles(
                system, geometry.occupancy, latency_alone(profile, device, model=model)
            )
            if self.variant == "corrected"
            else restated_cycles(system, geometry.occupancy)
        )
        time_s = seconds_from_throughput(result.wpc, geometry.total_sub_groups, device, model=model)
        return Estimate(
            time_s=time_s,
            bound=BOUNDS[result.case],
            breakdown={name: time_s * cycles / result.cpr for name, cycles in result.parts.items()},
            results={
                "mwp": result.mwp,
                "cwp": result.cwp,
                "cpr": result.cpr,
                "wpc": result.wpc,
                "occupancy": geometry.occupancy,
            },
        )
