"""Which properties are charged, summed, ignored or unknown; feature matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from countperf.features import FeatureSpec, vector_of
from countperf.properties.vector import PropertyVector

SPEC = FeatureSpec(
    charged=("gmem.load.*.*", "flop.add.*", "flop.special.*", "launches"),
    ignored=("iop.*", "flop.neg.f32"),
)


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        pytest.param("launches", "launches", id="a name without wildcards"),
        pytest.param("flop.add.f64", "flop.add.f64", id="a wildcard at the end"),
        pytest.param("gmem.load.32.3ofn", "gmem.load.32.3ofn", id="two wildcards"),
        pytest.param("flop.special.f32.rsqrt", "flop.special.f32", id="deeper: summed"),
        pytest.param("flop.special.f32", "flop.special.f32", id="the sum itself"),
        pytest.param("gmem.load.32", None, id="fewer components than the pattern"),
        pytest.param("gmem.store.32.stride1", None, id="another component differs"),
        pytest.param("iop.add.i32", None, id="ignored"),
        pytest.param("launchesx", None, id="a prefix of letters is no prefix of components"),
    ],
)
def test_feature_of_a_property(name: str, feature: str | None) -> None:
    assert SPEC.feature_of(name) == feature


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("iop.index.i32", True),
        ("flop.neg.f32", True),
        ("flop.neg.f64", False),
        ("flop.add.f32", False),
    ],
)
def test_ignored_by_definition(name: str, ignored: bool) -> None:
    assert SPEC.ignores(name) is ignored


def test_what_is_charged_is_not_ignored_even_if_a_pattern_says_so() -> None:
    spec = FeatureSpec(charged=("iop.mul.*",), ignored=("iop.*",))

    assert not spec.ignores("iop.mul.i32")
    assert spec.ignores("iop.add.i32")


def test_counts_become_features_in_the_order_of_the_spec() -> None:
    features = SPEC.apply(
        {
            "launches": 1,
            "flop.special.f32.rsqrt": 5,
            "flop.special.f32.exp": Fraction(1, 2),
            "gmem.load.32.stride1": 2**70,
            "flop.add.f32": 0,
            "iop.add.i32": 7,
            "iop.mul.i32": 0,
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


def test_counts_written_by_hand_stand_for_a_kernel() -> None:
    vector = vector_of({"flop.add.f32": "[n] -> { n^2 : n > 0 }", "launches": 1})

    assert isinstance(vector, PropertyVector)
    assert vector.evaluate(n=4) == {"flop.add.f32": 16, "launches": 1}


def test_a_vector_stands_for_itself() -> None:
    vector = PropertyVector.from_mapping({"launches": 1})

    assert vector_of(vector) is vector
