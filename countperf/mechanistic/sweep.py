"""Curves: predictions of all models over occupancy, group size, intensity or parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from countperf.display import Drawable, ShortRepr, Table, printed
from countperf.errors import DeviceParameterError, ParameterError
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.answers import Answer
from countperf.mechanistic.classes import with_known_classes
from countperf.mechanistic.from_kernel import missing_registers, registers_are_missing
from countperf.mechanistic.model import MechanisticModel, MechanisticPrediction
from countperf.mechanistic.occupancy import launch_geometry, resident_groups
from countperf.mechanistic.predict_all import (
    ALL,
    ModelChoice,
    answered,
    chosen_models,
    with_free_barriers,
)
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.roofline import profile_roof
from countperf.mechanistic.variations import Axis, vary

MAX_SWEPT_INSTRUCTIONS = 500
"""Instructions of a sub-group's graph in sweeps, which predict the kernel many times."""

_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_PARALLEL = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint(ShortRepr):
    """Predictions at one value of an axis."""

    value: int  # the value, see `countperf.mechanistic.variations.vary`
    occupancy: float | None  # sub-groups resident on the fullest compute unit
    intensity: float | None  # operational intensity of the varied kernel, flop/byte
    work: float  # sub-groups of the kernel as it was given whose work is done
    flops: float | None  # floating-point operations of the launch
    # sub-groups (as given) per cycle of a compute unit that each subsystem allows
    roofs: dict[str, float]
    answers: dict[str, Answer]  # by model


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep(Table, Drawable):
    """Predictions of models over one axis, as a frame and as a figure."""

    kernel: str  # name of the kernel, slug of the device
    device: str
    over: Axis  # the axis
    described: DeviceParameters  # the device
    points: tuple[SweepPoint, ...]  # in the order of the axis

    __repr__ = printed

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that were asked."""
        return tuple(self.points[0].answers)

    def throughput(self, point: SweepPoint, model: str) -> float | None:
        """Return sub-groups per cycle of a compute unit by one model; None where it has no answer.

        The cost of launching is left out.
        """
        answer = point.answers[model]
        if not isinstance(answer, MechanisticPrediction):
            return None
        device = self.described
        if device.num_compute_units is None or device.clock_hz is None:
            return None
        time_s = float(answer.time_s) - float(device.launch_overhead_s or 0.0)
        return point.work / (time_s * device.num_compute_units * device.clock_hz)


def sweep(
    profiled: ProfiledKernel,
    device: DeviceParameters,
    *,
    over: Axis = "occupancy",
    values: Sequence[int] | None = None,
    models: ModelChoice = ALL,
) -> Sweep:
    """Predict a kernel by all models over an axis."""
    profile, launch = profiled.profile, profiled.launch
    is_resident = (launch.active_groups, launch.occupancy) != (None, None) or over == "occupancy"
    if not is_resident and registers_are_missing(profile, device):
        raise missing_registers(profile.name, device)
    build = chosen_models(models)
    names = set(profiled.profile.counts())
    adapted, unknown = with_known_classes(device, names)
    asked = [with_free_barriers(model) for model in build(adapted)]
    costed = with_free_barriers(asked[0]).device if asked else adapted
    work = profiled.launch.total_sub_groups(device.require_int("sub_group_size", model="a sweep"))
    found: list[SweepPoint] = []
    for value in values or _default_values(profiled, over, device):
        varied = vary(profiled, over, value, costed)
        found.append(_point(value, varied, work, costed, asked, unknown))
    if not found:
        message = f"no value of {over} fits on {device.slug}; give values"
        raise ParameterError(message, parameter="values")
    return Sweep(
        kernel=profiled.profile.name,
        device=device.slug,
        over=over,
        described=device,
        points=tuple(found),
    )


def _point(
    value: int,
    varied: ProfiledKernel,
    work: float,
    device: DeviceParameters,
    models: Iterable[MechanisticModel],
    unknown: dict[str, DeviceParameterError],
) -> SweepPoint:
    profile, launch = varied.profile, varied.launch
    size = device.require_int("sub_group_size", model="a sweep")
    try:
        occupancy = launch_geometry(profile, launch, device).occupancy
        roof = profile_roof(profile, device, model="a sweep")
    except (ParameterError, DeviceParameterError):
        occupancy, roofs = None, dict[str, float]()
    else:
        # a varied sub-group may do the work of several of those that were given
        share = work / launch.total_sub_groups(size)
        roofs = {name: share / cycles for name, cycles in roof.busy.items() if cycles}
    intensity = None
    if profile.total_flops is not None and profile.total_bytes:
        intensity = profile.total_flops / profile.total_bytes
    return SweepPoint(
        value=value,
        occupancy=occupancy,
        intensity=intensity,
        work=work,
        flops=profile.total_flops,
        roofs=roofs,
        answers={
            model.model: answered(lambda model=model: model.predict(varied), unknown)
            for model in models
        },
    )


def _default_values(
    profiled: ProfiledKernel, over: Axis, device: DeviceParameters
) -> Sequence[int]:
    ranges: dict[Axis, Callable[[], Sequence[int]]] = {
        "occupancy": lambda: _group_counts(profiled, device),
        "group_size": lambda: _group_sizes(profiled, device),
        "intensity": lambda: _MULTIPLES,
        "ilp": lambda: _PARALLEL,
        "mlp": lambda: _PARALLEL,
    }
    if over not in ranges:
        return (1,)  # refused where the kernel is varied
    return ranges[over]()


def _group_counts(profiled: ProfiledKernel, device: DeviceParameters) -> Sequence[int]:
    """Return numbers of resident groups: up to what the device holds of groups of this size."""
    items = profiled.launch.work_items_per_group
    most = resident_groups(device, work_items_per_group=items).active_groups
    units = device.require_int("num_compute_units", model="a sweep")
    return range(1, min(most, -(-profiled.launch.num_groups // units)) + 1)


def _group_sizes(profiled: ProfiledKernel, device: DeviceParameters) -> Sequence[int]:
    """Return whole numbers of sub-groups, doubling, that the device takes and that fit."""
    size = device.require_int("sub_group_size", model="a sweep")
    most = device.max_work_items_per_group or size * 32
    group_sizes: list[int] = []
    while (items := size << len(group_sizes)) <= most:
        group_sizes.append(items)
    return [
        items for items in group_sizes if _fits(vary(profiled, "group_size", items, device), device)
    ]


def _fits(profiled: ProfiledKernel, device: DeviceParameters) -> bool:
    try:
        launch_geometry(profiled.profile, profiled.launch, device)
    except ParameterError:
        return False
    return True
