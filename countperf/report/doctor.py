"""Devices and fitted weights as text: which work, what was measured, and how fits compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from countperf.report.numbers import format_percent, format_quantity, format_table
from countperf.report.objects import picked
from countperf.report.rows import Printed, table_of

if TYPE_CHECKING:
    from countperf.harness.characterization.document import Characterization
    from countperf.models.fit_summaries import AvailableFit, ShippedComparison, WeightsCheck
    from countperf.models.weights import WeightSet


class DeviceFinding(Protocol):
    """Finding about a device after trying it."""

    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def works(self) -> bool: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102
    @property
    def advice(self) -> str: ...  # noqa: D102
    @property
    def copy_bandwidth_byte_per_s(self) -> float | None: ...  # noqa: D102


def doctor_text(findings: Sequence[DeviceFinding], *, default: str = "", advice: str = "") -> str:
    """Write which devices work, and for those that do not, why and what to do."""
    lines: list[str] = []
    for finding in findings:
        bandwidth = finding.copy_bandwidth_byte_per_s
        copies = "" if bandwidth is None else f", copies {format_quantity(bandwidth, 'byte/s')}"
        chosen = " (default)" if finding.label == default else ""
        state = f"works{copies}{chosen}" if finding.works else f"does not work: {finding.reason}"
        lines.append(f"{'ok' if finding.works else '!!'}  {finding.label}  {finding.name}: {state}")
        if not finding.works and finding.advice:
            lines.append(f"      mend: {finding.advice}")
    if not any(finding.works for finding in findings):
        lines.append("no OpenCL device works" if findings else "no OpenCL device was found")
        if advice:
            lines.append(f"      mend: {advice}")
    return "\n".join(lines)


def characterization_text(found: Characterization) -> str:
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
        for each in found.findings
    ]
    name = found.device.name
    lines = [f"{name}: {len(rows)} numbers", format_table(rows)] if rows else [name]
    lines += [f"left out: {name}: {reason}" for name, reason in found.left_out.items()]
    return "\n".join(lines)


_COLUMNS = {
    "name": "name",
    "device": "device",
    "models": "models",
    "date": "measured",
    "held_out_error": "held-out error",
    "here": "this machine",
}


def weights_table(fits: Sequence[AvailableFit]) -> Printed:
    """Write a row for each fit: name, device, models, date, held-out error, this machine."""
    if not fits:
        return Printed(head=["no fitted weights: measure a device and fit it first"])
    rows = [
        {
            **picked(fit, "name", "device", "models", "held_out_error"),
            "date": fit.date[:10],
            "here": fit.problem or fit.is_here,
        }
        for fit in fits
    ]
    return Printed(head=[], table=table_of(rows, _COLUMNS))


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
