"""Predictions of a Loopy kernel by all mechanistic models in one call, ranked by their validity.

Lemeire, Cornelis & Konstantinidis (Tables 10 to 12) print the error of eight models for fourteen
kernels of Rodinia on a Maxwell, a Pascal and a Turing GPU. `ModelAnswers.find_published_error` has
their mean over the GPUs and those kernels that have barriers, as the kernel at hand, or have none.
In Table 12 the columns of WFG and the corrected MWP-CWP are exchanged
(``docs/evidence/papers.md``), which is undone here. For GPUs of compute capability 1.x, Hong & Kim
print 13.3 %, a mean over six kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from countperf import text
from countperf.devices.parameters import DeviceParameters, InstructionClass
from countperf.errors import DeviceParameterError, ParameterError, nearest
from countperf.mechanistic.classes import BARRIER, with_known_classes
from countperf.mechanistic.from_kernel import KernelProfiler, require_registers
from countperf.mechanistic.gpumech import GpuMechModel
from countperf.mechanistic.merpsys import MerpsysModel
from countperf.mechanistic.mwp_cwp import MwpCwpModel, RestatedMwpCwpModel
from countperf.mechanistic.occupancy import launch_geometry, write_heading
from countperf.mechanistic.pipeline import PipelineModel
from countperf.mechanistic.profile import MechanisticModel, MechanisticPrediction, ProfiledKernel
from countperf.mechanistic.roofline import (
    ByteRooflineModel,
    RooflineModel,
    TransitModel,
    VolkovModel,
)
from countperf.mechanistic.tmm import TmmModel
from countperf.mechanistic.traffic import Traffic
from countperf.mechanistic.wfg import WorkFlowModel
from countperf.models.predictions import largest_first

_MODELS: Mapping[str, Callable[..., MechanisticModel]] = {
    "roofline": RooflineModel,
    "roofline-bytes": ByteRooflineModel,
    "volkov": VolkovModel,
    "transit": TransitModel,
    "mwp-cwp": MwpCwpModel,
    "mwp-cwp-restated": partial(RestatedMwpCwpModel, variant="published"),
    "mwp-cwp-corrected": RestatedMwpCwpModel,
    "wfg-original": partial(WorkFlowModel, variant="original"),
    "wfg-corrected": WorkFlowModel,
    "gpumech-rr": partial(GpuMechModel, policy="rr"),
    "gpumech-rr_corrected": GpuMechModel,
    "gpumech-gto": partial(GpuMechModel, policy="gto"),
    "pipeline-rr": PipelineModel,
    "tmm": TmmModel,
    "merpsys": MerpsysModel,
}
"""Every model: as published, and corrected where there is a correction."""

_PUBLISHED_ERRORS = {
    "pipeline-rr": (0.247, 0.238),
    "volkov": (0.857, 0.344),
    "mwp-cwp-restated": (1.101, 0.309),
    "mwp-cwp-corrected": (0.821, 0.259),
    "wfg-original": (0.834, 0.883),
    "wfg-corrected": (0.419, 0.271),
    "gpumech-rr": (1.011, 1.224),
    "gpumech-gto": (0.641, 0.883),
}
"""Errors on kernels with barriers, and without."""

_ROOF_IN_BYTES = ("roofline-bytes", "mwp-cwp", "tmm", "merpsys")
"""Models that take no costs of instruction classes, so that peaks alone bound their times."""

_SIMULATED_INSTRUCTIONS = 300_000
"""Instructions of all sub-groups that a simulation may start, about."""

_FREE_BARRIER = InstructionClass(
    name=BARRIER,
    subsystem=BARRIER,
    cpi=1e-9,
    latency=0.0,
    kind="barrier",
    source="not stated; free, in models that have no cost of barriers",
)

ALL = "all"  # name that stands for every model

ModelChoice = Sequence[str] | str  # models: their names, or one name (``"all"`` for every model)

Answer = MechanisticPrediction | ParameterError | DeviceParameterError
"""Answer of one model: a prediction, or the error that names the input it lacks."""

_ANSWER_COLUMNS = {
    **text.columns_of("model"),
    **text.columns_of("time_s", text.format_seconds),
    **text.columns_of("bound"),
    **text.columns_of("published_error", text.format_percent),
    **text.columns_of("caveat ignores lacks"),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelAnswers(text.Result, Mapping[str, Answer]):
    """Answers of all models on a kernel and a device, by name; they print as a table."""

    kernel: str  # name of the kernel
    device: str  # slug of the device
    parameters: Mapping[str, Any]  # values of the size parameters
    # for each model its prediction, or the error that says which input it lacks
    answers: Mapping[str, Answer]
    described: DeviceParameters  # the device
    # floating-point operations, and bytes that reach its memory, of all launches
    total_flops: float
    total_bytes: float
    # fields of the kernel's profile that a profiler measured, and its metrics
    measured: Mapping[str, str] = field(default_factory=dict[str, str])
    # of each device program, for one launch
    traffic: Mapping[str, Traffic] = field(default_factory=dict[str, Traffic])
    # bytes of all launches that sub-groups ask for (L1), that reach L2, and that reach memory
    moved: Mapping[str, float] = field(default_factory=dict[str, float])
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

    __repr__ = text.Result.__str__

    @property
    def predictions(self) -> dict[str, MechanisticPrediction]:
        """Predictions of the models that have one."""
        return {n: a for n, a in self.answers.items() if isinstance(a, MechanisticPrediction)}

    @property
    def lacking(self) -> dict[str, str]:
        """Input that each of the other models lacks: a field of the device or of the kernel."""
        return {n: lacking_input(a) for n, a in self.answers.items() if isinstance(a, Exception)}

    def is_below_roof(self, model: str) -> bool:
        """Return whether a model predicts less time than its own inputs allow."""
        answer, roof_s = self.answers[model], self.roofs_s.get(model, 0.0)
        is_prediction = isinstance(answer, MechanisticPrediction)
        return is_prediction and float(answer.time_s) < 0.999 * roof_s  # just below is at it

    def find_published_error(self, model: str) -> float | None:
        """Return the mean error that was published of a model for such kernels and devices."""
        capability = self.described.compute_capability
        if capability is None:
            return None
        is_old = capability.startswith("1.")
        known = {"mwp-cwp": (0.133, 0.133)} if is_old else _PUBLISHED_ERRORS
        return known[model][0 if self.has_barriers else 1] if model in known else None

    def rank_models(self) -> list[str]:
        """Return the models by published error, then by what they leave out."""

        def place(name: str) -> tuple[bool, bool, float, int]:
            answer, error = self.answers[name], self.find_published_error(name)
            return (
                isinstance(answer, Exception),
                self.is_below_roof(name),
                math.inf if error is None else error,
                0 if isinstance(answer, Exception) else len(answer.ignored),
            )

        return sorted(self.answers, key=place)

    def lay_out(self) -> text.Printed:
        """Give a row per model, all of them ranked by validity; then stalls and how to mend it."""
        ranked = self.rank_models()
        is_ranked = len(self) == len(_MODELS)
        facts: dict[str, dict[str, Any]] = {
            name: {"rank": 1 + ranked.index(name), **self._describe(name)} for name in self
        }
        rows = [
            {
                "model": name,
                "time_s": of.get("time_s"),
                "bound": of.get("bound"),
                "published_error": of.get("published_error") if is_ranked else None,
                "caveat": "below its roof" if of.get("below_roof") else "",
                "ignores": ", ".join(of.get("ignored", ())),
                "lacks": of.get("lacks", ""),
                "reason": of.get("reason", ""),
                **{f"{part}_s": float(each) for part, each in of.get("breakdown_s", {}).items()},
            }
            for name in (ranked if is_ranked else self)
            for of in [facts[name]]
        ]
        reasons = [of["reason"] for of in facts.values() if "reason" in of]
        said: dict[str, list[str]] = {}  # the same text once
        for name, prediction in self.predictions.items():
            said.setdefault(_describe_advice(prediction), []).append(name)
        return text.Printed(
            head=[write_heading(self)],
            rows=rows,
            columns=_ANSWER_COLUMNS,
            notes=[
                *filter(None, [self.note]),
                *map(text.wrap_note, self._describe_traffic()),
                *(f"measured: {name} ({where})" for name, where in self.measured.items()),
                *([self._describe_ranking()] if is_ranked else []),
                *(text.wrap_note(f"{', '.join(by)}: {what}") for what, by in said.items() if what),
                *map(text.wrap_note, dict.fromkeys(reasons)),
            ],
            facts={
                **text.extract(self, "kernel", "device", "parameters", "measured", "note"),
                "traffic": {
                    name: {
                        **text.extract(of, "asked", "compulsory", "l2", "memory"),
                        **text.extract(of, "l1_bytes", "l2_bytes", "ratio", "measured", "text"),
                        **text.extract(of, "resident", "assumptions"),
                    }
                    for name, of in self.traffic.items()
                },
                "models": facts,
            },
        )

    def _describe(self, name: str) -> dict[str, Any]:
        """Return what JSON has of a model's answer."""
        answer = self[name]
        if isinstance(answer, Exception):
            return {"lacks": lacking_input(answer), "reason": str(answer)}
        finite = {n: v if math.isfinite(v) else None for n, v in answer.results.items()}
        return {
            **text.extract(answer, "time_s", "bound", "advice", "ignored"),
            **{"breakdown_s": answer.breakdown, "stalls_s": answer.stalls, "results": finite},
            "published_error": self.find_published_error(name),
            "roof_s": self.roofs_s.get(name),
            "below_roof": self.is_below_roof(name),
        }

    def _describe_traffic(self) -> Iterator[str]:
        for name, traffic in self.traffic.items():
            yield f"{name}: {traffic.text}" if len(self.traffic) > 1 else traffic.text
        of, known = self.described, "ld.l2.s32" in self.described.classes
        if of.l2_bytes and not (of.l2_bandwidth_byte_per_s or known):
            yield (
                f"{of.slug} states no l2_bandwidth_byte_per_s: rooflines leave L2 out, and to the"
                " other models, bytes of L2 cost as much as those of memory"
            )

    def _describe_ranking(self) -> str:
        if all(self.find_published_error(name) is None for name in self):
            return text.wrap_note(
                "ranked by what they leave out; no errors on such a device are published"
            )
        kind = "with" if self.has_barriers else "without"
        return text.wrap_note(
            f"ranked by published errors on kernels {kind} barriers, then by what they leave out;"
            " last those below their own roof, and those that lack an input"
        )


