r"""GPUMech: intervals of one sub-group, and how a scheduler fills its stalls with others.

Source: Huang, Lee, Kim & Lee (2014), "GPUMech: GPU performance modeling technique based on interval
analysis", whose equation numbers are used, as discussed by Lemeire, Cornelis & Konstantinidis.

Left out: latency of computations, issue of memory instructions unless asked for, barriers, groups,
bandwidth, contention for miss registers and DRAM queues. One class of instructions; all sub-groups
are alike.

Where this departs from the paper: Eq. (15) and (16) have minimum and maximum exchanged there, and
Eq. (7) computes instructions per cycle where it says cycles per instruction; all are read as meant.
Eq. (11), (12) and (14) are reconstructed from the numbers that the discussion quotes.
``rr_corrected`` is the correction of Lemeire et al.: round robin always issues from the other
sub-groups, and no more than a stall has room for. Its bound by the number of instructions that the
others have is ours. So are issue costs other than a cycle: Eq. (9), (15) and (16) then count
stalls in issue slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry

Policy = Literal["rr", "rr_corrected", "gto"]
"""Round robin as published, round robin corrected, greedy then oldest."""

_ROUNDING = 1e-12
_LATENCY_BOUND = 1e-9


@dataclass(frozen=True, slots=True)
class Interval:
    """Issued instructions up to a stall, for the interval model."""

    insts: float  # instructions issued
    stall: float  # cycles of the stall that ends the interval
    # class of the instruction whose result is waited for
    cause: str = field(default="", compare=False)
    cpi_issue: float = 1.0  # cycles per issued instruction


class IntervalCycles:
    r"""The cycles of concurrent sub-groups from the intervals of one.

    For instructions :math:`n_i`, stalls :math:`s_i` and :math:`w` sub-groups, the time is
    :math:`\sum_i (c_i n_i + s_i + c_i o_i)`, where :math:`c_i` is the cost of an issue and
    :math:`o_i` is the number of instructions that do not overlap; below, :math:`s_i` is in slots,
    :math:`s_i / c_i`:

    - Eq. (9): :math:`p = \sum c n / (\sum c n + \sum s)`, with :math:`s` in cycles,
    - round robin, Eq. (11): :math:`o_i = \max(0, n_i - 1)\, p\, (w - 1)`,
    - corrected: :math:`o_i = (w - 1) n_i - \min(s_i, w - 1, (w - 1) n_i)`,
    - greedy, Eq. (12), (14)-(16): :math:`o_i = \max(\bar n \min(p s_i, 1) (w - 1) - s_i, 0)`
      with :math:`\bar n` the mean of :math:`n`.

    Round robin as published, and greedy where an interval has no stall, lose instructions and can
    promise more than one instruction per issue slot.
    """

    def __init__(self, intervals: Sequence[Interval], occupancy: float, policy: Policy) -> None:
        if occupancy < 1:
            message = f"occupancy must be at least 1, not {occupancy}"
            raise ParameterError(message, parameter="occupancy")
        base.check_choice(policy, "policy", Policy)
        for interval in intervals:
            base.check_positive(interval.cpi_issue, "cpi_issue")
        instructions = float(sum(interval.insts for interval in intervals))
        issue = float(sum(interval.cpi_issue * interval.insts for interval in intervals))
        self.stall_cycles = float(sum(interval.stall for interval in intervals))
        self.issue_probability = issue / (issue + self.stall_cycles)  # Eq. (9)
        mean, others = instructions / len(intervals), occupancy - 1
        self.nonoverlapped = tuple(
            _find_nonoverlapped(interval, others, policy, self.issue_probability, mean)
            for interval in intervals
        )
        self.issue_cycles = issue + sum(
            interval.cpi_issue * number
            for interval, number in zip(intervals, self.nonoverlapped, strict=True)
        )
        # share of the instructions of the others that overlaps with stalls (Lemeire et al., 5.3);
        # 0 of one sub-group alone
        theirs = others * instructions
        self.overlap = 1 - sum(self.nonoverlapped) / theirs if theirs else 0.0
        self.cpr = self.issue_cycles + self.stall_cycles  # cycles for all sub-groups
        self.wpc = occupancy / self.cpr
        self.ipc = occupancy * instructions / self.cpr  # Eq. (7)


def _find_nonoverlapped(
    interval: Interval, others: float, policy: Policy, probability: float, mean: float
) -> float:
    slots = interval.stall / interval.cpi_issue
    if policy == "rr":
        return max(0.0, interval.insts - 1) * probability * others  # Eq. (11)
    if policy == "rr_corrected":
        theirs = others * interval.insts
        return theirs - min(slots, others, theirs)
    in_stall = min(probability * slots, 1.0)  # Eq. (15)
    return max(mean * in_stall * others - slots, 0.0)  # Eq. (12), (14), (16)


def intervals_of(
    graph: base.InstructionGraph,
    device: DeviceParameters,
    *,
    cpi_issue: float = 1.0,
    count_memory_issue: bool = False,
) -> tuple[Interval, ...]:
    """Cut the program of a sub-group into intervals, by issuing it in order and alone."""
    base.check_positive(cpi_issue, "cpi_issue")
    classes = [device.require_class(name, model="GPUMech") for name in graph.nodes]
    intervals: list[Interval] = []
    finish: list[float] = []
    time = 0.0
    instructions = 0
    for instruction, sources in zip(classes, graph.predecessors, strict=True):
        last = max(sources, key=finish.__getitem__, default=None)
        ready = 0.0 if last is None else finish[last]
        if last is not None and ready > time + _ROUNDING:
            intervals.append(Interval(instructions, ready - time, graph.nodes[last], cpi_issue))
            instructions, time = 0, ready
        is_memory = instruction.kind == "memory"
        is_issued = count_memory_issue or not is_memory
        finish.append(time + (instruction.known_latency if is_memory else cpi_issue))
        time += cpi_issue * is_issued
        instructions += is_issued
    last = max(range(len(finish)), key=finish.__getitem__)
    end = max(finish[last], time)
    if instructions or end > time + _ROUNDING:
        intervals.append(Interval(instructions, end - time, graph.nodes[last], cpi_issue))
    return tuple(intervals)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMechModel(base.MechanisticModel):
    """GPUMech's time of a kernel."""

    policy: Policy = "rr_corrected"  # the scheduler
    cpi_issue: float = 1.0  # cycles per issued instruction of a compute unit
    count_memory_issue: bool = False  # whether memory instructions take an issue, too

    @property
    def model(self) -> str:
        """``"gpumech-"`` and the policy, with ``"-issue"`` where memory instructions are issued."""
        return f"gpumech-{self.policy}{'-issue' if self.count_memory_issue else ''}"

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        profile = kernel.profile
        intervals = intervals_of(
            profile.require("idg", model=self.model),
            self.device,
            cpi_issue=self.cpi_issue,
            count_memory_issue=self.count_memory_issue,
        )
        own = self.cpi_issue * sum(interval.insts for interval in intervals)
        if not own:
            message = (
                f"kernel {profile.name!r}: no instruction of kind compute, which {self.model} needs"
                " (it counts what is issued between loads)"
            )
            raise ModelNotApplicableError(message, parameter="intervals")
        geometry = launch_geometry(kernel, self.device)
        result = IntervalCycles(intervals, geometry.occupancy, self.policy)
        repetitions = profile.repetitions()
        stalls: dict[str, float] = {}
        for interval in intervals:
            stalls[interval.cause] = stalls.get(interval.cause, 0.0) + interval.stall
        is_idle = result.cpr > geometry.occupancy * own * (1 + _LATENCY_BOUND)
        bound: base.Bound = "latency" if is_idle else "issue"
        return self._at_rate(
            result.wpc / repetitions,
            geometry.total_sub_groups,
            bound,
            {"issue": result.issue_cycles, "latency": result.stall_cycles},
            {
                "cpr": result.cpr * repetitions,
                "ipc": result.ipc,
                "overlap": result.overlap,
                "occupancy": geometry.occupancy,
            },
            stalls,
        )
