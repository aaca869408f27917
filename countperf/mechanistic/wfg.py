r"""Work flow graph: the average cycles of a sub-group from the sequence of what it does.

Source: Baghsorkhi, Delahaye, Patel, Gropp & Hwu (2010), doi:10.1145/1693453.1693470, as quoted and
corrected by Lemeire, Cornelis & Konstantinidis, whose equation numbers are used.

Every memory instruction depends on the computations before it and has a dependent; nothing inside a
sub-group overlaps with its memory instructions. Left out: branches, group granularity, the latency
of an arc that leaves a barrier: barriers enter Eq. (35) only.

Where this departs from the paper: Eq. (30) and (31) as printed multiply by the count of a block
twice; once is meant. Eq. (42) subtracts the latency of one block from a mean over all, so that with
unequal blocks the cycles of a run may still fall as the occupancy rises; that is the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry

Variant = Literal["original", "first_fix", "corrected"]
"""Exposed memory latency counts for every sub-group, Eq. (36), or once per run, Eq. (41), or once
without the cycles that hide results of computations (WFG*), Eq. (42)."""

BlockKind = Literal["comp", "mem", "sync"]

_BUSY = 1e-9


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a sub-group's program, for the work flow graph."""

    kind: BlockKind  # computations, one memory instruction, or one barrier
    count: float = 1.0  # number of computations
    ilp: float = 1.0  # mean number of independent instructions among them, at least 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFlowCosts:
    """Costs of computations and memory instructions."""

    cpi_comp: float  # cycles between the starts of two instructions, and from start to result
    latency_comp: float
    cpi_mem: float
    latency_mem: float
    # cycles that a memory instruction takes of the compute pipeline
    cpi_mem_instr: float | None = None


