"""Text of the findings of microbenchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from countperf.report.numbers import format_percent
from countperf.report.text import format_table


class MeasuredNumber(Protocol):
    """A number with its spread, and whether it is plausible."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def spread(self) -> float: ...  # noqa: D102
    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def is_plausible(self) -> bool: ...  # noqa: D102
    @property
    def remark(self) -> str: ...  # noqa: D102


def characterization_text(
    device: str, findings: Sequence[MeasuredNumber], left_out: Mapping[str, str]
) -> str:
    """Write numbers with their spread, marks at those not plausible, and what is missing."""
    rows = [
        [
            "  " if each.is_plausible else "!!",
            each.name,
            f"{each.value:.4g}",
            each.unit,
            f"spread {format_percent(each.spread)}",
            "" if each.is_plausible else each.remark,
        ]
        for each in findings
    ]
    lines = [f"{device}: {len(findings)} numbers", format_table(rows)] if rows else [device]
    lines += [f"left out: {name}: {reason}" for name, reason in left_out.items()]
    return "\n".join(lines)
