"""Integer sets of isl, as the rest of countperf needs them.

This module and its neighbors in this package are the only users of islpy. Sets arrive from Loopy
as opaque objects and leave as counts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import Any, TypeAlias

import islpy as isl
from islpy.version import VERSION_TEXT

from countperf.errors import CountingError, UncountableSetError
from countperf.symbolic.elimination import (
    Polyhedron,
    Row,
    fuse_tiles,
    limited_terms,
    without_dimension,
)
from countperf.symbolic.memory import kept_in_process
from countperf.symbolic.quasipolynomial import Atom, Floor, QuasiPolynomial

IntegerSet: TypeAlias = Any
"""An ``islpy.BasicSet`` or ``islpy.Set``."""

Bounds: TypeAlias = Mapping[str, tuple[int | None, int | None]]
"""Smallest and largest value of loop variables, None where there is none."""

_DT = isl.dim_type
_SPLITTING_OPERATIONS = 10_000_000
_MAXIMUM_SPACES = 256
_COLUMNS = (_DT.cst, _DT.param, _DT.set, _DT.div)


def isl_version() -> str:
    """Return the version of islpy, which contains isl, and whether barvinok is in it."""
    return VERSION_TEXT + (" with barvinok" if hasattr(isl.Set, "card") else "")


def names_of(integer_set: IntegerSet, *, parameters: bool) -> tuple[str, ...]:
    """Return the names of the parameters, or of the dimensions, of a set."""
    kind = _DT.param if parameters else _DT.set
    return tuple(integer_set.get_dim_name(kind, k) for k in range(integer_set.dim(kind)))


def _matrix(rows: Sequence[Row], columns: int) -> Any:
    matrix = isl.Mat.alloc(isl.DEFAULT_CONTEXT, 0, columns).add_zero_rows(len(rows))
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            if value:
                matrix = matrix.set_element_val(r, c, _isl_value(value))
    return matrix


@kept_in_process(4096)
def _isl_value(value: int) -> Any:
    return isl.Val.int_from_si(isl.DEFAULT_CONTEXT, value) if abs(value) < 2**62 else isl.Val(value)


@kept_in_process(1024)
def _space(parameters: tuple[str, ...], dimensions: tuple[str, ...]) -> Any:
    return isl.Space.create_from_names(
        isl.DEFAULT_CONTEXT, set=list(dimensions), params=list(parameters)
    )


def to_isl(polyhedron: Polyhedron) -> IntegerSet:
    """Return a polyhedron as a basic set of isl."""
    columns = 1 + len(polyhedron.parameters) + len(polyhedron.dimensions)
    return isl.BasicSet.from_constraint_matrices(
        _space(polyhedron.parameters, polyhedron.dimensions),
        _matrix(polyhedron.equalities, columns),
        _matrix(polyhedron.inequalities, columns),
        *_COLUMNS,
    )


def written_rows(basic_set: IntegerSet) -> tuple[list[list[int]], list[list[int]]]:
    """Return the equalities and inequalities of a basic set.

    Returns
    -------
    (list of list of int, list of list of int)
        For each row the coefficients of dimensions, existentials and parameters, then the constant.

    Notes
    -----
    They are read from isl's text in PolyLib's format: the numbers of rows and columns, then the
    rows, each of which starts with its kind. That is much faster than asking isl for one
    coefficient after the other.
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
    if basic_set.dim(_DT.set) + basic_set.dim(_DT.div) != count:
        raise CountingError(f"{basic_set} is no polyhedron in {parameters} and {dimensions}")
    equalities, inequalities = written_rows(basic_set)
    return Polyhedron(
        parameters,
        dimensions,
        tuple([(row[-1], *row[count:-1], *row[:count]) for row in equalities]),
        tuple([(row[-1], *row[count:-1], *row[:count]) for row in inequalities]),
    )


def lifted_pieces(integer_set: IntegerSet) -> list[Polyhedron]:
    """Split a set into disjoint polyhedra; existentials become dimensions.

    Each existential variable is first written as a floor of the other variables, so that each
    point of the set is exactly one point of one polyhedron.
    """
    whole = as_set(integer_set)
    parameters = names_of(whole, parameters=True)
    pieces = whole.get_basic_sets()
    if len(pieces) > 1 or any(p.dim(_DT.div) for p in pieces):
        with limited_operations(_SPLITTING_OPERATIONS, "splitting a set into disjoint parts"):
            pieces = whole.compute_divs().make_disjoint().compute_divs().get_basic_sets()
    result: list[Polyhedron] = []
    dimension_count = whole.dim(_DT.set)
    names = tuple(f"_d{k}" for k in range(dimension_count))
    for piece in pieces:
        quantified = piece.dim(_DT.div)
        if quantified:
            piece = piece.lift().flatten()
        extra = tuple(f"_e{k}" for k in range(quantified))
        result.append(from_isl(piece, parameters, names + extra))
    return result


