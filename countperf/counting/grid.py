"""The geometry of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from countperf.display import ShortRepr
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(ShortRepr):
    """The launch geometry of one device program.

    Attributes
    ----------
    groups : dict from int to PiecewiseQuasiPolynomial
        Number of work groups along each group axis.
    items : dict from int to int
        Number of work items of a group along each local axis.
    """

    groups: dict[int, PiecewiseQuasiPolynomial]
    items: dict[int, int]

    @property
    def work_groups(self) -> PiecewiseQuasiPolynomial:
        """Work groups of the launch."""
        return PiecewiseQuasiPolynomial.product(self.groups.values())

    @property
    def group_size(self) -> int:
        """Work items of a group."""
        return prod(self.items.values())
