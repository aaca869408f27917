r"""MWP-CWP: warps whose memory requests overlap against warps that compute meanwhile.

`MwpCwpCycles` is the whole model of Hong & Kim (2009), doi:10.1145/1555754.1555775, for a device
without caches. `MwpCwpRun` is its restatement for one compute unit by Lemeire, Cornelis &
Konstantinidis, in costs and latencies, and their MWP-CWP*, which starts from the time that one
sub-group takes alone. Equation numbers are those of the respective source; (1), (3) and (4) of Hong
& Kim are (23), (24) and (22) without ``rep``.

Accesses to local memory count as computations, and so do barriers, which are issued like them (27
computations in the paper's example, 6 of them barriers): a profile that states instructions by kind
alone states them so, of one with counts by class they are added. Left out: caches, bank conflicts,
branches, special function units. The bandwidth bound counts useful bytes, so it is optimistic for
uncoalesced access. The time jumps where the case changes.

Where this departs from the paper: the second half of the condition of Eq. (23), "or Comp_cycles >
Mem_cycles", contradicts the paper's own case 5 and holds with ``case_rule="printed"`` only; memory
cost follows Eq. (23) with MWP - 1, not Eq. (1) with MWP; a part of a sub-group counts as a whole
one; a ``rep`` below 1 is raised to 1; nothing is rounded on the way. In MWP-CWP*, MWP is held below
the occupancy, since no more sub-groups can fill the memory pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from countperf.errors import ModelNotApplicableError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.roofline import TwoSubsystems, latency_alone, two_subsystems
from countperf.text import extract

Case = Literal["occupancy", "memory", "compute"]
CaseRule = Literal["text", "printed"]
"""Condition of the memory case: as case 5 of the text has it, or as printed at Eq. (23)."""

Variant = Literal["published", "corrected"]
BOUNDS: dict[Case, base.Bound] = {"occupancy": "latency", "memory": "memory", "compute": "compute"}
"""Part of the time that bounds each case."""

_OF_DEVICE = (
    *("clock_hz", "bandwidth_byte_per_s", "issue_cycles", "mem_ld_cycles"),
    *("departure_del_uncoal_cycles", "departure_del_coal_cycles"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MwpCwpInputs:
    """Parameters of Hong & Kim's model, their Table 1."""

    clock_hz: float  # the machine
    bandwidth_byte_per_s: float
    issue_cycles: float
    mem_ld_cycles: float
    departure_del_uncoal_cycles: float
    departure_del_coal_cycles: float
    # compute units that have groups: the smaller of compute units and groups
    num_active_compute_units: float
    sub_groups_per_group: float  # the launch
    num_groups: float
    active_groups: float
    alpha_comp: float  # instructions of a sub-group
    alpha_mem_coal: float
    alpha_mem_uncoal: float
    load_bytes_per_sub_group: float  # useful bytes of a memory instruction
    alpha_sync: float = 0.0
    uncoal_per_mw: float = 1.0  # transactions of an uncoalesced memory instruction, at least 1

    def __post_init__(self) -> None:
        if self.alpha_mem_coal + self.alpha_mem_uncoal == 0:
            message = "MWP-CWP needs memory instructions: it divides by alpha_mem, which is 0"
            raise ModelNotApplicableError(message, parameter="alpha_mem")