def _describe_advice(of: MechanisticPrediction) -> str:
    """Write what MWP-CWP says of the kernel, and stalls in shares of the time."""
    if of.advice:
        mwp, cwp, cpi, resident = (of.results[n] for n in ("mwp", "cwp", "cpi", "occupancy"))
        return (
            f"MWP {mwp:.3g}, CWP {cwp:.3g}, {resident:.3g} sub-groups resident, CPI {cpi:.3g};"
            f" {of.advice}"
        )
    shares = [(part / float(of.time_s), cause) for cause, part in of.stalls.items()]
    largest = sorted((each for each in shares if each[0] >= 0.01), reverse=True)[:3]
    parts = [f"{cause} {text.format_share(share)}" for share, cause in largest]
    return f"stalls waiting for {', '.join(parts)}" if parts else ""


def lacking_input(error: ParameterError | DeviceParameterError) -> str:
    """Return the name of the input that an error asks for."""
    if isinstance(error, DeviceParameterError):
        return f"device.{error.field}" if error.field else "device"
    return f"kernel.{error.parameter}" if error.parameter else "kernel"


def answers_of(
    profiler: KernelProfiler, values: Mapping[str, Any], models: ModelChoice = ALL
) -> ModelAnswers:
    """Predict the time of a Loopy kernel by every mechanistic model."""
    chosen = choose_models(models)  # refused before the work
    device = profiler.device
    launches = profiler.launches_at(values)
    names = {name for profiled, _ in launches for name in profiled.profile.alpha}
    adapted, unknown = with_known_classes(device, names)
    asked = build_models([*chosen, "roofline", "roofline-bytes"], adapted)
    found = {
        model.model: answer_or_error(
            lambda model=model: _predict_launches(model, profiler, launches, values), unknown
        )
        for model in asked
    }
    roofs = {
        name: found["roofline-bytes" if name in _ROOF_IN_BYTES else "roofline"] for name in chosen
    }
    return ModelAnswers(
        kernel=profiler.kernel,
        device=device.slug,
        parameters=values,
        answers={name: found[name] for name in chosen},
        described=device,
        total_flops=sum((each.profile.total_flops or 0.0) * times for each, times in launches),
        total_bytes=sum((each.profile.total_bytes or 0.0) * times for each, times in launches),
        moved=_add_up((each.profile.bytes_by_roof, times) for each, times in launches),
        measured={k: v for profiled, _ in launches for k, v in profiled.profile.measured.items()},
        traffic={
            each.profile.name: each.profile.traffic
            for each, _ in launches
            if each.profile.traffic is not None
        },
        note=profiler.note,
        has_barriers=BARRIER in names,
        roofs_s={n: float(r.time_s) for n, r in roofs.items() if not isinstance(r, Exception)},
    )


