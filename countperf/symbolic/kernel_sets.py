"""Sets of Loopy's kernels as isl's, whichever library Loopy has them in.

Loopy 2025.2 has sets of islpy; its development version has those of namedisl, of which only the
names of dimensions are known, and not their order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import loopy.symbolic
from loopy.symbolic import pw_aff_to_expr

from countperf.errors import CountingError
from countperf.symbolic.affine import NotAffineError, ToQuasiPolynomial
from countperf.symbolic.isl_sets import (
    IntegerSet,
    as_set,
    drop_parameters,
    in_fixed_order,
    names_of,
)
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import restrict

_namedisl: Any = getattr(loopy.symbolic, "nisl", None)


def _as_isl(owned: Any) -> Any:
    """Return an object of Loopy's as one of isl."""
    return owned if _namedisl is None else owned.as_isl()


def _as_loopy_has_it(plain: Any) -> Any:
    return plain if _namedisl is None else _namedisl.to_named(plain)


def _set_of(owned: Any) -> IntegerSet:
    """Return a set of Loopy's; one that needs no union as a basic set."""
    whole = _as_isl(owned)
    if _namedisl is None:
        return whole
    pieces = whole.get_basic_sets()
    return pieces[0] if len(pieces) == 1 else whole


def domains_of(kernel: Any) -> list[IntegerSet]:
    """Return the domains of a kernel."""
    return [_set_of(domain) for domain in kernel.domains]


def domain_of(kernel: Any, inames: Collection[str]) -> IntegerSet:
    """Return the set in which Loopy has some loops, with others that are together with them."""
    return _set_of(kernel.get_inames_domain(frozenset(inames)))


def assumptions_of(kernel: Any) -> IntegerSet:
    """Return the assumptions on the sizes of a kernel, a set of parameters.

    Loopy's development version keeps those on parameters that were fixed to a number.
    """
    assumptions = _set_of(kernel.assumptions)
    if _namedisl is None:
        return assumptions
    unknown = {*names_of(assumptions, parameters=True)} - {*kernel.arg_dict, *kernel.all_params()}
    return drop_parameters(assumptions.params(), unknown)


def with_sets_in_fixed_order(kernel: Any) -> Any:
    """Return a kernel with domains and assumptions that are the same in every process."""
    return _with_assumptions(kernel, in_fixed_order(assumptions_of(kernel))).copy(
        domains=[_as_loopy_has_it(in_fixed_order(domain)) for domain in domains_of(kernel)]
    )


def with_assumptions_on_arguments(kernel: Any) -> Any:
    """Return a kernel without assumptions on what is no argument, such as on loop variables."""
    assumptions = assumptions_of(kernel)
    unknown = {*names_of(assumptions, parameters=True)} - kernel.arg_dict.keys()
    return _with_assumptions(kernel, drop_parameters(assumptions, unknown)) if unknown else kernel


def _with_assumptions(kernel: Any, assumptions: IntegerSet) -> Any:
    if _namedisl is not None:
        assumptions = _as_loopy_has_it(as_set(assumptions).from_params())
    return kernel.copy(assumptions=assumptions)


def replace_parameter(owned: Any, name: str, value: Any, allowed: Collection[str]) -> Any:
    """Return a set of Loopy's with an affine expression of allowed names for a parameter."""
    plain = _as_isl(owned)
    if name not in names_of(plain, parameters=True):
        return owned
    try:
        amount = ToQuasiPolynomial(set(allowed).__contains__)(value)
        plain = restrict(plain, zero=[QuasiPolynomial.name(name) - amount])
    except (NotAffineError, CountingError) as error:
        raise CountingError(
            f"an argument of a callee bounds its loops: {value}, which is not affine in "
            f"{', '.join(sorted(allowed)) or 'anything'}; assign it to a variable, such as "
            f'"<> bound = {value}", and pass bound'
        ) from error
    (piece,) = drop_parameters(plain, [name]).get_basic_sets()
    return _as_loopy_has_it(piece)


def bounds_of(kernel: Any, iname: str) -> tuple[Any, Any, Any]:
    """Return the smallest and largest value of a loop variable, and their number, of isl."""
    bounds = kernel.get_iname_bounds(iname)
    ends = bounds.lower_bound_pw_aff, bounds.upper_bound_pw_aff
    return _as_isl(ends[0]), _as_isl(ends[1]), _as_isl(bounds.size)


def group_counts_of(kernel: Any, instructions: Collection[str], callables: Any) -> dict[int, Any]:
    """Return the number of groups along each axis that instructions need, functions of isl."""
    extents, _ = kernel.get_grid_sizes_for_insn_ids(
        frozenset(instructions), callables, return_dict=True
    )
    return {axis: _as_isl(extent) for axis, extent in extents.items()}


def as_expression(function: Any) -> Any:
    """Return a piecewise affine function of isl as an expression of Loopy's."""
    return pw_aff_to_expr(_as_loopy_has_it(function))
