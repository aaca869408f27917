"""Models that users write: documents, names, what is covered, and what is refused where."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.counting.structure.issue import ExecutionPolicy
from countperf.counting.structure.memory_hierarchy import load_hierarchy
from countperf.counting.vector import PropertyVector
from countperf.errors import CountingError, DocumentError, ExpressionError, ParameterError
from countperf.models import definition
from countperf.models.definition import FeatureSpec, ModelDefinition, parse, property_of
from countperf.models.function import ModelFunction, model_inputs
from countperf.models.shipped import LINEAR, load_fitted_model, make_structural_model
from countperf.models.weights import read_vector
from tests.models.builders import make_weights, sum_model

TEXT = """
format = "countperf-model"
version = 3
name = "mine"
ignored = ["iop.*"]

[terms]
launch = ["launches"]
global_memory = ["bytes", "gmem.load.*.4ofn"]
on_chip = { charged = ["flop.*.*", "groups"], lower = 1e-9, scale = "waves" }

[derived]
bytes = "4*gmem_load_32_stride1 + 8*gmem_load_64_stride1"
waves = "ceil(groups/2)"
"""
COUNTS = {
    **{"launches": 1, "groups": 7, "gmem.load.32.stride1": 100, "gmem.load.32.4ofn": 3},
    **{"flop.special.f32.exp": 11, "flop.special.f32.sqrt": 2, "flop.add.f32": 0},
    **{"iop.add.i32": 5, "lmem.load.32": 9},
}


def test_a_toml_file_is_a_model_survives_as_json_and_sorts_counts(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    model = load_fitted_model(str(path))
    assert ModelDefinition.read_text(model.write_text()) == model
    assert model.scales == ("waves",)
    assert model.expression == "launch + global_memory + waves*(on_chip)"
    assert (model.terms["launch"].lower, model.terms["on_chip"].lower) == (0, 1e-9)
    inputs = model_inputs(model, COUNTS)
    assert inputs.values == {
        **{("launch", "launches"): 1.0, ("global_memory", "gmem.load.32.4ofn"): 3.0},
        **{("on_chip", "flop.special.f32"): 13.0, ("on_chip", "groups"): 7.0},
        ("global_memory", "bytes"): 400.0,
    }
    assert inputs.variables == {"waves": 4.0}
    assert inputs.ignored == ("iop.add.i32",)
    assert inputs.unknown == ("lmem.load.32",)


def test_a_property_covered_by_a_derived_feature_alone_is_known() -> None:
    model = sum_model({"cost": ["both"]}, derived={"both": "lmem_load_32 + flop_special_f32"})
    inputs = model_inputs(model, {"lmem.load.32": 2, "flop.special.f32.exp": np.array([3, 4])})
    assert inputs.unknown == ()
    assert np.array_equal(inputs.values["cost", "both"], [5.0, 6.0])


def test_only_models_that_name_the_shape_of_groups_see_it() -> None:
    counts = {"launches": 1, "groups": 10, "site.free.flat.16x4.passes": 10, "flop.add.f32": 5}
    named = sum_model(
        {"launch": ["launches"], "work": ["per_group", "per_row", "flop.*.*"]},
        derived={"per_group": "items/groups", "per_row": "items/rows"},
    )
    policy = sum_model({"launch": ["launches"], "work": ["items"]}, policy=POLICY)
    plain = sum_model({"launch": ["launches"], "work": ["flop.*.*"]})
    inputs = model_inputs(named, counts)
    assert (inputs.values["work", "per_group"], inputs.values["work", "per_row"]) == (64.0, 16.0)
    assert inputs.unknown == ()
    assert model_inputs(policy, counts).values["work", "items"] == 640.0
    assert "items" not in plain.count_model_inputs({**counts, "items": 640})
    assert policy.count_model_inputs(
        policy.count_model_inputs(counts)
    ) == policy.count_model_inputs(counts)
    with pytest.raises(CountingError, match="how many items work groups have"):
        model_inputs(named, {"launches": 1, "groups": 10, "flop.add.f32": 5})
    given = model_inputs(named, {"launches": 1, "groups": 10, "items": 7, "rows": 1})
    assert given.values["work", "per_row"] == 7.0


POLICY = {"width": 8}
BOUNDED = {"charged": ["groups"], "upper": 1.0}
SITE = "site.free.flat.16x1.flop.add.f32"
UNSCALED = {"charged": ["groups"], "scale": "waves"}


def _cost(*charged: str, **changes: Any) -> dict[str, Any]:
    return {"terms": {"cost": list(charged)}, **changes}


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"name": "A B"}, "$.name", "match"),
        (_cost(), "$.terms.cost.charged", "at least 1"),
        (_cost("flop..x"), "$.terms.cost.charged[0]", "no pattern"),
        (_cost("flops.*"), "$.terms", "begins with 'flops'"),
        ({"terms": {"groups": ["groups"]}}, "$.terms", "is a property"),
        ({"terms": {"min": ["groups"]}}, "$.terms", "is a function"),
        ({"terms": {"cost": BOUNDED}}, "$.terms.cost.upper", "should be null"),
        ({"derived": {"d": "groups*"}}, "$.derived.d", "column 8"),
        ({"derived": {"d": "late"}}, "$.derived", "unknown name 'late'"),
        ({"derived": {"d": "groups"}}, "$.terms", "never used: d"),
        ({"residual": "cubic"}, "$.residual", "relative"),
        ({"terms": {"cost": UNSCALED}}, "$.terms", "no derived feature"),
        ({"terms": {}}, "$.terms", "at least 1"),
        ({"expression": "cost"}, "$.expression", "not permitted"),
        # names that no model of the kind has
        (_cost("issue.*.*"), "$", r"\[policy\]"),
        (_cost("d", derived={"d": "4*bytes_group_load_dense"}), "$", "width = 8"),
        (_cost("flop.add.*", policy=POLICY), "$", "flop.add.* is never there: a model with an ex"),
        (
            _cost("d", derived={"d": "2*lmem_load_32"}, policy=POLICY),
            "$",
            "issue.vector.arithmetic.f32.add",
        ),
        (_cost(SITE, policy=POLICY), "$", "issue.vector"),
        (_cost("code.*"), "$", "without an execution policy"),
        (_cost("spill.beyond_l1.load", policy=POLICY), "$", "never there"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_model_is_refused_with_its_field(
    changes: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        sum_model(**({"terms": {"cost": ["launches"]}} | changes))
    assert caught.value.field == field


def test_what_is_no_model_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("name = ")
    with pytest.raises(DocumentError, match="damaged TOML") as caught:
        load_fitted_model(str(path))
    assert caught.value.path == str(path)
    assert load_fitted_model("linear") is LINEAR
    for name, said in (("cubic", "'cubic'; there is linear"), ("structurl", "did you mean struct")):
        with pytest.raises(ParameterError, match=said):
            load_fitted_model(name)


def test_the_linear_model_charges_or_ignores_every_kind_of_property() -> None:
    charged = [
        *("flop.add.f32", "flop.mul.f64", "flop.div.f16", "flop.pow.f32", "flop.fma.f32"),
        *("gmem.load.32.stride1", "gmem.load.64.indirect", "gmem.store.128.4ofn"),
        *("gmem.min.32.1of2", "lmem.load.32", "barrier.local", "groups", "launches"),
    ]
    ignored = [
        *("lmem.store.32", "flop.minmax.f32", "flop.compare.f64", "flop.select.f32"),
        *("flop.convert.f64", "flop.neg.f32", "iop.add.i32", "iop.index.i64", "barrier.global"),
    ]
    spec = LINEAR.features
    assert [spec.feature_of(name) for name in (*charged, *ignored)] == charged + [None] * 9
    assert spec.feature_of("flop.special.f32.rsqrt") == "flop.special.f32"
    assert [spec.ignores(name) for name in (*charged, *ignored)] == [False] * 13 + [True] * 9


def test_names_of_formulas_stand_for_properties() -> None:
    assert property_of("gmem_store_32_4ofn") == "gmem.store.32.4ofn"
    assert property_of("flop_special_f32_native_exp") == "flop.special.f32.native_exp"
    assert property_of("flops") is None


def test_columns_of_a_feature_in_two_terms_are_told_apart() -> None:
    columns = (("a", "groups"), ("b", "groups"), ("b", "launches"))
    assert ModelFunction(model=LINEAR, columns=columns).keys == ("a:groups", "b:groups", "launches")


def test_negligible_features_are_ignored_and_others_of_their_pattern_charged() -> None:
    load, add, div = "gmem.load.32.stride1", "flop.add.f32", "flop.div.f32"
    spec = FeatureSpec(charged=("flop.*.*",), negligible=(div,))
    assert spec.apply({add: 3, div: 5, load: 7}) == {add: 3}
    assert (spec.ignores(div), spec.ignores(load)) == (True, False)
    model = sum_model({"memory": ["gmem.*.*.*"], "chip": ["flop.*.*"]}, negligible=[div])
    inputs = model_inputs(model, {load: 16, add: 3, div: 5})
    assert set(inputs.values) == {("memory", load), ("chip", add)}
    assert (inputs.ignored, inputs.unknown) == ((div,), ())
    assert ModelDefinition.from_object(model.model_dump(mode="json")) == model


def test_a_property_that_a_formula_needs_may_be_without_a_weight_of_its_own() -> None:
    model = make_structural_model(ExecutionPolicy(units=2), memory=load_hierarchy("amd-zen4"))
    fewer = model.model_copy(update={"negligible": ("bytes.group.load.dense",)})
    counts = {"bytes.group.load.dense": 1 << 30, "bytes.kernel.load": 1 << 30, "groups": 4}
    values = model_inputs(fewer, counts).values
    assert ("traffic", "bytes.group.load.dense") not in values
    assert values["traffic", "load_beyond_l2"] == (1 << 30) * (1 - 2**20 / 2**30)


SPEC = FeatureSpec(
    charged=("gmem.load.*.*", "flop.add.*", "flop.special.*", "launches", "iop.mul.*"),
    ignored=("iop.*", "flop.neg.f32"),
)


@pytest.mark.parametrize(
    ("name", "feature", "ignored"),
    [
        ("launches", "launches", False),
        ("flop.add.f64", "flop.add.f64", False),
        ("gmem.load.32.3ofn", "gmem.load.32.3ofn", False),
        ("flop.special.f32.rsqrt", "flop.special.f32", False),  # deeper: summed
        ("flop.special.f32", "flop.special.f32", False),
        ("gmem.load.32", None, False),  # fewer components than the pattern
        ("gmem.store.32.stride1", None, False),
        ("launchesx", None, False),  # a prefix of letters is no prefix of components
        ("iop.add.i32", None, True),
        ("iop.index.i32", None, True),
        ("flop.neg.f32", None, True),
        ("flop.neg.f64", None, False),
        ("iop.mul.i32", "iop.mul.i32", False),  # charged, though a pattern ignores it
    ],
)
def test_feature_of_a_property(name: str, feature: str | None, ignored: bool) -> None:
    assert (SPEC.feature_of(name), SPEC.ignores(name)) == (feature, ignored)


def test_counts_become_features_in_the_order_of_the_spec() -> None:
    features = SPEC.apply(
        {
            **{"launches": 1, "flop.special.f32.rsqrt": 5, "flop.special.f32.exp": Fraction(1, 2)},
            **{"gmem.load.32.stride1": 2**70, "flop.add.f32": 0, "iop.add.i32": 7},
            "barrier.local": 3,
        }
    )
    assert list(features.items()) == [
        ("gmem.load.32.stride1", 2.0**70),
        ("flop.special.f32", 5.5),
        ("launches", 1.0),
    ]


def test_arrays_stay_arrays_and_are_kept_if_any_value_is_not_zero() -> None:
    features = SPEC.apply(
        {"flop.add.f32": np.array([0, 4]), "flop.add.f64": np.array([0, 0]), "launches": 1}
    )
    assert set(features) == {"flop.add.f32", "launches"}
    assert np.array_equal(features["flop.add.f32"], [0.0, 4.0])


def test_counts_written_by_hand_stand_for_a_kernel_and_a_vector_for_itself() -> None:
    weights = make_weights({"launches": 1.0})
    vector = read_vector({"flop.add.f32": "[n] -> { n^2 : n > 0 }", "launches": 1}, weights)
    assert isinstance(vector, PropertyVector)
    assert vector.evaluate(n=4) == {"flop.add.f32": 16, "launches": 1}
    assert read_vector(vector, weights) is vector


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
def test_values_are_those_of_python(text: str, a: float, b: float, c: float, s: float) -> None:
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
        assert isinstance(parse(text), definition.CheckedFormula)
    except ExpressionError:
        return


def test_unknown_names_are_listed_with_those_there_are() -> None:
    derived = {"memory": "groups", "chip": "memory + memry*chap"}
    with pytest.raises(ExpressionError, match=r"'memry', 'chap' \(known here: memory") as caught:
        ModelDefinition._check_derived_features(derived)  # pyright: ignore[reportPrivateUsage]
    assert caught.value.names == ("memry", "chap")
