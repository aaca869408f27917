from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.errors import SearchSpaceError
from countperf.tuning.space import SearchSpace, check_expression, holds
from tests.tuning.spaces import DOUBLE, is_planar, make_space


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_every_choice_is_visited_once(lengths: list[int]) -> None:
    space = make_space(parameters={f"p{i}": range(length) for i, length in enumerate(lengths)})

    seen = [tuple(choice.values()) for choice in space.choices()]

    assert sorted(seen) == list(itertools.product(*map(range, lengths)))


def test_the_beginning_of_a_visit_sees_every_value() -> None:
    space = make_space(parameters={"x": range(64), "y": range(4)})

    begin = list(itertools.islice(space.choices(), 16))

    assert {choice["y"] for choice in begin} == set(range(4))
    assert {int(choice["x"]) // 16 for choice in begin} == set(range(4))


def test_a_million_points_take_no_memory_until_they_are_visited() -> None:
    space = make_space(parameters={name: range(100) for name in "abc"})

    assert space.cardinality == 10**6
    assert next(space.choices()).keys() == {"a", "b", "c"}
    assert space.at(10**6 - 1) == {"a": 99, "b": 99, "c": 99}


def test_choices_are_counted_or_estimated() -> None:
    space = make_space(constraints=("x > 8",))
    large = make_space(parameters={"x": range(1000), "y": range(1000)}, constraints=("x > 899",))

    assert space.number_of_choices() == sum(1 for _ in space.choices()) == 24
    assert large.number_of_choices() == pytest.approx(100_000, rel=0.01)


def test_constraints_are_texts_or_functions() -> None:
    space = make_space(constraints=("x in (1, 2)", is_planar, "kind == 'plain'"))

    assert sorted((c["x"], c["y"]) for c in space.choices()) == [
        (1, 2),
        (1, 4),
        (1, 8),
        (2, 1),
        (2, 4),
        (2, 8),
    ]
    assert {"x": 1, "y": 1, "kind": "plain"} not in space
    assert {"x": 1, "y": 3, "kind": "plain"} not in space
    assert {"x": 1, "y": 2, "kind": "plain"} in space


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("z > 1", "no parameter is called z; there are x, y"),
        ("x.real > 1", "Attribute is not allowed"),
        ("__import__('os')", "__import__ is no function here"),
        ("[x for x in (1, 2)]", "ListComp is not allowed"),
        ("x[0]", "Subscript is not allowed"),
        ("2 ** x > 1", "Pow is not allowed"),
        ("max(x, key=y)", "max is no function here"),
        ("(lambda: 1)()", "is no function here"),
        ("x >", "no expression"),
        ("min", "no parameter is called min"),
    ],
)
def test_other_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(SearchSpaceError, match=re.escape(said)):
        check_expression(text, ("x", "y"))


def test_a_constraint_that_fails_says_where() -> None:
    with pytest.raises(SearchSpaceError, match=r"fails at \{'x': 1, 'y': 0\}: .* by zero"):
        holds("x % y == 0", {"x": 1, "y": 0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": {}}, "has no parameters"),
        ({"parameters": {"a b": [1]}}, "'a b' is no name"),
        ({"parameters": {"x": []}}, "parameter x has no values"),
        ({"parameters": {"x": [1, None]}}, "a value of x is no number"),
        ({"parameters": {"x": [1, 2, 1]}}, "x lists a value twice"),
        ({"constraints": ("q > 1",)}, "no parameter is called q"),
    ],
)
def test_an_ill_defined_space_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SearchSpaceError, match=said):
        make_space(**changes)


def test_a_space_goes_to_other_processes() -> None:
    again = pickle.loads(pickle.dumps(DOUBLE))

    assert list(again.choices()) == list(DOUBLE.choices())


def test_a_case_has_what_the_harness_needs() -> None:
    choice = {"group": 16, "each": 2, "fetch": False}

    case = DOUBLE.case(choice, {"n": 1024})

    assert case.name == "double/group=16,each=2,fetch=False/n=1024"
    assert case.parameters == case.check_parameters == {"n": 1024}
    assert case.build() is case.build()


@pytest.mark.parametrize("lacking", ["make_arguments", "reference"])
def test_a_space_without_inputs_or_reference_makes_cases_with_the_defaults(lacking: str) -> None:
    case = replace(DOUBLE, **{lacking: None}).case({"group": 16, "each": 1, "fetch": False})

    assert getattr(case, lacking) is None
    assert case.inputs == ("" if lacking == "make_arguments" else "double")


def test_choices_are_made_from_any_sequence() -> None:
    make: Callable[..., Any] = make_space

    assert make(parameters={"x": (3, 1)}).at(1) == {"x": 1}


def test_the_signature_of_a_function_says_the_values() -> None:
    def build(tile: Literal[8, 16], prefetch: bool, unroll: Any = (1, 2), flags: str = "") -> None:
        """Build nothing."""

    space = SearchSpace.from_function(build, constraints=["tile % unroll == 0"], sizes={"n": 8})

    assert space.parameters == {"tile": (8, 16), "prefetch": (False, True), "unroll": (1, 2)}
    assert (space.name, space.constraints, space.sizes) == (
        "build",
        ("tile % unroll == 0",),
        {"n": 8},
    )
    assert sum(1 for _ in space.choices()) == 8


def test_an_argument_without_values_is_refused_with_what_to_write() -> None:
    def build(tile: int) -> None:
        """Build nothing."""

    with pytest.raises(SearchSpaceError, match="argument tile of 'build' has no values: annotate"):
        SearchSpace.from_function(build)
    with pytest.raises(SearchSpaceError, match="has no argument with values"):
        SearchSpace.from_function(lambda: None)
    with pytest.raises(SearchSpaceError, match="pass a function of Python"):
        SearchSpace.from_function(dict)
