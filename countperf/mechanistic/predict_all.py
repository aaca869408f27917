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
from collections import Counter
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
from countperf.mechanistic.tmm import TmmModel, with_latency_steps
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


def _with_issue_costs(device: DeviceParameters) -> GpuMechModel:
    """Return GPUMech where every instruction takes an issue slot of the device (section 5.3)."""
    slot = 1 / (device.issue_limit or 1.0)
    return GpuMechModel(device=device, cpi_issue=slot, count_memory_issue=True)


_VARIANTS: Mapping[str, Callable[..., MechanisticModel]] = {
    "pipeline-gto": partial(PipelineModel, scheduler="gto"),
    "pipeline-oldest": partial(PipelineModel, scheduler="oldest"),
    "pipeline-rr-any": partial(PipelineModel, issue_order="any"),
    "wfg-first_fix": partial(WorkFlowModel, variant="first_fix"),
    "gpumech-rr_corrected-issue": _with_issue_costs,
    "mwp-cwp-printed": partial(MwpCwpModel, case_rule="printed"),
}
"""Further variants of the papers, which answer by name alone."""

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

_ROOF_IN_BYTES = ("roofline-bytes", "mwp-cwp", "mwp-cwp-printed", "tmm", "merpsys")
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

_VERDICTS = {
    **{"compute": "computations bound it", "barrier": "barriers bound it"},
    **{"launch": "the launch bounds it", "transfer": "transfers bound it"},
}
_LEAST_PART = 0.01  # of the longest: parts that take less by themselves are not named
_MOST_PARTS = 3
_SLIGHT = 0.05  # of a number: less is no difference to name

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
    # time that each subsystem of a compute unit is busy at least, s
    busy_s: Mapping[str, float] = field(default_factory=dict[str, float])
    # sub-groups on a compute unit from which on latency is hidden (Volkov), and those resident
    hidden_from: float | None = None
    resident: float | None = None

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

    def explain_bound(self) -> str:
        """Say what memory and the busiest subsystems take by themselves, the longest first."""
        of, write = self.described, text.format_quantity
        parts = {name: (busy_s, f"{name} takes") for name, busy_s in self.busy_s.items()}
        if of.bandwidth_byte_per_s and self.total_bytes:
            share = of.achievable_bandwidth_share or 1.0
            alone_s = self.total_bytes / (share * of.bandwidth_byte_per_s)
            said, asked = write(self.total_bytes, "B"), sum(t.asked for t in self.traffic.values())
            if len(self.traffic) == 1 and asked > (1 + _SLIGHT) * self.total_bytes:
                said += f" of {write(asked, 'B')} asked for (L2 {write(of.l2_bytes or 0, 'B')})"
            said += f" at {write(share * of.bandwidth_byte_per_s, 'B/s')}, "
            said += f"{text.format_percent(share)} of the peak" if share < 1 else "the peak"
            if parts.get("memory", (0.0, ""))[0] > (1 + _SLIGHT) * alone_s:
                parts["caches"] = parts["memory"][0], "caches and memory take"
            parts["memory"] = alone_s, f"{said}, take"
        longest = sorted(parts.values(), reverse=True)[:_MOST_PARTS]
        kept = [each for each in longest if each[0] >= _LEAST_PART * longest[0][0]]
        return ", ".join(f"{said} {text.format_seconds(alone_s)}" for alone_s, said in kept)

    def say_hidden(self) -> str:
        """Say from how many resident sub-groups on latency is hidden; empty where nobody knows."""
        if self.hidden_from is None or self.resident is None:
            return ""
        least = math.ceil(self.hidden_from * (1 - 1e-9))
        said = (
            "latency is hidden" if least <= self.resident else "latency is not hidden: it would be"
        )
        there = f"{self.resident:g} are resident on a compute unit"
        return f"{said} from {least} sub-groups on (volkov, at best); {there}"

    def say_verdict(self) -> list[str]:
        """Say what most models find to bound the kernel, and when latency is hidden.

        Where two bounds have as many models, that of the model to trust first stands.
        """
        made = self.predictions
        if not made:
            return []
        sound = [name for name in made if not self.is_below_roof(name)] or [*made]
        best, *_ = ranked = rank_by_error(sound, has_barriers=self.has_barriers)
        (bound, number), *_ = Counter(made[name].bound for name in ranked).most_common(1)
        first = next(name for name in ranked if made[name].bound == bound)
        said = f"{_VERDICTS.get(bound, f'{bound} bounds it')}, by {first}"
        said += f" and {number - 1} of {len(sound) - 1} others" if number > 1 else ""
        said += "" if first == best else f" ({best}: {made[best].bound})"
        said += f": {why}" if (why := self.explain_bound()) else ""
        advice = _describe_advice(made[best]) if len(self) == 1 and made[best].advice else ""
        return [text.wrap_note(each, "") for each in (said, self.say_hidden(), advice) if each]

    def lay_out(self) -> text.Printed:
        """Give what bounds the kernel, a row per model, ranked by validity; then what to know."""
        ranked = self.rank_models()
        is_ranked = self.keys() >= _MODELS.keys()
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
            if not (len(self) == 1 and prediction.advice):  # which the head says
                said.setdefault(_describe_advice(prediction), []).append(name)
        return text.Printed(
            head=[write_heading(self), *(verdict := self.say_verdict())],
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
                **text.extract(self, "busy_s", "hidden_from", "resident"),
                "verdict": [" ".join(line.split()) for line in verdict],
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
            f"{of.advice}; MWP {mwp:.3g}, CWP {cwp:.3g}, {resident:.3g} sub-groups resident, CPI"
            f" {cpi:.3g}"
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
    asked = build_models([*chosen, "roofline", "roofline-bytes", "volkov"], adapted)
    found = {
        model.model: answer_or_error(
            lambda model=model: _predict_launches(model, profiler, launches, values), unknown
        )
        for model in asked
    }
    roofs = {
        name: found["roofline-bytes" if name in _ROOF_IN_BYTES else "roofline"] for name in chosen
    }
    hiding = found["volkov"].results if isinstance(found["volkov"], MechanisticPrediction) else {}
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
        busy_s=_find_busy(found["roofline"]) if len(launches) == 1 else {},
        hidden_from=hiding.get("ridge_occupancy"),
        resident=hiding.get("occupancy"),
    )