def answer_or_error(
    predict: Callable[[], MechanisticPrediction], unknown: Mapping[str, DeviceParameterError]
) -> Answer:
    """Return a prediction, or the error that says what it lacks or what could stand in for it."""
    try:
        return predict()
    except DeviceParameterError as error:
        return unknown.get((error.field or "").removeprefix("classes."), error)
    except ParameterError as error:
        return error


def model_names() -> tuple[str, ...]:
    """Return the names of all mechanistic models."""
    return tuple(_MODELS)


def choose_models(models: ModelChoice) -> list[str]:
    """Return the names of the chosen models, in order; refuse names of none."""
    names = [models] if isinstance(models, str) else list(models)
    for name in names:
        if name != ALL and name not in _MODELS:
            message = f"no mechanistic model is called {name!r}; there are {', '.join(_MODELS)}"
            raise ParameterError(message + nearest(name, _MODELS), parameter="model")
    return [*_MODELS] if ALL in names else list(dict.fromkeys(names))


def build_models(models: ModelChoice, device: DeviceParameters) -> list[MechanisticModel]:
    """Build models for a device; barriers of no known cost are free, but for the simulation."""
    free = device
    if BARRIER not in device.classes:
        free = device.with_values(classes={**device.classes, BARRIER: _FREE_BARRIER})
    return [
        _MODELS[name](device=device if name == PipelineModel.name else free)
        for name in choose_models(models)
    ]


