"""Keys of counts: operations, memory accesses, synchronization, and their granularity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.text import ShortRepr


class Granularity(Enum):
    """Unit that executes one count: work item, sub-group, work group or launch."""

    WORK_ITEM = "work item"
    SUB_GROUP = "sub-group"
    WORK_GROUP = "work group"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An arithmetic operation on scalars, counted per work item."""

    # ``add`` (also subtractions), ``mul``, ``div``, ``pow``, ``special``, ``fma``, ``minmax``,
    # ``compare``, ``select``, ``convert``, ``neg``, of integers ``mod``, ``shift``, ``bitwise``
    kind: str
    type_name: str  # type it computes in: ``f32``, ``i64``
    function: str = ""  # name of the function of a ``special`` operation; empty for others

    @property
    def name(self) -> str:
        """The property: ``flop.add.f32``."""
        family = "flop" if self.type_name.startswith("f") else "iop"
        function = f".{self.function}" if self.function else ""
        return f"{family}.{self.kind}.{self.type_name}{function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAccess(ShortRepr):
    """A load or store of one array element, counted per work item."""

    address_space: str  # ``global`` or ``local``
    direction: str  # ``load`` or ``store``
    array: str  # name of the array
    bits: int  # size of the element
    index: tuple[Any, ...]  # subscript as it is written in the kernel
    # width of the vector of which it is one component; 0 if it is of whole elements
    component_of: int = 0

    @property
    def text(self) -> str:
        """The access as it is written in the kernel."""
        return f"{self.array}[{', '.join(map(str, self.index))}]" if self.index else self.array


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(ShortRepr):
    """A condition under which something is executed, on the loop variables around it."""

    # holds where all members of one of the sets are at least zero
    alternatives: frozenset[frozenset[QuasiPolynomial]]
    holds: bool  # whether it must hold, or must not

    @property
    def names(self) -> frozenset[str]:
        """The loop variables and sizes in the condition."""
        return frozenset(n for guards in self.alternatives for g in guards for n in g.names())


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstIteration:
    """Something is executed once per entry of loops around it, no more in every iteration."""

    loops: frozenset[str]
    outermost: str  # the outermost of them
    # whether it is executed wherever the outermost loop is entered, even if the conditions that
    # change in the loops never hold there; else only where it was executed at least once
    is_speculated: bool


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type as it occurs in property names, such as ``f32``."""
    return "bool" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize * 8}"


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


NOWHERE = Grid(groups={}, items={})  # of what no work item executes by itself, such as launches
