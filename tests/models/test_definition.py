"""Models that users write: documents, names, what is covered, and what is refused where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.errors import CountingError, DocumentError, ParameterError
from countperf.models.definition import ModelDefinition, property_of
from countperf.models.function import column_keys, model_inputs
from countperf.models.shipped import LINEAR, fitted_model
from tests.models.builders import sum_model

TEXT = """
format = "countperf-model"
version = 3
name = "mine"
ignored = ["iop.*"]

[terms]
launch = ["launches"]
global_memory = ["bytes", "gmem.load.*.4ofn"]
on_chip = { charged = ["flop.*.*", "groups"], upper = 1e-6, scale = "waves" }

[derived]
bytes = "4*gmem_load_32_stride1 + 8*gmem_load_64_stride1"
waves = "ceil(groups/2)"
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
        "version": 3,
        "name": "mine",
        "terms": {"cost": ["launches"]},
    }
    return fields | changes


def test_a_toml_file_is_a_model_and_survives_as_json(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)

    model = fitted_model(str(path))

    assert ModelDefinition.read_text(model.write_text()) == model
    assert model.scales == ("waves",)
    assert model.expression == "launch + global_memory + waves*(on_chip)"
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
        ("on_chip", "groups"): 7.0,
        ("global_memory", "bytes"): 400.0,
    }
    assert inputs.variables == {"waves": 4.0}
    assert inputs.ignored == ("iop.add.i32",)
    assert inputs.unknown == ("lmem.load.32",)


def test_a_property_covered_by_a_derived_feature_alone_is_known() -> None:
    model = ModelDefinition.from_object(
        _document(derived={"both": "lmem_load_32 + flop_special_f32"}, terms={"cost": ["both"]})
    )

    inputs = model_inputs(model, {"lmem.load.32": 2, "flop.special.f32.exp": np.array([3, 4])})

    assert inputs.unknown == ()
    assert np.array_equal(inputs.values["cost", "both"], [5.0, 6.0])


POLICY = {"width": 8}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"terms": {"cost": ["issue.*.*"]}}, r"\[policy\]", id="a term without"),
        pytest.param(
            {"derived": {"d": "4*bytes_group_load_dense"}, "terms": {"cost": ["d"]}},
            "width = 8",
            id="a derived feature without",
        ),
        pytest.param(
            {"terms": {"cost": ["flop.add.*"]}, "policy": POLICY},
            "flop.add.* is what a kernel does",
            id="a term with",
        ),
        pytest.param(
            {
                "derived": {"d": "2*lmem_load_32"},
                "terms": {"cost": ["d"]},
                "policy": POLICY,
            },
            "issue.vector.arithmetic.f32.add",
            id="a name with",
        ),
        pytest.param(
            {"terms": {"cost": ["site.free.flat.16x1.flop.add.f32"]}, "policy": POLICY},
            "name issue... instead",
            id="what becomes something else",
        ),
        pytest.param({"terms": {"cost": ["code.*"]}}, "execution policy says", id="code without"),
        pytest.param(
            {"terms": {"cost": ["spill.beyond_l1.load"]}, "policy": POLICY},
            "counted no more",
            id="a count that went",
        ),
    ],
)
def test_names_that_no_model_of_the_kind_has_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(DocumentError, match=said):
        ModelDefinition.from_object(_document(**changes))


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
    assert "items" not in plain.made_of({**counts, "items": 640})
    again = policy.made_of(policy.made_of(counts))
    assert again == policy.made_of(counts)
    with pytest.raises(CountingError, match="how many items work groups have"):
        model_inputs(named, {"launches": 1, "groups": 10, "flop.add.f32": 5})
    given = model_inputs(named, {"launches": 1, "groups": 10, "items": 7, "rows": 1})
    assert given.values["work", "per_row"] == 7.0


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
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
        pytest.param({"derived": {"d": "groups"}}, "$.terms", "never used: d", id="idle d"),
        pytest.param({"residual": "cubic"}, "$.residual", "relative", id="residual"),
        pytest.param(
            {"terms": {"cost": {"charged": ["groups"], "scale": "waves"}}},
            "$.terms",
            "no derived feature",
            id="scale",
        ),
        pytest.param({"terms": {}}, "$.terms", "at least 1", id="nothing"),
        pytest.param({"expression": "cost"}, "$.expression", "not permitted", id="misspelt field"),
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


def test_the_linear_model_decides_on_every_kind_of_property() -> None:
    spec = LINEAR.features
    for each in (
        *("flop.add.f32", "flop.fma.f64", "flop.minmax.f32", "flop.neg.f32", "iop.add.i32"),
        *("gmem.load.32.stride1", "gmem.store.8.indirect", "gmem.min.32.stride1"),
        *("lmem.load.32", "lmem.store.64", "barrier.local", "barrier.global"),
        *("groups", "launches", "flop.special.f32.exp", "flop.convert.f32"),
    ):
        assert (spec.feature_of(each) is not None) != spec.ignores(each), each


def test_a_near_miss_of_a_name_is_pointed_at() -> None:
    with pytest.raises(ParameterError, match="did you mean structural"):
        fitted_model("structurl")


def test_names_of_formulas_stand_for_properties() -> None:
    assert property_of("gmem_store_32_4ofn") == "gmem.store.32.4ofn"
    assert property_of("flop_special_f32_native_exp") == "flop.special.f32.native_exp"
    assert property_of("flops") is None


def test_columns_of_a_feature_in_two_terms_are_told_apart() -> None:
    columns = [("a", "groups"), ("b", "groups"), ("b", "launches")]

    assert column_keys(columns) == ("a:groups", "b:groups", "launches")
