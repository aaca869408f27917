"""Models that users write: documents, names, what is covered, and what is refused where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.errors import CountingError, DocumentError, ExpressionError, ParameterError
from countperf.execution.policy import ExecutionPolicy
from countperf.models.definition import ModelDefinition
from countperf.models.formula_names import property_of
from countperf.models.function import ModelFunction, column_keys, model_inputs
from countperf.models.shipped import MODELS, fitted_model
from countperf.models.standard import from_expression

TEXT = """
format = "countperf-model"
version = 1
name = "mine"
expression = "launch + w_group*groups + overlap(global_memory, on_chip)/waves"
ignored = ["iop.*"]

[terms]
launch = ["launches"]
global_memory = ["bytes", "gmem.load.*.4ofn"]
on_chip = { charged = ["flop.*.*"], upper = 1e-6 }

[derived]
bytes = "4*gmem_load_32_stride1 + 8*gmem_load_64_stride1"
waves = "ceil(groups/2)"

[parameters.sharpness]
start = 4.0
lower = 2.0
upper = 9.0
shape = true
"""
COUNTS = {
    "launches": 1,
    "groups": 7,
    "gmem.load.32.stride1": 100,
    "gmem.load.32.4ofn": 3,
    "flop.special.f32.exp": 11,
    "flop.special.f32.sqrt": 2,
    "flop.add.f32": 0,
    "iop.add.i32": 5,
    "lmem.load.32": 9,
}


def _document(**changes: Any) -> dict[str, Any]:
    fields = {
        "format": "countperf-model",
        "version": 1,
        "name": "mine",
        "expression": "cost",
        "terms": {"cost": ["launches"]},
    }
    return fields | changes


def test_a_toml_file_is_a_model_and_survives_as_json(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)

    model = fitted_model(str(path))

    assert ModelDefinition.read_text(model.write_text()) == model
    assert list(model.all_parameters) == ["w_group", "sharpness"]
    assert model.variables == ("groups", "waves")
    assert model.terms["launch"].lower == 0
    assert model.terms["on_chip"].upper == 1e-6


def test_counts_are_sorted_into_terms_names_and_what_the_model_does_not_know(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)

    inputs = model_inputs(fitted_model(str(path)), COUNTS)

    assert inputs.values == {
        ("launch", "launches"): 1.0,
        ("global_memory", "gmem.load.32.4ofn"): 3.0,
        ("on_chip", "flop.special.f32"): 13.0,
        ("global_memory", "bytes"): 400.0,
    }
    assert inputs.variables == {"groups": 7.0, "waves": 4.0}
    assert inputs.ignored == ("iop.add.i32",)
    assert inputs.unknown == ("lmem.load.32",)


def test_a_property_covered_by_a_derived_feature_alone_is_known() -> None:
    model = ModelDefinition.from_object(
        _document(derived={"both": "lmem_load_32 + flop_special_f32"}, terms={"cost": ["both"]})
    )

    inputs = model_inputs(model, {"lmem.load.32": 2, "flop.special.f32.exp": np.array([3, 4])})

    assert inputs.unknown == ()
    assert np.array_equal(inputs.values["cost", "both"], [5.0, 6.0])


POLICY = ExecutionPolicy(width=8)


@pytest.mark.parametrize(
    "expression",
    [
        "launch + w_b*bytes_group_load_dense",
        "launch + w_g*issue_vector_gmem_load_next",
        "launch + w_s*segments_group_load/groups",
    ],
)
def test_what_a_device_issues_asks_for_a_policy(expression: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        from_expression(expression)

    said = str(caught.value)
    assert said.count(" is of what a device issues") == 1
    assert all(each in said for each in ("[policy]", "width = 8", "--policy"))
    assert not any(each in said for each in ("Value error", "found:", "$"))
    assert from_expression(expression, policy=POLICY).policy == POLICY


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"terms": {"cost": ["issue.*.*"]}}, r"\[policy\]", id="a term without"),
        pytest.param(
            {"derived": {"d": "4*bytes_group_load_dense"}, "expression": "cost + w_d*d"},
            "--policy",
            id="a derived feature without",
        ),
        pytest.param(
            {"terms": {"cost": ["flop.add.*"]}, "policy": {"width": 8}},
            "flop.add.* is what a kernel does",
            id="a term with",
        ),
        pytest.param(
            {"expression": "cost + w_l*lmem_load_32", "policy": {"width": 8}},
            "issue.vector.arithmetic.f32.add",
            id="a name with",
        ),
        pytest.param(
            {"expression": "cost + w_e*site_free_flat_16x1_flop_add_f32", "policy": {"width": 8}},
            "name issue... instead",
            id="what becomes something else",
        ),
        pytest.param({"terms": {"cost": ["code.*"]}}, "--policy", id="code without"),
    ],
)
def test_names_that_no_model_of_the_kind_has_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(DocumentError, match=said):
        ModelDefinition.from_object(_document(**changes))


def test_an_expression_with_a_policy_has_the_terms_and_features_of_structural_models() -> None:
    model = from_expression(
        "launch + rounds*(overhead + overlap(compute, w_far*load_beyond_llc))",
        policy=ExecutionPolicy(width=8, units=2),
    )

    assert list(model.terms) == ["launch", "overhead", "compute"]
    assert list(model.derived) == ["beyond_llc", "rounds", "load_beyond_llc"]
    counts = {"launches": 1, "groups": 3, "barrier.local": 96, "bytes.kernel.load": 2**27}
    counts |= {"bytes.group.load.dense": 2**20, "site.free.flat.16x1.flop.add.f32": 48}
    inputs = model_inputs(model, counts)
    assert inputs.variables == {"rounds": pytest.approx(4 / 3), "load_beyond_llc": 0.75 * 2**20}
    assert inputs.values["compute", "issue.vector.arithmetic.f32"] == 6.0
    assert inputs.ignored == ()  # bytes are named
    assert inputs.unknown == ()
    with pytest.raises(ExpressionError, match="unknown name 'on_chip'"):
        from_expression("launch + on_chip", policy=POLICY)


def test_only_models_that_name_the_shape_of_groups_see_it() -> None:
    counts = {"launches": 1, "groups": 10, "site.free.flat.16x4.passes": 10, "flop.add.f32": 5}
    named = from_expression("launch + w_item*items/groups + w_row*(items/rows) + arithmetic")
    policy = from_expression("launch + w_item*items + w_p*issue_vector_passes_free", policy=POLICY)

    inputs = model_inputs(named, counts)

    assert inputs.variables == {"items": 640.0, "groups": 10.0, "rows": 40.0}
    assert inputs.unknown == ()
    assert model_inputs(policy, counts).variables["items"] == 640.0
    assert "items" not in from_expression("launch + arithmetic").made_of({**counts, "items": 640})
    again = policy.made_of(policy.made_of(counts))
    assert again == policy.made_of(counts)
    with pytest.raises(CountingError, match="how many items work groups have"):
        model_inputs(named, {"launches": 1, "groups": 10, "flop.add.f32": 5})
    assert (
        model_inputs(named, {"launches": 1, "groups": 10, "items": 7, "rows": 1}).variables["items"]
        == 7.0
    )


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        pytest.param({"expression": "cost +"}, "$.expression", "column 7", id="syntax"),
        pytest.param({"expression": "cost*x"}, "$.expression", "unknown name 'x'", id="unknown"),
        pytest.param({"expression": "groups"}, "$.expression", "never used: cost", id="idle"),
        pytest.param(
            {"expression": "(cost - floor(1e30))/0"},
            "$.expression",
            "cannot be differentiated",
            id="zero",
        ),
        pytest.param({"name": "A B"}, "$.name", "match", id="name"),
        pytest.param(
            {"terms": {"cost": []}}, "$.terms.cost.charged", "at least 1", id="no pattern"
        ),
        pytest.param(
            {"terms": {"cost": ["flop..x"]}}, "$.terms.cost.charged[0]", "no pattern", id="p"
        ),
        pytest.param({"terms": {"cost": ["flops.*"]}}, "$.terms", "begins with 'flops'", id="root"),
        pytest.param({"terms": {"groups": ["groups"]}}, "$.terms", "is a property", id="taken"),
        pytest.param({"terms": {"min": ["groups"]}}, "$.terms", "is a function", id="function"),
        pytest.param(
            {"terms": {"cost": {"charged": ["groups"], "lower": 2.0, "upper": 1.0}}},
            "$.terms.cost",
            "not below",
            id="bounds",
        ),
        pytest.param({"derived": {"d": "groups*"}}, "$.derived.d", "column 8", id="derived syntax"),
        pytest.param({"derived": {"d": "late"}}, "$.derived", "unknown name 'late'", id="derived"),
        pytest.param({"derived": {"d": "groups"}}, "$.expression", "never used: d", id="idle d"),
        pytest.param(
            {"parameters": {"s": {"shape": True}}}, "$.parameters.s", "needs a start", id="start"
        ),
        pytest.param(
            {"parameters": {"s": {"start": -1.0}}}, "$.parameters.s", "between", id="outside"
        ),
        pytest.param({"residual": "cubic"}, "$.residual", "relative", id="residual"),
        pytest.param(
            {
                "expression": "overlap(a, b)",
                "terms": {"a": {"charged": ["groups"], "lower": None}, "b": ["launches"]},
            },
            "$.expression",
            "may be negative",
            id="a signed part of an overlap",
        ),
        pytest.param(
            {
                "expression": "overlap(cost, groups, sharpness=s)",
                "parameters": {"s": {"start": 2.0, "shape": True}},
            },
            "$.expression",
            "lower bound of at least 1",
            id="sharpness below one",
        ),
        pytest.param({"expression": "floor(cost)"}, "$.expression", "no derivative", id="rounded"),
        pytest.param({"expression": "2*groups", "terms": {}}, "$", "nothing to fit", id="nothing"),
        pytest.param({"expresion": "cost"}, "$.expresion", "not permitted", id="misspelt field"),
    ],
)
def test_a_bad_model_is_refused_with_the_path_of_the_field(
    changes: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        ModelDefinition.from_object(_document(**changes))

    assert caught.value.field == field


def test_a_file_that_is_no_toml_says_so(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("name = ")

    with pytest.raises(DocumentError, match="damaged TOML") as caught:
        fitted_model(str(path))
    assert caught.value.path == str(path)


def test_a_formula_alone_uses_the_standard_terms() -> None:
    model = from_expression("launch + w_group*groups + overlap(global_memory, on_chip)")

    assert set(model.terms) == {"launch", "global_memory", "on_chip"}
    assert model.features.feature_of("barrier.local") == "barrier.local"
    assert model.features.ignores("iop.add.i32")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("launch + globl_memory", "unknown name 'globl_memory'", id="unknown"),
        pytest.param("launch + beta*groups", "unknown name 'beta'", id="an undeclared parameter"),
        pytest.param("2*groups", "nothing to fit", id="nothing"),
    ],
)
def test_a_formula_alone_with_unknown_names_is_refused(text: str, said: str) -> None:
    with pytest.raises(ExpressionError, match=said):
        from_expression(text)


@pytest.mark.parametrize("name", list(MODELS))
def test_models_that_ship_decide_on_every_kind_of_property(name: str) -> None:
    spec = MODELS[name].features
    for each in (
        *("flop.add.f32", "flop.fma.f64", "flop.minmax.f32", "flop.neg.f32", "iop.add.i32"),
        *("gmem.load.32.stride1", "gmem.store.8.indirect", "gmem.min.32.stride1"),
        *("lmem.load.32", "lmem.store.64", "barrier.local", "barrier.global"),
        *("groups", "launches", "flop.special.f32.exp", "flop.convert.f32"),
    ):
        assert (spec.feature_of(each) is not None) != spec.ignores(each), each


def test_a_near_miss_of_a_name_is_pointed_at() -> None:
    with pytest.raises(ParameterError, match="did you mean overlap3"):
        fitted_model("overlap33")


def test_names_of_formulas_stand_for_properties() -> None:
    assert property_of("gmem_store_32_4ofn") == "gmem.store.32.4ofn"
    assert property_of("flop_special_f32_native_exp") == "flop.special.f32.native_exp"
    assert property_of("flops") is None


def test_columns_of_a_feature_in_two_terms_are_told_apart() -> None:
    columns = [("a", "groups"), ("b", "groups"), ("b", "launches")]

    assert column_keys(columns) == ("a:groups", "b:groups", "launches")


def test_gradients_are_those_of_small_changes() -> None:
    model = from_expression("launch*groups**0.5 + overlap(global_memory, on_chip, sharpness=3)")
    function = ModelFunction(
        model=model,
        columns=(
            ("launch", "launches"),
            ("global_memory", "gmem.load.32.stride1"),
            ("on_chip", "flop.add.f32"),
            ("on_chip", "lmem.load.32"),
        ),
    )
    random = np.random.default_rng(5)
    values, groups = random.uniform(1, 9, (4, 6)), random.uniform(1, 9, 6)
    weights = random.uniform(0.5, 2, 4)

    gradient = function.gradient(values, {"groups": groups}, weights)

    step = 1e-6
    for i in range(4):
        change = step * np.eye(4)[i]
        low, high = (
            function.times(values, {"groups": groups}, weights + sign * change) for sign in (-1, 1)
        )
        # times near 100 are rounded by 1e-14, which the step divides
        assert gradient[i] == pytest.approx((high - low) / (2 * step), rel=1e-7, abs=2e-8)
    assert np.sum(weights[:, None] * gradient, axis=0) == pytest.approx(
        function.times(values, {"groups": groups}, weights), rel=1e-12
    )
