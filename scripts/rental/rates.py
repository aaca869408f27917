"""Rates that fitted weights imply, beside the rates that microbenchmarks measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from countperf.hardware.parameters import DeviceParameters
from countperf.models.units import charged
from countperf.report.numbers import format_percent, format_quantity, format_table
from countperf.report.plausibility import measured_rate

_RATED = ("flop", "gmem", "lmem", "barrier")


class FittedWeight(Protocol):
    """A weight of a fit."""

    @property
    def feature(self) -> str: ...  # noqa: D102
    @property
    def value_s(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpliedRate:
    """The rate that a weight implies."""

    feature: str  # the feature
    rate: float  # per second; negative if the weight is
    unit: str  # of the rate
    # what microbenchmarks found for it, in the same unit; None if they have nothing like it
    measured: float | None

    @property
    def ratio(self) -> float | None:
        """Implied over measured rate; above 1 the fit charges less than the device takes."""
        return None if not self.measured else self.rate / self.measured


def implied_rates(
    weights: Iterable[FittedWeight], device: DeviceParameters
) -> tuple[ImpliedRate, ...]:
    """Compare weights with measured rates."""
    found: list[ImpliedRate] = []
    for weight in weights:
        amount = charged(weight.feature, "")
        if weight.value_s == 0 or amount is None or amount.kind not in _RATED:
            continue
        found.append(
            ImpliedRate(
                feature=weight.feature,
                rate=amount.size / weight.value_s,
                unit=f"{amount.unit or 1}/s",
                measured=measured_rate(weight.feature, amount, device),
            )
        )
    return tuple(found)


def implied_rates_text(rates: Iterable[ImpliedRate]) -> str:
    """Write implied and measured rates; those that no device reaches are marked."""
    rows: list[list[str]] = []
    for each in rates:
        ratio = each.ratio
        doubt = "negative" if each.rate < 0 else ""
        if ratio is not None and ratio > 1.2:
            doubt = "faster than measured: hidden behind something else, or not told apart from it"
        measured = "" if each.measured is None else format_quantity(each.measured, each.unit)
        share = "" if ratio is None or ratio < 0 else format_percent(ratio)
        rows.append([each.feature, format_quantity(each.rate, each.unit), measured, share, doubt])
    return format_table(rows, header=["weight", "implies", "measured", "share", ""])
