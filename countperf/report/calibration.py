"""Results of calibrations as text and as plain values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from countperf.fitting.transfer.document import widening
from countperf.report.objects import picked

if TYPE_CHECKING:
    from countperf.fitting.transfer.prior import ExpectedErrors
    from countperf.fitting.transfer.result import CalibratedModel, CalibrationResult

_NAMES = {"compiled": "reading compiled code", "structural": "without compiled code"}
_UNLIKE = 1.25


def calibration_text(result: CalibrationResult) -> str:
    """Return what was reached, what is unsure, and what more time would buy, as lines of text."""
    known = ", ".join(result.known)
    lines = [
        f"{result.name}: {result.device.slug} ({result.device.name})",
        f"  {result.kernels} kernels, {result.cases} cases, {result.spent_s / 60:.1f} minutes"
        f"{_unsettled(result)}; measurements: {result.store}",
        f"  prior: {known}"
        if result.is_kin
        else f"  prior: {known}: no known device has this platform, so that it says little",
    ]
    for each in result.models:
        lines += _model_lines(each)
    if result.without_code:
        lines.append(f"  no weights that read compiled code: {result.without_code}")
    if result.is_complete:
        lines.append(
            "  all kernels of the choice are measured; for more: countperf measure --profile broad"
            " and countperf fit --model structural"
        )
    lines.append(f"to use it: countperf predict KERNEL SIZES --weights {result.name}")
    return "\n".join(lines)


def _unsettled(result: CalibrationResult) -> str:
    if not result.unsettled:
        return ""
    what = "used: intervals are wider" if result.busy else "left out, to be measured again"
    return f" ({result.unsettled} times did not settle and were {what})"


def _model_lines(each: CalibratedModel) -> list[str]:
    chosen = next(candidate for candidate in each.fit.candidates if candidate.chosen)
    if each.is_kept:
        return [
            f"  {_NAMES[each.kind]} ({each.model}): weights of {each.old} are kept: measured"
            f" kernels are off by a factor of {each.old_factor:.2f}, with new weights by"
            f" {each.new_factor:.2f} (families left out)"
        ]
    lines = [
        f"  {_NAMES[each.kind]} ({chosen.model}): families left out are off by"
        f" {chosen.held_out_error or 0.0:.0%}",
        *([f"    {chosen.model}: {chosen.description}"] if chosen.description else []),
    ]
    if each.old:
        lines.append(
            f"    by a factor of {each.new_factor:.2f}, with the weights of {each.old} by"
            f" {each.old_factor:.2f}"
        )
    if each.expected is not None and each.later is not None:
        factor = widening(chosen.held_out_error or 0.0, each.expected)
        now, later = (_reach(errors, factor) for errors in (each.expected, each.later))
        lines.append(f"    usual kernels are expected to be off by {now}")
        lines.append(f"    after five more minutes: {later}")
        if factor > _UNLIKE:
            lines.append(
                f"    that is {factor:.1f} times what other devices had: this one is unlike them,"
                " or other programs disturbed it"
            )
    if each.unlearnt:
        names = ", ".join(f"{name} (×{factor:.1f})" for name, factor in each.unlearnt)
        lines.append(f"    as on other devices, not measured here: {names}")
    return lines


def _reach(errors: ExpectedErrors, factor: float) -> str:
    """Say how far predictions are off."""
    width = math.exp(factor * errors.log_error_90)
    return f"{factor * errors.typical_error:.0%}, 90 of 100 by less than a factor of {width:.2f}"


_CANDIDATE = ("model", "description", "held_out_error", "chosen")


def calibration_object(result: CalibrationResult) -> dict[str, Any]:
    """Return the same as plain values."""
    what = ("name", "known", "store", "kernels", "cases", "unsettled", "spent_s", "without_code")
    return {
        **picked(result, *what),
        "device": result.device.slug,
        "prior_of_platform": result.is_kin,
        "complete": result.is_complete,
        "models": [
            {
                "model": each.model,
                "written": str(each.path),
                "kept": each.old if each.is_kept else None,
                "candidates": [picked(tried, *_CANDIDATE) for tried in each.fit.candidates],
                "expected_error": None if each.expected is None else each.expected.typical_error,
                "after_five_minutes": None if each.later is None else each.later.typical_error,
                "not_learnt": dict(each.unlearnt),
            }
            for each in result.models
        ],
    }


def calibration_rows(result: CalibrationResult) -> list[dict[str, Any]]:
    """Return a row for each model that was calibrated: its errors, as shares, and its file."""
    found: list[dict[str, Any]] = []
    for each in result.models:
        chosen = next(candidate for candidate in each.fit.candidates if candidate.chosen)
        found.append(
            {
                "model": each.model,
                "kept": each.old if each.is_kept else "",
                "held_out_error": chosen.held_out_error,
                "expected_error": None if each.expected is None else each.expected.typical_error,
                "after_five_minutes": None if each.later is None else each.later.typical_error,
                "weights": str(each.path),
            }
        )
    return found
