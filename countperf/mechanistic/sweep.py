"""Curves: predictions of all models over occupancy or group size, all else being the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from countperf import text
from countperf.devices.parameters import DeviceParameters
from countperf.errors import DeviceParameterError, ParameterError
from countperf.mechanistic import predict_all
from countperf.mechanistic.classes import BARRIER, with_known_classes
from countperf.mechanistic.from_kernel import require_registers
from countperf.mechanistic.occupancy import launch_geometry, resident_groups
from countperf.mechanistic.profile import MechanisticPrediction, ProfiledKernel, check_whole
from countperf.models.metrics import mape, mape_shape

Axis = Literal["occupancy", "group_size"]
AXES: tuple[Axis, ...] = get_args(Axis)
MAX_SWEPT_INSTRUCTIONS = 500
"""Instructions of a sub-group's graph in sweeps, which predict the kernel many times."""
_USER = "a sweep"
_BESIDE = 5  # models beside each other in a table
_ALIKE = 0.02  # of a time: less is no change


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint(text.ShortRepr):
    """Predictions at one value of an axis."""

    value: int  # resident groups, or work items of a group
    occupancy: float | None  # sub-groups resident on the fullest compute unit
    answers: dict[str, predict_all.Answer]  # by model
    measured_s: float | None = None  # where the kernel was timed with so many resident groups


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep(text.Result):
    """Predictions of models over one axis, as a frame and as a figure."""

    kernel: str  # name of the kernel, slug of the device
    device: str
    over: Axis  # the axis
    described: DeviceParameters  # the device
    work: float  # sub-groups of the kernel as it was given
    points: tuple[SweepPoint, ...]  # in the order of the axis
    measured_on: str = ""  # slug of the device that timed the kernel
    failures: tuple[str, ...] = ()  # why it could not be timed at some points
    note: str = ""  # lines: where instructions come from, if not from Loopy; and bytes of memory
    has_barriers: bool = False  # the kernel

    __repr__ = text.Result.__str__

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that were asked."""
        return tuple(self.points[0].answers)

    def throughput(self, point: SweepPoint, model: str = "") -> float | None:
        """Return sub-groups per cycle of a compute unit by a model, or as timed, without launch."""
        answer = point.answers.get(model)
        time_s = answer.time_s if isinstance(answer, MechanisticPrediction) else None
        units, clock_hz = self.described.num_compute_units, self.described.clock_hz
        own_s = float((time_s if model else point.measured_s) or 0.0)
        own_s -= float(self.described.launch_overhead_s or 0.0)
        if units is None or clock_hz is None or own_s <= 0:
            return None
        return self.work / (own_s * units * clock_hz)

    def errors(self) -> dict[str, dict[str, float]]:
        """Return ``MAPE`` and ``MAPE_shape`` of each model that answers at all of three points."""
        timed = [(p, rate) for p in self.points if (rate := self.throughput(p))]
        at = [p.occupancy or p.value for p, _ in timed]
        real = [rate for _, rate in timed]
        rates = {
            name: [rate for p, _ in timed if (rate := self.throughput(p, name)) is not None]
            for name in (self.models if len(timed) > 2 else ())  # a line goes through two points
        }
        return {
            name: {"MAPE": mape(of, real), "MAPE_shape": mape_shape(of, real, at)}
            for name, of in rates.items()
            if len(of) == len(real)
        }

    def find_turns(self) -> dict[str, float]:
        """Return by model from where on no time is 2 % below, the model to trust first first.

        That is sub-groups, or work items of a group. Rooflines know no occupancy.
        """
        found: dict[str, float] = {}
        for name in predict_all.rank_by_error(self.models, has_barriers=self.has_barriers):
            made = [a for p in self.points if not isinstance(a := p.answers[name], Exception)]
            times = [float(answer.time_s) for answer in made]
            if len(times) == len(self.points) and name not in ("roofline", "roofline-bytes"):
                stays = (min(times[i:]) >= (1 - _ALIKE) * time for i, time in enumerate(times))
                found[name] = self._counts[[*stays].index(True)]
        return found

    @property
    def _counts(self) -> list[float]:
        """Sub-groups that are resident at each point, or work items of its groups."""
        is_resident = self.over == "occupancy"
        return [
            point.occupancy if is_resident and point.occupancy else point.value
            for point in self.points
        ]

    def say_growth(self) -> tuple[str, str]:
        """Say how the throughput grows by the model to trust first, and from where times stay."""
        turns = self.find_turns()
        if not turns or len(self.points) < 2:
            return "", ""
        unit = "sub-groups" if self.over == "occupancy" else "work items of a group"
        (best, at), *others = turns.items()
        least, *_, most = self._counts
        rates = [self.throughput(self.points[i], best) or math.nan for i in (0, -1)]
        grown = f"throughput grows {rates[1] / rates[0]:.3g} times from {least:g} to {most:g}"
        stay = f"times still fall up to {at:g}" if at == most else f"times stay from {at:g}"
        of_others = sorted({of([n for _, n in others]) for of in (min, max)}) if others else []
        ends = f" (others: from {' to '.join(f'{n:g}' for n in of_others)} on)" if others else ""
        on = "" if at == most else " on"
        return f"{grown} {unit}, by {best}", f"{stay} {unit}{on}, by {best}{ends}"

    def lay_out(self) -> text.Printed:
        """Give a row per value and model; people see columns of times, and errors where timed."""
        errors, (grown, stay) = self.errors(), self.say_growth()
        rows: list[dict[str, Any]] = [
            {
                self.over: point.value,
                "sub_groups": point.occupancy,
                "model": name,
                **{what: getattr(answer, what, None) for what in ("time_s", "bound")},
                "sub_groups_per_cycle": self.throughput(point, name),
                "measured_s": point.measured_s,
                "lacks": predict_all.lacking_input(answer) if isinstance(answer, Exception) else "",
            }
            for point in self.points
            for name, answer in point.answers.items()
        ]
        shown: list[dict[str, Any]] = [
            {
                self.over: point.value,
                "sub-groups": point.occupancy,
                "measured_s": point.measured_s,
                **{f"{name}_s": getattr(a, "time_s", None) for name, a in point.answers.items()},
            }
            for point in self.points
        ]
        for title in ("MAPE", "MAPE_shape") if errors else ():
            by_model = {f"{n}_s": text.format_percent(by[title]) for n, by in errors.items()}
            shown.append({self.over: title, **by_model})
        lacking = dict.fromkeys(
            f"{row['model']} lacks {row['lacks']}" for row in rows if row["lacks"]
        )
        axes = text.columns_of(f"{self.over} sub-groups")
        axes |= text.columns_of("measured_s", text.format_seconds)
        times = {f"{name}_s": text.Column(name, text.format_seconds) for name in self.models}
        # times of many models stand in tables below each other, each with the axes
        parts = [dict([*times.items()][i : i + _BESIDE]) for i in range(0, len(times), _BESIDE)]
        tables = [text.Printed(head=[""], rows=shown, columns=axes | part) for part in parts]
        return text.Printed(
            head=[f"{self.kernel} on {self.device} over {self.over}", *filter(None, [grown])],
            rows=rows,
            shown=text.table_of(shown, axes | times),
            parts=tables if tables[1:] else (),
            notes=[
                *filter(None, [stay]),
                *map(text.wrap_note, self.note.splitlines()),
                *lacking,
                *self._describe_timing(),
            ],
            facts={
                **text.extract(self, "kernel", "device", "over", "note", "measured_on", "failures"),
                "errors": errors,
                "times_stay_from": self.find_turns(),
            },
            name="points",
        )

    def _describe_timing(self) -> list[str]:
        """Say what the errors are of, and where the kernel was timed on another device."""
        if not self.measured_on:
            return []
        is_other = self.measured_on != self.device
        other = f", which is not the described {self.device}" if is_other else ""
        return [
            text.wrap_note(
                f"timed on {self.measured_on}{other}; MAPE and MAPE_shape are errors of the"
                " throughput and of its shape over occupancy (Lemeire et al., section 6.3)"
            ),
            *map(text.wrap_note, self.failures),
        ]


def sweep(
    profiled: ProfiledKernel,
    device: DeviceParameters,
    *,
    over: Axis = "occupancy",
    values: Sequence[int] | None = None,
    models: predict_all.ModelChoice = predict_all.ALL,
) -> Sweep:
    """Predict a kernel by all models over an axis."""
    if over not in AXES:
        message = f"over must be one of {', '.join(AXES)}, not {over!r}"
        raise ParameterError(message, parameter="over")
    profile, launch = profiled.profile, profiled.launch
    if over == "group_size":
        require_registers(profiled, device)
    adapted, unknown = with_known_classes(device, profile.counts())
    asked = predict_all.build_models(models, adapted)
    costed = asked[0].device if asked else adapted
    default = _group_counts if over == "occupancy" else _group_sizes
    varied = {value: vary(profiled, over, value) for value in values or default(profiled, device)}
    points = [
        SweepPoint(
            value=value,
            occupancy=_find_occupancy(kernel, costed),
            answers={
                model.model: predict_all.answer_or_error(partial(model.predict, kernel), unknown)
                for model in asked
            },
        )
        for value, kernel in varied.items()
    ]
    if not points:
        raise ParameterError(f"no value of {over} fits on {device.slug}", parameter="values")
    return Sweep(
        kernel=profile.name,
        device=device.slug,
        over=over,
        described=device,
        work=launch.total_sub_groups(device.require_int("sub_group_size", model=_USER)),
        points=tuple(points),
        has_barriers=BARRIER in profile.counts(),
    )


def _find_occupancy(profiled: ProfiledKernel, device: DeviceParameters) -> float | None:
    """Return the sub-groups that are resident; None where not even one group fits."""
    try:
        return launch_geometry(profiled, device).occupancy
    except (ParameterError, DeviceParameterError):
        return None


def _group_counts(profiled: ProfiledKernel, device: DeviceParameters) -> Sequence[int]:
    """Return numbers of resident groups: up to what the device holds of groups of this size."""
    items = profiled.launch.work_items_per_group
    most = resident_groups(device, work_items_per_group=items).active_groups
    units = device.require_int("num_compute_units", model=_USER)
    return range(1, min(most, -(-profiled.launch.num_groups // units)) + 1)


def _group_sizes(profiled: ProfiledKernel, device: DeviceParameters) -> Sequence[int]:
    """Return whole numbers of sub-groups, doubling, that the device takes and that fit."""
    size = device.require_int("sub_group_size", model=_USER)
    most = device.max_work_items_per_group or size * 32
    sizes = [size << power for power in range((most // size).bit_length())]
    return [
        items
        for items in sizes
        if _find_occupancy(vary(profiled, "group_size", items), device) is not None
    ]


def vary(profiled: ProfiledKernel, axis: Axis, value: int) -> ProfiledKernel:
    """Return a kernel with another value on an axis."""
    check_whole(value, axis)
    if axis == "occupancy":
        launch = replace(profiled.launch, active_groups=value, occupancy=None)
        return replace(profiled, launch=launch)
    profile, launch = profiled.profile, profiled.launch
    items = launch.work_items_per_group * launch.num_groups
    local = profile.local_bytes_per_group
    if local is not None:
        local = -(-local * value // launch.work_items_per_group)
    return ProfiledKernel(
        profile=replace(profile, local_bytes_per_group=local, sub_group_idgs=None),
        launch=replace(launch, work_items_per_group=value, num_groups=-(-items // value)),
    )
