r"""TMM: steps of an algorithm on a machine of many threads, and the waves of its groups.

Source: Ma, Chamberlain & Agrawal (2014), "Performance modeling for highly-threaded many-core GPUs";
equation numbers are theirs. The model gives a trend: a step takes a cycle here, and `countperf
compare` fits a factor.

An operation is a step; scheduling inside a wave is perfect, and the fullest compute unit sets its
time; waves are synchronous, so that the zigzag of Eq. (3) is an upper bound of the effect. Left
out: bandwidth (latency only), issue, the mix of instructions. Caching is part of the count of
transactions in Eq. (7); ``caching`` is the factor of Eq. (5) for counts without it. Eq. (15) fits a
trend to measured times. L is in steps of work items, and a transaction serves C of them: where a
device states no L, `with_latency_steps` takes C times the latency of global memory in cycles; C is
a line of memory in words of 4 bytes (the paper's GTX 480: 16384 steps, 32 times 512 cycles).

Where this departs from the paper: it introduces Q as the number of multiprocessors, yet uses P/Q
for it throughout; P/Q is read as ``num_compute_units``. Eq. (12) prints the cube of the number of
vertices in its memory term, where Eq. (14) and the substitution give the square. The model of a
launch counts as ``active_groups`` no more groups than the fullest compute unit has, which matters
only where there are fewer groups than slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from countperf.devices.parameters import DeviceParameters
from countperf.errors import ParameterError
from countperf.mechanistic import profile as base
from countperf.mechanistic.occupancy import launch_geometry
from countperf.text import extract

Term = Literal["work", "span", "memory"]

_BOUNDS: dict[Term, base.Bound] = {"work": "compute", "span": "latency", "memory": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBound:
    """Steps of an algorithm, and the term that gives them."""

    steps: float  # the largest term
    which: Term  # its name
    scheduling: float = 1.0  # the factor of Eq. (3), of groups that run in waves
    caching: float = 1.0  # the factor of Eq. (2), of misses
    waves: int = 1  # times that the slots for groups are filled


def step_bound(
    *,
    work: float,
    span: float,
    transactions: float,
    latency_steps: float,
    work_items_per_core: float,
    num_cores: float,
    max_work_items_per_core: float | None = None,
) -> StepBound:
    r"""Return the asymptotic running time of an algorithm, in steps.

    Eq. (1): :math:`T_P = \max(T_1/P, T_\infty, M L / (\mathcal{T} P))`.
    """
    if max_work_items_per_core is not None and work_items_per_core > max_work_items_per_core:
        message = (
            f"work_items_per_core is {work_items_per_core}, but the device holds at most"
            f" {max_work_items_per_core}"
        )
        raise ParameterError(message, parameter="work_items_per_core")
    if work == 0 and span == 0 and transactions == 0:
        message = "the kernel has no work: work, span and transactions are zero"
        raise ParameterError(message, parameter="work")
    terms: dict[Term, float] = {
        "work": work / num_cores,
        "span": float(span),
        "memory": transactions * latency_steps / (work_items_per_core * num_cores),
    }
    which = max(terms, key=terms.__getitem__)
    return StepBound(steps=terms[which], which=which)


def caching_factor(
    *,
    hit_rate: float = 1.0,
    miss_rate: float | None = None,
    slowdown: float = 1.0,
    fits_on_chip: bool = False,
) -> float:
    r"""Return how much longer an algorithm takes for its cache misses.

    Eq. (2): 1 where the working set fits on the chip, else :math:`r_H + r_M G`; without a rate of
    misses, :math:`r_M = 1 - r_H`.
    """
    misses = 1 - hit_rate if miss_rate is None else miss_rate
    for name, rate in (("hit_rate", hit_rate), ("miss_rate", misses)):
        if not 0 <= rate <= 1:
            raise ParameterError(f"{name} must be in 0 to 1, not {rate}", parameter=name)
    if base.check_positive(slowdown, "slowdown") < 1:
        raise ParameterError(f"slowdown must be at least 1, not {slowdown}", parameter="slowdown")
    return 1.0 if fits_on_chip else hit_rate + misses * slowdown


def scheduling_factor(num_groups: int, active_groups: int, num_compute_units: int) -> float:
    r"""Return how much longer a kernel takes because its last wave of groups is not full.

    Eq. (3): :math:`\lceil B_r / W \rceil W / B_r` with :math:`W = B_a P / Q` slots. At least 1,
    and 1 just where the groups are a multiple of the slots.
    """
    slots = active_groups * num_compute_units
    return -(-num_groups // slots) * slots / num_groups


def compute_scheduled_steps(
    *,
    num_groups: int,
    active_groups: int,
    num_compute_units: int,
    caching: float = 1.0,
    **terms: Any,
) -> StepBound:
    r"""Return the steps of a kernel whose groups run in waves; terms are those of `step_bound`.

    Eq. (7): :math:`\max(T_1/P, M L / (\mathcal{T} P)) \lceil B_r / W \rceil W / B_r`, times
    ``caching`` as in Eq. (5).
    """
    base.check_positive(caching, "caching")
    bound = step_bound(span=0, **terms)
    factor = scheduling_factor(num_groups, active_groups, num_compute_units)
    return replace(
        bound,
        steps=bound.steps * caching * factor,
        scheduling=factor,
        caching=caching,
        waves=-(-num_groups // (active_groups * num_compute_units)),
    )


def with_latency_steps(device: DeviceParameters) -> DeviceParameters:
    """Return a device with L: as it is stated, else C times the latency of global memory."""
    memory = device.classes.get("ld.global.s32")
    if device.latency_steps is not None or memory is None or memory.latency is None:
        return device
    accesses = device.chunk or (device.cache_line_bytes or 128) / 4
    return device.with_values(latency_steps=accesses * memory.latency)


@dataclass(frozen=True, slots=True, kw_only=True)
class TmmModel(base.MechanisticModel):
    """TMM's time of a kernel: Eq. (7), a cycle for each step."""

    name: ClassVar[str] = "tmm"

    caching: float = 1.0  # the factor of Eq. (2), where the transactions are those without a cache

    def estimate(self, kernel: base.ProfiledKernel, /) -> base.TimeEstimate:
        """Estimate the time of one launch."""
        device, model = self.device, self.model
        geometry = launch_geometry(kernel, device)
        units = device.require_int("num_compute_units", model=model)
        cores = device.require_int("cores_per_compute_unit", model=model)
        groups = geometry.occupancy / geometry.sub_groups_per_group
        items = groups * kernel.launch.work_items_per_group / cores
        scheduled = compute_scheduled_steps(
            work=kernel.profile.require("work", model=model),
            transactions=kernel.profile.require("transactions", model=model)
            * (kernel.profile.dram_ratio or 1.0),
            latency_steps=self.constant("latency_steps"),
            work_items_per_core=items,
            num_cores=units * cores,
            num_groups=kernel.launch.num_groups,
            active_groups=geometry.concurrent_groups,
            num_compute_units=units,
            caching=self.caching,
            max_work_items_per_core=device.max_work_items_per_core,
        )
        time_s = scheduled.steps / self.constant("clock_hz")
        even_s = time_s / scheduled.scheduling
        bound = _BOUNDS[scheduled.which]
        return base.TimeEstimate(
            time_s=time_s,
            bound=bound,
            breakdown={bound: even_s, "scheduling": time_s - even_s},
            results={
                **extract(scheduled, "steps", "scheduling", "waves"),
                "work_items_per_core": items,
                "occupancy": geometry.occupancy,
            },
        )
