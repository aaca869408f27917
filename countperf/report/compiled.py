"""Compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from countperf.report.numbers import format_percent
from countperf.report.rows import Printed

if TYPE_CHECKING:
    from countperf.machine_code.code import CodeShares, CompiledCode, CompiledRegion


def compiled(codes: Mapping[str, CompiledCode]) -> Printed:
    """Give compiled kernels: the shares of the innermost loops, then instructions by loop."""
    return Printed(
        body=[line for code in codes.values() for line in _lines(code)],
        facts={
            name: {
                **asdict(code),
                "totals": code.totals(),
                "shares": asdict(code.shares()),
                "shares_innermost": asdict(code.shares(innermost=True)),
            }
            for name, code in codes.items()
        },
    )


def _lines(code: CompiledCode) -> list[str]:
    items = "x".join(map(str, code.group_shape))
    of_whom = "a work item" if code.group_shape == (1,) else f"a group of {items} work items"
    lines = [f"kernel {code.kernel}: {code.source}, for {of_whom}"]
    if code.registers is not None:
        lines.append(f"  {code.registers} registers, {code.spill_bytes} byte spilled")
    lines.append(f"  innermost loops: {_shares(code.shares(innermost=True))}")
    for (_, where, counts), same in groupby(code.regions, _what):
        names = [region.name for region in same]
        each = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}, each"
        lines.append(f"  {where.format(each)}: {', '.join(f'{n} {name}' for name, n in counts)}")
    if aside := sum(code.aside.values()):
        lines.append(f"  aside, for other cases: {aside} instructions")
    return lines


def _what(region: CompiledRegion) -> tuple[str, str, list[tuple[str, int]]]:
    """Return all of a region but its number, for regions in a row that are the same."""
    outside, _, _ = region.name.rpartition(".")
    notes = ["innermost"] * region.is_innermost
    notes += [] if region.trips is None else [f"{region.trips:g} iterations"]
    where = "loop {}" + (f" ({', '.join(notes)})" if notes else "") if region.depth else "{}"
    return outside, where, sorted(region.counts.items(), key=lambda each: (-each[1], each[0]))


def _shares(shares: CodeShares) -> str:
    if shares.packed is None or shares.mean_lanes is None or shares.fused is None:
        return "no arithmetic on numbers"
    return (
        f"{format_percent(shares.packed)} of the arithmetic packed, {shares.mean_lanes:.3g} lanes"
        f" an instruction, {format_percent(shares.fused)} of the instructions fused; for each,"
        f" {shares.lane_moves:.2g} that move lanes and {shares.spills:.2g} spills"
    )
