"""Compute the example kernel of Lemeire et al. by every variant of every model.

Cycles of all resident sub-groups over their number (Figs 2, 14), then an execution profile (Figs 8,
9): a line per pipeline, a column per cycle, and in it the sub-group that occupies the pipeline.

    python examples/example_kernel_cycles.py [SUB_GROUPS [SCHEDULER]]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from countperf.devices.parameters import InstructionClass, declare_device
from countperf.mechanistic.gpumech import GpuMechModel
from countperf.mechanistic.mwp_cwp import RestatedMwpCwpModel
from countperf.mechanistic.pipeline import PipelineModel, Simulation, Workload
from countperf.mechanistic.profile import (
    InstructionGraph,
    KernelProfile,
    LaunchConfiguration,
    MechanisticModel,
    ProfiledKernel,
)
from countperf.mechanistic.roofline import TransitModel, VolkovModel
from countperf.mechanistic.wfg import WorkFlowModel

COSTS = {
    "C": InstructionClass(name="C", subsystem="compute", cpi=1, latency=4, kind="compute"),
    "M": InstructionClass(name="M", subsystem="memory", cpi=2, latency=6, kind="memory"),
}
GRAPH = InstructionGraph("CCMCCM", [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)])
DEVICE = declare_device(
    num_compute_units=1, clock_hz=1.0, sub_group_size=32, cpi_mem_instr=1, classes=COSTS
)
MODELS: Mapping[str, MechanisticModel] = {
    "volkov": VolkovModel(device=DEVICE),
    "transit": TransitModel(device=DEVICE),
    "mwp-cwp-restated": RestatedMwpCwpModel(device=DEVICE, variant="published"),
    "mwp-cwp-corrected": RestatedMwpCwpModel(device=DEVICE),
    "wfg-original": WorkFlowModel(device=DEVICE, variant="original"),
    "wfg-first_fix": WorkFlowModel(device=DEVICE, variant="first_fix"),
    "wfg-corrected": WorkFlowModel(device=DEVICE),
    "gpumech-rr": GpuMechModel(device=DEVICE, policy="rr"),
    "gpumech-rr_corrected": GpuMechModel(device=DEVICE),
    "gpumech-rr_corrected, memory issued": GpuMechModel(device=DEVICE, count_memory_issue=True),
    "gpumech-gto": GpuMechModel(device=DEVICE, policy="gto"),
    "pipeline-rr": PipelineModel(device=DEVICE),
    "pipeline-rr, any order": PipelineModel(device=DEVICE, issue_order="any"),
    "pipeline-gto": PipelineModel(device=DEVICE, scheduler="gto"),
    "pipeline-oldest": PipelineModel(device=DEVICE, scheduler="oldest"),
}


def cycles_of(model: MechanisticModel, sub_groups: int) -> float:
    """Return the cycles in which so many sub-groups, all resident, end."""
    launch = LaunchConfiguration(
        work_items_per_group=32, num_groups=sub_groups, active_groups=sub_groups
    )
    profile = KernelProfile(name="example", alpha=GRAPH.counts(), idg=GRAPH)
    return model.estimate(ProfiledKernel(profile, launch)).time_s


def draw_profile(run: Simulation) -> dict[str, str]:
    """Return a line of each pipeline: the sub-group that occupies it in each cycle, or a dot."""
    lines = {name: ["."] * round(run.cycles) for name in run.subsystems}
    costs = {cost.subsystem: round(cost.cpi) for cost in COSTS.values()}
    for start in run.profile:
        for cycle in range(round(start.time), round(start.time) + costs[start.subsystem]):
            lines[start.subsystem][cycle] = f"{start.group:x}"[-1]
    return {name: "".join(line) for name, line in lines.items()}


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    scheduler = sys.argv[2] if len(sys.argv) > 2 else "rr"
    print(f"{'cycles of sub-groups':36}", *(f"{n:6}" for n in range(1, number + 1)))
    for name, model in MODELS.items():
        print(f"{name:36}", *(f"{cycles_of(model, n):6.1f}" for n in range(1, number + 1)))
    workload = Workload(
        programs=(GRAPH,),
        classes=COSTS,
        concurrent_groups=number,
        scheduler=scheduler,  # pyright: ignore[reportArgumentType] - refused if it is none
    )
    run = Simulation(workload, record=True)
    print(f"\n{run.cycles:g} cycles, overlap {run.overlap:.0%}")
    for name, line in draw_profile(run).items():
        print(f"{name:10} {run.fill[name]:4.0%} {line}")