def _find_busy(roofline: Answer) -> dict[str, float]:
    """Return the time that each subsystem is busy, s; none where the roofline lacks a cost."""
    if isinstance(roofline, Exception):
        return {}
    cycles = {n[5:-1]: c for n, c in roofline.results.items() if n.startswith("busy[")}
    cycle_s = float(roofline.breakdown[roofline.bound]) / max(cycles.values())
    return {name: number * cycle_s for name, number in cycles.items()}


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


def model_names(*, variants: bool = False) -> tuple[str, ...]:
    """Return the names of all mechanistic models, with the further variants if asked."""
    return (*_MODELS, *(_VARIANTS if variants else ()))


def rank_by_error(models: Iterable[str], *, has_barriers: bool) -> list[str]:
    """Sort models by their published error on kernels with barriers or without, none last."""
    none = (math.inf, math.inf)
    return sorted(models, key=lambda name: _PUBLISHED_ERRORS.get(name, none)[not has_barriers])


def choose_models(models: ModelChoice) -> list[str]:
    """Return the names of the chosen models, in order; refuse names of none."""
    names = [models] if isinstance(models, str) else list(models)
    for name in names:
        if name not in (ALL, *(known := model_names(variants=True))):
            message = f"no mechanistic model is called {name!r}; there are {', '.join(known)}"
            raise ParameterError(message + nearest(name, known), parameter="model")
    return list(dict.fromkeys(m for name in names for m in (_MODELS if name == ALL else [name])))


def build_models(models: ModelChoice, device: DeviceParameters) -> list[MechanisticModel]:
    """Build models for a device; barriers of no known cost are free, but for the simulation."""
    device = free = with_latency_steps(device)
    if BARRIER not in device.classes:
        free = device.with_values(classes={**device.classes, BARRIER: _FREE_BARRIER})
    return [
        {**_MODELS, **_VARIANTS}[name](device=device if name.startswith("pipeline") else free)
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
