"""Difference between the winner of a search and the default variant, as text and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countperf.report.against import cause_text, side_by_side
from countperf.report.numbers import choice_text, format_quantity, format_table

if TYPE_CHECKING:
    from countperf.tuning.contrast import Contrast


def contrast_text(contrast: Contrast) -> str:
    """Write how much faster the winner is than the default variant, and which parts make it so."""
    header, rows = side_by_side(contrast.pair.first, contrast.pair.second)
    table = format_table(rows, header=header, right=(1, 2, 3))
    return "\n".join([*contrast_lines(contrast), *(f"  {line}" for line in table.splitlines())])


def contrast_lines(contrast: Contrast) -> list[str]:
    """Return the sentences of it: what is compared, as predicted and measured, and the cause."""
    default = choice_text(contrast.default.choice)
    said = [f"predicted {_ratio(contrast.default.time_s, contrast.winner.time_s)}"]
    if contrast.default_s is None:
        said.append("not measured, for the default was not run")
    else:
        said.append(f"measured {_ratio(contrast.default_s, contrast.winner_s)}")
    lines = [f"against the default variant ({default}): {', '.join(said)}"]
    cause = cause_text(contrast.pair.first, contrast.pair.second).removeprefix("cause: ")
    return [*lines, f"why, as predicted: {cause}"]


def _ratio(default_s: float, winner_s: float) -> str:
    whole = f"{format_quantity(default_s, 's')} and {format_quantity(winner_s, 's')}"
    return f"{default_s / winner_s:.3g} times as fast ({whole})"


def contrast_object(contrast: Contrast) -> dict[str, Any]:
    """Return it as plain values; parts in seconds, by the names of the model."""
    pair = contrast.pair
    return {
        "model": contrast.model,
        "default": {
            "choice": dict(contrast.default.choice),
            "predicted_s": contrast.default.time_s,
            "time_s": contrast.default_s,
            "parts": dict(pair.second.breakdown),
        },
        "winner": {
            "predicted_s": contrast.winner.time_s,
            "time_s": contrast.winner_s,
            "parts": dict(pair.first.breakdown),
        },
        "cause": cause_text(pair.first, pair.second),
    }
