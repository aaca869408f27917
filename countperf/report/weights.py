"""Weights, fits and calibrations; the lists of fits, and checks of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from countperf.display import some_of
from countperf.models.function import charged, unit_of
from countperf.models.library import short_name
from countperf.report.breakdown import plain_name
from countperf.report.rows import (
    Column,
    Printed,
    Row,
    Table,
    columns_of,
    format_percent,
    format_quantity,
    format_seconds,
    picked,
    plain,
    table_of,
)

if TYPE_CHECKING:
    from countperf.devices.discovery import DeviceReport
    from countperf.measuring.characterization.bench import Characterization
    from countperf.models.definition import ModelDefinition
    from countperf.models.fitting.fit_model import FitResult
    from countperf.models.fitting.prior import CalibrationResult
    from countperf.models.function import Weight
    from countperf.models.library import AvailableFit
    from countperf.models.predictions import Verdict
    from countperf.models.weights import WeightSet


NAMED_OTHERS = 4
"""Number of indistinguishable features that a remark names."""
_DERIVED = re.compile(r"(?<![\w.])[a-z0-9]+(?:_[a-z0-9]+)+(?![\w.])")


def rate_of(weight: Weight, model: ModelDefinition | None = None) -> tuple[float, str] | None:
    """Return how much of a feature per second a weight amounts to, with its unit, or None.

    A weight that is not positive, or smaller than two standard errors if they are known, is no
    rate; nor is that of a launch, of the paper's minimum, or of a derived feature whose model is
    not given. A fused multiply-add is two flop.
    """
    amount = charged(weight.feature, weight.unit, model)
    if amount is None or amount.kind == "launches" or doubt(weight):
        return None
    return amount.size / weight.value_s, f"{amount.unit}/s"


def doubt(weight: Weight) -> str:
    """Write why a weight is no rate by itself, or nothing if it is or has no standard error."""
    if weight.value_s < 0:
        return "negative: it corrects other weights"
    if weight.value_s == 0:
        return "zero: its cost is in other weights"
    if weight.standard_error_s is not None and weight.value_s < 2 * weight.standard_error_s:
        return "not told from zero"
    return ""


def weight_rows(weights: WeightSet) -> list[dict[str, Any]]:
    """Return a row for each weight: its cost, s, the rate that it implies, and what is unsure."""
    model = weights.definition
    shared = {
        name: some_of([other for other in group.features if other != name], most=NAMED_OTHERS)
        for group in weights.indistinguishable
        for name in group.features
    }
    rows: list[dict[str, Any]] = []
    for name, weight in weights.by_feature.items():
        rate, rate_unit = rate_of(weight, model) or (None, None)
        rows.append(
            {
                "feature": name,
                "group": plain_name(name).group,
                "name": plain_name(name).text,
                "weight_s": weight.value_s,
                "standard_error_s": weight.standard_error_s,
                "unit": unit_of(weight, model),
                "rate": rate,
                "rate_unit": rate_unit,
                "remark": f"not told apart from {shared[name]}"
                if name in shared
                else doubt(weight),
            }
        )
    return rows


def weight_texts(row: Row) -> tuple[str, str, str]:
    """Write the cost of a row of `weight_rows`, what it is per, and the rate."""
    cost, error_s = format_quantity(row["weight_s"], "s"), row["standard_error_s"]
    if error_s is not None and row["weight_s"]:
        cost += f" ± {format_percent(error_s / abs(row['weight_s']))}"
    rate = "" if row["rate"] is None else format_quantity(row["rate"], row["rate_unit"])
    return cost, f"per {row['unit']}", rate


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Write what was checked: one line for each, and a remedy below those that failed."""
    return check_lines((v.passed, f"{v.name}: {_plain(v.message)}", v.remedy) for v in verdicts)


def _plain(message: str) -> str:
    """Put words for names that formulas of models have; those with dots are in the glossary."""
    return _DERIVED.sub(lambda name: plain_name(name[0]).text, message)


def check_lines(checks: Iterable[tuple[bool, str, str]]) -> list[str]:
    """Write checks: whether each passed, what was found, and how to mend it."""
    lines: list[str] = []
    for passed, text, mend in checks:
        lines.append(f"{'ok' if passed else '!!'}  {text}")
        lines += [f"      mend: {mend}"] if mend else []
    return lines


def weights_table(weights: WeightSet) -> Table:
    """Return weights rounded to their uncertainty, and the rates that they imply."""
    cells = [(row["feature"], *weight_texts(row), row["remark"]) for row in weight_rows(weights)]
    header = ("feature", "weight", "", "implied rate", "")
    return Table(header=header, rows=tuple(cells), right=(3,))


def weights(of: WeightSet) -> Printed:
    """Give the weights of a model."""
    error = None if of.quality is None else of.quality.held_out_error
    said = "" if error is None else f", error over left-out families {format_percent(error)}"
    rows = weight_rows(of)
    return Printed(
        head=[f"{short_name(of.model)} model of {of.device.slug}{said}"],
        rows=rows,
        columns={
            **columns_of("feature group name"),
            **columns_of("weight_s standard_error_s", format_seconds),
            **columns_of("unit"),
        },
    )


