r"""MERPSYS: throughput and latency bounds of a kernel, transfers, and applications of both.

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

Applications: transfers, kernels and host steps in streams on one or several devices, scheduled.
After sections 5.4.2 and 6.2, whose applications run one step after the other; streams, which let
transfers overlap with kernels, are an extension. Rules:

1. Steps of one stream run in their order; streams are independent of each other.
2. A device executes one kernel at a time, and has one copy engine for each direction; the host
   executes one step at a time. Each takes the steps that are ready in the order of the program.
3. A copy between devices keeps the engine out of one and the engine into the other busy.
4. A step named in ``after`` is waited for, whatever its stream and device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

from countperf.devices.parameters import LinkParameters
from countperf.errors import ParameterError
from countperf.mechanistic.occupancy import launch_geometry
from countperf.mechanistic.profile import (
    Bound,
    KernelProfile,
    LaunchConfiguration,
    MechanisticModel,
    TimeEstimate,
    check_each,
    check_not_negative,
    check_positive,
    check_whole,
)
from countperf.mechanistic.volkov import latency_alone
from countperf.text import (
    EACH,
    Column,
    Printed,
    Result,
    ShortRepr,
    columns_of,
    format_quantity,
    format_seconds,
    picked,
)

Resource = Literal["cuda_cores", "schedulers", "memory"]
_BOUNDS: dict[Resource, Bound] = {
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
    check_each(check_positive, mem_clock_hz=mem_clock_hz, bus_width_bits=bus_width_bits)
    check_each(check_positive, data_rate=data_rate, clock_hz=clock_hz)
    check_positive(num_compute_units, "num_compute_units")
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
    check_each(check_not_negative, ins_cuda=ins_cuda, ins_issued=ins_issued, gmem_bytes=gmem_bytes)
    check_each(check_positive, sub_group_size=sub_group_size, byte_per_cycle=byte_per_cycle)
    check_positive(cores_per_compute_unit, "cores_per_compute_unit")
    check_positive(schedulers_per_compute_unit, "schedulers_per_compute_unit")
    cycles: dict[Resource, float] = {
        "cuda_cores": sub_group_size * ins_cuda / cores_per_compute_unit,
        "schedulers": ins_issued / schedulers_per_compute_unit,
        "memory": gmem_bytes / byte_per_cycle,
    }
    bound = max(cycles, key=lambda name: cycles[name])
    if cycles[bound] == 0:
        message = "the kernel has no work: ins_cuda, ins_issued and gmem_bytes are zero"
        raise ParameterError(message, parameter="ins_cuda")
    return ResourceUse(cycles=cycles, bound=bound, wpc=1 / cycles[bound])


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
        use = self._resource_use(profile)
        latency = profile.latency_bound
        if latency is None:
            latency = latency_alone(profile, device, model=model)
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

    def _resource_use(self, profile: KernelProfile) -> ResourceUse:
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
        return resource_use(
            ins_cuda=ins_cuda,
            ins_issued=ins_issued,
            gmem_bytes=gmem_bytes,
            sub_group_size=device.require_int("sub_group_size", model=model),
            cores_per_compute_unit=device.require_int("cores_per_compute_unit", model=model),
            schedulers_per_compute_unit=device.require_int(
                "schedulers_per_compute_unit", model=model
            ),
            byte_per_cycle=self._bytes_per_cycle(),
        )

    def _bytes_per_cycle(self) -> float:
        device, model = self.device, self.model
        units = device.require_int("num_compute_units", model=model)
        clock_hz = device.require("clock_hz", model=model)
        if device.mem_clock_hz is None and device.bandwidth_byte_per_s is not None:
            return device.bandwidth_byte_per_s / (units * clock_hz)
        return bytes_per_cycle(
            mem_clock_hz=device.require("mem_clock_hz", model=model),
            bus_width_bits=device.require("bus_width_bits", model=model),
            data_rate=device.require("data_rate", model=model),
            num_compute_units=units,
            clock_hz=clock_hz,
        )


StepKind = Literal["h2d", "d2h", "d2d", "host", "kernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(ShortRepr):
    """One step of an application."""

    kind: StepKind  # a transfer to, from or between devices, work of the host, or a kernel
    n_bytes: float = 0.0  # size of a transfer
    host_s: float = 0.0  # time of the host's work, s
    to: int | None = None  # number of the device that a transfer between devices goes to
    kernel: Any = None  # a kernel, or a text that names one
    # the kernel's sizes
    sizes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    stream: str = "0"  # its stream
    device: int = 0  # number of its device, from 0
    after: tuple[str, ...] = ()  # names of steps that it waits for
    name: str = ""  # its name

    def __post_init__(self) -> None:
        if self.kind not in get_args(StepKind):
            kinds = ", ".join(get_args(StepKind))
            message = f"kind of a step must be one of {kinds}, not {self.kind!r}"
            raise ParameterError(message, parameter="kind")
        check_each(check_not_negative, n_bytes=self.n_bytes, host_s=self.host_s)
        for name, number in (("device", self.device), ("to", self.to or 0)):
            check_whole(number, name, least=0)
        if (self.kernel is None) == (self.kind == "kernel"):
            message = "a kernel step needs a kernel, and a transfer has none"
            raise ParameterError(message, parameter="kernel")
        if (self.kind == "d2d") != (self.to is not None) or self.to == self.device:
            message = "a copy between devices (d2d), and it alone, names another device: to=NUMBER"
            raise ParameterError(message, parameter="to")

    @property
    def engines(self) -> tuple[tuple[int | None, str], ...]:
        """Parts of devices, by number, that execute it; None stands for the host."""
        if self.kind == "d2d":
            return (self.device, "d2h"), (self.to, "h2d")
        return ((None if self.kind == "host" else self.device, self.kind),)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep(ShortRepr):
    """A step in a schedule."""

    name: str  # its name
    step: Step  # the step
    start_s: float  # when it runs, s
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule(Result):
    """Schedule of an application: begin and end of each step."""

    source: str  # where the durations come from: a model's name and devices, or ``"measured"``
    steps: tuple[TimedStep, ...]  # in the order of the program

    __repr__ = Result.__str__

    @property
    def time_s(self) -> float:
        """Time from the start to the end of the last step, s."""
        return max(step.end_s for step in self.steps)

    @property
    def serial_s(self) -> float:
        """Time of all steps one after the other, s."""
        return self.busy_s(*get_args(StepKind))

    def busy_s(self, *kinds: StepKind) -> float:
        """Return the time of all steps of some kinds one after the other, s."""
        return sum(s.end_s - s.start_s for s in self.steps if s.step.kind in kinds)

    def lay_out(self) -> Printed:
        """Give source, time and what overlapping saves; then a row per step."""
        saved = 1 - self.time_s / self.serial_s if self.serial_s else 0.0
        return Printed(
            head=[
                f"{self.source}: {format_quantity(self.time_s, 's')}; one after the other"
                f" {format_quantity(self.serial_s, 's')} (overlap saves {100 * saved:.0f} %)"
            ],
            rows=[
                {
                    "step": step.name,
                    **picked(step.step, "kind", "device", "stream"),
                    **picked(step, "start_s", "end_s"),
                    "duration_s": step.end_s - step.start_s,
                }
                for step in self.steps
            ],
            columns={
                **columns_of("step device stream"),
                **columns_of("start_s", format_seconds),
                "duration_s": Column("takes", format_seconds),
            },
            facts=picked(self, "source", "time_s", "serial_s"),
            name="steps",
        )


def schedule(steps: Sequence[Step], durations_s: Sequence[float], *, source: str = "") -> Schedule:
    """Schedule steps that take given times; see the module for the rules."""
    if not steps or len(steps) != len(durations_s):
        message = f"{len(steps)} steps and {len(durations_s)} durations; there must be one for each"
        raise ParameterError(message, parameter="durations_s")
    free: dict[tuple[Any, ...], float] = {}
    ends: dict[str, float] = {}
    done: dict[int, TimedStep] = {}
    waiting = list(enumerate(steps))
    check_names(steps)
    while waiting:
        # of the steps at the heads of their streams, the one that can start first, then in order
        heads: dict[tuple[int, str], tuple[int, Step]] = {}
        for number, step in waiting:
            heads.setdefault((step.device, step.stream), (number, step))
        able = [
            (max(_ready(step, free, ends), *(free.get(e, 0.0) for e in step.engines)), number)
            for number, step in heads.values()
            if all(name in ends for name in step.after)
        ]
        start, number = min(able)
        step = steps[number]
        end = start + check_not_negative(durations_s[number], "durations_s")
        free |= dict.fromkeys((*step.engines, (step.device, "stream", step.stream)), end)
        name = step_name(step, number)
        ends[name] = end
        done[number] = TimedStep(name=name, step=step, start_s=start, end_s=end)
        waiting.remove((number, step))
    return Schedule(source=source, steps=tuple(done[number] for number in range(len(steps))))


def _ready(step: Step, free: Mapping[tuple[Any, ...], float], ends: Mapping[str, float]) -> float:
    own = free.get((step.device, "stream", step.stream), 0.0)
    return max([own, *(ends[name] for name in step.after)])


def step_name(step: Step, number: int) -> str:
    """Return the name of a step, or its kind and number from 1."""
    return step.name or f"{step.kind} {number + 1}"


def check_names(steps: Sequence[Step]) -> None:
    """Refuse names that two steps have, and waiting for what is no earlier step."""
    known: set[str] = set()
    for position, step in enumerate(steps):
        for name in step.after:
            if name not in known:
                message = (
                    f"step {position + 1} waits for {name!r}, which is no earlier step; there are"
                    f" {', '.join(sorted(known)) or 'none'}"
                )
                raise ParameterError(message, parameter="after")
        name = step_name(step, position)
        if name in known:
            message = f"two steps are called {name!r}; give each a name of its own"
            raise ParameterError(message, parameter="name")
        known.add(name)


def lay_out_schedules(points: Sequence[Mapping[str, int]], of: Sequence[Schedule]) -> Printed:
    """Give a row per point of variables: the time, and how long each kind of step runs."""
    rows = [
        {
            "variables": point,
            **picked(scheduled, "time_s", "serial_s"),
            "kernels_s": scheduled.busy_s("kernel"),
            "transfers_s": scheduled.busy_s("h2d", "d2h", "d2d"),
            "host_s": scheduled.busy_s("host"),
        }
        for point, scheduled in zip(points, of, strict=True)
    ]
    source = max((scheduled.source for scheduled in of), key=len)
    times = columns_of("time_s serial_s kernels_s transfers_s host_s", format_seconds)
    columns = {"variables": EACH, **times}
    return Printed(
        head=[source], rows=rows, columns=columns, facts={"source": source}, name="points"
    )
