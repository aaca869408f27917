"""Where a predicted time goes, with rates; and comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import countperf
from countperf.counting.structure.issue import ExecutionPolicy
from countperf.counting.vector import PropertyVector
from countperf.devices.parameters import InstructionClass, declare_device
from countperf.errors import ParameterError
from countperf.models.definition import ModelDefinition
from countperf.models.explanation import rate_of, unit_of, weights_table
from countperf.models.function import IndistinguishableGroup
from countperf.models.library import load_weights
from countperf.models.shipped import make_structural_model
from countperf.models.weights import WeightSet
from countperf.text import format_quantity
from tests.models.builders import make_weight, make_weights, sum_model
from tests.printing import object_of, text_of


def make_model(
    derived: str = "4*gmem_load_32_stride1 + 8*gmem_store_64_stride1",
) -> ModelDefinition:
    terms = {"launch": ["launches", "groups"], "memory": ["traffic"], "on_chip": ["flop.add.*"]}
    return sum_model(terms, derived={"traffic": derived})


def make_summed(**changes: Any) -> WeightSet:
    groups = make_weight("groups", 1e-8, term="launch")
    traffic = make_weight("gmem.load.32.stride1", 1e-10, term="memory")
    return make_weights(
        {"launches": 1e-6},
        definition=make_model(),
        weights=(
            make_weight("launches", 1e-6, term="launch"),
            groups.model_copy(update={"standard_error_s": 1e-10}),
            traffic.model_copy(update={"feature": "traffic", "unit": "unit"}),
            make_weight("flop.add.f32", 6e-10, term="on_chip"),
        ),
        **changes,
    )


VECTOR = PropertyVector.from_mapping(
    {
        **{"launches": 1, "groups": 10, "gmem.load.32.stride1": 1000, "gmem.store.64.stride1": 500},
        "flop.add.f32": "[n] -> { n }",
    },
    kernel="mine",
)
_ADD = InstructionClass(name="add.f32", subsystem="alu", cpi=16.0, latency=4.0, kind="compute")
DEVICE = declare_device(
    clock_hz=1e9,
    num_compute_units=1,
    sub_group_size=32,
    bandwidth_byte_per_s=2e10,
    peak_flops=1e11,
    classes={"add.f32": _ADD},
)


_LABELS = ("traffic", "f32 additions", "work groups started", "kernel launches")


def test_parts_sum_to_the_time_in_text_and_object() -> None:
    explained = countperf.explain(VECTOR, n=1000, weights=make_summed())
    parts = {part.name: part.part_s for part in explained.parts}
    expected = {"launches": 1e-6, "groups": 1e-7, "traffic": 8e-7, "flop.add.f32": 6e-7}
    assert parts == pytest.approx(expected)
    assert (
        sum(parts.values()) == pytest.approx(explained.prediction.time_s) == pytest.approx(2.5e-6)
    )
    (group,) = [part for part in explained.parts if part.name == "groups"]
    assert (group.count, group.part_s) == pytest.approx((10, 1e-7))
    assert (explained.global_bytes, explained.flops) == (8000, 1000)
    content = object_of(explained, DEVICE)
    assert content["time_s"] == pytest.approx(2.5e-6)
    by_name = {part["part"]: part for part in content["explanation"]["parts"]}
    traffic = by_name["traffic"]
    assert (traffic["rate"], traffic["rate_unit"]) == (pytest.approx(1e10), "byte/s")
    lines = text_of(explained, DEVICE).splitlines()
    cells = {label: line for line in lines for label in _LABELS if label in line}
    assert lines[3] == "time_s = launch + memory + on_chip"
    # 0.1 ns a byte; 0.6 ns an addition where 2 Gflop/s were measured; 10 ns a group
    assert cells["traffic"].endswith("10.0 Gbyte/s")
    assert cells["f32 additions"].endswith("1.67 Gflop/s")
    assert "10.0 ns ± 1.0 % per work group" in cells["work groups started"]
    assert cells["work groups started"].endswith("100 Mwork group/s")
    assert lines[-2] == (
        "the kernel then gets 3.20 Gbyte/s of accesses to global memory (from caches or not) and"
        " 400 Mflop/s of arithmetic (0.40 % of peak)"
    )


def test_no_private_word_is_a_unit_and_print_shows_costs() -> None:
    weights = load_weights("pocl-epyc-zen5", model="compiled")
    units = {key: unit_of(weight, weights.definition) for key, weight in weights.by_feature.items()}
    # cycles less those without stalls; bytes of a whole kernel
    assert units["waiting_cycles"] == units["cycles_loop_in_l2"] == "cycle"
    assert units["load_distinct"] == units["load_beyond_streams"] == "byte"
    assert (units["code.cycles_operations"], units["groups"]) == ("micro-operation", "work group")
    assert not set(units.values()) & set(units)
    shown, every = str(weights).splitlines(), weights.lay_out().text().splitlines()
    assert shown[0].startswith("compiled model of pocl-epyc-zen5, error on classes left out")
    assert any(line.split()[0] == "waiting_cycles" and line.endswith("cycle") for line in every)
    assert any(line.endswith("more: .to_frame() has all") for line in shown)


def test_weights_have_units_rates_and_the_names_they_are_mixed_up_with() -> None:
    group = IndistinguishableGroup(
        features=("launches", "groups"), relations=({"launches": 1.0, "groups": -1.0},)
    )
    lines = weights_table(make_summed(indistinguishable=(group,))).lines()
    cells = {label: line for line in lines for label in _LABELS if line.strip().startswith(label)}
    assert "per byte" in cells["traffic"]
    assert "per work group" in cells["work groups started"]
    assert cells["work groups started"].endswith("indistinguishable from kernel launches")
    assert cells["kernel launches"].endswith("indistinguishable from work groups started")


@pytest.mark.parametrize(
    ("derived", "bytes_"),
    [
        ("4*gmem_load_32_stride1", True),
        ("4*gmem_load_32_stride1 + 8*gmem_store_64_stride1", True),
        ("8*gmem_load_32_stride1", False),
        ("4*gmem_load_32_stride1 + groups", False),
        ("max(4*gmem_load_32_stride1, 8*gmem_store_64_stride1)", False),
    ],
)
def test_derived_features_that_count_bytes_are_known(derived: str, bytes_: bool) -> None:
    weight = make_weight("groups", 1e-9).model_copy(update={"feature": "traffic", "unit": "unit"})
    assert (unit_of(weight, make_model(derived)) == "byte") is bytes_


def test_arrays_of_sizes_are_refused() -> None:
    with pytest.raises(ParameterError, match="one size at a time"):
        countperf.explain(VECTOR, {"n": np.array([1, 2])}, weights=make_summed())


@pytest.mark.parametrize(
    ("feature", "value_s", "rate", "unit"),
    [
        ("bytes.group.load.dense", 1e-11, "100 Gbyte/s", "byte"),
        ("load_beyond_llc", 1e-10, "10.0 Gbyte/s", "byte"),
        ("load_segments_beyond_llc", 1e-9, "1.00 Gpiece/s", "piece"),
        ("segments.group.load", 1e-9, "1.00 Gpiece/s", "piece"),
        ("scalar_load_l1_reuse_out_of_reach", 9e-8, "11.1 Minstruction/s", "instruction"),
    ],
)
def test_rates_of_shares_are_of_the_whole(
    feature: str, value_s: float, rate: str, unit: str
) -> None:
    model = make_structural_model(ExecutionPolicy())
    weight = make_weight("groups" if feature in model.derived else feature, value_s)
    if feature in model.derived:
        weight = weight.model_copy(update={"feature": feature, "unit": "unit"})
    implied = rate_of(weight, model)
    assert implied is not None
    assert format_quantity(*implied) == rate
    assert unit_of(weight, model) == unit
