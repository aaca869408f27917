"""Loads that are left of a load in unrolled loops: a compiler loads each element of an item once.

Where all loops around a load are unrolled and nothing is stored to its array in between, its copies
that read the same element become one: the value stays in a register. nvcc does so as long as the
registers suffice (`scripts/compare_ktt_counters`: of 1,132 convolutions, all that spill nothing).
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from countperf.errors import CountingError
from countperf.symbolic import sets

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis

__all__ = ["merged_share"]

_MOST_COPIES = 10**6


def merged_share(access: AccessAnalysis, loops: Collection[str]) -> Fraction:
    """Return the share of an item's loads that is left where each element is loaded once.

    Parameters
    ----------
    access : AccessAnalysis
        A load.
    loops : collection of str
        Loops of the item that are unrolled; those that the load is not in do not matter.

    Returns
    -------
    Fraction
        Distinct elements by copies of the load, 1 if all are distinct.

    Raises
    ------
    CountingError
        It is no load, or its address does not move evenly along one of the loops, or a loop has no
        constant number of iterations.

    Notes
    -----
    Of loops that some items leave early, the full number of iterations is taken.
    """
    if access.access.direction != "load":
        raise CountingError(f"{access.label} is no load", where=access.label)
    offsets = np.zeros(1, np.int64)
    copies = 1
    for stride in access.strides:
        if stride.iname is None or stride.iname not in loops:
            continue
        if stride.stride is None or not stride.stride.is_constant:
            raise CountingError(
                f"{access.label}: its address does not move evenly along '{stride.iname}'",
                where=access.label,
            )
        trips = _trips(access, stride.iname)
        copies *= trips
        if copies > _MOST_COPIES:
            raise CountingError(
                f"{access.label}: {copies} copies are too many to unroll", where=access.label
            )
        steps = int(stride.stride.constant_term) * np.arange(trips)
        offsets = np.unique(offsets[:, None] + steps)
    return Fraction(len(offsets), copies)


def _trips(access: AccessAnalysis, loop: str) -> int:
    domain = access.place.domains.domain(frozenset([loop]))
    low, high = sets.constant_bounds(domain)[loop]
    if low is None or high is None:
        raise CountingError(
            f"{access.label}: '{loop}' has no constant number of iterations", where=access.label
        )
    return high - low + 1