@dataclass(frozen=True, slots=True)
class ByText:
    """A set that is equal to another if isl writes them alike; a key for what is found once."""

    text: str
    integer_set: IntegerSet = field(compare=False)

    @staticmethod
    def of(integer_set: IntegerSet) -> ByText:
        """Wrap a set."""
        return ByText(str(integer_set), integer_set)


def _congruences_of_one(lifted: Polyhedron) -> dict[str, tuple[int, int]] | None:
    """Return modulus and remainder of parameters if that is all that the equalities say.

    Each has one parameter and one dimension, neither of which stands in any other row with a
    dimension; else None.
    """
    first = 1 + len(lifted.parameters)
    if any(any(row[first:]) for row in lifted.inequalities):
        return None
    result: dict[str, tuple[int, int]] = {}
    seen: set[int] = set()
    for row in lifted.equalities:
        occurring = [k for k, c in enumerate(row) if c and k]
        if len(occurring) != 2 or not seen.isdisjoint(occurring):
            return None
        (place, quotient) = occurring
        modulus = abs(row[quotient])
        if not place < first <= quotient or abs(row[place]) != 1 or modulus == 1:
            return None
        seen.update(occurring)
        result[lifted.parameters[place - 1]] = modulus, -row[place] * row[0] % modulus
    return result


