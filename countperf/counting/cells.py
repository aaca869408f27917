"""The cells of an array that accesses reach, as a set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from countperf.counting.accesses import Address
from countperf.counting.domains import Domains
from countperf.counting.keys import Case, FirstIteration
from countperf.errors import UncountableSetError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.quasipolynomial import Atom, QuasiPolynomial
from countperf.symbolic.quotients import ParametricFloor
from countperf.symbolic.splitting import quotients

FOOTPRINT_OPERATIONS = 500_000
"""Limit of isl's operations for a footprint, about a second; beyond it the footprint is refused."""


def accessed_cells(
    places: Iterable[tuple[Address, frozenset[str], tuple[Case | FirstIteration, ...]]],
    domains: Domains,
    functions: Callable[[Address], Sequence[QuasiPolynomial]],
) -> isl_sets.IntegerSet:
    """Return the union of the cells that accesses reach, as one set."""
    parts: list[isl_sets.IntegerSet] = []
    for address, within, cases in places:
        counted, _ = domains.trip_statistics(within)
        executed = domains.executed_set(counted, cases)
        for part, values in _without_quotients(executed, tuple(functions(address)), domains):
            parts.append(sets.image(part, values))
    return domains.counter.as_one_piece(sets.union(parts))


def _without_quotients(
    executed: isl_sets.IntegerSet, functions: tuple[QuasiPolynomial, ...], domains: Domains
) -> Iterator[tuple[isl_sets.IntegerSet, tuple[QuasiPolynomial, ...]]]:
    """Split a set so that floors of quotients by size parameters have one value on each part."""
    quotient = next(
        (q for f in functions for q in f.floors() if isinstance(q, ParametricFloor)), None
    )
    if quotient is None:
        yield executed, functions
        return
    assumptions = domains.counter.context.assumptions
    found = quotients(executed, quotient.numerator, quotient.divisor, assumptions)
    if found is None:
        raise UncountableSetError(
            f"kernel '{domains.kernel.name}': no exact footprint, since {quotient} has more than a "
            "few values",
            where=domains.kernel.name,
        )
    for value, part in found:
        known: dict[Atom, QuasiPolynomial] = {quotient: QuasiPolynomial.constant(value)}
        replaced = tuple(f.map_atoms(lambda atom, k=known: k.get(atom)) for f in functions)
        yield from _without_quotients(part, replaced, domains)
