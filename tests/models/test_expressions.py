"""Formulas: what is read, what is refused and where, values, derivatives."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import ExpressionError
from countperf.models.evaluation import (
    ScalarSource,
    array_function,
    derivative,
    scalar_function,
)
from countperf.models.expressions import Formula, parse

FORMULAS = (
    "a - b*c + 2.5e-1",
    "-a**2 - b/c/3",
    "a/b*c - (a - (b - c))",
    "a**b**0.5",
    "min(a, b, c)*max(a, 2*b)",
    "sqrt(a) + log(b)*exp(-c)",
    "overlap(a, b, c, sharpness=s)",
    "a + overlap(a*b, overlap(b, c, sharpness=2), sharpness=s)**1.5",
    "floor(2.5)*a + ceil(0.5)*b + s**c",
)
PYTHON: dict[str, Callable[[Any], float]] = {  # what Python makes of the same
    "a - b*c + 2.5e-1": lambda v: v.a - v.b * v.c + 2.5e-1,
    "-a**2 - b/c/3": lambda v: -(v.a**2) - v.b / v.c / 3,
    "a/b*c - (a - (b - c))": lambda v: v.a / v.b * v.c - (v.a - (v.b - v.c)),
    "a**b**0.5": lambda v: v.a**v.b**0.5,
    "min(a, b, c)*max(a, 2*b)": lambda v: min(v.a, v.b, v.c) * max(v.a, 2 * v.b),
    "sqrt(a) + log(b)*exp(-c)": lambda v: v.a**0.5 + np.log(v.b) * np.exp(-v.c),
    "overlap(a, b, c, sharpness=s)": lambda v: (v.a**v.s + v.b**v.s + v.c**v.s) ** (1 / v.s),
    "a + overlap(a*b, overlap(b, c, sharpness=2), sharpness=s)**1.5": lambda v: (
        v.a + ((v.a * v.b) ** v.s + (v.b**2 + v.c**2) ** (v.s / 2)) ** (1.5 / v.s)
    ),
    "floor(2.5)*a + ceil(0.5)*b + s**c": lambda v: 2 * v.a + v.b + v.s**v.c,
}
_positive = st.floats(0.1, 10.0)


@given(st.sampled_from(FORMULAS), _positive, _positive, _positive, st.floats(1.0, 8.0))
def test_values_are_those_of_python_for_numbers_and_arrays(
    text: str, a: float, b: float, c: float, s: float
) -> None:
    values = {"a": a, "b": b, "c": c, "s": s}
    expected = PYTHON[text](SimpleNamespace(**values))

    assert scalar_function(parse(text))(values) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    arrays = {name: np.array([[value], [value]]) for name, value in values.items()}
    found = array_function(parse(text))(arrays)
    assert np.shape(found) == (2, 1)
    assert found == pytest.approx(np.full((2, 1), expected), rel=1e-12, abs=1e-12)


@given(
    st.sampled_from([text for text in FORMULAS if "min" not in text]),
    st.sampled_from("abcs"),
    st.floats(0.5, 2.0),
    st.floats(0.5, 2.0),
    st.floats(0.5, 2.0),
    st.floats(1.2, 6.0),
)
def test_derivatives_are_those_of_small_changes(
    text: str, name: str, a: float, b: float, c: float, s: float
) -> None:
    formula, values = parse(text), {"a": a, "b": b, "c": c, "s": s}
    step = 1e-5

    analytic = float(array_function(derivative(formula, name))(values))

    if name != "s":  # by a sharpness they are functions of arrays alone
        found = scalar_function(derivative(formula, name))(values)
        assert found == pytest.approx(analytic, rel=1e-9, abs=1e-12)
    low, high = (
        scalar_function(formula)({**values, name: values[name] + change})
        for change in (-step, step)
    )
    # a central difference is off by its third derivative times step**2, and by rounding over step
    assert analytic == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-6)


def test_the_smallest_and_the_largest_pass_on_the_derivative() -> None:
    formula = parse("min(a, b)*max(2*a, b)")
    values = {"a": np.array([1.0, 3.0]), "b": np.array([1.5, 2.0])}

    # a * 2a where a < b and 2a > b; b * 2a where b < a
    assert array_function(derivative(formula, "a"))(values).tolist() == [4.0, 4.0]
    assert array_function(derivative(formula, "b"))(values).tolist() == [0.0, 6.0]
    each = [{name: float(row[place]) for name, row in values.items()} for place in (0, 1)]
    assert [scalar_function(derivative(formula, "a"))(one) for one in each] == [4.0, 4.0]
    assert [scalar_function(derivative(formula, "b"))(one) for one in each] == [0.0, 6.0]


@pytest.mark.parametrize(
    ("parts", "sharpness", "expected"),
    [
        pytest.param((3.0, 4.0), 1.0, 7.0, id="sum"),
        pytest.param((3.0, 4.0), 2.0, 5.0, id="euclidean"),
        pytest.param((3.0, 4.0), 1e6, 4.0, id="maximum"),
        pytest.param((3e-200, 4e-200), 2.0, 5e-200, id="squares would underflow"),
        pytest.param((3e200, 4e200), 2.0, 5e200, id="squares would overflow"),
        pytest.param((1e-9, 1e3), 32.0, 1e3, id="a ratio of 1e12"),
        pytest.param((0.0, 0.0), 3.0, 0.0, id="nothing"),
        pytest.param((-5.0, 2.0), 3.0, 2.0, id="a negative part counts as zero"),
    ],
)
def test_overlaps(parts: tuple[float, float], sharpness: float, expected: float) -> None:
    values = dict(zip("ab", parts, strict=True)) | {"sharpness": sharpness}
    formula = parse("overlap(a, b)")

    assert scalar_function(formula)(values) == pytest.approx(expected, rel=1e-6)
    assert float(array_function(formula)(values)) == pytest.approx(expected, rel=1e-6)
    for name in ("a", "b", "sharpness"):
        assert np.isfinite(array_function(derivative(formula, name))(values))


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(1, 30), st.floats(1e-3, 1e3))
def test_an_overlap_lies_between_maximum_and_sum_and_is_homogeneous(
    a: float, b: float, s: float, factor: float
) -> None:
    overlap = scalar_function(parse("overlap(a, b, sharpness=s)"))
    whole = overlap({"a": a, "b": b, "s": s})

    assert max(a, b) * (1 - 1e-12) <= whole <= (a + b) * (1 + 1e-12)
    assert overlap({"a": factor * a, "b": factor * b, "s": s}) == pytest.approx(factor * whole)


def test_what_formulas_have_in_common_is_written_once() -> None:
    formula = parse("2*overlap(a, b, a*b, sharpness=3)")
    slope = derivative(formula, "b")
    source = ScalarSource()
    source.variables |= {"a": "x", "b": "y"}

    both = source.function(["x", "y"], f"({source.formula(formula)}, {source.formula(slope)})")

    values = {"a": 2.0, "b": 0.7}
    expected = [scalar_function(each)(values) for each in (formula, slope)]
    assert both(2.0, 0.7) == pytest.approx(expected, rel=1e-14)
    assert sum("max(" in line for line in source.lines) == 1
    assert len(set(source.lines)) == len(source.lines)


def test_functions_may_give_up() -> None:
    source = ScalarSource()
    source.give_up_if("x < 1.0")

    function = source.function(["x", "y"], source.weighted_sum((-2.0, 0.0, 1.0), "xyy"))

    assert function(3.0, 5.0) == -1.0
    assert function(0.5, 5.0) is None


def test_names_are_listed_in_the_order_of_the_text_with_what_an_overlap_implies() -> None:
    formula = parse("launch + w_group*groups + overlap(global_memory, on_chip)")

    assert formula.names == (
        *("launch", "w_group", "groups", "global_memory", "on_chip"),
        "sharpness",
    )
    assert formula.shapes == {"sharpness"}
    assert formula.overlapped == {"global_memory", "on_chip"}


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        pytest.param("", 0, "empty", id="empty"),
        pytest.param("a + ", 4, "unexpected end", id="unfinished"),
        pytest.param("a b", 2, "leftover", id="two names"),
        pytest.param("a + $b", 4, "no name", id="a dollar"),
        pytest.param("a + 'x'", 4, "a character", id="text"),
        pytest.param("f(x)", 0, "no function is named 'f'", id="unknown function"),
        pytest.param("1 + __import__(a)", 4, "no function is named '__import__'", id="import"),
        pytest.param("a.__class__", 0, "underscores", id="attribute"),
        pytest.param("1 + flop.add.f32", 4, "flop_add_f32", id="dots in a property"),
        pytest.param("x[1]", 0, "no Subscript", id="subscript"),
        pytest.param("a if b else c", 0, "no If", id="condition"),
        pytest.param("a < b", 0, "no Comparison", id="comparison"),
        pytest.param("a and b", 0, "no LogicalAnd", id="logic"),
        pytest.param("a // b", 0, "no FloorDiv", id="floor division"),
        pytest.param("a % b", 0, "no Remainder", id="remainder"),
        pytest.param("(a, b)", None, "Tuple", id="tuple"),
        pytest.param("lambda: 1", None, "Slice", id="lambda"),
        pytest.param("True", 0, "no real number", id="truth"),
        pytest.param("5j", None, "5j", id="imaginary"),
        pytest.param("1e999", None, "beyond", id="too large"),
        pytest.param("9" * 400, None, "beyond", id="a huge integer"),
        pytest.param("overlap(a)", 0, "at least 2", id="one part"),
        pytest.param("floor(a, b)", 0, "takes 1", id="too many arguments"),
        pytest.param("min(a, b, sharpness=2)", 0, "no argument", id="not of min"),
        pytest.param("overlap(a, b, p=2)", 0, "no argument 'p'", id="other argument"),
        pytest.param("overlap(a, b, sharpness=0.5)", 0, "below 1", id="too smooth"),
        pytest.param("overlap(a, b, sharpness=2*s)", 0, "a name or a number", id="formula"),
        pytest.param("1 + min", 4, "give its arguments", id="a bare function"),
        pytest.param("(" * 3000 + "a" + ")" * 3000, None, "nested", id="deep"),
        pytest.param("a" * 30000, 20000, "longer", id="long"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(
    text: str, position: int | None, said: str
) -> None:
    with pytest.raises(ExpressionError, match=said) as caught:
        parse(text)

    assert caught.value.text == text
    if position is not None:
        assert caught.value.position in (position, None)


@given(st.text(alphabet="ab1.+-*/(),=<>[]{}'\":%^&|~ _\n", max_size=20))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    try:
        found: Any = parse(text)
    except ExpressionError:
        return
    assert isinstance(found, Formula)


def test_huge_powers_are_not_worked_out_while_reading() -> None:
    assert parse("9**9**9**9").names == ()


def test_unknown_names_are_listed_with_those_there_are() -> None:
    with pytest.raises(ExpressionError, match=r"'memry', 'chip' \(known here: memory;") as caught:
        parse("memory + memry*chip").refuse_unknown(["memory"])

    assert caught.value.names == ("memry", "chip")
    assert caught.value.position == 9


def test_rounding_of_what_is_fitted_has_no_derivative() -> None:
    with pytest.raises(ExpressionError, match="round only what is counted") as caught:
        derivative(parse("floor(a*b)"), "a")
    assert caught.value.names == ("a",)
