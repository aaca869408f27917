"""Runs of sites: which sites an execution policy has run in vectors, and how many those are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import assert_never

from countperf.execution.issue_keys import IssueKey, Unit
from countperf.execution.keys import Context, Site
from countperf.execution.policy import ExecutionPolicy, Rows, Vectorized

Issued = tuple[tuple[IssueKey, Fraction], ...]
"""Keys that a unit of a count is issued as, each with its number."""

_ONE = Fraction(1)
_EVERYWHERE = frozenset({("free", "flat"), ("free", "loop"), ("sync", "flat"), ("sync", "loop")})
_IN_VECTORS: Mapping[Vectorized, frozenset[tuple[str, str]]] = {
    "always": _EVERYWHERE,
    "never": frozenset(),
    "flat": frozenset({("free", "flat"), ("sync", "flat")}),
    "flat or sync": _EVERYWHERE - {("free", "loop")},
    "sync": frozenset({("sync", "flat"), ("sync", "loop")}),
}
"""Contexts and placements that run in vectors."""
_FEW = 16
"""Items below which LLVM vectorizes a row only if nothing is left over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRun:
    """Way in which a site runs under a policy."""

    policy: ExecutionPolicy
    site: Site
    # items that vectors take from, and rows of them
    row: int
    rows: int
    is_written_out: bool  # whether the loops around the site are unrolled
    is_flat: bool  # whether it is in no loop of the items, or in unrolled ones only
    is_vector: bool  # whether it runs in vectors

    @classmethod
    def of(cls, site: Site, policy: ExecutionPolicy) -> SiteRun:
        """Return how a site runs."""
        row, rows = (site.items, 1) if policy.along == "group" else site.shape
        is_flat = site.placement != "loop"
        is_vector = (
            policy.width > 1
            and _is_regular(policy.rows, site.context, row, rows, policy.width)
            and (site.context, "flat" if is_flat else "loop") in _IN_VECTORS[policy.vectorized]
        )
        return cls(
            policy=policy,
            site=site,
            row=row,
            rows=rows,
            is_written_out=site.placement == "short",
            is_flat=is_flat,
            is_vector=is_vector,
        )

    @property
    def unit(self) -> Unit:
        """Unit that runs it."""
        return "vector" if self.is_vector else "scalar"

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        """Vector instructions, and scalar ones, by item."""
        full, left = divmod(self.row, self.policy.width)
        if self.policy.remainder == "whole":
            full, left = full + bool(left), 0
        return Fraction(full, self.row), Fraction(left, self.row)

    def issued(
        self,
        vector: IssueKey,
        scalar: IssueKey,
        *,
        each: Fraction = _ONE,
        times: Fraction = _ONE,
    ) -> Issued:
        """Return what is issued of something that a vector does in so many instructions each."""
        if not self.is_vector:
            return ((scalar, times),)
        full, left = self.shares
        found: list[tuple[IssueKey, Fraction]] = []
        if full:
            found.append((vector, full * each * times))
        if left:
            found.append((scalar, left * times))
        return tuple(found)


def _is_regular(which: Rows, context: Context, row: int, rows: int, width: int) -> bool:
    """Return whether a row of items runs in vectors."""
    is_multiple = row % width == 0
    match which:
        case "any":
            return True
        case "multiples":
            return is_multiple
        case "multiples if alone":
            return is_multiple or rows > 1
        case "multiples if several":
            return is_multiple or rows == 1
        case "multiples behind barriers":
            return is_multiple or context == "free"
        case "multiples if few":
            return is_multiple or context == "sync" or row >= _FEW
        case "powers of two":
            return row.bit_count() == 1
        case _:
            assert_never(which)
