"""The geometry of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from countperf.display import ShortRepr
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(ShortRepr):
    """The launch geometry of one device program."""

    groups: dict[int, PiecewiseQuasiPolynomial]  # number of work groups along each group axis
    items: dict[int, int]  # number of work items of a group along each local axis

    @property
    def work_groups(self) -> PiecewiseQuasiPolynomial:
        """Work groups of the launch."""
        return PiecewiseQuasiPolynomial.product(self.groups.values())

    @property
    def group_size(self) -> int:
        """Work items of a group."""
        return prod(self.items.values())


NOWHERE = Grid(groups={}, items={})
"""Of what no work item executes by itself, such as launches."""
