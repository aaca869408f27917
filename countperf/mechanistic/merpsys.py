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
computations, ``ins_issued`` all its instructions, with none issued twice or in pairs; the bytes are
those of its memory instructions; and the peak of global memory is ``bandwidth_byte_per_s`` where
the device does not state a memory clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from countperf.devices.parameters import LinkParameters
from countperf.errors import ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.volkov import latency_alone

Resource = Literal["cuda_cores", "schedulers", "memory"]
_BOUNDS: dict[Resource, base.Bound] = {
    "cuda_cores": "compute",
    "schedulers": "issue",
    "memory": "memory",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUse:
    """Cycles of a compute unit that a sub-group takes of each resource."""

    cycles: Mapping[Resource, float]  # the three terms of Eq
    bound: Resource  # the largest
    wpc: float  # sub-groups per cycle that it allows


def bytes_per_cycle(
    *,
    mem_clock_hz: float,
    bus_width_bits: float,
    data_rate: float,
    num_compute_units: float,
    clock_hz: float,
) -> float:
    """Return the share of global memory of a compute unit, byte/cycle, Eq. (4.5)."""
    return mem_clock_hz * bus_width_bits / 8 * data_rate / (num_compute_units * clock_hz)


def resource_use(
    *,
    ins_cuda: float,
    ins_issued: float,
    gmem_bytes: float,
    sub_group_size: float,
    cores_per_compute_unit: float,
    schedulers_per_compute_unit: float,
    byte_per_cycle: float,
) -> ResourceUse:
    """Bound the throughput of a compute unit by its busiest resource, Eq. (4.4)."""
    cycles: dict[Resource, float] = {
        "cuda_cores": sub_group_size * ins_cuda / cores_per_compute_unit,
        "schedulers": ins_issued / schedulers_per_compute_unit,
        "memory": gmem_bytes / byte_per_cycle,
    }
    bound = max(cycles, key=cycles.__getitem__)
    if cycles[bound] == 0:
        message = "the kernel has no work: ins_cuda, ins_issued and gmem_bytes are zero"
        raise ParameterError(message, parameter="ins_cuda")
    return ResourceUse(cycles=cycles, bound=bound, wpc=1 / cycles[bound])


def critical_path(num_nodes: int, edges: Iterable[tuple[int, int, float]]) -> float:
    """Return the longest path through a graph of instructions in program order, cycles."""
    starts = [0.0] * num_nodes
    for source, target, cycles in sorted(edges):
        starts[target] = max(starts[target], starts[source] + cycles)
    return max(starts)


def transfer_time(link: LinkParameters, n_bytes: float) -> float:
    """Return the time of a transfer between host and device, s, Eq. (4.6)."""
    return link.startup_s + n_bytes / (link.bandwidth_byte_per_s * link.lambda_c)


@dataclass(frozen=True, slots=True, kw_only=True)
class MerpsysModel(base.MechanisticModel):
    """MERPSYS's time of a kernel."""

    name: ClassVar[str] = "merpsys"

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        device, model = self.device, self.model
        geometry = launch_geometry(kernel, device)
        use = self._resource_use(kernel.profile)
        latency = kernel.profile.latency_bound
        if latency is None:
            latency = latency_alone(kernel.profile, device, model=model)
        wpc = min(geometry.occupancy / latency, use.wpc)  # Eq. (4.3)
        kind, share = _BOUNDS[use.bound], wpc / use.wpc
        return self._at_rate(
            wpc * (device.lambda_k or 1.0),  # Eq. (4.1)
            geometry.total_sub_groups,
            kind if wpc == use.wpc else "latency",
            {kind: share, "latency": 1 - share},
            {
                "wpc": wpc,
                "occupancy": geometry.occupancy,
                "latency_bound": latency,
                **{f"cycles[{name}]": cycles for name, cycles in use.cycles.items()},
            },
        )

    def _resource_use(self, profile: base.KernelProfile) -> ResourceUse:
        device, model = self.device, self.model
        ins_cuda, ins_issued = profile.ins_cuda, profile.ins_issued
        if ins_cuda is None:
            ins_cuda = profile.count_of("compute", device, model=model)
        if ins_issued is None:
            ins_issued = sum(profile.counts(model=model).values())
        gmem_bytes = profile.gmem_bytes
        if gmem_bytes is None and profile.load_bytes_per_sub_group is not None:
            accesses = profile.count_of("memory", device, model=model)
            gmem_bytes = profile.load_bytes_per_sub_group * accesses
        if gmem_bytes is None:
            gmem_bytes = profile.require("gmem_bytes", model=model)
        return resource_use(
            ins_cuda=ins_cuda,
            ins_issued=ins_issued,
            gmem_bytes=gmem_bytes,
            sub_group_size=self.constant("sub_group_size"),
            cores_per_compute_unit=self.constant("cores_per_compute_unit"),
            schedulers_per_compute_unit=self.constant("schedulers_per_compute_unit"),
            byte_per_cycle=self._bytes_per_cycle(),
        )

    def _bytes_per_cycle(self) -> float:
        units, clock_hz = self.constant("num_compute_units"), self.constant("clock_hz")
        if self.device.mem_clock_hz is None and self.device.bandwidth_byte_per_s is not None:
            return self.device.bandwidth_byte_per_s / (units * clock_hz)
        return bytes_per_cycle(
            mem_clock_hz=self.constant("mem_clock_hz"),
            bus_width_bits=self.constant("bus_width_bits"),
            data_rate=self.constant("data_rate"),
            num_compute_units=units,
            clock_hz=clock_hz,
        )
