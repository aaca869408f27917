"""Predictions of a Loopy kernel by all mechanistic models in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from countperf.devices.parameters import DeviceParameters, InstructionClass, declare_device
from countperf.errors import DeviceParameterError, ParameterError, nearest
from countperf.mechanistic.classes import BARRIER, with_dram_ratio, with_known_classes
from countperf.mechanistic.from_kernel import KernelProfiler, missing_registers
from countperf.mechanistic.gpumech import GpuMechModel
from countperf.mechanistic.merpsys import MerpsysModel
from countperf.mechanistic.mwp_cwp import MwpCwpModel, RestatedMwpCwpModel
from countperf.mechanistic.occupancy import launch_geometry, write_heading
from countperf.mechanistic.pipeline import PipelineModel
from countperf.mechanistic.profile import MechanisticModel, MechanisticPrediction, ProfiledKernel
from countperf.mechanistic.published_errors import ROOF_IN_BYTES, published_error
from countperf.mechanistic.roofline import ByteRooflineModel, RooflineModel
from countperf.mechanistic.tmm import TmmModel
from countperf.mechanistic.volkov import TransitModel, VolkovModel
from countperf.mechanistic.wfg import WorkFlowModel
from countperf.models.predictions import largest_first
from countperf.text import (
    Printed,
    Result,
    columns_of,
    format_percent,
    format_seconds,
    format_share,
    picked,
    wrap_note,
)

SIMULATED_INSTRUCTIONS = 300_000
"""Instructions of all sub-groups that a simulation may start, about."""

_FREE_BARRIER = InstructionClass(
    name=BARRIER,
    subsystem=BARRIER,
    cpi=1e-9,
    latency=0.0,
    kind="barrier",
    source="not stated; free, in models that have no cost of barriers",
)

ALL = "all"
"""Name that stands for every model."""

ModelChoice = Sequence[str] | str
"""Models: their names, or one name (``"all"`` for every model)."""
_Maker = Callable[..., MechanisticModel]
_MAKERS: Sequence[_Maker] = (
    RooflineModel,
    ByteRooflineModel,
    VolkovModel,
    TransitModel,
    MwpCwpModel,
    partial(RestatedMwpCwpModel, variant="published"),
    RestatedMwpCwpModel,
    partial(WorkFlowModel, variant="original"),
    WorkFlowModel,
    partial(GpuMechModel, policy="rr"),
    GpuMechModel,
    partial(GpuMechModel, policy="gto"),
    PipelineModel,
    TmmModel,
    MerpsysModel,
)
"""Every model: as published, and corrected where there is a correction."""


@cache
def _makers() -> Mapping[str, _Maker]:
    """Return what builds each model, by its name."""
    device = declare_device()
    return {make(device=device).model: make for make in _MAKERS}


Answer = MechanisticPrediction | ParameterError | DeviceParameterError
"""A prediction, or the error that says what input a model lacks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelAnswers(Mapping[str, Answer], Result):
    """Answers of several models by the models' names, in their order."""

    kernel: str  # name of the kernel
    device: str  # slug of the device
    parameters: Mapping[str, int]  # values of the size parameters
    # for each model its prediction, or the error that says which input it lacks
    answers: Mapping[str, Answer]
    described: DeviceParameters  # the device
    # floating-point operations, and bytes that its memory moves, of all launches
    total_flops: float
    total_bytes: float
    # fields of the kernel's profile that a profiler measured, and its metrics
    measured: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str = ""  # where instructions come from, if not from Loopy
    has_barriers: bool = False  # the kernel
    # by model the least time that its own inputs allow: the roofline, in classes or in bytes, s
    roofs_s: Mapping[str, float] = field(default_factory=dict[str, float])

    def __getitem__(self, model: str) -> Answer:
        return self.answers[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    __repr__ = Result.__str__

    @property
    def predictions(self) -> dict[str, MechanisticPrediction]:
        """Predictions of the models that have one."""
        return {
            name: answer
            for name, answer in self.answers.items()
            if isinstance(answer, MechanisticPrediction)
        }

    def is_below_roof(self, model: str) -> bool:
        """Return whether a model predicts less time than its own inputs allow."""
        answer, roof_s = self.answers[model], self.roofs_s.get(model, 0.0)
        is_prediction = isinstance(answer, MechanisticPrediction)
        return is_prediction and float(answer.time_s) < 0.999 * roof_s  # just below is at it

    def published_error(self, model: str) -> float | None:
        """Return the mean error that was published of a model for such kernels and devices."""
        return published_error(model, self.described, has_barriers=self.has_barriers)

    def ranked(self) -> list[str]:
        """Return the models by validity; those below their roof, and without an answer, are last.

        The smallest published error is first; of models without one, what leaves out least.
        """

        def place(name: str) -> tuple[bool, bool, float, int]:
            answer, error = self.answers[name], self.published_error(name)
            is_prediction = isinstance(answer, MechanisticPrediction)
            return (
                not is_prediction,
                self.is_below_roof(name),
                math.inf if error is None else error,
                len(answer.ignored) if is_prediction else 0,
            )

        return sorted(self.answers, key=place)

    @property
    def lacking(self) -> dict[str, str]:
        """Input that each of the other models lacks: a field of the device or of the kernel."""
        return {
            name: lacking_input(answer)
            for name, answer in self.answers.items()
            if not isinstance(answer, MechanisticPrediction)
        }

    def lay_out(self) -> Printed:
        """Give a row per model: time, bound, what it ignores, what it lacks; then how to mend that.

        All models are ranked by validity, see `ranked`. Below stand stalls by cause, and what
        MWP-CWP says of the kernel. In JSON a model has ``rank``, and ``time_s``, ``bound``,
        ``breakdown_s``, ``stalls_s``, ``advice``, ``results`` and ``ignored``, or ``lacks`` and
        ``reason``.
        """
        ranked = self.ranked()
        is_ranked = len(self) == len(model_names())
        errors = [answer for answer in self.values() if isinstance(answer, Exception)]
        rows: list[dict[str, Any]] = []
        for name in ranked if is_ranked else self:
            answer = self[name]
            row: dict[str, Any] = dict.fromkeys(_ANSWER_COLUMNS, "") | {"model": name, "reason": ""}
            if isinstance(answer, Exception):
                row |= dict.fromkeys(("time_s", "bound", "published_error"))
                row |= {"lacks": lacking_input(answer), "reason": str(answer)}
            else:
                row |= {
                    "time_s": float(answer.time_s),
                    "bound": answer.bound,
                    "published_error": self.published_error(name) if is_ranked else None,
                    "caveat": "below its roof" if self.is_below_roof(name) else "",
                    "ignores": ", ".join(answer.ignored),
                    **{f"{part}_s": float(time_s) for part, time_s in answer.breakdown.items()},
                }
            rows.append(row)
        return Printed(
            head=[write_heading(self)],
            rows=rows,
            columns=_ANSWER_COLUMNS,
            notes=[
                *([self.note] if self.note else []),
                *(f"measured: {name} ({where})" for name, where in self.measured.items()),
                *([_rule(self)] if is_ranked else []),
                *_all_said(self),
                *dict.fromkeys(map(wrap_note, errors)),
            ],
            facts={
                **picked(self, "kernel", "device", "parameters", "measured", "note"),
                "models": {
                    name: {"rank": 1 + ranked.index(name), **_answer(self, name)} for name in self
                },
            },
        )


def lacking_input(error: ParameterError | DeviceParameterError) -> str:
    """Return the name of the input that an error asks for."""
    if isinstance(error, DeviceParameterError):
        return f"device.{error.field}" if error.field else "device"
    return f"kernel.{error.parameter}" if error.parameter else "kernel"


def answers_of(
    profiler: KernelProfiler, values: Mapping[str, Any], models: ModelChoice = ALL
) -> ModelAnswers:
    """Predict the time of a Loopy kernel by every mechanistic model."""
    choose_models(models)  # refused before the work
    device = profiler.device
    launches = profiler.launches_at(values)
    names = {name for profiled, _ in launches for name in profiled.profile.alpha}
    adapted, unknown = with_known_classes(with_dram_ratio(device, _dram_ratio(launches)), names)

    def asked(names: ModelChoice) -> dict[str, Answer]:
        return {
            model.model: answered(
                lambda model=model: _predicted(model, profiler, launches, values), unknown
            )
            for model in built_models(names, adapted)
        }

    answers = asked(models)
    roofs = [answers.get(name) or asked(name)[name] for name in ("roofline", "roofline-bytes")]
    return ModelAnswers(
        kernel=profiler.kernel,
        device=device.slug,
        parameters=values,
        answers=answers,
        described=device,
        total_flops=sum((each.profile.total_flops or 0.0) * times for each, times in launches),
        total_bytes=sum((each.profile.total_bytes or 0.0) * times for each, times in launches),
        measured={k: v for profiled, _ in launches for k, v in profiled.profile.measured.items()},
        note=profiler.note,
        has_barriers=any(BARRIER in profiled.profile.alpha for profiled, _ in launches),
        roofs_s={
            name: float(roof.time_s)
            for name in answers
            if isinstance(roof := roofs[name in ROOF_IN_BYTES], MechanisticPrediction)
        },
    )


def answered(
    predict: Callable[[], MechanisticPrediction], unknown: Mapping[str, DeviceParameterError]
) -> Answer:
    """Return a prediction, or the error that says what it lacks.

    `unknown` says of classes of instructions what could stand in for them.
    """
    try:
        return predict()
    except DeviceParameterError as error:
        return unknown.get((error.field or "").removeprefix("classes."), error)
    except ParameterError as error:
        return error


def _dram_ratio(launches: Sequence[tuple[ProfiledKernel, int]]) -> float | None:
    """Return DRAM's bytes over those that launches access; None where nobody measured it."""
    known = [
        ((each.profile.total_bytes or 0.0) * times, each.profile.dram_ratio)
        for each, times in launches
        if each.profile.dram_ratio
    ]
    accessed = sum(moved / ratio for moved, ratio in known)
    return sum(moved for moved, _ in known) / accessed if accessed else None


def model_names() -> tuple[str, ...]:
    """Return the names of all mechanistic models."""
    return tuple(_makers())


def choose_models(models: ModelChoice) -> list[str]:
    """Return the names of the chosen models, in order; refuse names of none."""
    names = [models] if isinstance(models, str) else list(models)
    known = _makers()
    for name in names:
        if name != ALL and name not in known:
            message = f"no mechanistic model is called {name!r}; there are {', '.join(known)}"
            message += nearest(name, known)
            raise ParameterError(message, parameter="model")
    return [*known] if ALL in names else list(dict.fromkeys(names))


def built_models(models: ModelChoice, device: DeviceParameters) -> list[MechanisticModel]:
    """Build the chosen models for a device that states the costs of a kernel's instructions."""
    return [with_free_barriers(_makers()[name](device=device)) for name in choose_models(models)]


def model_makers(
    names: Iterable[str],
) -> dict[str, Callable[[DeviceParameters], MechanisticModel]]:
    """Return every model by its name, as a function that builds it for a device.

    `names` are classes of a kernel's instructions, of which the device need not state all.
    """
    classes = frozenset(names)

    def build(name: str, device: DeviceParameters) -> MechanisticModel:
        return built_models(name, with_known_classes(device, classes)[0])[0]

    return {name: partial(build, name) for name in _makers()}


def with_free_barriers(model: MechanisticModel) -> MechanisticModel:
    """Return a model in which barriers cost nothing where the device states no cost of them."""
    device = model.device
    if BARRIER in device.classes or isinstance(model, PipelineModel):
        return model
    return replace(
        model, device=device.replaced(classes={**device.classes, BARRIER: _FREE_BARRIER})
    )


def _predicted(
    model: MechanisticModel,
    profiler: KernelProfiler,
    launches: Sequence[tuple[ProfiledKernel, int]],
    values: Mapping[str, Any],
) -> MechanisticPrediction:
    parts: list[tuple[MechanisticPrediction, int]] = []
    for position, (profiled, number) in enumerate(launches):
        if not isinstance(model, RooflineModel | ByteRooflineModel) and profiler.lacks_registers(
            profiled.profile
        ):
            raise missing_registers(profiled.profile.name, profiler.device)
        if isinstance(model, PipelineModel):
            profiled = _shorten_graph(model, profiler, profiled, values, position)
        parts.append((model.predict(profiled, values), number))
    if len(parts) == 1 and parts[0][1] == 1:
        return replace(parts[0][0], kernel=profiler.kernel)
    longest, _ = max(parts, key=lambda entry: float(entry[0].time_s) * entry[1])
    return replace(
        longest,
        kernel=profiler.kernel,
        time_s=sum(float(part.time_s) * number for part, number in parts),
        breakdown=_total(parts, lambda part: part.breakdown),
        stalls=_total(parts, lambda part: part.stalls),
        ignored=tuple(sorted({name for part, _ in parts for name in part.ignored})),
    )


def _total(
    parts: Sequence[tuple[MechanisticPrediction, int]],
    of: Callable[[MechanisticPrediction], Mapping[str, Any]],
) -> dict[str, Any]:
    """Add up seconds by name over all launches."""
    total: dict[str, float] = {}
    for part, number in parts:
        for name, seconds in of(part).items():
            total[name] = total.get(name, 0.0) + number * float(seconds)
    return largest_first(total)


def _shorten_graph(
    model: PipelineModel,
    profiler: KernelProfiler,
    profiled: ProfiledKernel,
    values: Mapping[str, Any],
    number: int,
) -> ProfiledKernel:
    """Return the kernel with a graph so short that its simulation takes seconds at most."""
    graph = profiled.profile.idg
    if graph is None:
        return profiled
    geometry = launch_geometry(profiled, model.device)
    waves = min(3, -(-geometry.groups_on_compute_unit // geometry.concurrent_groups))
    most = int(SIMULATED_INSTRUCTIONS / (waves * geometry.occupancy))
    if len(graph.nodes) <= most:
        return profiled
    shorter = replace(profiler, max_instructions=max(1, most))
    return shorter.launches_at(values)[number][0]


_ANSWER_COLUMNS = {
    **columns_of("model"),
    **columns_of("time_s", format_seconds),
    **columns_of("bound"),
    **columns_of("published_error", format_percent),
    **columns_of("caveat ignores lacks"),
}


def _answer(by_models: ModelAnswers, model: str) -> dict[str, Any]:
    of = by_models[model]
    if isinstance(of, Exception):
        return {"lacks": lacking_input(of), "reason": str(of)}
    return {
        **picked(of, "time_s", "bound", "advice", "ignored"),
        "breakdown_s": of.breakdown,
        "stalls_s": of.stalls,
        "results": {n: value if math.isfinite(value) else None for n, value in of.results.items()},
        "published_error": by_models.published_error(model),
        "roof_s": by_models.roofs_s.get(model),
        "below_roof": by_models.is_below_roof(model),
    }


def _rule(of: ModelAnswers) -> str:
    """Say by what models are ranked."""
    if all(of.published_error(name) is None for name in of):
        return wrap_note("ranked by what they leave out; no errors on such a device are published")
    kind = "with" if of.has_barriers else "without"
    return wrap_note(
        f"ranked by published errors on kernels {kind} barriers, then by what they leave out; last"
        " those below their own roof, and those that lack an input"
    )


def _all_said(of: ModelAnswers) -> list[str]:
    """Write what models say of the kernel beside its time; the same text once."""
    names: dict[str, list[str]] = {}
    for name, prediction in of.predictions.items():
        names.setdefault(_describe_advice(prediction), []).append(name)
    return [wrap_note(f"{', '.join(by)}: {said}") for said, by in names.items() if said]


def _describe_advice(of: MechanisticPrediction) -> str:
    """Write what MWP-CWP says of the kernel, and stalls in shares of the time."""
    if of.advice:
        mwp, cwp, cpi, resident = (of.results[n] for n in ("mwp", "cwp", "cpi", "occupancy"))
        return (
            f"MWP {mwp:.3g}, CWP {cwp:.3g}, {resident:.3g} sub-groups resident, CPI {cpi:.3g};"
            f" {of.advice}"
        )
    shares = [(cause, part / float(of.time_s)) for cause, part in of.stalls.items()]
    largest = sorted(((s, cause) for cause, s in shares if s >= 0.01), reverse=True)[:3]
    parts = [f"{cause} {format_share(share)}" for share, cause in largest]
    return f"stalls waiting for {', '.join(parts)}" if parts else ""
