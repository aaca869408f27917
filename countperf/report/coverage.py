"""Coverage of a kernel's features as text and as a JSON-able object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countperf.hardware.parameters import some_of
from countperf.models.library import short_name
from countperf.report.names import uncharged_lines
from countperf.report.numbers import (
    format_percent,
    format_quantity,
    format_share,
    point_text,
)
from countperf.report.objects import plain
from countperf.report.rows import table_of
from countperf.report.text import NAMED_OTHERS

if TYPE_CHECKING:
    from countperf.models.coverage import Coverage, FeatureCoverage
    from countperf.models.records import Range

_FEW = 2
_COLUMNS = {
    **{"feature": "feature", "share": "of time", "value": "in all", "measured": "measured"},
    **{"per_group": "per group", "measured_per_group": "measured", "exercise": "exercised by"},
}


def coverage_text(coverage: Coverage) -> str:
    """Write the verdict, then each feature, that of the largest share of the time first.

    Columns: share of the predicted time; the kernel's value for the launch, and the range of the
    measurements; the same for each work group; the measured cases that have the feature, of how
    many kernels of which families, and the share of their time that the fit attributes to it on
    average and at most. Remarks are below it.
    """
    given = point_text(coverage.parameters)
    lines = [
        f"{coverage.grade}: {coverage.verdict.message}",
        *([f"  mend: {coverage.verdict.remedy}"] if coverage.verdict.remedy else []),
        f"{coverage.kernel}{', ' if given else ''}{given}: {short_name(coverage.model)} model on"
        f" {coverage.device}{_time(coverage)}",
    ]
    if coverage.needs_sizes:
        lines.append("without sizes, shares and ranges of this kernel are not known")
    if not coverage.recorded:
        lines.append(
            "these weights do not record which measurements exercise what: fit them again, or pass"
            " measurements=FILE"
        )
    head, *body = table_of([_row(each) for each in coverage.features], _COLUMNS).lines(indent="")
    lines.append(f"  {head}")
    for line, feature in zip(body, coverage.features, strict=True):
        lines.append(f"  {line}")
        lines += [f"    - {remark}" for remark in _remarks(feature)]
    if coverage.correction is not None:
        lines.append(f"{coverage.correction.name}: {coverage.correction.message}")
    if coverage.ignored:
        lines += uncharged_lines(coverage.ignored)
    return "\n".join(lines)


def _time(coverage: Coverage) -> str:
    if coverage.time_s is None:
        return ""
    error = coverage.weights_error
    uncertain = (
        "" if error is None else f" (standard error from the weights {format_percent(error)})"
    )
    return f", {format_quantity(coverage.time_s, 's')}{uncertain}"


def _row(feature: FeatureCoverage) -> dict[str, Any]:
    return {
        "feature": feature.name,
        "share": feature.share,
        "value": _number(feature.value),
        "measured": _range(feature.measured),
        "per_group": _number(feature.per_group),
        "measured_per_group": _range(feature.measured_per_group),
        "exercise": _exercise(feature),
    }


def _exercise(feature: FeatureCoverage) -> str:
    found = feature.exercise
    if found is None:
        return ""
    names = list(found.families)
    where = ", ".join(names) if len(names) <= _FEW else f"{len(names)} families"
    text = f"{found.cases} cases of {found.kernels} kernels, {where}"
    if found.mean_share is None or found.largest_share is None:
        return text
    if max(abs(found.mean_share), abs(found.largest_share)) > 1:
        return f"{text}: more than their time, of which negative weights take off"
    mean, most = format_share(found.mean_share), format_share(found.largest_share)
    return f"{text}: {mean} of their time, at most {most}"


def _remarks(feature: FeatureCoverage) -> list[str]:
    said: list[str] = []
    if feature.status == "unmeasured":
        said.append("never measured")
    if feature.together_with:
        there = f"not told apart from {some_of(feature.together_with, most=NAMED_OTHERS)}"
        said.append(there + (": a guess here" if feature.status == "inseparable" else ""))
    if feature.substituted:
        exercise = feature.exercise
        measured = feature.name if exercise is None else ", ".join(exercise.properties)
        said.append(f"{', '.join(feature.substituted)} charged as {measured}")
    if feature.beyond > 1:
        said.append(f"{feature.beyond:.3g} times the largest (per {feature.beyond_in})")
    if feature.below > 1:
        said.append(f"{feature.below:.3g} times below the smallest (per {feature.below_in})")
    if feature.exercise is not None and feature.exercise.relies_on:
        said.append(f"rests on {' and on '.join(feature.exercise.relies_on)}")
    if feature.idle:
        much = ", though the kernel has much of it" if feature.is_free else ""
        said.append(f"costs nothing in this fit: hidden in others{much}")
    elif feature.relative_error is not None and feature.relative_error > 0.5:
        said.append("not told from zero")
    return said


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return format_quantity(value, "").strip() if value >= 1000 else f"{value:.3g}"


def _range(found: Range | None) -> str:
    if found is None:
        return ""
    if found.smallest == found.largest:
        return _number(found.largest)
    return f"{_number(found.smallest)} to {_number(found.largest)}"


def coverage_object(coverage: Coverage) -> dict[str, Any]:
    """Return the verdict, and each feature with what exercises it; nothing is rounded.

    The shape is ``{"kernel", "device", "model", "parameters", "grade", "verdict": {"name",
    "passed", "message", "remedy"}, "time_s", "correction": {...} | null, "weights_error",
    "recorded", "features": [{"name", "status", "unit", "value", "per_group", "share", "measured":
    {"smallest", "largest"} | null, "measured_per_group", "beyond", "beyond_in", "below",
    "below_in", "idle", "relative_error", "together_with", "substituted", "exercising_kernels",
    "exercise":
    {"families": {family: cases}, "kernels", "properties", "mean_share", "largest_share",
    "per_group", "relies_on"} | null}], "ignored"}``; what sizes would tell is null without them.
    """
    found = plain(coverage)
    del found["needs_sizes"]
    return found
