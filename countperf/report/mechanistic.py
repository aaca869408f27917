"""Answers of mechanistic models, curves, occupancies and schedules."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from countperf.errors import option
from countperf.mechanistic.predict_all import lacking_input, model_names
from countperf.mechanistic.step_formulas import growth
from countperf.report.breakdown import bound_text, plain_name
from countperf.report.rows import (
    EACH,
    Column,
    Printed,
    Row,
    columns_of,
    cut,
    format_percent,
    format_quantity,
    format_seconds,
    format_share,
    picked,
    point_text,
    table_of,
)
from countperf.symbolic.quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from countperf.mechanistic.merpsys import Schedule
    from countperf.mechanistic.occupancy import KernelOccupancy
    from countperf.mechanistic.predict_all import ModelAnswers
    from countperf.mechanistic.profile import MechanisticPrediction
    from countperf.mechanistic.step_formulas import StepFormulas
    from countperf.mechanistic.sweep import Sweep
    from countperf.models.predictions import DeviceAnswers, Prediction

_WIDTH = 100
_MOST_REASONS = 5
_FEW_LETTERS = 24
_FEW_MODELS = 4
_ANSWER_COLUMNS = {
    **columns_of("model"),
    **columns_of("time_s", format_seconds),
    **columns_of("bound"),
    **columns_of("published_error", format_percent),
    **columns_of("caveat ignores lacks"),
}


def answers(of: ModelAnswers) -> Printed:
    """Give a row per model: time, bound, what it ignores, what it lacks; then how to mend that.

    All models are ranked by validity, see `ModelAnswers.ranked`. Below stand stalls by cause, and
    what MWP-CWP says of the kernel. In JSON a model has ``rank``, and ``time_s``, ``bound``,
    ``breakdown_s``, ``stalls_s``, ``advice``, ``results`` and ``ignored``, or ``lacks`` and
    ``reason``.
    """
    ranked = of.ranked()
    is_ranked = len(of) == len(model_names())
    errors = [answer for answer in of.values() if isinstance(answer, Exception)]
    return Printed(
        head=[_head(of)],
        rows=[
            {
                "model": name,
                **dict.fromkeys(("time_s", "bound", "published_error")),
                "caveat": "",
                "ignores": "",
                "lacks": lacking_input(answer),
                "reason": str(answer),
            }
            if isinstance(answer, Exception)
            else {
                "model": name,
                "time_s": float(answer.time_s),
                "bound": answer.bound,
                "published_error": of.published_error(name) if is_ranked else None,
                "caveat": "below its roof" if of.is_below_roof(name) else "",
                "ignores": ", ".join(answer.ignored),
                "lacks": "",
                "reason": "",
                **{f"{part}_s": float(time_s) for part, time_s in answer.breakdown.items()},
            }
            for name, answer in ((name, of[name]) for name in (ranked if is_ranked else of))
        ],
        columns=_ANSWER_COLUMNS,
        notes=[
            *([of.note] if of.note else []),
            *(f"measured: {name} ({where})" for name, where in of.measured.items()),
            *([_rule(of)] if is_ranked else []),
            *_all_said(of),
            *dict.fromkeys(map(_sentence, errors)),
        ],
        facts={
            **picked(of, "kernel", "device", "parameters", "measured", "note"),
            "models": {name: {"rank": 1 + ranked.index(name), **_answer(of, name)} for name in of},
        },
    )


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


def on_devices(of: DeviceAnswers) -> Printed:
    """Give a row per size, device and model: time, bound, what is missing; then why.

    In JSON a row has what `answers` says of a model, and ``device``, ``parameters``, ``model``.
    """
    kernel = next(one.prediction.kernel for one in of.answers if one.prediction is not None)
    sizes = [one.parameters for one in of.answers]
    same = {k: v for k, v in sizes[0].items() if all(at[k] == v for at in sizes)}
    rows: list[dict[str, Any]] = [
        {
            **picked(one, "device", "weights", "parameters", "model", "lacks"),
            **_predicted(one.prediction),
            "reason": str(one.error or ""),
        }
        for one in of.answers
    ]
    shown = [
        {
            "parameters": {n: size for n, size in row["parameters"].items() if n not in same},
            "device": row["device"],
            "weights": None if row["weights"] in ("", row["device"]) else row["weights"],
            **{name: row[name] for name in ("model", "time_s")},
            "bound": (row["bound"] or "").partition(" and ")[0],
            "missing": _short(row["lacks"], [*row["missing"], *row["ignored"]]),
        }
        for row in rows
    ]
    said = [row["reason"] or _left_out(row) for row in rows]
    reasons = [*dict.fromkeys(_sentence(reason) for reason in said if reason)]
    left = [f"- ... {len(reasons) - _MOST_REASONS} more (--json has all)"]
    return Printed(
        head=[", ".join(filter(None, [kernel, point_text(same)]))],
        rows=rows,
        shown=table_of(
            shown,
            {
                **{"parameters": EACH, **columns_of("device weights model")},
                **columns_of("time_s", format_seconds),
                **columns_of("bound missing"),
            },
        ),
        notes=[*reasons[:_MOST_REASONS], *(left if len(reasons) > _MOST_REASONS else [])],
        facts={"kernel": kernel},
        name="answers",
    )


def _left_out(row: Mapping[str, Any]) -> str:
    names = ", ".join(plain_name(name).text for name in (*row["missing"], *row["ignored"]))
    is_short = len(names) <= _FEW_LETTERS
    return "" if is_short else f"{row['device']}, {row['model']}: leaves out {names}"


def _predicted(of: Prediction | None) -> dict[str, Any]:
    if of is None:
        names = ("time_s", "interval_s", "bound", "breakdown_s")
        return {**dict.fromkeys(names), "ignored": [], "missing": []}
    kinds = bound_text(of).removeprefix("bound by ").partition(":")[0]
    return {
        **picked(of, "time_s", "interval_s"),
        "bound": getattr(of, "bound", None) or kinds,
        "breakdown_s": of.breakdown,
        **picked(of, "ignored", "missing"),
    }


def _short(lacks: str, names: Sequence[str]) -> str:
    """Write in few letters what a device lacks, or else a model leaves out."""
    lacks = re.sub(r"^(device|kernel)\.(classes\.)?", "", lacks)
    left_out = [plain_name(name).text for name in names] or [""]
    several = f"{len(names)} properties" if names[1:] else left_out[0]
    return cut(lacks or several, _FEW_LETTERS)


def _rule(of: ModelAnswers) -> str:
    """Say by what models are ranked."""
    if all(of.published_error(name) is None for name in of):
        return _wrapped("ranked by what they leave out; no errors on such a device are published")
    kind = "with" if of.has_barriers else "without"
    return _wrapped(
        f"ranked by published errors on kernels {kind} barriers, then by what they leave out; last"
        " those below their own roof, and those that lack an input"
    )


def _all_said(of: ModelAnswers) -> list[str]:
    """Write what models say of the kernel beside its time; the same text once."""
    names: dict[str, list[str]] = {}
    for name, prediction in of.predictions.items():
        names.setdefault(_said(prediction), []).append(name)
    return [_wrapped(f"{', '.join(by)}: {said}") for said, by in names.items() if said]


def _said(of: MechanisticPrediction) -> str:
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


def _sentence(error: object) -> str:
    return _wrapped(" ".join(str(error).split()))


def _wrapped(text: str) -> str:
    return textwrap.fill(
        f"- {text}", _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _head(of: ModelAnswers | KernelOccupancy) -> str:
    sizes = ", ".join(["", point_text(of.parameters)]) if of.parameters else ""
    return f"{of.kernel} on {of.device}{sizes}"


def occupancy(of: KernelOccupancy) -> Printed:
    """Give for each program what is resident, and what each resource allows."""
    rows: list[dict[str, Any]] = [
        {
            "program": program.program,
            **program.uses,
            "groups": program.residency.active_groups,
            "sub_groups": program.residency.occupancy_max,
            "occupancy": program.residency.ratio,
            "limited_by": program.residency.limiter,
            **{f"groups[{name}]": number for name, number in program.residency.limits.items()},
        }
        for program in of.programs
    ]
    return Printed(
        head=[_head(of)],
        rows=rows,
        columns=columns_of(" ".join(name for name in rows[0] if not name.startswith("groups[")))
        | columns_of("occupancy", format_percent),
        notes=[
            f"{program.program}: at most {program.residency.active_groups} groups, since the"
            " registers of a work item are not known; state them"
            f" ({option('registers_per_work_item', 'N')})"
            for program in of.programs
            if program.is_bound
        ],
        facts=picked(of, "kernel", "device", "parameters"),
        name="programs",
    )


def sweep(of: Sweep) -> Printed:
    """Give a row per value and model; people see columns of times, and errors where timed."""
    errors = of.errors()
    rows = [
        {
            of.over: point.value,
            "sub_groups": point.occupancy,
            "flop_per_byte": point.intensity,
            "model": name,
            "time_s": None if isinstance(answer, Exception) else float(answer.time_s),
            "bound": None if isinstance(answer, Exception) else answer.bound,
            "sub_groups_per_cycle": of.throughput(point, name),
            "measured_s": point.measured_s,
            "lacks": lacking_input(answer) if isinstance(answer, Exception) else "",
        }
        for point in of.points
        for name, answer in point.answers.items()
    ]
    shown: list[dict[str, Any]] = [
        {
            of.over: point.value,
            "sub-groups": point.occupancy,
            "flop/byte": point.intensity,
            "measured_s": point.measured_s,
            **{
                f"{name}_s": None if isinstance(answer, Exception) else float(answer.time_s)
                for name, answer in point.answers.items()
            },
        }
        for point in of.points
    ]
    shown += [
        {
            of.over: title,
            **{f"{model}_s": format_percent(by[title]) for model, by in errors.items()},
        }
        for title in ("MAPE", "MAPE_shape")
        if errors
    ]
    lacking = dict.fromkeys(f"{row['model']} lacks {row['lacks']}" for row in rows if row["lacks"])
    times = {f"{name}_s": Column(name, format_seconds) for name in of.points[0].answers}
    axes = columns_of(f"{of.over} sub-groups flop/byte") | columns_of("measured_s", format_seconds)
    return Printed(
        head=[f"{of.kernel} on {of.device} over {of.over}"],
        rows=rows,
        shown=table_of(shown, axes | times),
        parts=_side_by_side(shown, axes, times) if len(times) > _FEW_MODELS else (),
        notes=[*([of.note] if of.note else []), *lacking, *_timed(of)],
        facts={
            **picked(of, "kernel", "device", "over", "note", "measured_on", "failures"),
            "errors": errors,
        },
        name="points",
    )


def _side_by_side(
    rows: Sequence[Row], axes: Mapping[str, Column], times: Mapping[str, Column]
) -> list[Printed]:
    """Write columns of times in tables below each other, each with the axes."""
    width = _WIDTH - sum(len(name) + 2 for name in axes) - 2
    lines = textwrap.wrap(" ".join(times), width, break_on_hyphens=False)
    return [
        Printed(head=[""], rows=rows, columns={**axes, **{n: times[n] for n in line.split()}})
        for line in lines
    ]


def steps(of: StepFormulas, other: StepFormulas | None = None) -> Printed:
    """Give formulas and what they grow as, what bounds the steps, and which kernel takes fewer."""
    if other is not None:
        shown, changes = [steps(of), steps(other)], of.crossovers(other)
        return Printed(
            parts=shown,
            notes=[f"fewer steps: {_from(of, changes)}"],
            facts={
                "kernels": [part.object() for part in shown],
                "fewer_steps": [{"from": size, "kernel": name} for size, name in changes],
            },
        )
    rows = [
        {
            "program": program.name,
            "quantity": name,
            "formula": str(formula),
            "grows_as": _decimal(growth(formula)),
        }
        for program in of.programs
        for name, formula in (
            *(("T_1, operations", program.work), ("T_inf, instructions", program.span)),
            *(("M, transactions", program.transactions), ("B_r, groups", program.groups)),
            *((f"steps: {name}", term) for name, term in of.terms(program).items()),
        )
        if formula is not None
    ]
    sizes = [
        f"{name} = {of.first * by}, {(of.first + 1) * by}, ..." for name, by in of.multiples.items()
    ]
    per_core = ", ".join(f"{program.work_items_per_core:g}" for program in of.programs)
    latency = of.described.latency_steps
    known = "unknown" if latency is None else f"{latency:g}"
    bounds = of.bounds() if latency is not None and len(of.multiples) == 1 else []
    filled = of.filled_from() if len(of.multiples) == 1 else None
    return Printed(
        head=[
            ", ".join([f"{of.kernel} on {of.device}", *sizes, *filter(None, [point_text(of.held)])])
        ],
        rows=rows,
        columns=columns_of(f"{'program ' if of.programs[1:] else ''}quantity formula grows_as"),
        notes=[
            _wrapped(
                f"steps: the largest of T_1/P, T_inf and M L/(T P); P = {of.num_cores} cores, T ="
                f" {per_core} work items per core, L = {known}"
            ),
            *([_wrapped(_filling(of, filled))] if len(of.multiples) == 1 else []),
            *([f"- bound by {_from(of, bounds)}"] if bounds else []),
        ],
        facts={
            **picked(of, "kernel", "device", "held", "multiples", "first", "num_cores"),
            "filled_from": filled,
            "bounds": [{"from": size, "bound": term} for size, term in bounds],
        },
        name="formulas",
    )


def _filling(of: StepFormulas, size: int | None) -> str:
    name, _ = of.only()
    if size is None:
        return "groups never fill the device, as T assumes: steps of memory are more"
    return f"groups fill the device from {name} = {size} on; below, steps of memory are more"


def _from(of: StepFormulas, changes: Sequence[tuple[int, str]]) -> str:
    name, _ = of.only()
    return ", ".join(f"{what or 'both alike'} from {name} = {size} on" for size, what in changes)


def _decimal(formula: QuasiPolynomial) -> str:
    """Write a polynomial with decimal coefficients, ``0.004167 n^3``."""
    terms = [(f"{float(c):.4g}", QuasiPolynomial({m: 1})) for m, c in formula.terms.items()]
    return " + ".join(c if name.is_constant else f"{c} {name}" for c, name in terms).replace(
        "*", " "
    )


def _timed(of: Sweep) -> list[str]:
    """Say what the errors are of, and where the kernel was timed on another device."""
    if not of.measured_on:
        return []
    other = "" if of.measured_on == of.device else f", which is not the described {of.device}"
    return [
        _wrapped(
            f"timed on {of.measured_on}{other}; MAPE and MAPE_shape are errors of the throughput"
            " and of its shape over occupancy (Lemeire et al., section 6.3)"
        ),
        *map(_wrapped, of.failures),
    ]


def schedule(of: Schedule) -> Printed:
    """Give source, time and what overlapping saves; then a row per step."""
    saved = 1 - of.time_s / of.serial_s if of.serial_s else 0.0
    return Printed(
        head=[
            f"{of.source}: {format_quantity(of.time_s, 's')}; one after the other"
            f" {format_quantity(of.serial_s, 's')} (overlap saves {100 * saved:.0f} %)"
        ],
        rows=[
            {
                "step": step.name,
                **picked(step.step, "kind", "device", "stream"),
                **picked(step, "start_s", "end_s"),
                "duration_s": step.end_s - step.start_s,
            }
            for step in of.steps
        ],
        columns={
            **columns_of("step device stream"),
            **columns_of("start_s", format_seconds),
            "duration_s": Column("takes", format_seconds),
        },
        facts=picked(of, "source", "time_s", "serial_s"),
        name="steps",
    )


def schedules(points: Sequence[Mapping[str, int]], of: Sequence[Schedule]) -> Printed:
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
