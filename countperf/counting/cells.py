"""The cells of an array that accesses reach, as a set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from countperf.counting.accesses import Address
from countperf.counting.domains import Domains
from countperf.counting.keys import Case, FirstIteration
from countperf.symbolic import sets
from countperf.symbolic.quasipolynomial import QuasiPolynomial

FOOTPRINT_OPERATIONS = 500_000
"""Of isl, a second or so: beyond, a footprint is refused."""

__all__ = ["FOOTPRINT_OPERATIONS", "accessed_cells"]


def accessed_cells(
    places: Iterable[tuple[Address, frozenset[str], tuple[Case | FirstIteration, ...]]],
    domains: Domains,
    functions: Callable[[Address], Sequence[QuasiPolynomial]],
) -> sets.IntegerSet:
    """Return the union of the cells that accesses reach, as one set.

    Parameters
    ----------
    places : iterable of (Address, frozenset of str, tuple of Case)
        Address of each access, loop variables around it, conditions on them.
    domains : Domains
        Of the kernel.
    functions : callable
        What is taken of an address: its subscripts, or its offset.

    Raises
    ------
    CountingError
        A subscript is not affine.
    """
    parts: list[sets.IntegerSet] = []
    for address, within, cases in places:
        counted, _ = domains.trip_statistics(within)
        executed = domains.executed_set(counted, cases)
        parts.append(sets.image(executed, functions(address)))
    return domains.counter.as_one_piece(sets.union(parts))
