"""First variants of a ranking, compiled and put in order again."""

from __future__ import annotations

import pytest

from countperf.errors import ParameterError, PredictionError
from countperf.harness.device import Device
from countperf.models.library import load_weights
from countperf.tuning.by_code import ranked_by_code
from countperf.tuning.ranking import Ranking
from countperf.workflow import tuning
from measurement_kernels.variants import spaces

SLUG, DEVICE = "pocl-epyc-zen5", "pocl:0"
SIZES = {"n": 256, "m": 256}


def ranked(by_code: int = 0) -> Ranking:
    return tuning.rank(
        "transpose", SIZES, weights=SLUG, incomplete_ok=True, points=8, keep=6, by_code=by_code
    )


def test_the_model_has_to_read_code(device: Device) -> None:
    space = spaces()["transpose"]
    with pytest.raises(PredictionError, match="reads no compiled code"):
        ranked_by_code(ranked(), space, load_weights(SLUG), device, first=2)


def test_a_device_has_to_compile() -> None:
    with pytest.raises(ParameterError, match="name it"):
        ranked(by_code=2)


def test_the_first_are_in_order_by_their_code(device: Device) -> None:
    if device.label != DEVICE:
        pytest.skip("not PoCL's")
    plain, weights = ranked(), load_weights(SLUG, model="compiled")
    found = ranked_by_code(plain, spaces()["transpose"], weights, device, first=4)
    first, rest = found.best[:4], found.best[4:]
    assert rest == plain.best[4:]
    assert sorted(str(p.choice) for p in first) == sorted(str(p.choice) for p in plain.best[:4])
    assert [p.time_s for p in first] == sorted(p.time_s for p in first)
    assert {p.time_s for p in first}.isdisjoint({p.time_s for p in plain.best})
    none = ranked_by_code(plain, spaces()["transpose"], weights, device, first=0)
    assert none.best == plain.best
