"""Results as text for people and as JSON-able objects for programs.

This is the only place that rounds numbers or gives them SI prefixes; everything else holds full
values in s, byte, flop and Hz. The objects are full values too, in the shapes that other programs
rely on.
"""

from __future__ import annotations

from countperf.report.against import comparison_text
from countperf.report.comparison import ranking_evaluation_object, ranking_evaluation_text
from countperf.report.doctor import DeviceFinding, doctor_text
from countperf.report.numbers import (
    format_percent,
    format_quantity,
    format_table,
    format_with_uncertainty,
    si_prefix,
)
from countperf.report.objects import (
    count_object,
    evaluation_object,
    fit_object,
    prediction_object,
)
from countperf.report.text import (
    candidates_text,
    count_text,
    evaluation_text,
    fit_text,
    prediction_text,
    verdicts_text,
    weights_text,
)

__all__ = [
    "DeviceFinding",
    "candidates_text",
    "comparison_text",
    "count_object",
    "count_text",
    "doctor_text",
    "evaluation_object",
    "evaluation_text",
    "fit_object",
    "fit_text",
    "format_percent",
    "format_quantity",
    "format_table",
    "format_with_uncertainty",
    "prediction_object",
    "prediction_text",
    "ranking_evaluation_object",
    "ranking_evaluation_text",
    "si_prefix",
    "verdicts_text",
    "weights_text",
]
