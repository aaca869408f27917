"""Quasi-polynomials: polynomials with rational coefficients in names and floors ("atoms").

They are kept in a normal form: what can be taken out of a floor has been taken out, so that equal
values are mostly equal objects.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from typing import TypeAlias
from zlib import crc32

from countperf.errors import CountingError
from countperf.text import Formula

Number: TypeAlias = int | Fraction


class Floor(Formula):
    """The floor of an integer polynomial divided by a positive integer, as an indeterminate."""

    __slots__ = ("_hash", "denominator", "key", "numerator")

    def __init__(self, numerator: QuasiPolynomial, denominator: int) -> None:
        self.numerator = numerator
        self.denominator = denominator
        self.key = f"~floor(({numerator})/{denominator})"
        self._hash = _name_hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Floor) and self.key == other.key

    def __str__(self) -> str:
        return self.key[1:]

    @property
    def is_affine(self) -> bool:
        """True if what is divided is affine, and by a constant."""
        return self.numerator.is_affine

    def names(self) -> set[str]:
        """Return all names that occur."""
        return self.numerator.names()

    def evaluate(self, values: Mapping[str, int]) -> Number:
        """Return the value at integer values of all names."""
        return self.numerator.evaluate(values) // self.denominator

    def substitute(self, replacements: Mapping[str, QuasiPolynomial]) -> QuasiPolynomial | None:
        """Return the value with names replaced; None if none of them occurs."""
        numerator = self.numerator.substitute(replacements)
        if numerator is self.numerator:
            return None
        return numerator.floor_divide(self.denominator)


Atom: TypeAlias = str | Floor
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]


def _atom_key(atom: Atom) -> str:
    return atom if isinstance(atom, str) else atom.key


@lru_cache(65536)
def _name_hash(name: str) -> int:
    """Return a hash that is the same in every process, unlike that of a Python string.

    Whether a count stays within its limit of steps must not change from run to run.
    """
    return crc32(name.encode())


@lru_cache(65536)
def _monomial_hash(monomial: Monomial) -> int:
    """Return a hash of a monomial that is the same in every process."""
    return hash(tuple([(_name_hash(_atom_key(atom)), exponent) for atom, exponent in monomial]))


def degree_first(monomial: Monomial) -> tuple[int, list[tuple[str, int]]]:
    """Return the sorting key of a monomial: the highest degree first, then by names."""
    return -sum(e for _, e in monomial), [(_atom_key(atom), -e) for atom, e in monomial]


def _number(value: Number) -> Number:
    return value.numerator if value.denominator == 1 else value


@lru_cache(65536)
def _multiply_monomials(left: Monomial, right: Monomial) -> Monomial:
    if not left:
        return right
    if not right:
        return left
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return tuple(sorted(exponents.items(), key=lambda item: _atom_key(item[0])))


class QuasiPolynomial(Formula):
    """A polynomial with rational coefficients in names and floors; immutable."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, Number] | None = None) -> None:
        self.terms: dict[Monomial, Number] = (
            {m: _number(c) for m, c in terms.items() if c} if terms else {}
        )
        self._hash: int | None = None

    @staticmethod
    def constant(value: Number) -> QuasiPolynomial:
        """Return the constant `value`."""
        return _make_trusted({(): _number(value)} if value else {})

    @staticmethod
    def name(atom: Atom) -> QuasiPolynomial:
        """Return a single indeterminate, a name or a floor."""
        return _make_trusted({((atom, 1),): 1})

    @staticmethod
    def affine(coefficients: Iterable[tuple[str, Number]], constant: Number = 0) -> QuasiPolynomial:
        """Return the sum of coefficient times name, plus a constant."""
        terms: dict[Monomial, Number] = {((name, 1),): value for name, value in coefficients}
        terms[()] = constant
        return QuasiPolynomial(terms)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuasiPolynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset([(_monomial_hash(m), c) for m, c in self.terms.items()]))
        return self._hash

    @property
    def is_constant(self) -> bool:
        """True if no name occurs."""
        return not self.terms or (len(self.terms) == 1 and () in self.terms)

    @property
    def constant_term(self) -> Number:
        """The coefficient of the empty monomial."""
        return self.terms.get((), 0)

    def coefficient_of(self, name: str) -> Number:
        """Return the coefficient of the monomial that is a name alone."""
        return self.terms.get(((name, 1),), 0)

    def atoms(self) -> AbstractSet[Atom]:
        """Return the atoms that occur, those inside floors not included, in the order of terms."""
        return dict.fromkeys(atom for monomial in self.terms for atom, _ in monomial).keys()

    def floors(self) -> set[Floor]:
        """Return the floors that occur outside other floors."""
        return {atom for atom in self.atoms() if isinstance(atom, Floor)}

    def names(self) -> set[str]:
        """Return all names that occur, also inside floors."""
        return set[str]().union(*({a} if isinstance(a, str) else a.names() for a in self.atoms()))

    @property
    def is_affine(self) -> bool:
        """True if the degree in names and floors is at most one, inside floors too."""
        return all(
            not monomial or (len(monomial) == 1 and monomial[0][1] == 1) for monomial in self.terms
        ) and all(floor.is_affine for floor in self.floors())

    @property
    def is_linear(self) -> bool:
        """True if the degree is at most one, and there are no floors."""
        return self.is_affine and not self.floors()

    def __add__(self, other: QuasiPolynomial | Number) -> QuasiPolynomial:
        if not isinstance(other, QuasiPolynomial):
            other = QuasiPolynomial.constant(other)
        more, less = self.terms, other.terms
        if len(more) < len(less):
            more, less = less, more
        terms = dict(more)
        for monomial, value in less.items():
            if total := terms.get(monomial, 0) + value:
                terms[monomial] = _number(total)
            else:
                del terms[monomial]
        return _make_trusted(terms)

    __radd__ = __add__

    def __neg__(self) -> QuasiPolynomial:
        return _make_trusted({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: QuasiPolynomial | Number) -> QuasiPolynomial:
        return self + (-other)

    def __rsub__(self, other: Number) -> QuasiPolynomial:
        return (-self) + other

    def __mul__(self, other: QuasiPolynomial | Number) -> QuasiPolynomial:
        if not isinstance(other, QuasiPolynomial):
            if other in (0, 1):
                return self if other else ZERO
            return _make_trusted({m: _number(c * other) for m, c in self.terms.items()})
        if len(other.terms) == 1 and () in other.terms:
            return self * other.terms[()]
        if len(self.terms) == 1 and () in self.terms:
            return other * self.terms[()]
        terms: dict[Monomial, Number] = {}
        for left, left_value in self.terms.items():
            for right, right_value in other.terms.items():
                monomial = _multiply_monomials(left, right)
                terms[monomial] = terms.get(monomial, 0) + left_value * right_value
        return _make_trusted({m: _number(c) for m, c in terms.items() if c})

    __rmul__ = __mul__

    def __truediv__(self, other: int) -> QuasiPolynomial:
        return self * Fraction(1, other)

    def __pow__(self, exponent: int) -> QuasiPolynomial:
        result = ONE if exponent == 0 else self
        for _ in range(exponent - 1):
            result = result * self
        return result

    def floor_divide(self, denominator: int) -> QuasiPolynomial:
        """Return the floor of this divided by a positive integer, in normal form.

        Coefficients may be rational: the denominator is scaled to make them integers. Whole
        multiples of the denominator leave the floor, and common factors are canceled.
        """
        if denominator < 1:
            raise ValueError(f"floor division by {denominator}: must be positive")
        scale = lcm(*(c.denominator for c in self.terms.values()))
        denominator *= scale
        if denominator == 1:
            return self
        outside: dict[Monomial, Number] = {}
        inside: dict[Monomial, Number] = {}
        for monomial, value in self.terms.items():
            quotient, remainder = divmod(int(value * scale), denominator)
            if quotient:
                outside[monomial] = quotient
            if remainder:
                inside[monomial] = remainder
        constant = inside.pop((), 0)
        if inside:
            common = gcd(denominator, *(int(c) for c in inside.values()))
            inside = {m: c // common for m, c in (*inside.items(), ((), constant))}
            outside[((Floor(QuasiPolynomial(inside), denominator // common), 1),)] = 1
        return QuasiPolynomial(outside)

    def modulo(self, denominator: int) -> QuasiPolynomial:
        """Return the non-negative remainder on division by a positive integer."""
        return self - self.floor_divide(denominator) * denominator

    def substitute(self, replacements: Mapping[str, QuasiPolynomial]) -> QuasiPolynomial:
        """Replace names by quasi-polynomials, inside floors too."""
        return self.map_atoms(
            lambda a: replacements.get(a) if isinstance(a, str) else a.substitute(replacements)
        )

    def map_atoms(self, replace: Callable[[Atom], QuasiPolynomial | None]) -> QuasiPolynomial:
        """Replace each atom by what `replace` returns for it; None keeps it."""
        replaced = {a: other for a in self.atoms() if (other := replace(a)) is not None}
        if not replaced:
            return self
        result = ZERO
        for monomial, value in self.terms.items():
            kept = tuple(part for part in monomial if part[0] not in replaced)
            product = _make_trusted({kept: value})
            for atom, exponent in monomial:
                if atom in replaced:
                    product = product * replaced[atom] ** exponent
            result = result + product
        return result

    def coefficients_in(self, name: str) -> dict[int, QuasiPolynomial]:
        """Return the coefficient of each power of `name`; floors must be free of it."""
        parts: dict[int, dict[Monomial, Number]] = {}
        for monomial, value in self.terms.items():
            rest = tuple((atom, power) for atom, power in monomial if atom != name)
            parts.setdefault(dict(monomial).get(name, 0), {})[rest] = value
        return {exponent: _make_trusted(terms) for exponent, terms in parts.items()}

    def without_common_powers(self, names: AbstractSet[str]) -> QuasiPolynomial:
        """Return this divided by the powers of some names that all monomials have in common."""
        powers = [dict(monomial) for monomial in self.terms]
        lowest = {a: min(p.get(a, 0) for p in powers) for a in self.atoms() if a in names}
        common = {atom: e for atom, e in lowest.items() if e}
        if not common:
            return self
        return _make_trusted(
            {
                tuple((a, e - common.get(a, 0)) for a, e in m if e > common.get(a, 0)): c
                for m, c in self.terms.items()
            }
        )

    def primitive(self) -> QuasiPolynomial:
        """Return a positive multiple with integer coefficients that have no common factor."""
        scale = lcm(*(c.denominator for c in self.terms.values()))
        common = gcd(*(int(c * scale) for c in self.terms.values()))
        return self * Fraction(scale, common) if common else self

    def evaluate(self, values: Mapping[str, int]) -> Number:
        """Return the value at integer values of all names, exactly."""
        total: Number = 0
        for monomial, coefficient in self.terms.items():
            product = coefficient
            for atom, exponent in monomial:
                base = values[atom] if isinstance(atom, str) else atom.evaluate(values)
                product = product * base**exponent
            total += product
        return _number(total) if isinstance(total, Fraction) else total

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial in sorted(self.terms, key=degree_first) if len(self.terms) > 1 else self.terms:
            factors = [f"{a}^{e}" if e > 1 else str(a) for a, e in monomial]
            value = self.terms[monomial]
            size = abs(value)
            if size != 1 or not factors:
                factors.insert(0, str(size) if isinstance(size, int) else f"({size})")
            parts += ["-" if value < 0 else "+", "*".join(factors)]
        head = "-" if parts[0] == "-" else ""
        return head + " ".join(parts[1:])


def _make_trusted(terms: dict[Monomial, Number]) -> QuasiPolynomial:
    result = QuasiPolynomial.__new__(QuasiPolynomial)
    result.terms = terms
    result._hash = None  # pyright: ignore[reportPrivateUsage]
    return result


Conjunction: TypeAlias = frozenset[QuasiPolynomial]
"""Quasi-polynomials that are all at least zero, or all zero."""

ZERO = QuasiPolynomial()
ONE = QuasiPolynomial.constant(1)


_OPERATORS: Mapping[type[ast.operator], Callable[..., QuasiPolynomial]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
}


@lru_cache(4096)
def parse_polynomial(text: str) -> QuasiPolynomial:
    """Parse a quasi-polynomial such as ``(1/2)*n^2 + floor((n + 3)/4)``."""
    try:
        return _from_tree(ast.parse(text.replace("^", "**"), mode="eval").body, text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # of Python's parser
        raise CountingError(f"{text!r} is no quasi-polynomial: {error}") from error


def _from_tree(node: ast.expr, text: str) -> QuasiPolynomial:
    match node:
        case ast.Constant(value=int() as value):
            return QuasiPolynomial.constant(value)
        case ast.Name(id=name):
            return QuasiPolynomial.name(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_tree(operand, text)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            return _OPERATORS[type(op)](_from_tree(left, text), _from_tree(right, text))
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int() as d)) if d > 0:
            return _from_tree(left, text) / d
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as e)) if e >= 0:
            return _from_tree(left, text) ** e
        case ast.Call(
            func=ast.Name(id="floor"),
            args=[ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=int() as d))],
        ) if d > 0:
            return _from_tree(left, text).floor_divide(d)
        case _:
            raise CountingError(
                f"{text!r} is no quasi-polynomial: {ast.unparse(node)!r} is not allowed in one"
            )
