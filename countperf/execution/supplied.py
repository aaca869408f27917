"""Executions of instructions whose counts the caller supplies, by property name.

What is supplied says nothing of addresses but their class, so that these rules stand in for what is
read from a kernel's own accesses:

- *step* from item to item, and in the innermost loop of an item: ``same`` for ``uniform``,
  ``next`` for ``stride1``, ``near`` for classes of which a line of up to four parts is used, to
  other lines in a first-level cache for ``1ofn`` to ``4ofn``, and ``data`` there for ``indirect``;
- *distinct bytes*: those of each access, those of ``uniform`` ones once for each group; they lie
  side by side (``dense``) but for ``1ofn`` to ``4ofn`` and ``indirect`` ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from countperf.execution.keys import (
    AccessKey,
    ByData,
    Density,
    Direction,
    GroupBytesKey,
    GroupSegmentsKey,
    GuardedAccessKey,
    KernelBytesKey,
    Site,
    Space,
    Step,
    ToOtherLines,
    WorkItemStep,
)
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

_SPACES: Mapping[str, Space] = {"gmem": "global", "lmem": "local"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppliedAccess:
    """Accesses that one execution of an instruction makes, as the caller says."""

    space: Space  # address space
    direction: Direction  # direction
    bits: int  # size of an element
    class_name: str  # class of global accesses, such as ``stride1``; of local ones ``stride1``
    number: Fraction  # accesses of one execution

    @property
    def step(self) -> Step:
        """Step of the address between neighboring items, and in a loop."""
        match self.class_name:
            case "uniform":
                return "same"
            case "stride1":
                return "next"
            case "indirect":
                return ByData("l1")
            case name if name.endswith("ofn"):
                return ToOtherLines("l1")
            case _:
                return "near"


def supplied_accesses(numbers: Mapping[str, Fraction]) -> Iterator[SuppliedAccess]:
    """Yield the accesses among supplied counts, by property name."""
    for name, number in numbers.items():
        root, *parts = name.split(".")
        if root in _SPACES:
            direction, bits, *class_name = parts
            yield SuppliedAccess(
                space=_SPACES[root],
                direction=cast("Direction", direction),
                bits=int(bits),
                class_name="".join(class_name) or "stride1",
                number=number,
            )


def access_parts(
    access: SuppliedAccess,
    site: Site,
    executions: PiecewiseQuasiPolynomial,
    *,
    has_neighbors: bool,
    in_loop: bool,
    is_guarded: bool,
) -> Iterator[
    tuple[
        AccessKey | GuardedAccessKey | GroupBytesKey | GroupSegmentsKey | KernelBytesKey,
        PiecewiseQuasiPolynomial,
    ]
]:
    """Yield what supplied accesses add to the counts of executions."""
    quantity = executions.scale(access.number)
    between = WorkItemStep(access.step if has_neighbors else "same")
    place = (site, access.space, access.direction, access.bits, between)
    yield AccessKey(*place, access.step if in_loop else None), quantity
    if is_guarded:
        yield GuardedAccessKey(*place), quantity
    if access.space == "local":
        return
    per_group = Fraction(1, site.items)
    is_sparse = access.class_name.endswith("ofn") or access.class_name == "indirect"
    density: Density = "sparse" if is_sparse else "dense"
    distinct = quantity.scale(per_group) if access.class_name == "uniform" else quantity
    size = Fraction(access.bits, 8)
    yield GroupBytesKey(access.direction, density), distinct.scale(size)
    pieces = quantity if is_sparse else quantity.scale(per_group)
    yield GroupSegmentsKey(access.direction), pieces
    yield KernelBytesKey(access.direction), distinct.scale(size)