class MwpCwpCycles:
    """Every quantity of Hong & Kim's model under the paper's name; cycles unless stated."""

    def __init__(self, x: MwpCwpInputs, *, case_rule: CaseRule = "text") -> None:
        self.case_rule = base.check_choice(case_rule, "case_rule", CaseRule)
        alpha_mem = x.alpha_mem_uncoal + x.alpha_mem_coal
        total_insts = x.alpha_comp + alpha_mem
        self.occupancy = x.active_groups * x.sub_groups_per_group  # Eq. (20)
        more = (x.uncoal_per_mw - 1) * x.departure_del_uncoal_cycles
        mem_l_uncoal, mem_l_coal = x.mem_ld_cycles + more, x.mem_ld_cycles  # Eq. (10), (11)
        weight_uncoal = x.alpha_mem_uncoal / alpha_mem  # Eq. (13)
        weight_coal = x.alpha_mem_coal / alpha_mem  # Eq. (14)
        self.mem_l = mem_l_uncoal * weight_uncoal + mem_l_coal * weight_coal  # Eq. (12)
        self.departure_delay = (  # Eq. (15)
            x.departure_del_uncoal_cycles * x.uncoal_per_mw * weight_uncoal
            + x.departure_del_coal_cycles * weight_coal
        )
        self.mwp_without_bw_full = self.mem_l / self.departure_delay  # Eq. (16)
        self.bw_per_warp = x.clock_hz * x.load_bytes_per_sub_group / self.mem_l  # Eq. (7)
        all_warps = self.bw_per_warp * x.num_active_compute_units
        self.mwp_peak_bw = x.bandwidth_byte_per_s / all_warps  # Eq. (6)
        self.mwp = min(self.mwp_without_bw_full, self.mwp_peak_bw, self.occupancy)  # (5), (17)
        self.mem_cycles = (  # Eq. (18)
            mem_l_uncoal * x.alpha_mem_uncoal + mem_l_coal * x.alpha_mem_coal
        )
        self.comp_cycles = x.issue_cycles * total_insts  # Eq. (19)
        self.cwp_full = (self.mem_cycles + self.comp_cycles) / self.comp_cycles  # Eq. (8)
        self.cwp = min(self.cwp_full, self.occupancy)  # Eq. (9)
        self.rep = max(x.num_groups / (x.active_groups * x.num_active_compute_units), 1.0)  # (21)
        self.comp_p = self.comp_cycles / alpha_mem  # Eq. (2)
        self.case: Case
        self.case, parts = self._find_case()
        self.exec_cycles_app = sum(parts.values()) * self.rep
        self.synch_cost = (  # Eq. (26)
            self.departure_delay * (self.mwp - 1) * x.alpha_sync * x.active_groups * self.rep
        )
        # the two terms of the case's equation, and the cost of barriers
        self.exec_parts = {name: part * self.rep for name, part in parts.items()}
        self.exec_parts["barrier"] = self.synch_cost
        self.exec_cycles_with_synch = self.exec_cycles_app + self.synch_cost  # Eq. (27)
        own_sub_groups = x.sub_groups_per_group * x.num_groups / x.num_active_compute_units
        # cycles per sub-group instruction of one compute unit, Eq. (25)
        self.cpi = self.exec_cycles_app / (total_insts * own_sub_groups)
        self.advice = _advise(
            self.case,
            more_sub_groups=self.mwp == self.occupancy,
            coalescing=bool(x.alpha_mem_uncoal) and self.mwp == self.mwp_without_bw_full,
        )

    def _find_case(self) -> tuple[Case, dict[str, float]]:
        """Return what bounds the kernel, and the cycles of all sub-groups by part."""
        waiting = self.comp_p * (self.mwp - 1)
        if self.mwp == self.occupancy and self.cwp == self.occupancy:  # Eq. (22)
            return "occupancy", {"latency": self.mem_cycles, "compute": self.comp_cycles + waiting}
        is_printed_memory = self.case_rule == "printed" and self.comp_cycles > self.mem_cycles
        if self.cwp >= self.mwp or is_printed_memory:  # Eq. (23)
            memory = self.mem_cycles * self.occupancy / self.mwp
            return "memory", {"memory": memory, "compute": waiting}
        # Eq. (24)
        return "compute", {"latency": self.mem_l, "compute": self.comp_cycles * self.occupancy}


