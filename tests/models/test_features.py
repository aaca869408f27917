"""Which properties are charged, summed, ignored or unknown; feature matrices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from countperf.counting.vector import PropertyVector
from countperf.models.definition import FeatureSpec
from countperf.models.weights import read_vector
from tests.models.builders import make_weights

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
            "launches": 1,
            "flop.special.f32.rsqrt": 5,
            "flop.special.f32.exp": Fraction(1, 2),
            "gmem.load.32.stride1": 2**70,
            "flop.add.f32": 0,
            "iop.add.i32": 7,
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
