"""Shortcuts that read or write isl's matrices, against isl's own operations."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import islpy as isl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countperf.symbolic import isl_sets, sets
from countperf.symbolic.cardinality import Context, Counter, FactoredDomain
from countperf.symbolic.elimination import Polyhedron
from countperf.symbolic.isl_sets import assumptions_text
from countperf.symbolic.quasipolynomial import QuasiPolynomial, parse_polynomial
from tests.oracles import enumeration

_rows = st.lists(
    st.tuples(st.integers(-6, 6), *(st.integers(-3, 3) for _ in range(3))), min_size=1, max_size=5
)
_boxes = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=2)


@given(rows=_rows, equalities=st.lists(st.tuples(*(st.integers(-3, 3),) * 4), max_size=1))
@settings(max_examples=60, deadline=None)
def test_polyhedra_come_back_from_isl(
    rows: list[tuple[int, ...]], equalities: list[tuple[int, ...]]
) -> None:
    polyhedron = Polyhedron(("n",), ("i", "j"), tuple(equalities), tuple(rows))
    there = isl_sets.to_isl(polyhedron)
    again = isl_sets.to_isl(isl_sets.from_isl(there, ("n",), ("i", "j")))
    assert there.is_equal(again)


@given(rows=_rows, box=_boxes)
@settings(max_examples=150, deadline=None)
def test_projections_are_exact_on_integers(
    rows: list[tuple[int, ...]], box: list[tuple[int, int]]
) -> None:
    (a, b), (c, d) = box
    bounds = [(-a, 0, 1, 0), (b, 0, -1, 0), (-c, 0, 0, 1), (d, 0, 0, -1)]
    polyhedron = Polyhedron(("n",), ("i", "j"), (), (*rows, *bounds))
    expected = isl_sets.to_isl(polyhedron).project_out(isl.dim_type.set, 0, 1)
    factors = FactoredDomain(polyhedron).onto(frozenset("j"))
    if factors is None:  # one of them has existentials
        return
    shadow = isl.Set("[n] -> { [j] }")
    for factor in map(isl_sets.to_isl, factors):
        has_j = factor.dim(isl.dim_type.set)
        shadow = shadow & factor if has_j else shadow.intersect_params(factor.params())
    assert shadow.is_equal(expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *(("0 <= i < 16", (0, 15)), ("0 <= 3i < 16", (0, 5)), ("i = 4", (4, 4))),
        *(("-7 <= 2i and i < 5 and i < 9", (-3, 4)), ("0 <= i < 16 and i < n", (0, 15))),
        *(("0 <= i < n and n < 10", (0, 8)), ("0 <= i < n", (0, None))),
    ],
)
def test_bounds_of_a_line(line: str, expected: tuple[int | None, int | None]) -> None:
    assert sets.constant_bounds(isl.BasicSet(f"[n] -> {{ [i] : {line} }}"))["i"] == expected


@pytest.mark.parametrize(
    ("known", "congruences"),
    [
        *(("n mod 16 = 0 and n > 0", {"n": (16, 0)}), ("n mod 5 = 3", {"n": (5, 3)})),
        ("(n + 1) mod 4 = 0 and m mod 6 = 1", {"n": (4, 3), "m": (6, 1)}),
        *(("n mod 4 = 2 and n mod 6 = 0", {"n": (12, 6)}), ("(2n) mod 6 = 4", {"n": (3, 2)})),
        *(("n = 3m", {}), ("(n + m) mod 4 = 0", {}), ("n >= 3", {})),
        ("exists e : n = 4e and e >= 2", {"n": (4, 0)}),
    ],
)
def test_congruences_of_parameters(known: str, congruences: dict[str, tuple[int, int]]) -> None:
    assert Context(isl.Set(f"[n, m] -> {{ : {known} }}")).congruences == congruences


def test_shapes_counted_before_do_not_change_counts() -> None:
    """Contexts and counts are shared by all counters of a process: never those of another shape."""
    texts = [
        f"[n, m] -> {{ [i, j] : 0 <= i < {a} and {low} <= j < {b} }}"
        for a, b, low in itertools.product(("n", "m", "4"), ("n", "m", "n + i"), ("0", "2"))
    ]
    known = [None, "[n] -> { : n >= 8 }", "[n, m] -> { : n mod 4 = 0 and n >= 4 and m >= n }"]
    for text, assumed in [*itertools.product(texts, known)] * 2:
        factored = FactoredDomain.of(isl.BasicSet(text))
        assert factored is not None
        assumptions = None if assumed is None else isl.Set(assumed)
        shared = Counter(assumptions).count_product([factored.polyhedron])
        for n, m in ((8, 8), (8, 12), (12, 13)):
            values = {"n": n, "m": m}
            assert shared.evaluate(values) == enumeration.weighted_sum(text, values)


@pytest.mark.parametrize(
    ("text", "order", "expected"),
    [
        ("{ [l, i, j] : i + j = l }", "ji", {"j": "l - i"}),
        ("{ [l, i, j] : i + j = l }", "ij", {"i": "l - j"}),
        ("{ [l, i, j] : 2i + j = l }", "ij", {"j": "l - 2*i"}),
        ("{ [l, i, j] : 2i + 3j = l }", "ij", {}),
        ("[n] -> { [l, i, j] : i + j = l and j = 2l + n }", "ji", {"j": "2*l + n", "i": "-l - n"}),
        ("{ [l, i, j, k] : i + j + k = l and j = k }", "kji", {"k": "j", "i": "l - 2*j"}),
        ("{ [l, i, j] : i + j = l and (i + l) mod 3 = 0 }", "ji", {"j": "l - i"}),
        ("{ [l, i] : i mod 2 = 0 }", "i", {}),
    ],
)
def test_loops_that_others_determine(text: str, order: str, expected: dict[str, str]) -> None:
    found = sets.solve_dimensions(isl.BasicSet(text), tuple(order))
    assert found == {name: parse_polynomial(value) for name, value in expected.items()}


@given(
    rows=st.lists(st.tuples(*(st.integers(-2, 2),) * 6), min_size=1, max_size=3),
    order=st.permutations("ijk"),
)
@settings(max_examples=80, deadline=None)
def test_values_of_determined_loops_hold_and_are_free_of_them(
    rows: list[tuple[int, ...]], order: list[str]
) -> None:
    joint = isl_sets.to_isl(Polyhedron(("n",), ("l", "i", "j", "k"), tuple(rows), ()))
    found = sets.solve_dimensions(joint, order)
    for name, value in found.items():
        assert not value.names() & found.keys()
        solved = sets.restrict(joint, zero=[QuasiPolynomial.name(name) - value])
        assert isl_sets.as_set(joint).is_subset(solved)


def test_the_order_of_parameters_and_constraints_is_that_of_their_names() -> None:
    """Loopy adds parameters in the order of a Python set."""
    texts = (
        "[n, m] -> { [i, j] : 0 <= i < n and 0 <= j < m }",
        "[m, n] -> { [i, j] : 0 <= i < n and 0 <= j < m }",
        "[n, m] -> { [i, j] : j < m and i < n and j >= 0 and i >= 0 }",
    )
    for kind in (isl.BasicSet, isl.Set):
        found = [isl_sets.in_fixed_order(kind(text)) for text in texts]
        assert {isl_sets.names_of(each, parameters=True) for each in found} == {("m", "n")}
        pieces = [piece for each in found for piece in isl_sets.as_set(each).get_basic_sets()]
        (first, *others) = map(isl_sets.write_rows, pieces)
        assert len(pieces) == 3
        assert len(first[1]) == 4
        assert all(other == first for other in others)
        # last: isl sorts the rows of sets that it compares
        assert all(each.is_equal(kind(text)) for each, text in zip(found, texts, strict=True))


def test_polynomials_have_the_same_hash_in_every_process() -> None:
    code = (
        "from countperf.symbolic.quasipolynomial import QuasiPolynomial as Q; n = Q.name('n');"
        "print(hash(n * Q.name('m') + (n + 3).floor_divide(4) - 1), hash(n.floor_divide(2)))"
    )
    command, seeds = [sys.executable, "-c", code], [{"PYTHONHASHSEED": seed} for seed in "12"]
    found = {subprocess.check_output(command, env={**os.environ, **seed}) for seed in seeds}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[n, m] -> { : n mod 64 = 0 and m mod 32 = 0 and n >= 64 and m >= 32 }",
            "[n, m] -> {  : (m) mod 32 = 0 and (n) mod 64 = 0 and m >= 32 and n >= 64 }",
        ),
        ("[n] -> { : n >= 2 or n <= -2 }", "[n] -> {  : n >= 2 or n <= -2 }"),
        ("[n] -> { : }", "[n] -> {  :  }"),
    ],
)
def test_the_text_of_assumptions_does_not_depend_on_their_order(text: str, expected: str) -> None:
    assert assumptions_text(isl.Set(text)) == expected
    assert isl.Set(expected) == isl.Set(text)
