from __future__ import annotations

import itertools
import pickle
import re
from itertools import islice
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.devices.device import Device
from countperf.errors import SearchSpaceError
from countperf.measuring.runner import KernelRunner
from countperf.tuning.ranker import Predicted, PredictionTask, predict_point
from countperf.tuning.space import SearchSpace, compile_constraint, holds
from measurement_kernels.variants import spaces
from measurement_kernels.variants.sets import variant_entries
from tests.models.builders import make_weights
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


def test_choices_are_counted_or_estimated() -> None:
    space = make_space(constraints=("x > 8",))
    large = make_space(parameters={"x": range(1000), "y": range(1000)}, constraints=("x > 899",))
    assert large.cardinality == 10**6
    assert large.at(10**6 - 1) == {"x": 999, "y": 999}
    assert space.number_of_choices() == sum(1 for _ in space.choices()) == 24
    assert large.number_of_choices() == pytest.approx(100_000, rel=0.01)


def test_constraints_are_texts_or_functions() -> None:
    space = make_space(constraints=("x in (1, 2)", is_planar, "kind == 'plain'"))
    pairs = {(1, 2), (1, 4), (1, 8), (2, 1), (2, 4), (2, 8)}
    assert {(c["x"], c["y"]) for c in space.choices()} == pairs
    for y in range(1, 4):
        assert ({"x": 1, "y": y, "kind": "plain"} in space) == (y == 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("z > 1", "no parameter is called z; there are x, y"),
        ("x.real > 1", "no parameter is called real"),
        (
            "__import__('os')",
            "no parameter is called __import__; there are x, y, and the functions",
        ),
        ("[x for x in (1, 2)]", "a function or loop is not allowed"),
        ("(lambda: 1)()", "a function or loop is not allowed"),
        ("x >", "no expression"),
    ],
)
def test_other_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(SearchSpaceError, match=re.escape(said)):
        compile_constraint(text, ("x", "y"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x % y == 0", "fails at {'x': 1, 'y': 0}: "),
        ("x[0]", "fails at"),
        ("max(x, key=y)", "fails at"),
        ("min", "no truth value"),
        ("f'{x}'", "is '1' at {'x': 1, 'y': 0}: no truth value"),
    ],
)
def test_a_constraint_that_fails_says_where(text: str, said: str) -> None:
    with pytest.raises(SearchSpaceError, match=re.escape(said)):
        holds(text, {"x": 1, "y": 0})


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


def test_a_case_has_what_the_harness_needs() -> None:
    case = DOUBLE.case({"group": 16, "each": 2, "fetch": False}, {"n": 1024})
    assert case.name == "double/group=16,each=2,fetch=False/n=1024"
    assert case.parameters == case.check_parameters == {"n": 1024}
    assert case.build() is case.build()


def test_the_signature_of_a_function_says_the_values() -> None:
    def build(tile: Literal[8, 16], prefetch: bool, unroll: Any = (1, 2), flags: str = "") -> None:
        """Build nothing."""

    space = SearchSpace.from_function(build, constraints=["tile % unroll == 0"], sizes={"n": 8})
    assert space.parameters == {"tile": (8, 16), "prefetch": (False, True), "unroll": (1, 2)}
    assert (space.name, space.constraints) == ("build", ("tile % unroll == 0",))
    assert space.sizes == {"n": 8}
    assert sum(1 for _ in space.choices()) == 8


def no_values(tile: int) -> None:
    """Build nothing."""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_values, "argument tile of 'no_values' has no values: annotate"),
        (lambda: None, "has no argument with values"),
        (dict, "pass a function of Python"),
    ],
)
def test_a_function_without_values_is_refused_with_what_to_write(function: Any, said: str) -> None:
    with pytest.raises(SearchSpaceError, match=said):
        SearchSpace.from_function(function)


FAMILIES = ("matmul", "stencil", "dg-differentiation", "transpose", "convolution")


@pytest.mark.device
@pytest.mark.parametrize("name", FAMILIES)
def test_variants_of_five_families_compute_what_the_reference_says(
    name: str, device: Device
) -> None:
    assert tuple(spaces()) == FAMILIES
    space = pickle.loads(pickle.dumps(spaces()[name]))
    assert sum(1 for _ in space.choices()) >= 1000
    weights = make_weights({"launches": 1e-5})
    task = PredictionTask(space=space, weights=weights, sizes={}, incomplete_ok=True)
    points = [predict_point(task, choice) for choice in islice(space.choices(), 4)]
    assert all(isinstance(point, Predicted) for point in points)
    runner = KernelRunner.open(device)
    for point in points[:2]:
        runner.check(space.case(point.choice))
    entry = variant_entries(f"variants-{name}")[0]
    runner.check(entry.case(entry.exponents[0]))
