"""What a fit knows of the features of a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.errors import ParameterError
from countperf.models.coverage import Coverage, FeatureCoverage
from countperf.models.records import Range
from countperf.models.weights import WeightSet
from countperf.properties.vector import PropertyVector
from tests.models.builders import TWO_TO_ONE, make_weights

VALUES = {
    "flop.add.f32": 1e-9,
    "flop.special.f32": 1e-8,
    "gmem.load.32.1of2": 1e-9,
    "gmem.store.32.1of2": 1e-9,
    "groups": 1e-9,
}


WEIGHTS = make_weights(
    VALUES,
    indistinguishable=(TWO_TO_ONE,),
)


def cover(weights: WeightSet = WEIGHTS, n: int | None = None, **counts: str | int) -> Coverage:
    named = {name.replace("_", "."): count for name, count in counts.items()}
    vector = PropertyVector.from_mapping(named, kernel="mine")
    return weights.coverage(vector, {} if n is None else {"n": n})


def row(coverage: Coverage, name: str) -> FeatureCoverage:
    (found,) = [feature for feature in coverage.features if feature.name == name]
    return found


def test_a_kernel_within_the_measured_range_is_covered() -> None:
    found = cover(n=10_000, flop_add_f32="[n] -> { n }", groups="[n] -> { floor(n/20) }")

    assert (found.grade, found.verdict.passed, found.verdict.remedy) == ("covered", True, "")
    added = row(found, "flop.add.f32")
    assert (added.status, added.value) == ("covered", 10_000)
    assert added.measured == Range(smallest=1.0, largest=1e6)
    assert added.share == pytest.approx(10_000 / 10_500)
    assert found.time_s == pytest.approx(10_500e-9)


def test_a_kernel_beyond_the_range_extrapolates() -> None:
    found = cover(n=5_000_000, flop_add_f32="[n] -> { n }", groups="[n] -> { n }")

    assert found.grade == "extrapolates"
    added = row(found, "flop.add.f32")
    assert (added.status, added.beyond) == ("extrapolated", 5.0)
    assert "5 in flop.add.f32" in found.verdict.message
    assert "countperf predict --anchor" in found.verdict.remedy


def test_what_takes_little_of_the_time_does_not_decide() -> None:
    found = cover(flop_special_f32_rsqrt=900_000, flop_add_f32=3_000_000, groups=300_000)
    # ranges end at 1e6: additions are three times beyond, and take a quarter of the time
    assert found.grade == "extrapolates"

    little = make_weights({**VALUES, "flop.add.f32": 1e-13, "groups": 1e-13})
    found = cover(little, flop_special_f32_rsqrt=900_000, flop_add_f32=3_000_000, groups=1)
    assert found.grade == "covered"
    assert row(found, "flop.add.f32").status == "extrapolated"


def test_what_was_never_measured_comes_first_with_its_exercising_kernels() -> None:
    kernels = {"flop.div.f64": ("arithmetic/div/16x16/f64",), "lmem.load.32": ("tiled/16x16/f32",)}
    vector = PropertyVector.from_mapping(
        {"flop.div.f64": 1, "lmem.load.32": 1, "barrier.local": 1, "flop.add.f32": 10**6}
    )

    found = WEIGHTS.coverage(vector, exercising_kernels=lambda name: kernels.get(name, ()))

    assert found.grade == "not covered"
    assert [f.status for f in found.features[:3]] == ["unmeasured"] * 3
    assert row(found, "flop.div.f64").exercising_kernels == kernels["flop.div.f64"]
    assert found.verdict.remedy == (
        "countperf measure --family arithmetic --family tiled --element-type f64 --element-type"
        " f32; write and measure kernels that have barrier.local"
    )


def test_features_that_only_occurred_together_are_covered_in_that_proportion_alone() -> None:
    stores = "[n] -> { n }"
    same = cover(n=10, gmem_load_32_1of2="[n] -> { 2n }", gmem_store_32_1of2=stores)
    other = cover(n=10, gmem_load_32_1of2="[n] -> { n }", gmem_store_32_1of2=stores)

    assert same.grade == "covered"
    assert row(same, "gmem.load.32.1of2").together_with == ("gmem.store.32.1of2",)
    assert other.grade == "not covered"
    assert row(other, "gmem.load.32.1of2").status == "inseparable"


def test_without_sizes_only_what_holds_at_all_sizes_is_said() -> None:
    apart = cover(gmem_load_32_1of2="[n] -> { n }", lmem_load_32="[n] -> { n - 1 }")
    open_ = cover(gmem_load_32_1of2="[n] -> { n }", gmem_store_32_1of2="[n] -> { n }")

    assert (apart.needs_sizes, apart.time_s) == (True, None)
    # without any stores, loads are in another proportion whatever n is
    assert row(apart, "gmem.load.32.1of2").status == "inseparable"
    assert row(apart, "lmem.load.32").status == "unmeasured"
    assert open_.grade == "covered"
    assert all(f.value is None and f.share is None for f in open_.features)
    assert "with sizes" in open_.verdict.message


def test_several_sizes_are_refused() -> None:
    vector = PropertyVector.from_mapping({"flop.add.f32": "[n] -> { n }"})
    with pytest.raises(ParameterError, match="one size at a time"):
        WEIGHTS.coverage(vector, {"n": np.array([1, 2])})  # pyright: ignore[reportArgumentType] - that is the test
