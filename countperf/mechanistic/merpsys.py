r"""MERPSYS: throughput and latency bounds of a kernel, and times of transfers.

Source: Gajger & Czarnul (2018), "Modelling and simulation of GPU processing in the MERPSYS
environment"; equation numbers are theirs. Volkov's two bounds, with one factor for the
architecture.

Left out: local memory, special functions, double precision, caches, gradual saturation of memory,
the last partial wave. Bytes of global memory are those that caches do not serve.

Where this departs from the paper: ``lambda_k`` is the estimated over the measured time (printed:
estimated over estimated); ``lambda_c`` solves Eq. (4.6) exactly, with the startup taken off, where
the text divides estimated by measured. Slots saved by issuing two instructions at once count as
often as their loop runs (the text counts such a pair inside the loop once). What a profile does not
state is derived: the latency bound is the time of one sub-group alone; ``ins_cuda`` are its
computations, ``ins_issued`` the `issue_slots` of all its instructions; the bytes are those of its
memory instructions; and the peak of global memory is ``bandwidth_byte_per_s`` where
the device does not state a memory clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from countperf.devices.parameters import LinkParameters
from countperf.errors import ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.roofline import latency_alone

_BOUNDS: dict[str, base.Bound] = {
    "cuda_cores": "compute",
    "schedulers": "issue",
    "memory": "memory",
}


def critical_path(num_nodes: int, edges: Iterable[tuple[int, int, float]]) -> float:
    """Return the longest path through a graph of instructions in program order, cycles."""
    starts = [0.0] * num_nodes
    for source, target, cycles in sorted(edges):
        starts[target] = max(starts[target], starts[source] + cycles)
    return max(starts)


def issue_slots(executed: float, *, reissues: float = 0.0, dual_issued_pairs: float = 0.0) -> float:
    """Return the issue slots that executed instructions of a sub-group take.

    Re-issues are further transactions of split accesses and further passes over banks. A pair
    shares a slot, and counts as often as it runs.

    Examples
    --------
    >>> issue_slots(66, dual_issued_pairs=12)
    54.0
    """
    base.check_not_negative(executed, "executed")
    base.check_not_negative(reissues, "reissues")
    if 2 * base.check_not_negative(dual_issued_pairs, "dual_issued_pairs") > executed:
        message = f"dual_issued_pairs is {dual_issued_pairs}, but {executed} make fewer pairs"
        raise ParameterError(message, parameter="dual_issued_pairs")
    return executed + reissues - dual_issued_pairs


def transfer_time(link: LinkParameters, n_bytes: float) -> float:
    """Return the time of a transfer between host and device, s, Eq. (4.6)."""
    return link.startup_s + n_bytes / (link.bandwidth_byte_per_s * link.lambda_c)


@dataclass(frozen=True, slots=True, kw_only=True)
class MerpsysModel(base.MechanisticModel):
    """MERPSYS's time of a kernel."""

    name: ClassVar[str] = "merpsys"
    charges: ClassVar[frozenset[str]] = frozenset({"barriers"})  # issued, and part of the latency

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        device, model = self.device, self.model
        geometry = launch_geometry(kernel, device)
        cycles = self.count_cycles(kernel.profile)
        bound = max(cycles, key=cycles.__getitem__)
        most = 1 / cycles[bound]
        latency = kernel.profile.latency_bound
        if latency is None:
            latency = latency_alone(kernel.profile, device, model=model)
        wpc = min(geometry.occupancy / latency, most)  # Eq. (4.3)
        kind, share = _BOUNDS[bound], wpc / most
        return self._at_rate(
            wpc * (device.lambda_k or 1.0),  # Eq. (4.1)
            geometry.total_sub_groups,
            kind if wpc == most else "latency",
            {kind: share, "latency": 1 - share},
            {
                "wpc": wpc,
                "occupancy": geometry.occupancy,
                "latency_bound": latency,
                **{f"cycles[{name}]": taken for name, taken in cycles.items()},
            },
        )

    def count_cycles(self, profile: base.KernelProfile) -> dict[str, float]:
        """Return the cycles that a sub-group takes of each resource, Eq. (4.4)."""
        device, model = self.device, self.model
        ins_cuda, ins_issued = profile.ins_cuda, profile.ins_issued
        if ins_cuda is None:
            ins_cuda = profile.count_of("compute", device, model=model)
        if ins_issued is None:
            ins_issued = issue_slots(
                sum(profile.counts(model=model).values()),
                reissues=profile.reissues,
                dual_issued_pairs=profile.dual_issued_pairs,
            )
        gmem_bytes = profile.gmem_bytes
        if gmem_bytes is None and profile.load_bytes_per_sub_group is not None:
            accesses = profile.count_of("memory", device, model=model)
            gmem_bytes = profile.load_bytes_per_sub_group * accesses * (profile.dram_ratio or 1.0)
        if gmem_bytes is None:
            gmem_bytes = profile.require("gmem_bytes", model=model)
        cores = self.constant("sub_group_size") * ins_cuda / self.constant("cores_per_compute_unit")
        cycles = {
            "cuda_cores": cores,
            "schedulers": ins_issued / self.constant("schedulers_per_compute_unit"),
            "memory": gmem_bytes / self.bytes_per_cycle,
        }
        if not any(cycles.values()):
            message = "the kernel has no work: ins_cuda, ins_issued and gmem_bytes are zero"
            raise ParameterError(message, parameter="ins_cuda")
        return cycles

    @property
    def bytes_per_cycle(self) -> float:
        """Share of global memory of a compute unit, byte/cycle, Eq. (4.5)."""
        share = self.device.achievable_bandwidth_share or 1.0
        units, clock_hz = self.constant("num_compute_units"), self.constant("clock_hz") / share
        if self.device.mem_clock_hz is None and self.device.bandwidth_byte_per_s is not None:
            return self.device.bandwidth_byte_per_s / (units * clock_hz)
        width = self.constant("mem_clock_hz") * self.constant("bus_width_bits") / 8
        return width * self.constant("data_rate") / (units * clock_hz)
