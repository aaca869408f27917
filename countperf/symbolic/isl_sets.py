"""Conversion between isl and ours: sets as rows of integers, counts, guards."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import Any, TypeAlias

import islpy as isl

from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic.elimination import Polyhedron
from countperf.symbolic.piecewise import Guards, Piece, PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ONE, ZERO, QuasiPolynomial, parse_polynomial

_DT = isl.dim_type
IntegerSet: TypeAlias = Any  # an ``islpy.BasicSet`` or ``islpy.Set``

Bounds: TypeAlias = Mapping[str, tuple[int | None, int | None]]
"""Smallest and largest value of loop variables, None where there is none."""

_SPLITTING_OPERATIONS = 10_000_000
_COLUMNS = (_DT.cst, _DT.param, _DT.set, _DT.div)


def names_of(integer_set: IntegerSet, *, parameters: bool) -> tuple[str, ...]:
    """Return the names of the parameters, or of the dimensions, of a set."""
    kind = _DT.param if parameters else _DT.set
    return tuple(integer_set.get_dim_name(kind, k) for k in range(integer_set.dim(kind)))


def drop_parameters(integer_set: IntegerSet, names: Collection[str]) -> IntegerSet:
    """Return a set for any values of some of its parameters for which it has points."""
    for position in reversed(range(integer_set.dim(_DT.param))):
        if integer_set.get_dim_name(_DT.param, position) in names:
            integer_set = integer_set.project_out(_DT.param, position, 1)
    return integer_set


@lru_cache(1024)
def _space(parameters: tuple[str, ...], dimensions: tuple[str, ...]) -> Any:
    return isl.Space.create_from_names(
        isl.DEFAULT_CONTEXT, set=list(dimensions), params=list(parameters)
    )


def to_isl(polyhedron: Polyhedron) -> IntegerSet:
    """Return a polyhedron as a basic set of isl, by rows in PolyLib's format.

    Matrices filled element by element would leak: islpy never frees an argument that isl consumes.
    """
    parameters, dimensions = len(polyhedron.parameters), len(polyhedron.dimensions)
    text = [f"{len(polyhedron.rows)} {parameters + dimensions + 2} {dimensions} 0 0 {parameters}"]
    for kind, rows in enumerate((polyhedron.equalities, polyhedron.inequalities)):
        for constant, *values in rows:
            columns = [kind, *values[parameters:], *values[:parameters], constant]
            text.append(" ".join(map(str, columns)))
    unnamed = isl.BasicSet("\n".join(text))
    return isl.BasicSet.from_constraint_matrices(
        _space(polyhedron.parameters, polyhedron.dimensions),
        unnamed.equalities_matrix(*_COLUMNS),
        unnamed.inequalities_matrix(*_COLUMNS),
        *_COLUMNS,
    )


def write_rows(basic_set: IntegerSet) -> tuple[list[list[int]], list[list[int]]]:
    """Return the equalities and inequalities of a basic set.

    isl's text in PolyLib's format is the numbers of rows and columns, then rows, each after its
    kind. That is much faster than asking for one coefficient after the other.
    """
    printer = isl.Printer.to_str(isl.DEFAULT_CONTEXT).set_output_format(isl.format.POLYLIB)
    words = printer.print_basic_set(basic_set).get_str().split()
    numbers = [0 if word == "0" else int(word) for word in words]  # most of them are zero
    rows: tuple[list[list[int]], list[list[int]]] = ([], [])
    for start in range(2, len(numbers), numbers[1]):
        rows[numbers[start]].append(numbers[start + 1 : start + numbers[1]])
    return rows


def from_isl(
    basic_set: IntegerSet, parameters: tuple[str, ...], dimensions: tuple[str, ...]
) -> Polyhedron:
    """Return a basic set as a polyhedron; existentially quantified variables need names too."""
    count = len(dimensions)
    equalities, inequalities = (
        tuple([(row[-1], *row[count:-1], *row[:count]) for row in rows])
        for rows in write_rows(basic_set)
    )
    return Polyhedron(parameters, dimensions, equalities, inequalities)


def lift_pieces(integer_set: IntegerSet) -> list[Polyhedron]:
    """Split a set into disjoint polyhedra; existentials become dimensions.

    Each existential variable is first written as a floor of the other variables, so that each
    point of the set is exactly one point of one polyhedron.
    """
    whole = as_set(integer_set)
    parameters = names_of(whole, parameters=True)
    pieces = whole.get_basic_sets()
    if len(pieces) > 1 or any(p.dim(_DT.div) for p in pieces):
        with limit_operations(_SPLITTING_OPERATIONS, "splitting a set into disjoint parts"):
            pieces = whole.compute_divs().make_disjoint().compute_divs().get_basic_sets()
    names = tuple(f"_d{k}" for k in range(whole.dim(_DT.set)))
    extras = [tuple(f"_e{k}" for k in range(piece.dim(_DT.div))) for piece in pieces]
    return [
        from_isl(piece.lift().flatten() if extra else piece, parameters, names + extra)
        for piece, extra in zip(pieces, extras, strict=True)
    ]


def as_set(integer_set: IntegerSet) -> IntegerSet:
    """Return a basic set as a set of isl."""
    is_basic = isinstance(integer_set, isl.BasicSet)
    return isl.Set.from_basic_set(integer_set) if is_basic else integer_set


def in_fixed_order(integer_set: IntegerSet) -> IntegerSet:
    """Return a set with its parameters in the order of their names, and its constraints sorted.

    Loopy adds parameters in an order that differs from process to process, on which the number of
    steps of a count depends, and thus whether it stays within its limit.
    """
    names = tuple(sorted(names_of(integer_set, parameters=True)))
    aligned = integer_set.align_params(_space(names, ()))
    if isinstance(aligned, isl.BasicSet):
        return _with_sorted_constraints(aligned)
    pieces = [_with_sorted_constraints(piece) for piece in aligned.get_basic_sets()]
    return reduce(isl.Set.union, map(isl.Set.from_basic_set, pieces)) if pieces else aligned


def _with_sorted_constraints(basic_set: IntegerSet) -> IntegerSet:
    if basic_set.dim(_DT.div):
        return basic_set
    constraints = sorted(basic_set.get_constraints(), key=str)
    everywhere = isl.BasicSet.universe(basic_set.get_space())
    return reduce(isl.BasicSet.add_constraint, constraints, everywhere)


def assumptions_text(assumptions: IntegerSet | None) -> str:
    """Return isl's text of assumptions, conditions sorted; of the universe if there are none."""
    if assumptions is None:
        return "{ : }"
    head, _, conditions = str(assumptions).removesuffix(" }").partition(" : ")
    if not conditions or re.search(r" or |exists", conditions):
        return str(assumptions)
    return f"{head} : {' and '.join(sorted(conditions.strip().split(' and ')))} }}"