class WorkFlowCycles:
    r"""Average cycles of a sub-group.

    :math:`CPW = \sum_i trans_i + \sum_{mem} \max(trans_{mem}, exposed)`:

    - Eq. (30): :math:`trans_i = n_i \max(\lambda_{comp}, \Lambda_{comp} / (ILP_i\, \omega))`,
    - Eq. (31): :math:`cyc_{comp} = \sum trans_i + \lambda^{ins}_{mem} \alpha_{mem}`,
    - Eq. (33), (34): :math:`trans_{mem} = \max(\lambda^{ins}_{mem}, \lambda_{mem} - \sum trans_i /
      \alpha_{mem})`,
    - Eq. (35): :math:`NBC = cyc_{comp} / (\alpha_{mem} + \alpha_{sync} + 1)`,
    - Eq. (36): :math:`exposed = \Lambda_{mem} - (\omega - 1) NBC`; Eq. (41): that over
      :math:`\omega`,
    - Eq. (42): :math:`exposed = \Lambda_{mem}/\omega - \max(0, \frac{\omega - 1}{\omega} NBC - n_i
      \Lambda_{comp} / (\omega\, ILP_i))` with :math:`i` the block of computations before.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        occupancy: float,
        costs: WorkFlowCosts,
        *,
        variant: Variant = "corrected",
    ) -> None:
        base.check_choice(variant, "variant", Variant)
        mem_issue = costs.cpi_mem_instr  # what a memory instruction takes of the compute pipeline
        if mem_issue is None:
            mem_issue = 0.0 if variant == "corrected" else costs.cpi_comp
        alpha_mem = sum(block.kind == "mem" for block in blocks)
        alpha_sync = sum(block.kind == "sync" for block in blocks)
        comp = [block for block in blocks if block.kind == "comp"]
        self.computation = sum(  # Eq. (30)
            block.count * max(costs.cpi_comp, costs.latency_comp / (block.ilp * occupancy))
            for block in comp
        )
        mem_trans = 0.0
        if alpha_mem:  # Eq. (33), (34)
            mem_trans = max(mem_issue, costs.cpi_mem - self.computation / alpha_mem)
        issued = self.computation + mem_issue * alpha_mem  # Eq. (31)
        nbc_avg = issued / (alpha_mem + alpha_sync + 1)  # Eq. (35)
        self.memory = self.exposed_mem = 0.0  # the latter is latency that nothing hides
        before, others = None, occupancy - 1
        for block in blocks:
            if block.kind == "comp":
                before = block
            elif block.kind == "mem":
                hidden = others * nbc_avg  # of the latency, by other sub-groups
                exposed = costs.latency_mem - hidden  # Eq. (36)
                if variant == "first_fix":  # Eq. (41)
                    exposed /= occupancy
                if variant == "corrected":  # Eq. (42)
                    spent = (
                        0.0 if before is None else before.count * costs.latency_comp / before.ilp
                    )
                    exposed = (costs.latency_mem - max(0.0, hidden - spent)) / occupancy
                self.memory += max(mem_trans, exposed)
                self.exposed_mem += max(0.0, exposed - mem_trans)
        self.cpw = float(self.computation + self.memory)
        if self.cpw == 0:
            raise ParameterError("blocks hold no work: their cycles are 0", parameter="blocks")
        self.cpr, self.wpc = self.cpw * occupancy, 1 / self.cpw
        # cycles per sub-group in which either pipeline is busy
        self.issuing = costs.cpi_comp * sum(block.count for block in comp)
        self.busy_comp = self.issuing + alpha_mem * mem_issue
        self.busy_mem = alpha_mem * costs.cpi_mem

    @property
    def bound(self) -> base.Bound:
        """The pipeline that is always busy, or latency."""
        if self.cpw <= self.busy_comp * (1 + _BUSY):
            return "compute"
        return "memory" if self.cpw <= self.busy_mem * (1 + _BUSY) else "latency"


def blocks_of(graph: base.InstructionGraph, device: DeviceParameters) -> tuple[Block, ...]:
    """Cut the program of a sub-group at memory instructions and barriers."""
    sources = graph.predecessors
    blocks: list[Block] = []
    depths: dict[int, int] = {}  # of the computations of the block at hand

    def end_block() -> None:
        if depths:
            blocks.append(Block("comp", len(depths), len(depths) / max(depths.values())))
        depths.clear()

    for index, name in enumerate(graph.nodes):
        kind = device.require_class(name, model="the work flow graph").kind
        if kind == "compute":
            depths[index] = 1 + max((depths.get(source, 0) for source in sources[index]), default=0)
        else:
            end_block()
            blocks.append(Block("mem" if kind == "memory" else "sync"))
    end_block()
    return tuple(blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFlowModel(base.MechanisticModel):
    """Work flow graph's time of a kernel."""

    charges: ClassVar[frozenset[str]] = frozenset({"barriers"})

    variant: Variant = "corrected"  # how much of the memory latency is exposed

    @property
    def model(self) -> str:
        """``"wfg-"`` and the variant."""
        return f"wfg-{self.variant}"

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        profile = kernel.profile
        repetitions = profile.repetitions()
        blocks = blocks_of(profile.require("idg", model=self.model), self.device)
        geometry = launch_geometry(kernel, self.device)
        costs = self._find_costs(profile, blocks)
        result = WorkFlowCycles(blocks, geometry.occupancy, costs, variant=self.variant)
        return self._at_rate(
            result.wpc / repetitions,
            geometry.total_sub_groups,
            result.bound,
            {"compute": result.computation, "memory": result.memory},
            {
                "cpw": result.cpw * repetitions,
                "cpr": result.cpr * repetitions,
                "occupancy": geometry.occupancy,
            },
            {
                "results of computations": result.computation - result.issuing,
                "results of memory": result.exposed_mem,
            },
        )

    def _find_costs(self, profile: base.KernelProfile, blocks: Sequence[Block]) -> WorkFlowCosts:
        kinds = {block.kind for block in blocks}
        # of a kind that does not occur, the costs have no effect
        comp = mem = (1.0, 0.0)
        if "comp" in kinds:
            comp = profile.mean_cost("compute", self.device, model=self.model)
        if "mem" in kinds:
            mem = profile.mean_cost("memory", self.device, model=self.model)
        mem_issue = self.device.cpi_mem_instr
        if self.variant == "corrected":
            mem_issue = None
        elif "comp" not in kinds:
            mem_issue = self.device.require("cpi_mem_instr", model=self.model)
        return WorkFlowCosts(
            cpi_comp=comp[0],
            latency_comp=comp[1],
            cpi_mem=mem[0],
            latency_mem=mem[1],
            cpi_mem_instr=mem_issue,
        )
