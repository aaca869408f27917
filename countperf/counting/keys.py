"""Keys of counts: operations, memory accesses, synchronization, and their granularity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from countperf.display import ShortRepr
from countperf.symbolic.quasipolynomial import QuasiPolynomial


class Granularity(Enum):
    """Unit that executes one count: work item, sub-group, work group or launch."""

    WORK_ITEM = "work item"
    SUB_GROUP = "sub-group"
    WORK_GROUP = "work group"
    LAUNCH = "launch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An arithmetic operation on scalars, counted per work item.

    Attributes
    ----------
    kind : str
        ``add`` (subtractions included), ``mul``, ``div``, ``pow``, ``special``, ``fma``,
        ``minmax``, ``compare``, ``select``, ``convert``, ``neg`` or, for integers, also ``mod``,
        ``shift``, ``bitwise``.
    type_name : str
        Type it computes in: ``f32``, ``i64`` ...
    function : str
        Name of the function of a ``special`` operation; empty for others.
    """

    kind: str
    type_name: str
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAccess(ShortRepr):
    """A load or store of one array element, counted per work item.

    Attributes
    ----------
    address_space : str
        ``global`` or ``local``.
    direction : str
        ``load`` or ``store``.
    array : str
        Name of the array.
    bits : int
        Size of the element.
    index : tuple of expressions
        Subscript as it is written in the kernel. Of a vector axis, only components have one.
    component_of : int
        Width of the vector of which it is one component; 0 if it is of whole elements.
    """

    address_space: str
    direction: str
    array: str
    bits: int
    index: tuple[Any, ...]
    component_of: int = 0

    @property
    def text(self) -> str:
        """The access as it is written in the kernel."""
        return f"{self.array}[{', '.join(map(str, self.index))}]" if self.index else self.array


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(ShortRepr):
    """A condition under which something is executed, on the loop variables around it.

    Attributes
    ----------
    alternatives : frozenset of frozenset of QuasiPolynomial
        Holds where all members of one of the sets are at least zero.
    holds : bool
        Whether it must hold, or must not.
    """

    alternatives: frozenset[frozenset[QuasiPolynomial]]
    holds: bool

    @property
    def names(self) -> frozenset[str]:
        """The loop variables and sizes in the condition."""
        return frozenset(n for guards in self.alternatives for g in guards for n in g.names())


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstIteration:
    """Something is executed once per entry of loops around it, no more in every iteration.

    Attributes
    ----------
    loops : frozenset of str
        The loops.
    outermost : str
        The outermost of them.
    is_speculated : bool
        Whether it is executed wherever the outermost loop is entered, even if the conditions that
        change in the loops never hold there; else only where it was executed at least once.
    """

    loops: frozenset[str]
    outermost: str
    is_speculated: bool


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type as it occurs in property names, such as ``f32``."""
    letters = {"f": "f", "i": "i", "u": "u", "b": "bool"}
    letter = letters[dtype.kind]
    return letter if letter == "bool" else f"{letter}{dtype.itemsize * 8}"
