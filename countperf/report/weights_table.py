"""The table of fitted weights that there are, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from countperf.report.numbers import format_percent, format_table

if TYPE_CHECKING:
    from countperf.models.fit_summaries import AvailableFit, ShippedComparison, WeightsCheck
    from countperf.models.weights import WeightSet


_HEADER = ("name", "device", "models", "measured", "held-out error", "this machine")


def weights_table_text(fits: Sequence[AvailableFit]) -> str:
    """Write a row for each fit: name, device, models, date, held-out error, this machine."""
    if not fits:
        return "no fitted weights: measure a device and fit it first"
    return format_table(_rows(fits), header=_HEADER, right=(4,))


def weights_table_html(fits: Sequence[AvailableFit]) -> str:
    """Write the same as an HTML table, for notebooks."""
    return pd.DataFrame(_rows(fits), columns=pd.Index(_HEADER)).to_html(index=False, border=0)


def _rows(fits: Sequence[AvailableFit]) -> list[list[str]]:
    return [
        [
            fit.name,
            fit.device,
            ", ".join(fit.models),
            fit.date[:10],
            "" if fit.held_out_error is None else format_percent(fit.held_out_error),
            fit.problem or ("yes" if fit.is_here else "no"),
        ]
        for fit in fits
    ]


def checks_text(checks: Sequence[WeightsCheck]) -> str:
    """Say of each check whether the weights fit the machine at hand, and what to do if not."""
    if not checks:
        return "no weights to check: none are of a device that works on this machine"
    lines: list[str] = []
    for check in checks:
        said = check.problem or ", ".join(probe.text for probe in check.probes)
        mark = "ok" if check.fits else "!!"
        lines.append(f"{mark}  weights {check.weights} on {check.device}: {said}")
        lines += [f"      mend: {check.mend}"] if check.mend else []
    return "\n".join(lines)


def compared_fits_text(weights: WeightSet, compared: ShippedComparison | None) -> str:
    """Say how a fit compares with the one that ships, and which of them is used by default."""
    if compared is None:
        return (
            f"nothing ships for {weights.device.slug}: the newest of your own fits for it is the"
            " default"
        )
    parts = [
        "held-out error, families of kernels left out of each fit's own measurements:"
        f" {_error(compared.held_out_error)} (this fit), {_error(compared.shipped_held_out_error)}"
        f" ({compared.name}, which ships)"
    ]
    if compared.judged_cases:
        parts.append(
            f"error on the {compared.judged_cases} cases here that judge fits:"
            f" {_error(compared.judged_error)} (this fit), {_error(compared.shipped_judged_error)}"
            f" ({compared.name})"
        )
    parts.append(f"{compared.name} stays the default")
    return "\n".join(parts)


def _error(value: float | None) -> str:
    return "not known" if value is None else format_percent(value)