def fit(of: FitResult) -> Printed:
    """Give a fit: how well it describes and predicts, its weights, its verdicts."""
    quality = of.weights.quality
    errors = [] if quality is None else [f"in-sample {format_percent(quality.in_sample_error)}"]
    if quality is not None and quality.held_out_error is not None:
        errors.append(f"families left out {format_percent(quality.held_out_error)}")
    expression = (
        [f"time_s = {of.weights.definition.expression}"]
        if len(of.weights.definition.terms) > 1
        else []
    )
    held_out = {case.name: case.predicted_s for case in of.held_out}
    return Printed(
        head=[
            f"error: {', '.join(errors)} (geometric means of relative errors)",
            f"{short_name(of.weights.model)} model on {of.weights.device.slug},"
            f" {len(of.observations)} cases,"
            f" rank {of.estimate.diagnosis.rank} of {len(of.weights.unknowns)}",
            *expression,
        ],
        rows=[
            {
                **picked(case, "kernel", "family", "stable"),
                "case": case.name,
                "measured_s": float(of.design.times_s[position]),
                "predicted_s": float(of.predicted_s[position]),
                "relative_error": float(of.relative_errors[position]),
                "noise": float(of.design.noise[position]),
                "held_out_s": held_out.get(case.name),
            }
            for position, case in enumerate(of.observations)
        ],
        shown=weights_table(of.weights),
        notes=verdict_lines(of.verdicts),
        facts={
            "device": of.weights.device.slug,
            "model": of.weights.model,
            "cases": len(of.observations),
            "rank": of.estimate.diagnosis.rank,
            "verdicts": of.verdicts,
            "weights": of.weights.to_object(),
        },
    )


# --- calibrations

_UNLIKE = 1.25


def calibration(of: CalibrationResult) -> Printed:
    """Give what was reached, what is unsure, and what more time would buy."""
    known = ", ".join(of.known)
    head = [
        f"{of.name}: {of.device.slug} ({of.device.name})",
        f"  {of.kernels} kernels, {of.cases} cases, {of.spent_s / 60:.1f} minutes"
        f"{_unsettled(of)}; measurements: {of.store}",
        f"  prior: {known}"
        if of.is_kin
        else f"  prior: {known}: no known device has this platform, so that it says little",
    ]
    what = ("model", "held_out_error", "expected_error", "factor")
    rows = [{**picked(model, *what), "weights": str(model.path)} for model in of.models]
    notes = [
        f"{model.model}: errors are {model.factor:.1f} times those of other devices: this one is"
        " unlike them, or other programs disturbed it"
        for model in of.models
        if model.factor > _UNLIKE
    ]
    if of.without_code:
        notes.append(f"no weights that read compiled code: {of.without_code}")
    if of.is_complete:
        notes.append(
            "all kernels of the choice are measured; for more: countperf measure --profile broad"
            " and countperf fit --model structural"
        )
    notes.append(f"to use it: countperf predict KERNEL SIZES --weights {of.name}")
    columns = {
        "model": Column("model"),
        "held_out_error": Column("families left out", format_percent),
        "expected_error": Column("expected", format_percent),
    }
    return Printed(
        head=head,
        rows=rows,
        columns=columns,
        notes=notes,
        facts={
            **picked(of, "name", "known", "store", "kernels", "cases", "unsettled", "spent_s"),
            **picked(of, "without_code"),
            "device": of.device.slug,
            "prior_of_platform": of.is_kin,
            "complete": of.is_complete,
            "models": [
                {
                    "model": row["model"],
                    "held_out_error": row["held_out_error"],
                    "expected_error": row["expected_error"],
                    "written": row["weights"],
                }
                for row in rows
            ],
        },
    )


def _unsettled(of: CalibrationResult) -> str:
    if not of.unsettled:
        return ""
    what = "used: intervals are wider" if of.busy else "left out, to be measured again"
    return f" ({of.unsettled} times did not settle and were {what})"


# --- devices, and the fits there are


def doctor_text(findings: Sequence[DeviceReport], *, default: str = "", advice: str = "") -> str:
    """Write which devices work, and for those that do not, why and what to do."""
    checks: list[tuple[bool, str, str]] = []
    for finding in findings:
        chosen = " (default)" if finding.label == default else ""
        state = f"works{chosen}" if finding.works else f"does not work: {finding.reason}"
        mend = "" if finding.works else finding.advice
        checks.append((finding.works, f"{finding.label}  {finding.name}: {state}", mend))
    lines = check_lines(checks)
    if not any(finding.works for finding in findings):
        lines.append("no OpenCL device works" if findings else "no OpenCL device was found")
        if advice:
            lines.append(f"      mend: {advice}")
    return "\n".join(lines)


def characterization(of: Characterization) -> Printed:
    """Give numbers with their spread, marks at those not plausible, and what is missing."""
    cells = tuple(
        (
            "" if finding.is_plausible else "!!",
            finding.name,
            f"{finding.value:.4g}",
            finding.unit,
            f"spread {format_percent(finding.spread)}",
            "" if finding.is_plausible else finding.remark,
        )
        for finding in of.findings
    )
    count = f": {len(cells)} numbers" if cells else ""
    return Printed(
        head=[f"{of.device.slug}, {of.device.name}{count}"],
        rows=[plain(finding) for finding in of.findings],
        shown=Table(header=(), rows=cells),
        notes=[f"left out: {name}: {reason}" for name, reason in of.left_out.items()],
        facts=of.to_object(),
    )


_FIT_COLUMNS = {
    "name": Column("name"),
    **columns_of("device models"),
    "model": Column("predicts here"),
    "date": Column("measured"),
    "held_out_error": Column("held-out error", format_percent),
    "here": Column("this machine"),
}


def available(fits: Sequence[AvailableFit]) -> Printed:
    """Give a row for each fit; the error is that of the model that predicts here."""
    what = ("name", "device", "models", "model", "date", "held_out_error", "is_here", "problem")
    rows = [picked(fit, *what) for fit in fits]
    return Printed(
        head=[] if rows else ["no fitted weights: measure a device and fit it first"],
        rows=rows,
        shown=table_of(
            [
                {**row, "date": row["date"][:10], "here": row["problem"] or row["is_here"]}
                for row in rows
            ],
            _FIT_COLUMNS,
        ),
        name="fits",
    )