def _advise(case: Case, *, more_sub_groups: bool, coalescing: bool = False) -> str:
    """Say what shortens the terms that bound a case (Hong & Kim, section 3.2 and Eq. (5))."""
    if case == "occupancy":
        return (
            "too few sub-groups are resident to hide memory: more of them help, and fewer memory"
            " accesses"
        )
    if case == "compute":
        return (
            "computations bound: fewer of them help; more resident sub-groups and fewer accesses"
            " help little"
        )
    more = "coalesced accesses" if coalescing else "more resident sub-groups"
    also = f", and {more}" if coalescing or more_sub_groups else ""
    return (
        f"memory bounds: fewer accesses help{also}; more computation for each access costs little"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MwpCwpModel(base.MechanisticModel):
    """Hong & Kim's model as published, on a whole device."""

    name: ClassVar[str] = "mwp-cwp"
    charges: ClassVar[frozenset[str]] = frozenset({"barriers"})

    case_rule: CaseRule = "text"

    @property
    def model(self) -> str:
        """``"mwp-cwp"``, with ``"-printed"`` where Eq. (23) holds as printed."""
        return "mwp-cwp" if self.case_rule == "text" else "mwp-cwp-printed"

    def inputs(self, kernel: base.ProfiledKernel) -> MwpCwpInputs:
        """Collect the model's parameters."""
        device, model, profile = self.device, self.model, kernel.profile
        require = partial(profile.require, model=model)
        units = device.require_int("num_compute_units", model=model)
        geometry = launch_geometry(kernel, device)
        uncoalesced = float(require("alpha_mem_uncoal"))
        barriers = profile.count_of("barrier", device, model=model)
        by_class = bool(profile.alpha) or profile.idg is not None
        issued_barriers = barriers if by_class else 0.0
        # accesses that caches serve are computations to this model, which has no caches
        ratio = 1.0 if profile.dram_ratio is None else profile.dram_ratio
        kept = min(ratio, 1.0)
        coalesced = float(require("alpha_mem_coal"))
        computing = profile.count_of("compute", device, model=model) + issued_barriers
        return MwpCwpInputs(
            **{name: device.require(name, model=model) for name in _OF_DEVICE},
            num_active_compute_units=min(units, kernel.launch.num_groups),
            sub_groups_per_group=geometry.sub_groups_per_group,
            num_groups=kernel.launch.num_groups,
            active_groups=geometry.occupancy / geometry.sub_groups_per_group,
            alpha_comp=computing + (1 - kept) * (coalesced + uncoalesced),
            alpha_mem_coal=kept * coalesced,
            alpha_mem_uncoal=kept * uncoalesced,
            alpha_sync=barriers,
            uncoal_per_mw=float(require("uncoal_per_mw")) if uncoalesced else 1.0,
            load_bytes_per_sub_group=float(require("load_bytes_per_sub_group")) * ratio / kept,
        )

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        inputs = self.inputs(kernel)
        cycles = MwpCwpCycles(inputs, case_rule=self.case_rule)
        return base.TimeEstimate(
            time_s=cycles.exec_cycles_with_synch / inputs.clock_hz,
            bound=BOUNDS[cycles.case],
            breakdown={name: part / inputs.clock_hz for name, part in cycles.exec_parts.items()},
            results=extract(cycles, "mwp", "cwp", "cpi", "rep", "occupancy"),
            advice=cycles.advice,
        )


class MwpCwpRun:
    """Cycles of a run, that is of the concurrent sub-groups of a compute unit.

    As restated, Lemeire et al., Eq. (15)-(16), (26)-(28); the printed conditions leave the tie
    MWP = CWP below the occupancy open; it is taken as bound by memory, as Hong & Kim do. Where the
    cycles of one sub-group alone are given, by MWP-CWP*: the longest of the three cases.
    """

    def __init__(
        self, system: TwoSubsystems, occupancy: float, latency_app: float | None = None
    ) -> None:
        comp_p = system.alpha_comp / system.alpha_mem * system.cpi_comp  # Eq. (22)
        self.mwp = system.latency_mem / system.cpi_mem  # Eq. (15)
        self.cwp = system.latency_mem / comp_p + 1  # Eq. (16)
        mwp, alone = self.mwp, {"compute": comp_p * (occupancy - 1)}
        if latency_app is None:  # Eq. (28)
            alone["latency"] = system.alpha_mem * system.latency_mem
            alone["compute"] += system.alpha_comp * system.cpi_comp
        else:
            mwp, alone["latency"] = min(mwp, occupancy), latency_app
        memory = system.alpha_mem * occupancy * system.cpi_mem
        busy = system.alpha_comp * system.cpi_comp * occupancy
        cases: dict[Case, dict[str, float]] = {
            "occupancy": alone,
            "memory": {"memory": memory, "compute": comp_p * mwp},  # Eq. (26), (29)
            "compute": {"compute": busy, "latency": system.latency_mem},  # Eq. (27)
        }
        self.case: Case = "memory" if self.mwp <= self.cwp else "compute"  # what bounds the run
        if latency_app is not None:
            self.case = max(cases, key=lambda name: sum(cases[name].values()))  # ties: the first
        elif occupancy <= min(self.mwp, self.cwp):
            self.case = "occupancy"
        self.parts = cases[self.case]  # cycles by part
        self.cpr = float(sum(self.parts.values()))  # cycles of the run
        self.wpc = occupancy / self.cpr  # sub-groups per cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class RestatedMwpCwpModel(base.MechanisticModel):
    """MWP-CWP in costs and latencies: restated as published, or MWP-CWP*."""

    variant: Variant = "corrected"

    @property
    def model(self) -> str:
        """``"mwp-cwp-restated"`` or ``"mwp-cwp-corrected"``."""
        return "mwp-cwp-corrected" if self.variant == "corrected" else "mwp-cwp-restated"

    def list_charges(self) -> frozenset[str]:
        """Return barriers for MWP-CWP*: they are part of the time of a sub-group alone."""
        return frozenset({"barriers"} if self.variant == "corrected" else ())

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        device, model = self.device, self.model
        system = two_subsystems(kernel.profile, device, model=model)
        geometry = launch_geometry(kernel, device)
        occupancy, latency = geometry.occupancy, None
        if self.variant == "corrected":
            latency = latency_alone(kernel.profile, device, model=model)
        run = MwpCwpRun(system, occupancy, latency)
        return self._at_rate(
            run.wpc,
            geometry.total_sub_groups,
            BOUNDS[run.case],
            run.parts,
            {
                **extract(run, "mwp", "cwp"),
                "cpi": run.cpr / (occupancy * (system.alpha_comp + system.alpha_mem)),
                "cpr": run.cpr,
                "occupancy": occupancy,
            },
            advice=_advise(run.case, more_sub_groups=occupancy <= run.mwp),
        )
