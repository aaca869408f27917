"""Weights, fits, candidates and calibrations; the lists of fits, and checks of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from countperf.fitting.transfer.document import widening
from countperf.models.library import short_name
from countperf.report.numbers import (
    format_percent,
    format_quantity,
)
from countperf.report.plausibility import NO_RATES, check_lines, verdict_lines, weight_rows
from countperf.report.rows import Printed, Table, picked, plain, table_of

if TYPE_CHECKING:
    from countperf.fitting.result import FitResult
    from countperf.fitting.transfer.result import CalibratedModel, CalibrationResult
    from countperf.hardware.parameters import DeviceParameters
    from countperf.harness.characterization.document import Characterization
    from countperf.harness.doctor import DeviceReport
    from countperf.models.fit_summaries import AvailableFit, WeightsCheck
    from countperf.models.records import Candidate
    from countperf.models.weights import WeightSet


def weights_table(weights: WeightSet, device: DeviceParameters | None = None) -> Table:
    """Return weights rounded to their uncertainty, and the rates that they imply."""
    cells = [
        (row["feature"], *row["shown"].values(), row["remark"])
        for row in weight_rows(weights, device)
    ]
    header = ("feature", "weight", "", "implied rate", "")
    return Table(header=header, rows=tuple(cells), right=(3,))


def weights(of: WeightSet) -> Printed:
    """Give the weights of a model."""
    error = None if of.quality is None else of.quality.held_out_error
    said = "" if error is None else f", error over left-out families {format_percent(error)}"
    rows = [{n: v for n, v in row.items() if n != "shown"} for row in weight_rows(of)]
    return Printed(
        head=[f"{short_name(of.model)} model of {of.device.slug}{said}"],
        rows=rows,
        columns={name: name.removesuffix("_s") for name in [*rows[0]][:6]} if rows else None,
    )


def candidates_lines(candidates: Sequence[Candidate]) -> list[str]:
    """Write the models that were tried, with their factors and errors over left-out families."""
    columns = {"model": "model", "factor": "factor", "held_out_error": "families left out"}
    columns |= {"in_sample_error": "in-sample", "predicted": "cases predicted", "failure": ""}
    rows = [
        {
            "model": f"{candidate.model}{' (chosen)' if candidate.chosen else ''}",
            "factor": candidate.held_out_factor,
            **picked(candidate, "held_out_error", "in_sample_error", "failure"),
            "predicted": f"{candidate.predicted_cases} of {candidate.cases}",
        }
        for candidate in candidates
    ]
    chosen = [f"{e.model}: {e.description}" for e in candidates if e.chosen and e.description]
    return [*table_of(rows, columns).lines(indent=""), *chosen] if rows else []


def fit(of: FitResult, device: DeviceParameters | None = None) -> Printed:
    """Give a fit: how well it describes and predicts, its weights, its verdicts."""
    quality = of.weights.quality
    errors = [] if quality is None else [f"in-sample {format_percent(quality.in_sample_error)}"]
    if quality is not None and quality.held_out_error is not None:
        errors.append(f"families left out {format_percent(quality.held_out_error)}")
    expression = (
        [f"time_s = {of.weights.expression}"] if len(of.weights.definition.terms) > 1 else []
    )
    held_out = {case.name: case.predicted_s for case in of.held_out}
    return Printed(
        head=[
            f"error: {', '.join(errors)} (geometric means of relative errors)",
            f"{short_name(of.weights.model)} model on {of.weights.device.slug},"
            f" {len(of.observations)} cases,"
            f" rank {of.diagnosis.rank} of {len(of.weights.unknowns)}",
            *expression,
            *(f"  {line}" for line in candidates_lines(of.weights.candidates)),
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
        shown=weights_table(of.weights, device),
        notes=[*([] if device is not None else [NO_RATES]), *verdict_lines(of.verdicts)],
        facts={
            "device": of.weights.device.slug,
            "model": of.weights.model,
            "cases": len(of.observations),
            "rank": of.diagnosis.rank,
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
    notes = [line for model in of.models for line in _model_lines(model)]
    if of.without_code:
        notes.append(f"no weights that read compiled code: {of.without_code}")
    if of.is_complete:
        notes.append(
            "all kernels of the choice are measured; for more: countperf measure --profile broad"
            " and countperf fit --model structural"
        )
    notes.append(f"to use it: countperf predict KERNEL SIZES --weights {of.name}")
    columns = {"model": "model", "held_out_error": "families left out", "kept": "kept weights of"}
    columns["expected_error"] = "expected"
    what = ("name", "known", "store", "kernels", "cases", "unsettled", "spent_s", "without_code")
    return Printed(
        head=head,
        rows=[_model_row(model) for model in of.models],
        columns=columns,
        notes=notes,
        facts={
            **picked(of, *what),
            "device": of.device.slug,
            "prior_of_platform": of.is_kin,
            "complete": of.is_complete,
            "models": [
                {
                    **{
                        n: v for n, v in _model_row(model).items() if n not in ("weights", "factor")
                    },
                    "written": model.path,
                    "candidates": [
                        picked(tried, "model", "description", "held_out_error", "chosen")
                        for tried in model.fit.candidates
                    ],
                }
                for model in of.models
            ],
        },
    )


def _model_row(each: CalibratedModel) -> dict[str, Any]:
    """Return a row of a model that was calibrated: its errors, as shares, and its file."""
    held_out = next(tried for tried in each.fit.candidates if tried.chosen).held_out_error
    factor = 1.0 if each.expected is None else widening(held_out or 0.0, each.expected)
    return {
        "model": each.model,
        "kept": each.old if each.is_kept else None,
        "held_out_error": held_out,
        "expected_error": each.expected and factor * each.expected.typical_error,
        "weights": str(each.path),
        "factor": factor,
    }


def _unsettled(of: CalibrationResult) -> str:
    if not of.unsettled:
        return ""
    what = "used: intervals are wider" if of.busy else "left out, to be measured again"
    return f" ({of.unsettled} times did not settle and were {what})"


def _model_lines(each: CalibratedModel) -> list[str]:
    lines: list[str] = []
    if each.old:
        lines.append(
            f"{each.model}: measured kernels are off by a factor of {each.old_factor:.2f} with"
            f" weights of {each.old}, by {each.new_factor:.2f} with new ones"
        )
    if (factor := _model_row(each)["factor"]) > _UNLIKE:
        lines.append(
            f"{each.model}: errors are {factor:.1f} times those of other devices: this one is"
            " unlike them, or other programs disturbed it"
        )
    return lines


# --- devices, and the fits there are


def doctor_text(findings: Sequence[DeviceReport], *, default: str = "", advice: str = "") -> str:
    """Write which devices work, and for those that do not, why and what to do."""
    checks: list[tuple[bool, str, str]] = []
    for finding in findings:
        bandwidth = finding.copy_bandwidth_byte_per_s
        copies = "" if bandwidth is None else f", copies {format_quantity(bandwidth, 'byte/s')}"
        chosen = " (default)" if finding.label == default else ""
        state = f"works{copies}{chosen}" if finding.works else f"does not work: {finding.reason}"
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
    "name": "name",
    "device": "device",
    "models": "models",
    "date": "measured",
    "held_out_error": "held-out error",
    "here": "this machine",
}


def available(fits: Sequence[AvailableFit]) -> Printed:
    """Give a row for each fit: name, device, models, date, held-out error, this machine."""
    what = ("name", "device", "models", "date", "held_out_error", "is_here", "problem")
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


def checks_text(checks: Sequence[WeightsCheck]) -> str:
    """Say of each check whether the weights fit the machine at hand, and what to do if not."""
    if not checks:
        return "no weights to check: none are of a device that works on this machine"
    lines = check_lines(
        (
            check.fits,
            f"weights {check.weights} on {check.device}: "
            + (check.problem or ", ".join(probe.text for probe in check.probes)),
            check.mend,
        )
        for check in checks
    )
    return "\n".join(lines)
