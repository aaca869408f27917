r"""MERPSYS: throughput and latency bounds of a kernel, and times of transfers.

Models a kernel by Volkov's two bounds, latency over occupancy and the busiest of three resources,
with one factor for the architecture; a transfer by a startup and a bandwidth. Source: Gajger &
Czarnul (2018), "Modelling and simulation of GPU processing in the MERPSYS environment"; equation
numbers are theirs.

Assumptions: occupancy and throughput are constant over the run; the bytes of global memory are
those that caches do not serve.

===================  ==================================  ==========================
symbol               name                                unit
===================  ==================================  ==========================
W_L                  ``total_sub_groups``                sub-group
Lat_bound            ``latency_bound``                   cycle
INS_CUDA             ``ins_cuda``                        instruction/sub-group
INS_issued           ``ins_issued``                      issue slot/sub-group
GMem_bytes           ``gmem_bytes``                      byte/sub-group
CUDA cores           ``cores_per_compute_unit``          core/compute unit
warp schedulers      ``schedulers_per_compute_unit``     scheduler/compute unit
GMem_clock           ``mem_clock_hz``                    Hz
bus width            ``bus_width_bits``                  bit
data rate            ``data_rate``                       transfer/cycle
w_th                 ``wpc``                             sub-group/cycle
lambda_k, lambda_c   ``lambda_k``, ``lambda_c``          1
t_s, bw              ``startup_s``, ``bandwidth_byte_per_s``  s, byte/s
===================  ==================================  ==========================

Left out: local memory, special functions, double precision, caches, gradual saturation of memory,
the last partial wave.

Where this departs from the paper: ``lambda_k`` is the estimated over the measured time (printed:
estimated over estimated); ``lambda_c`` solves Eq. (4.6) exactly, with the startup taken off, where
the text divides estimated by measured. Slots saved by issuing two instructions at once count as
often as their loop runs (the text counts such a pair inside the loop once). What a profile does not
state is derived where that is the same quantity: the latency bound is the time of one sub-group
alone; ``ins_cuda`` are its computations and ``ins_issued`` all its instructions, with none issued
twice or in pairs; the bytes are those of its memory instructions; and the peak of global memory is
``bandwidth_byte_per_s`` where the device does not state a memory clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from countperf.devices.parameters import LinkParameters
from countperf.errors import ParameterError
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.profile import (
    Bound,
    KernelProfile,
    LaunchConfiguration,
    MechanisticModel,
    TimeEstimate,
    check_not_negative,
    check_whole,
)
from countperf.mechanistic.volkov import latency_alone

Resource = Literal["cuda_cores", "schedulers", "memory"]
_BOUNDS: dict[Resource, Bound] = {
    "cuda_cores": "compute",
    "schedulers": "issue",
    "memory": "memory",
}


def critical_path(num_nodes: int, edges: Iterable[tuple[int, int, float]]) -> float:
    """Return the longest path through a graph of instructions in program order, cycles."""
    check_whole(num_nodes, "num_nodes")
    starts = [0.0] * num_nodes
    for source, target, cycles in sorted(edges):
        if not 0 <= source < target < num_nodes:
            message = (
                f"edge ({source}, {target}) leaves the {num_nodes} nodes or leads backwards, which"
                " would make a cycle"
            )
            raise ParameterError(message, parameter="edges")
        check_not_negative(cycles, "edges")
        starts[target] = max(starts[target], starts[source] + cycles)
    return max(starts)


def transfer_time(link: LinkParameters, n_bytes: float) -> float:
    """Return the time of a transfer between host and device, s, Eq. (4.6)."""
    check_not_negative(n_bytes, "n_bytes")
    return link.startup_s + n_bytes / (link.bandwidth_byte_per_s * link.lambda_c)


@dataclass(frozen=True, slots=True, kw_only=True)
class MerpsysModel(MechanisticModel):
    """MERPSYS's time of a kernel."""

    name: ClassVar[str] = "merpsys"

    def estimate(self, profile: KernelProfile, launch: LaunchConfiguration, /) -> TimeEstimate:
        """Estimate the time of one launch; errors as in the base class."""
        device, model = self.device, self.model
        geometry = launch_geometry(profile, launch, device)
        cycles = self.resource_cycles(profile)
        busiest = max(cycles, key=lambda name: cycles[name])
        latency = profile.latency_bound
        if latency is None:
            latency = latency_alone(profile, device, model=model)
        roof = 1 / cycles[busiest]
        wpc = min(geometry.occupancy / latency, roof)  # Eq. (4.3)
        kind, share = _BOUNDS[busiest], wpc / roof
        return self._at_rate(
            wpc * (device.lambda_k or 1.0),  # Eq. (4.1)
            geometry.total_sub_groups,
            kind if wpc == roof else "latency",
            {kind: share, "latency": 1 - share},
            {
                "wpc": wpc,
                "occupancy": geometry.occupancy,
                "latency_bound": latency,
                **{f"cycles[{name}]": busy for name, busy in cycles.items()},
            },
        )

    def resource_cycles(self, profile: KernelProfile) -> dict[Resource, float]:
        """Return the cycles of each resource of a compute unit for a sub-group, Eq. (4.4)."""
        device, model = self.device, self.model
        ins_cuda, ins_issued = profile.ins_cuda, profile.ins_issued
        if ins_cuda is None:
            ins_cuda = profile.count_of("compute", device, model=model)
        if ins_issued is None:
            ins_issued = profile.instructions_per_sub_group(model=model)
        gmem_bytes = profile.gmem_bytes
        if gmem_bytes is None and profile.load_bytes_per_sub_group is not None:
            accesses = profile.count_of("memory", device, model=model)
            gmem_bytes = profile.load_bytes_per_sub_group * accesses
        if gmem_bytes is None:
            gmem_bytes = profile.require("gmem_bytes", model=model)
        if not any((ins_cuda, ins_issued, gmem_bytes)):
            message = "the kernel has no work: ins_cuda, ins_issued and gmem_bytes are zero"
            raise ParameterError(message, parameter="ins_cuda")
        cores = device.require_int("cores_per_compute_unit", model=model)
        schedulers = device.require_int("schedulers_per_compute_unit", model=model)
        return {
            "cuda_cores": device.require_int("sub_group_size", model=model) * ins_cuda / cores,
            "schedulers": ins_issued / schedulers,
            "memory": gmem_bytes / self.bytes_per_cycle(),
        }

    def bytes_per_cycle(self) -> float:
        """Return the share of global memory of a compute unit, byte/cycle, Eq. (4.5)."""
        device, model = self.device, self.model
        units = device.require_int("num_compute_units", model=model)
        clock_hz = device.require("clock_hz", model=model)
        if device.mem_clock_hz is None and device.bandwidth_byte_per_s is not None:
            return device.bandwidth_byte_per_s / (units * clock_hz)
        mem_clock_hz = device.require("mem_clock_hz", model=model)
        width = device.require("bus_width_bits", model=model)
        data_rate = device.require("data_rate", model=model)
        return mem_clock_hz * width / 8 * data_rate / (units * clock_hz)