@contextmanager
def limit_operations(number: int, what: str) -> Generator[None]:
    """Let isl give up after a number of its elementary operations, the same on every machine.

    Within another such limit, that one holds.
    """
    context = isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(number)
    try:
        yield
    except (isl.Error, TypeError, ValueError) as error:  # numbers are printed as None then
        try:
            isl.Val("1")  # fails, as every operation, where isl has reached its limit
        except isl.Error:
            raise UncountableSetError(
                f"{what} is too complicated to be counted (more than {number} operations of isl)"
            ) from error
        raise
    finally:
        context.set_max_operations(0)
        context.reset_operations()


_TEXT_OPERATIONS = 1_000_000
_SHOWN = 200  # characters of a text, in messages


def to_isl_text(count: PiecewiseQuasiPolynomial) -> str | None:
    """Return isl's text of a count, pieces disjoint.

    None if a guard is not affine, or if making the pieces disjoint takes isl too long.
    """
    if not all(g.is_affine for term in count.terms for g in (*term.nonnegative, *term.zero)):
        return None
    names = sorted(count.names())
    head = f"[{', '.join(names)}] -> " if names else ""
    try:
        with limit_operations(_TEXT_OPERATIONS, "a count"):
            pieces = [isl.PwQPolynomial(f"{head}{{ {term} }}") for term in count.terms]
            joined = reduce(isl.PwQPolynomial.add, pieces).coalesce() if pieces else "{ 0 }"
            return str(joined)
    except UncountableSetError:
        return None


def from_isl_text(text: str | int) -> PiecewiseQuasiPolynomial:
    """Parse a piecewise quasi-polynomial in isl's notation, or take a number."""
    if isinstance(text, int):
        return PiecewiseQuasiPolynomial.from_value(text)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - of callers
        raise CountingError(f"{text!r} is no count; pass an integer or a text, '[n] -> {{ 2n }}'")
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    try:
        parsed = isl.PwQPolynomial(text)
        if not parsed.dim(_DT.in_):
            return from_isl_count(parsed)
    except (isl.Error, CountingError) as error:  # not finite, or of 4300 digits, among others
        raise CountingError(
            f"{shown!r} is no piecewise quasi-polynomial in isl's notation such as "
            f"'[n] -> {{ n^2 : n > 0 }}': {error}"
        ) from error
    raise CountingError(
        f"{shown!r} has dimensions besides its parameters; write '[n] -> {{ ... }}'"
    )


def from_isl_count(function: Any) -> PiecewiseQuasiPolynomial:
    """Return a piecewise quasi-polynomial, or affine function, of isl in parameters as a count."""
    if isinstance(function, isl.Aff):
        function = isl.PwAff.from_aff(function)
    if isinstance(function, isl.PwAff):
        function = isl.PwQPolynomial.from_pw_aff(function.project_domain_on_params())
    return PiecewiseQuasiPolynomial(
        Piece(*guards, _parse_isl(polynomial))
        for domain, polynomial in function.get_pieces()
        for guards in guards_of(domain)
    )


def _parse_isl(expression: Any) -> QuasiPolynomial:
    """Parse what isl prints of a function, such as ``[n] -> { [(2 + 5n)/4] }``."""
    text = str(expression).partition("{")[2].strip(" }[]")
    value = parse_polynomial(re.sub(r"(?<!\w)(\d+)(?=[A-Za-z_])", r"\1*", text))
    if not value.names().isdisjoint({"NaN", "infty"}):
        raise CountingError(f"{text} is not finite")
    return value


def guards_of(parameter_set: IntegerSet) -> tuple[Guards, ...]:
    """Return disjoint parts of a parameter set as guards, existentials as floors."""
    return _guards_of(as_set(parameter_set))


@lru_cache(256)
def _guards_of(parameter_set: IntegerSet) -> tuple[Guards, ...]:
    whole = parameter_set.compute_divs()
    pieces = whole.get_basic_sets()
    if len(pieces) > 1:
        pieces = whole.make_disjoint().compute_divs().get_basic_sets()
    result: list[Guards] = []
    for piece in pieces:
        divisions = [_parse_isl(piece.get_div(k)) for k in range(piece.dim(_DT.div))]
        floors = [division.floor_divide(1) for division in divisions]
        columns = [*floors, *map(QuasiPolynomial.name, names_of(piece, parameters=True)), ONE]
        zero, nonnegative = (
            {sum(map(operator.mul, columns, row), ZERO) for row in rows}
            for rows in write_rows(piece)
        )
        always = {g for g in nonnegative if g.is_constant and g.constant_term >= 0}
        result.append((frozenset(nonnegative - always), frozenset(zero - {ZERO})))
    return tuple(result)
