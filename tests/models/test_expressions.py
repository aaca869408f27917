"""Formulas: what is read, what is refused and where, values."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import ExpressionError
from countperf.models.definition import CheckedFormula, parse

PYTHON: dict[str, Callable[[Any], float]] = {  # formulas, and what Python makes of the same
    "a - b*c + 2.5e-1": lambda v: v.a - v.b * v.c + 2.5e-1,
    "-a**2 - b/c/3": lambda v: -(v.a**2) - v.b / v.c / 3,
    "a/b*c - (a - (b - c))": lambda v: v.a / v.b * v.c - (v.a - (v.b - v.c)),
    "a**b**0.5": lambda v: v.a**v.b**0.5,
    "min(a, b, c)*max(a, 2*b)": lambda v: min(v.a, v.b, v.c) * max(v.a, 2 * v.b),
    "sqrt(a) + log(b)*exp(-c)": lambda v: v.a**0.5 + np.log(v.b) * np.exp(-v.c),
    "floor(2.5)*a + ceil(0.5)*b + s**c": lambda v: 2 * v.a + v.b + v.s**v.c,
}
_positive = st.floats(0.1, 10.0)


@given(st.sampled_from(list(PYTHON)), _positive, _positive, _positive, st.floats(1.0, 8.0))
def test_values_are_those_of_python_for_numbers_and_arrays(
    text: str, a: float, b: float, c: float, s: float
) -> None:
    values = {"a": a, "b": b, "c": c, "s": s}
    expected = PYTHON[text](SimpleNamespace(**values))

    assert parse(text)(values) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    of_arrays = parse(text)({name: np.array([[value], [value]]) for name, value in values.items()})
    assert np.shape(of_arrays) == (2, 1)
    assert of_arrays == pytest.approx(np.full((2, 1), expected), rel=1e-12, abs=1e-12)


def test_names_are_listed_in_the_order_of_the_text() -> None:
    assert parse("launch + groups*max(far, launch)").names == ("launch", "groups", "far")
    assert parse("9**9**9**9").names == ()  # not worked out while reading


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "invalid syntax"),
        ("a +", "invalid syntax at column 4"),
        ("a b", "invalid syntax"),
        ("a + $b", "invalid syntax"),
        ("a + 'x'", "'x' is no number"),
        ("f(x)", r"f\(x\) is no number"),
        ("1 + __import__(a)", "__import__"),
        ("a.__class__", "underscores"),
        ("a + b # c", "invalid syntax"),
        ("1 + flop.add.f32", "flop_add_f32"),
        ("x[1]", r"x\[1\] is no"),
        ("a if b else c", "a if b else c is no"),
        ("a < b", "a < b is no"),
        ("a and b", "a and b is no"),
        ("a // b", "a // b is no"),
        ("a % b", "a % b is no"),
        ("~a", "~a is no"),
        ("(a, b)", "a, b"),
        ("lambda: 1", "lambda: 1 is no"),
        ("True", "True is no"),
        ("5j", "5j is no"),
        ("1e999", "beyond"),
        ("9" * 400, "beyond"),
        ("floor(a, b)", "takes 1 argument"),
        ("min(a)", "takes at least 2"),
        ("min(a, b, sharpness=2)", "sharpness=2"),
        ("1 + min", "min is no"),
        ("a) + (b", "unmatched"),
        ("(" * 3000 + "a" + ")" * 3000, "nested"),
        ("9" * 5000, "digits"),
    ],
    ids=lambda value: str(value)[:22],
)
def test_what_is_no_formula_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ExpressionError, match=said) as caught:
        parse(text)

    assert caught.value.text == text


@given(st.text(alphabet="ab1.+-*/(),=<>[]{}'\":%^&|~ _\n", max_size=20))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    try:
        assert isinstance(parse(text), CheckedFormula)
    except ExpressionError:
        return


def test_unknown_names_are_listed_with_those_there_are() -> None:
    with pytest.raises(ExpressionError, match=r"'memry', 'chip' \(known here: memory;") as caught:
        parse("memory + memry*chip").refuse_unknown(["memory"])

    assert caught.value.names == ("memry", "chip")