class Context:
    """Known constraints of the parameters; used to simplify, never to restrict.

    Parameters
    ----------
    assumptions : IntegerSet or None
        A set without dimensions. What is not convex in it is left out of simplification.
    text : str, optional
        What isl writes of it.

    Attributes
    ----------
    text : str
        The assumptions in isl's notation; the universe if there are none.
    rows : Polyhedron or None
        The assumptions exactly, if each equality gives one parameter as a constant plus an integer
        times a quotient that stands nowhere else, and is a dimension here.
    congruences : dict from str to (int, int)
        Parameters that are known modulo an integer: modulus and remainder. Counting replaces
        such a parameter by modulus times itself plus remainder, so that floors cancel.
    lower_bounds : dict from str to int
        Lower bounds of parameters that the assumptions state directly.
    positive : frozenset of str
        Parameters that are at least one by such a bound.
    """

    def __init__(self, assumptions: IntegerSet | None, text: str | None = None) -> None:
        self.assumptions = assumptions
        self.text = "{ : }" if assumptions is None else text or str(assumptions)
        self.rows: Polyhedron | None = None
        self.congruences: dict[str, tuple[int, int]] = {}
        self._hull: Polyhedron | None = None
        self._known: list[tuple[int, Row, frozenset[str]]] = []
        self._lower: dict[str, int] = {}
        self.lower_bounds: dict[str, int] = {}
        self.positive = frozenset[str]()
        self._sets: dict[tuple[tuple[str, ...], tuple[str, ...]], IntegerSet] = {}
        if assumptions is None:
            return
        hull = (
            assumptions
            if isinstance(assumptions, isl.BasicSet)
            else assumptions.coalesce().simple_hull()
        )
        names = names_of(hull, parameters=True)
        dimensions = tuple([f"_e{k}" for k in range(hull.dim(_DT.div))])
        rows = from_isl(hull, names, dimensions)
        congruences = _congruences_of_one(rows)
        if congruences is None:
            self._find_congruences(hull, names)
        else:
            self.congruences = congruences
            self.rows = rows if isinstance(assumptions, isl.BasicSet) else None
        # existentials that are quotients of a parameter need not be projected out
        hull = None if congruences is None else _tidy(self.rescale(rows.in_parameters()))
        if hull is None:
            basic = to_isl(self.rescale(rows)).project_out(_DT.set, 0, len(dimensions))
            hull = from_isl(basic.remove_divs(), names, ())
        self._hull = hull
        for kind, rows in enumerate((self._hull.equalities, self._hull.inequalities)):
            for row in rows:
                occurring = frozenset(n for n, c in zip(names, row[1:], strict=True) if c)
                self._known.append((kind, row, occurring))
        for row in self._hull.inequalities:
            occurring = [k for k, c in enumerate(row) if k and c]
            if len(occurring) == 1 and row[occurring[0]] > 0:
                name = names[occurring[0] - 1]
                bound = -(row[0] // row[occurring[0]])  # -k/c rounded up
                self._lower[name] = max(bound, self._lower.get(name, bound))
        for name, bound in self._lower.items():
            modulus, remainder = self.congruences.get(name, (1, 0))
            self.lower_bounds[name] = modulus * bound + remainder
        self.positive = frozenset([n for n, low in self.lower_bounds.items() if low > 0])

    def known_of(self, names: tuple[str, ...]) -> tuple[Row, ...] | None:
        """Return what is known of the quotients of some parameters, without their names.

        None if it involves other parameters too.
        """
        if self._hull is None:
            return ()
        parameters = self._hull.parameters
        positions = [1 + parameters.index(n) if n in parameters else 0 for n in names]
        found: list[Row] = []
        for kind, row, occurring in self._known:
            if occurring.isdisjoint(names):
                continue
            if not occurring.issubset(names):
                return None
            found.append((kind, row[0], *(row[k] if k else 0 for k in positions)))
        return tuple(sorted(found))

    def implies(self, polyhedron: Polyhedron) -> bool:
        """Whether lower bounds alone show that a polyhedron without dimensions is everything."""
        return not (polyhedron.dimensions or polyhedron.equalities) and all(
            self._is_implied(row, polyhedron.parameters) for row in polyhedron.inequalities
        )

    def _is_implied(self, row: Row, parameters: tuple[str, ...]) -> bool:
        """Return whether lower bounds alone show that a row without dimensions is at least zero."""
        smallest = row[0]
        for name, c in zip(parameters, row[1:], strict=False):
            if c:
                bound = self._lower.get(name)
                if c < 0 or bound is None:
                    return False
                smallest += c * bound
        return smallest >= 0

    def _find_congruences(self, hull: Any, names: tuple[str, ...]) -> None:
        moved = isl.Set.from_basic_set(hull)
        if moved.is_params():
            moved = moved.from_params()
        moved = moved.move_dims(_DT.set, 0, _DT.param, 0, len(names))
        if moved.is_empty():
            return
        for position, name in enumerate(names):
            info = moved.get_stride_info(position)
            stride = info.get_stride().to_python()
            offset = info.get_offset()
            if stride > 1 and offset.is_cst():
                remainder = offset.get_constant_val().to_python() % stride
                self.congruences[name] = (stride, remainder)

    def rescale(self, polyhedron: Polyhedron) -> Polyhedron:
        """Write a polyhedron in the quotients of the parameters that have congruences."""
        if not self.congruences:
            return polyhedron
        scales = [
            (k, *self.congruences[name])
            for k, name in enumerate(polyhedron.parameters, start=1)
            if name in self.congruences
        ]

        def scaled(row: Row) -> Row:
            values = list(row)
            for k, modulus, remainder in scales:
                if row[k]:
                    values[0] += row[k] * remainder
                    values[k] *= modulus
            return tuple(values)

        return Polyhedron(
            polyhedron.parameters,
            polyhedron.dimensions,
            tuple([scaled(r) for r in polyhedron.equalities]),
            tuple([scaled(r) for r in polyhedron.inequalities]),
        )

    @cached_property
    def original_parameters(self) -> Mapping[str, QuasiPolynomial]:
        """Substitution of the quotients that gives back the parameters."""
        return {
            name: QuasiPolynomial.affine(
                [(name, Fraction(1, modulus))], Fraction(-remainder, modulus)
            )
            for name, (modulus, remainder) in self.congruences.items()
        }

    @cached_property
    def quotients(self) -> Mapping[str, QuasiPolynomial]:
        """Substitution of the parameters by expressions in their quotients."""
        return {
            name: QuasiPolynomial.affine([(name, modulus)], remainder)
            for name, (modulus, remainder) in self.congruences.items()
        }

    def _as_set(self, parameters: tuple[str, ...], dimensions: tuple[str, ...]) -> IntegerSet:
        """Return the hull as a set in a space; parameters that it lacks are projected out."""
        found = self._sets.get((parameters, dimensions))
        if found is None:
            if len(self._sets) == _MAXIMUM_SPACES:
                self._sets.clear()
            found = self._sets[parameters, dimensions] = self._found_as_set(parameters, dimensions)
        return found

    def _found_as_set(self, parameters: tuple[str, ...], dimensions: tuple[str, ...]) -> IntegerSet:
        hull = self._hull
        rows: list[list[Row]] = [[], []]
        if hull is not None:
            unknown = [k for k, name in enumerate(hull.parameters) if name not in parameters]
            kept = [name for name in hull.parameters if name in parameters]
            if unknown:
                basic = to_isl(hull)
                for k in reversed(unknown):
                    basic = basic.project_out(_DT.param, k, 1)
                hull = from_isl(basic.remove_divs(), tuple(kept), ())
            for target, source in zip(rows, (hull.equalities, hull.inequalities), strict=True):
                for row in source:
                    values = dict(zip(hull.parameters, row[1:], strict=True))
                    target.append(
                        (row[0], *(values.get(p, 0) for p in parameters)) + (0,) * len(dimensions)
                    )
        return to_isl(Polyhedron(parameters, dimensions, tuple(rows[0]), tuple(rows[1])))

    def simplify(self, polyhedron: Polyhedron) -> Polyhedron | None:
        """Remove rows that follow from others under the context; None for an empty set."""
        tidy = _tidy(polyhedron)
        if tidy is None:
            return None
        first = 1 + len(tidy.parameters)
        open_rows = tuple(
            row
            for row in tidy.inequalities
            if any(row[first:]) or not self._is_implied(row, tidy.parameters)
        )
        tidy = Polyhedron(tidy.parameters, tidy.dimensions, tidy.equalities, open_rows)
        if not tidy.equalities and (
            not open_rows or (len(tidy.dimensions) == 1 and len(open_rows) <= 2)
        ):
            return tidy  # nothing to find out: an interval may still be empty
        context = self._as_set(tidy.parameters, tidy.dimensions)
        joint = to_isl(tidy).intersect(context)
        if joint.is_empty():
            return None
        return from_isl(joint.remove_redundancies().gist(context), tidy.parameters, tidy.dimensions)


def context_of(assumptions: IntegerSet | None) -> Context:
    """Return what is known of parameters; found once in a process for equal assumptions."""
    return Context(None) if assumptions is None else _context(ByText.of(assumptions))


@kept_in_process(256)
def _context(assumptions: ByText) -> Context:
    return Context(assumptions.integer_set, assumptions.text)


def _tidy(polyhedron: Polyhedron) -> Polyhedron | None:
    """Drop trivial and parallel rows, without isl."""
    tightest: dict[Row, int] = {}
    for row in polyhedron.inequalities:
        common = gcd(*row[1:])
        if not common:
            if row[0] < 0:
                return None
            continue
        if common > 1:  # integer points only: the constant is rounded down
            row = tuple(c // common for c in row)
        previous = tightest.get(row[1:])
        tightest[row[1:]] = row[0] if previous is None else min(previous, row[0])
    for direction, constant in tightest.items():
        opposite = tightest.get(tuple([-c for c in direction]))
        if opposite is not None and opposite + constant < 0:
            return None
    return Polyhedron(
        polyhedron.parameters,
        polyhedron.dimensions,
        polyhedron.equalities,
        tuple([(constant, *direction) for direction, constant in tightest.items()]),
    )


def as_polyhedron(integer_set: IntegerSet) -> Polyhedron | None:
    """Return a set that is one basic set without existentials as a polyhedron, else None."""
    pieces = as_set(integer_set).get_basic_sets()
    if len(pieces) != 1 or pieces[0].dim(_DT.div):
        return None
    return from_isl(
        pieces[0],
        names_of(integer_set, parameters=True),
        names_of(integer_set, parameters=False),
    )


def projected_polyhedron(polyhedron: Polyhedron, names: frozenset[str]) -> Polyhedron | None:
    """Project a polyhedron onto some dimensions, exactly; None if that is no polyhedron."""
    for name in polyhedron.dimensions:
        if name not in names:
            eliminated = without_dimension(polyhedron, name)
            if eliminated is None:
                break
            polyhedron = eliminated
    if names.issuperset(polyhedron.dimensions):
        return polyhedron
    basic = to_isl(polyhedron)
    for position in reversed(range(len(polyhedron.dimensions))):
        if polyhedron.dimensions[position] not in names:
            basic = basic.project_out(_DT.set, position, 1)
    kept = tuple(name for name in polyhedron.dimensions if name in names)
    if basic.dim(_DT.div):
        return None
    return from_isl(basic, polyhedron.parameters, kept)


# --- building sets


def parameter_set(text: str) -> IntegerSet:
    """Parse a parameter set in isl's notation, such as ``[n] -> { : n >= 1 }``."""
    try:
        return isl.Set(text)
    except isl.Error as error:
        raise CountingError(
            f"{text!r} is no parameter set in isl's notation such as '[n] -> {{ : n >= 1 }}': "
            f"{error}",
            where=text,
        ) from error


def bounds_along(polyhedron: Polyhedron, name: str) -> tuple[int | None, int | None]:
    """Return the smallest and largest value of the only dimension of a polyhedron.

    None where there is none, over all values of the parameters.
    """
    first = 1 + len(polyhedron.parameters)
    low: int | None = None
    high: int | None = None
    for row in polyhedron.inequalities:
        if any(row[1:first]):
            break
        if row[first] > 0:
            bound = -(row[0] // row[first])
            low = bound if low is None else max(low, bound)
        elif row[first] < 0:
            bound = row[0] // -row[first]
            high = bound if high is None else min(high, bound)
    else:
        if not polyhedron.equalities:
            return low, high
    return constant_bounds(to_isl(polyhedron))[name]


def project_onto(integer_set: IntegerSet, keep: Iterable[str]) -> IntegerSet:
    """Project a set onto some of its dimensions, exactly."""
    wanted = set(keep)
    for position in reversed(range(integer_set.dim(_DT.set))):
        if integer_set.get_dim_name(_DT.set, position) not in wanted:
            integer_set = integer_set.project_out(_DT.set, position, 1)
    return integer_set


def without_parameters(integer_set: IntegerSet, names: Iterable[str]) -> IntegerSet | None:
    """Return a set without some of its parameters, for any values of them at which it has points.

    None if the points depend on them.
    """
    whole = as_set(integer_set)
    wanted = set(names)
    result = whole
    for position in reversed(range(result.dim(_DT.param))):
        if result.get_dim_name(_DT.param, position) in wanted:
            result = result.project_out(_DT.param, position, 1)
    return result if whole.is_equal(result.intersect_params(whole.params())) else None


def under_assumptions(integer_set: IntegerSet, assumptions: IntegerSet | None) -> IntegerSet:
    """Return a set where its parameters are possible."""
    if assumptions is None:
        return integer_set
    return as_set(integer_set).intersect_params(as_set(assumptions))


def as_parameters(integer_set: IntegerSet, names: Iterable[str]) -> IntegerSet:
    """Turn some dimensions of a set into parameters."""
    result = as_set(integer_set)
    for name in names:
        position = names_of(result, parameters=False).index(name)
        last = result.dim(_DT.param)
        result = result.move_dims(_DT.param, last, _DT.set, position, 1)
        result = result.set_dim_name(_DT.param, last, name)
    return result


def as_aff(expression: QuasiPolynomial, space: Any) -> Any:
    """Return an affine quasi-polynomial as isl's affine function on a set space.

    Raises
    ------
    CountingError
        The expression is not affine, not integer, or has a name that the space lacks.
    """
    local = isl.LocalSpace.from_space(space)
    places: dict[str, tuple[Any, int]] = {}
    for kind, place in ((_DT.param, _DT.param), (_DT.set, _DT.in_)):
        for k in range(space.dim(kind)):
            places[space.get_dim_name(kind, k)] = (place, k)
    result = isl.Aff.zero_on_domain(local)
    for monomial, value in expression.terms.items():
        if not monomial:
            result = result.add_constant_val(isl.Val(str(value)))
            continue
        ((atom, exponent), *rest) = monomial
        is_known = atom in places if isinstance(atom, str) else atom.is_affine
        if rest or exponent != 1 or not is_known:
            raise CountingError(f"{expression} is not affine in {sorted(places)}")
        if isinstance(atom, Floor):
            inner = as_aff(atom.numerator, space)
            floor = inner.scale_down_val(isl.Val(atom.denominator)).floor()
            result = result.add(floor.scale_val(isl.Val(str(value))))
        else:
            result = result.add_coefficient_val(*places[atom], isl.Val(str(value)))
    return result


def rows_of(expressions: Iterable[QuasiPolynomial], names: Sequence[str]) -> tuple[Row, ...]:
    """Return affine expressions without floors as rows of integers."""
    return tuple(
        (
            int(e.constant_term),
            *(int(e.terms.get(((name, 1),), 0)) for name in names),
        )
        for e in (expression.primitive() for expression in expressions)
    )


def with_parameters(integer_set: IntegerSet, parameters: Iterable[str]) -> IntegerSet:
    """Add parameters that a set lacks."""
    present = set(names_of(integer_set, parameters=True))
    for name in sorted(set(parameters) - present):
        count = integer_set.dim(_DT.param)
        integer_set = integer_set.add_dims(_DT.param, 1).set_dim_name(_DT.param, count, name)
    return integer_set


def restrict(
    integer_set: IntegerSet,
    *,
    nonnegative: Iterable[QuasiPolynomial] = (),
    zero: Iterable[QuasiPolynomial] = (),
) -> IntegerSet:
    """Restrict a set to where affine expressions are at least zero, or zero."""
    result = as_set(integer_set)
    conditions = [(e, False) for e in nonnegative] + [(e, True) for e in zero]
    needed = {name for e, _ in conditions for name in e.names()}
    result = with_parameters(result, needed - set(names_of(result, parameters=False)))
    for expression, equality in conditions:
        aff = as_aff(expression, result.get_space())
        constraint = (
            isl.Constraint.equality_from_aff(aff)
            if equality
            else isl.Constraint.inequality_from_aff(aff)
        )
        result = result.add_constraint(constraint)
    return result


def subtract(integer_set: IntegerSet, other: IntegerSet) -> IntegerSet:
    """Return the points of the first set that are not in the second."""
    return integer_set - other


def union(sets: Sequence[IntegerSet]) -> IntegerSet:
    """Return the union of sets of one space; their parameters are aligned."""
    result = sets[0] if isinstance(sets[0], isl.Set) else isl.Set.from_basic_set(sets[0])
    for other in sets[1:]:
        result = result | other
    return result.coalesce()


def image(integer_set: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
    """Return the image of a set under affine functions of its dimensions, exactly.

    Tilings of which the functions see only the fused dimension are undone first, so that the image
    comes out as simple as that of the untiled loops. The dimensions of the image are ``_i0`` ...
    """
    for function in functions:
        if not function.is_affine:
            raise CountingError(f"{function} is not affine")
    needed = {name for f in functions for name in f.names()}
    integer_set = with_parameters(
        as_set(integer_set), needed - set(names_of(integer_set, parameters=False))
    )
    if any(f.floors() for f in functions):
        result = _image_with_floors(integer_set, functions)
    else:
        parts = [_image_of_piece(piece, functions) for piece in integer_set.get_basic_sets()]
        result = union(parts) if parts else _image_with_floors(integer_set, functions)
    for k in range(len(functions)):
        result = result.set_dim_name(_DT.set, k, f"_i{k}")
    return result


def _image_with_floors(integer_set: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
    space = integer_set.get_space()
    mapping = isl.MultiAff.zero(space.from_domain().add_dims(_DT.out, len(functions)))
    for k, function in enumerate(functions):
        mapping = mapping.set_aff(k, as_aff(function, space))
    return integer_set.apply(isl.Map.from_multi_aff(mapping))


def _image_of_piece(piece: IntegerSet, functions: Sequence[QuasiPolynomial]) -> IntegerSet:
    parameters = names_of(piece, parameters=True)
    dimensions = names_of(piece, parameters=False)
    lifted = piece.lift().flatten() if piece.dim(_DT.div) else piece
    inner = dimensions + tuple(f"_e{k}" for k in range(lifted.dim(_DT.set) - len(dimensions)))
    body = from_isl(lifted, parameters, inner)
    names = parameters + inner
    count = len(functions)
    rows: list[Row] = [row + (0,) * count for row in body.inequalities]
    rows += [tuple(-c for c in row) + (0,) * count for row in body.equalities]
    rows += [row + (0,) * count for row in body.equalities]
    for k, function in enumerate(functions):
        row = [int(function.constant_term)]
        row += [int(function.terms.get(((name, 1),), 0)) for name in names]
        row += [-1 if j == k else 0 for j in range(count)]
        rows += [tuple(row), tuple(-c for c in row)]
    targets = tuple(f"_i{k}" for k in range(count))
    fused = fuse_tiles(Polyhedron(parameters, inner + targets, (), tuple(rows)), frozenset(targets))
    return isl.Set.from_basic_set(
        to_isl(fused).project_out(_DT.set, 0, len(fused.dimensions) - count)
    )


def as_set(integer_set: IntegerSet) -> IntegerSet:
    """Return a basic set as a set of isl."""
    if isinstance(integer_set, isl.BasicSet):
        return isl.Set.from_basic_set(integer_set)
    return integer_set


@contextmanager
def limited_operations(number: int, what: str) -> Generator[None]:
    """Let isl give up after a number of its elementary operations, the same on every machine.

    Eliminations give up early, too (`countperf.symbolic.elimination.limited_terms`). Within another
    such limit, that one holds.

    Raises
    ------
    UncountableSetError
        The limit is reached.
    """
    context = isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(number)
    try:
        with limited_terms():
            yield
    except (isl.Error, TypeError, ValueError) as error:  # numbers are printed as None then
        if not _is_exhausted():
            raise
        raise UncountableSetError(
            f"{what} is too complicated to be counted (more than {number} operations of isl)",
            where=what,
        ) from error
    finally:
        context.set_max_operations(0)
        context.reset_operations()


def _is_exhausted() -> bool:
    """Whether isl has reached its limit; whatever fails then, such as reading, fails for that."""
    try:
        isl.Val("1")
    except isl.Error:
        return True
    return False


_MAXIMUM_HULL_DIVISIONS = 2
"""Eliminating more of them may take forever."""


def as_one_piece(integer_set: IntegerSet, assumptions: IntegerSet | None) -> IntegerSet:
    """Return the hull of a set instead of the set, where both are equal on the assumptions.

    Overlapping tiles, such as those of halos, then lose their tile index.
    """
    whole = as_set(integer_set)
    assumed = whole if assumptions is None else whole.intersect_params(as_set(assumptions))
    if assumed.is_empty() or any(
        piece.dim(_DT.div) > _MAXIMUM_HULL_DIVISIONS for piece in assumed.get_basic_sets()
    ):
        return whole
    hull = isl.Set.from_basic_set(assumed.remove_divs().simple_hull())
    hull = hull.intersect(isl.Set.from_basic_set(assumed.affine_hull()))
    if assumptions is not None:
        hull = hull.intersect_params(as_set(assumptions))
    if not hull.is_subset(assumed):
        return whole
    return hull if assumptions is None else hull.gist_params(as_set(assumptions))


def widened_on_line(cells: IntegerSet, step: QuasiPolynomial) -> IntegerSet:
    """Widen each point x of a one-dimensional set to the points from x to x + |step| - 1."""
    name = "_x"
    points = with_parameters(as_set(cells).set_dim_name(_DT.set, 0, name), step.names())
    points = points.add_dims(_DT.set, 1).set_dim_name(_DT.set, 1, "_y")
    x, y = QuasiPolynomial.name(name), QuasiPolynomial.name("_y")
    forward = restrict(points, nonnegative=[y - x, x + step - y - 1])
    backward = restrict(points, nonnegative=[y - x, x - step - y - 1])
    return union([forward, backward]).project_out(_DT.set, 0, 1).coalesce()


def widened_lexicographically(
    cells: IntegerSet,
    order: Sequence[int],
    extents: Sequence[QuasiPolynomial | None],
    steps: Sequence[QuasiPolynomial],
) -> IntegerSet | None:
    """Widen each cell of a compact array by a stride given digit by digit.

    Parameters
    ----------
    cells : IntegerSet
        Index tuples.
    order : sequence of int
        Axes of the array from slowest to fastest; the digits of an address.
    extents : sequence of QuasiPolynomial or None
        Extent of each digit, in that order; the slowest one's is not needed.
    steps : sequence of QuasiPolynomial
        What one step adds to each digit, in that order; constants.

    Returns
    -------
    IntegerSet or None
        All cells from each cell up to, not including, the cell one step further; in the order of
        digits. None if the steps are not constants of one sign.
    """
    if not all(s.is_constant for s in steps):
        return None
    values = [int(s.constant_term) for s in steps]
    if all(v <= 0 for v in values):
        values = [-v for v in values]
    if any(v < 0 for v in values):
        return None
    count = len(order)
    points = as_set(cells)
    needed = {name for e in extents if e is not None for name in e.names()}
    points = with_parameters(points, needed)
    space = points.get_space()
    reorder = isl.MultiAff.zero(space.from_domain().add_dims(_DT.out, count))
    local = isl.LocalSpace.from_space(space)
    for digit, axis in enumerate(order):
        reorder = reorder.set_aff(digit, isl.Aff.var_on_domain(local, _DT.set, axis))
    points = points.apply(isl.Map.from_multi_aff(reorder))
    for digit in range(count):
        points = points.set_dim_name(_DT.set, digit, f"_x{digit}")
    # pairs (cell, target): the target is the cell one step further, digits carried
    pairs = points.add_dims(_DT.set, 2 * count)
    for digit in range(count):
        pairs = pairs.set_dim_name(_DT.set, count + digit, f"_t{digit}")
        pairs = pairs.set_dim_name(_DT.set, 2 * count + digit, f"_z{digit}")
    name = QuasiPolynomial.name
    carries: list[tuple[IntegerSet, QuasiPolynomial]] = [(pairs, QuasiPolynomial())]
    for digit in reversed(range(count)):
        extent = extents[digit]
        following: list[tuple[IntegerSet, QuasiPolynomial]] = []
        for region, carry in carries:
            total = name(f"_x{digit}") + values[digit] + carry
            target = name(f"_t{digit}")
            if digit == 0:
                following.append((restrict(region, zero=[target - total]), QuasiPolynomial()))
                continue
            assert extent is not None
            following.append(
                (
                    restrict(region, zero=[target - total], nonnegative=[extent - total - 1]),
                    QuasiPolynomial(),
                )
            )
            over = restrict(
                region,
                zero=[target - total + extent],
                nonnegative=[total - extent, extent * 2 - total - 1],
            )
            following.append((over, QuasiPolynomial.constant(1)))
        carries = [(r, c) for r, c in following if not r.is_empty()]
    inside = union([region for region, _ in carries])
    for digit in range(1, count):
        extent = extents[digit]
        assert extent is not None
        z = name(f"_z{digit}")
        inside = restrict(inside, nonnegative=[z, extent - z - 1])
    x, t, z = ([name(f"_{letter}{d}") for d in range(count)] for letter in "xtz")
    inside = _lexicographic(inside, x, z, strict=False)
    inside = _lexicographic(inside, z, t, strict=True)
    return inside.project_out(_DT.set, 0, 2 * count).coalesce()


def _lexicographic(
    integer_set: IntegerSet,
    left: Sequence[QuasiPolynomial],
    right: Sequence[QuasiPolynomial],
    *,
    strict: bool,
) -> IntegerSet:
    """Restrict a set to where one tuple comes before (or equals) another."""
    parts: list[IntegerSet] = []
    for k in range(len(left)):
        equal = [a - b for a, b in zip(left[:k], right[:k], strict=True)]
        parts.append(restrict(integer_set, zero=equal, nonnegative=[right[k] - left[k] - 1]))
    if not strict:
        equal = [a - b for a, b in zip(left, right, strict=True)]
        parts.append(restrict(integer_set, zero=equal))
    return union(parts)


def is_independent(integer_set: IntegerSet, names: Iterable[str], other: str) -> bool:
    """Return whether the values of some dimensions do not depend on the value of another one."""
    kept = set(names)
    joint = as_set(project_onto(integer_set, kept | {other}))
    position = names_of(joint, parameters=False).index(other)
    alone = joint.project_out(_DT.set, position, 1).insert_dims(_DT.set, position, 1)
    line = as_set(project_onto(integer_set, {other}))
    line = line.insert_dims(_DT.set, 0, position)
    line = line.add_dims(_DT.set, len(kept) - position)
    return bool(joint.plain_is_equal(alone & line) or joint.is_equal(alone & line))


def equalities(integer_set: IntegerSet) -> IntegerSet | None:
    """Return the smallest set given by equalities that contains another one; None for all."""
    hull = integer_set.affine_hull()
    return hull if hull.n_constraint() else None


def determined(hull: IntegerSet, candidates: Sequence[str]) -> dict[str, QuasiPolynomial]:
    """Solve equalities for dimensions.

    Parameters
    ----------
    hull : IntegerSet
        What `equalities` returns, or a projection of it.
    candidates : sequence of str
        Dimensions that may be expressed by the other ones, those first that are to be.

    Returns
    -------
    dict from str to QuasiPolynomial
        None of them stands in the value of another one.
    """
    parameters = names_of(hull, parameters=True)
    dimensions = names_of(hull, parameters=False)
    count = len(dimensions)
    found: dict[str, QuasiPolynomial] = {}
    for row in written_rows(hull)[0]:
        last = len(row) - 1 - len(parameters)
        if any(row[count:last]):
            continue  # holds modulo something only
        terms = zip((*dimensions, *parameters), row[:count] + row[last:-1], strict=True)
        left = QuasiPolynomial.affine(terms, row[-1]).substitute(found).primitive()
        for name in candidates:
            factor = left.terms.get(((name, 1),), 0)
            if abs(factor) == 1:
                value = QuasiPolynomial.name(name) - left * factor
                found = {n: v.substitute({name: value}) for n, v in found.items()}
                found[name] = value
                break
    return found


def constant_bounds(integer_set: IntegerSet) -> Bounds:
    """Return the smallest and largest value of each dimension, None where there is none."""
    whole = as_set(integer_set)
    result: dict[str, tuple[int | None, int | None]] = {}
    for k, name in enumerate(names_of(whole, parameters=False)):
        line = whole.project_out(_DT.set, k + 1, whole.dim(_DT.set) - k - 1).project_out(
            _DT.set, 0, k
        )
        line = line.project_out(_DT.param, 0, line.dim(_DT.param))
        bounds: list[int | None] = []
        for value in (line.dim_min_val(0), line.dim_max_val(0)):
            bounds.append(value.to_python() if value.is_int() else None)
        result[name] = (bounds[0], bounds[1])
    return result


def resolve_floors(expression: QuasiPolynomial, bounds: Bounds) -> QuasiPolynomial:
    """Replace floors whose value the bounds of their names decide."""

    def replace(atom: Atom) -> QuasiPolynomial | None:
        if isinstance(atom, str) or not atom.denominator:
            return None
        numerator = resolve_floors(atom.numerator, bounds)
        low = high = 0
        for monomial, value in numerator.terms.items():
            if not monomial:
                low, high = low + int(value), high + int(value)
                continue
            ((inner, exponent), *rest) = monomial
            known = bounds.get(inner, (None, None)) if isinstance(inner, str) else (None, None)
            if rest or exponent != 1 or known[0] is None or known[1] is None:
                return numerator.floor_divide(atom.denominator)
            ends = (int(value) * known[0], int(value) * known[1])
            low, high = low + min(ends), high + max(ends)
        if low // atom.denominator == high // atom.denominator:
            return QuasiPolynomial.constant(low // atom.denominator)
        return numerator.floor_divide(atom.denominator)

    return expression.map_atoms(replace)
