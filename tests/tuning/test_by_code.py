"""First variants of a ranking, compiled and put in order again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from countperf.errors import DeviceError, ParameterError, PredictionError
from countperf.harness.device import Device
from countperf.models.library import load_weights
from countperf.tuning.code_order import ranked_by_code
from countperf.tuning.ranking import Ranking
from countperf.workflow import tuning
from measurement_kernels.variants import spaces
from tests.harness.fakes import make_device
from tests.printing import object_of, text_of

SLUG, DEVICE = "pocl-epyc-zen5", "pocl:0"
SIZES = {"n": 256, "m": 256}


def ranked(by_code: int | None = 0) -> Ranking:
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


def test_the_first_are_compiled_where_the_device_of_the_weights_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def reversed_first(ranking: Ranking, *_: object, first: int) -> Ranking:
        asked.append(first)
        return replace(ranking, best=ranking.best[first - 1 :: -1] + ranking.best[first:])

    reading = load_weights(SLUG, model="compiled")
    monkeypatch.setattr(tuning, "reading_weights", lambda *_: reading)
    monkeypatch.setattr(tuning, "find_device", lambda name: make_device(name, "a processor"))
    monkeypatch.setattr(tuning, "ranked_by_code", reversed_first)
    plain = ranked(by_code=0)
    found = ranked(by_code=None)
    assert asked == [16]
    assert found.best[2:] == plain.best[:1:-1]  # of 8 in reverse order, 6 are kept
    assert "model " not in text_of(found)
    assert found.model_choice.startswith("model structural for all variants, then model compiled")

    def unreadable(*_: object, **__: object) -> Ranking:
        raise DeviceError("no objdump found")

    monkeypatch.setattr(tuning, "ranked_by_code", unreadable)
    found = ranked(by_code=None)
    assert found.best == plain.best
    assert found.model_choice == (
        "model structural: the one that reads compiled code fails: no objdump found"
    )


def test_a_list_of_two_models_has_a_column_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_by_code(ranking: Ranking, *_: object, **__: object) -> Ranking:
        first = replace(ranking.best[0], time_s=1.0, model="compiled")
        return replace(ranking, best=(first, *ranking.best[1:]))

    reading = load_weights(SLUG, model="compiled")
    monkeypatch.setattr(tuning, "reading_weights", lambda *_: reading)
    monkeypatch.setattr(tuning, "find_device", lambda name: make_device(name, "a processor"))
    monkeypatch.setattr(tuning, "ranked_by_code", first_by_code)

    found = ranked(by_code=None)

    models = ["compiled"] + ["structural"] * (len(found.best) - 1)
    assert [point.model for point in found.best] == models
    assert list(found.to_frame()["model"]) == models
    head, first, second, *_ = text_of(found).splitlines()
    place = head.split().index("model") - len(head.split())
    assert first.split()[place] == "compiled"
    assert second.split()[place] == "structural"
    assert [each.get("model") for each in object_of(found)["best"]] == models


def test_a_ranking_says_why_no_code_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "reading_weights", lambda *_: "the device is not here")
    found = ranked(by_code=None)
    assert found.model_choice == "model structural: the device is not here"
    assert found.best == ranked(by_code=0).best
    assert tuning.rank("transpose", SIZES, weights=load_weights(SLUG), points=1).model_choice == ""
