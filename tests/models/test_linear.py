"""The linear model: every property of the taxonomy is charged or ignored on purpose."""

from __future__ import annotations

import pytest

from countperf.errors import ParameterError
from countperf.models.shipped import LINEAR, fitted_model


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("flop.add.f32", "flop.add.f32"),
        ("flop.mul.f64", "flop.mul.f64"),
        ("flop.div.f16", "flop.div.f16"),
        ("flop.pow.f32", "flop.pow.f32"),
        ("flop.special.f32.rsqrt", "flop.special.f32"),
        ("flop.fma.f32", "flop.fma.f32"),
        ("gmem.load.32.stride1", "gmem.load.32.stride1"),
        ("gmem.load.64.indirect", "gmem.load.64.indirect"),
        ("gmem.store.128.4ofn", "gmem.store.128.4ofn"),
        ("gmem.min.32.1of2", "gmem.min.32.1of2"),
        ("lmem.load.32", "lmem.load.32"),
        ("barrier.local", "barrier.local"),
        ("groups", "groups"),
        ("launches", "launches"),
    ],
)
def test_charged(name: str, feature: str) -> None:
    assert LINEAR.features.feature_of(name) == feature


@pytest.mark.parametrize(
    "name",
    [
        "lmem.store.32",
        "flop.minmax.f32",
        "flop.compare.f64",
        "flop.select.f32",
        "flop.convert.f64",
        "flop.neg.f32",
        "iop.add.i32",
        "iop.index.i64",
        "barrier.global",
    ],
)
def test_ignored_by_definition(name: str) -> None:
    assert LINEAR.features.ignores(name)


def test_models_are_found_by_name_and_an_unknown_one_lists_them() -> None:
    assert fitted_model("linear") is LINEAR
    with pytest.raises(ParameterError, match="'cubic'; there is linear"):
        fitted_model("cubic")
