"""Models without features that take next to no time."""

from __future__ import annotations

from countperf.execution.issue import ExecutionPolicy
from countperf.execution.memory_hierarchy import load_hierarchy
from countperf.features import FeatureSpec
from countperf.models.definition import ModelDefinition
from countperf.models.function import model_inputs
from countperf.models.structural import structural

LOAD, ADD, DIV = "gmem.load.32.stride1", "flop.add.f32", "flop.div.f32"
MODEL = ModelDefinition.from_object(
    {
        "format": "countperf-model",
        "version": 3,
        "name": "some",
        "terms": {"memory": ["gmem.*.*", "far"], "chip": ["flop.*.*"]},
        "derived": {
            "share": "max(0, 1 - 8/gmem_load_32_stride1)",
            "far": "gmem_load_32_stride1*share",
        },
    }
)


def test_a_negligible_feature_is_ignored_and_others_of_its_pattern_are_charged() -> None:
    spec = FeatureSpec(charged=("flop.*.*",), negligible=("flop.div.f32",))

    found = spec.apply({ADD: 3, DIV: 5, LOAD: 7})

    assert found == {"flop.add.f32": 3}
    assert (spec.ignores(DIV), spec.ignores(LOAD)) == (True, False)


def test_a_model_without_a_feature_predicts_kernels_that_have_it() -> None:
    model = MODEL.model_copy(update={"negligible": (DIV,)})

    inputs = model_inputs(model, {LOAD: 16, ADD: 3, DIV: 5})

    assert ("chip", ADD) in inputs.values
    assert ("chip", DIV) not in inputs.values
    assert inputs.ignored == (DIV,)
    assert not inputs.unknown
    assert ModelDefinition.from_object(model.model_dump(mode="json")) == model


def test_a_property_that_a_formula_needs_may_be_without_a_weight_of_its_own() -> None:
    model = structural(ExecutionPolicy(units=2), memory=load_hierarchy("amd-zen4"))
    fewer = model.model_copy(update={"negligible": ("bytes.group.load.dense",)})

    counts = {"bytes.group.load.dense": 1 << 30, "bytes.kernel.load": 1 << 30, "groups": 4}
    values = model_inputs(fewer, counts).values
    assert ("traffic", "bytes.group.load.dense") not in values
    assert values["traffic", "load_beyond_l2"] == (1 << 30) * (1 - 2**20 / 2**30)