def _predict_launches(
    model: MechanisticModel,
    profiler: KernelProfiler,
    launches: Sequence[tuple[ProfiledKernel, int]],
    values: Mapping[str, Any],
) -> MechanisticPrediction:
    parts: list[tuple[MechanisticPrediction, int]] = []
    for position, (profiled, number) in enumerate(launches):
        if not isinstance(model, RooflineModel | ByteRooflineModel):
            require_registers(profiled, profiler.device)
        graph = profiled.profile.idg
        if isinstance(model, PipelineModel) and graph is not None:
            most = _find_longest_graph(profiled, model.device)
            if len(graph.nodes) > most:
                shorter = replace(profiler, max_instructions=most)
                profiled = shorter.launches_at(values)[position][0]
        parts.append((model.predict(profiled, values), number))
    if len(parts) == 1 and parts[0][1] == 1:
        return replace(parts[0][0], kernel=profiler.kernel)
    longest, _ = max(parts, key=lambda entry: float(entry[0].time_s) * entry[1])
    return replace(
        longest,
        kernel=profiler.kernel,
        time_s=sum(float(part.time_s) * number for part, number in parts),
        breakdown=_add_up((part.breakdown, number) for part, number in parts),
        stalls=_add_up((part.stalls, number) for part, number in parts),
        ignored=tuple(sorted({name for part, _ in parts for name in part.ignored})),
    )


def _add_up(parts: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
    """Add up seconds by name over all launches."""
    total: dict[str, float] = {}
    for part, number in parts:
        for name, seconds in part.items():
            total[name] = total.get(name, 0.0) + number * float(seconds)
    return largest_first(total)


def _find_longest_graph(profiled: ProfiledKernel, device: DeviceParameters) -> int:
    """Return how many instructions a graph may have for its simulation to take seconds at most."""
    geometry = launch_geometry(profiled, device)
    waves = min(3, -(-geometry.groups_on_compute_unit // geometry.concurrent_groups))
    return max(1, int(_SIMULATED_INSTRUCTIONS / (waves * geometry.occupancy)))
