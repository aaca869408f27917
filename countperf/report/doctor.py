"""Devices as text: which work, and what microbenchmarks found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from countperf.report.numbers import format_percent, format_quantity, format_table

if TYPE_CHECKING:
    from countperf.harness.characterization.document import Characterization


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
