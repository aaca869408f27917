"""One kernel on several devices: fits and descriptions mixed, the fastest first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import countperf
from countperf.devices.parameters import load_device
from countperf.errors import CountperfError, DeviceError, ParameterError, PredictionError
from countperf.models.library import load_weights, store_own_fit
from countperf.models.predictions import DeviceAnswers
from tests.printing import object_of, text_of

KERNEL = "vector-scale-add/stride1/256x1"
OPTIONS: dict[str, Any] = {"registers_per_work_item": 16}
FIT = "nvidia-gtx-680"  # of which there is no description


def on(*devices: Any, n: Any = 1 << 22, models: Any = None) -> DeviceAnswers:
    return countperf.predict_on(KERNEL, devices, n=n, models=models, profile_options=OPTIONS)


def test_times_are_those_of_the_functions_for_one_device() -> None:
    table = on("pocl-epyc-zen5", "nvidia-a100", models=["linear", "volkov"])
    linear, a100, zen5 = (one.prediction for one in table.answers)
    assert text_of(linear) == text_of(
        countperf.predict(KERNEL, weights="pocl-epyc-zen5", model="linear", n=1 << 22)
    )
    for slug, found in (("nvidia-a100", a100), ("pocl-epyc-zen5", zen5)):
        answers = countperf.predict_all(KERNEL, slug, n=1 << 22, profile_options=OPTIONS)
        assert text_of(found) == text_of(answers["volkov"])


def test_rows_go_by_size_then_model_then_time() -> None:
    table = on("nvidia-v100", "nvidia-a100", n=[1 << 22, 1 << 20], models=["volkov", "roofline"])
    assert [(one.parameters["n"], one.model, one.device) for one in table.answers] == [
        (n, model, device)
        for n in (1 << 22, 1 << 20)
        for model in ("volkov", "roofline")
        for device in ("nvidia-a100", "nvidia-v100")
    ]
    assert list(table.to_frame()["n"]) == [1 << 22] * 4 + [1 << 20] * 4


def test_a_device_that_cannot_answer_has_a_row_that_says_why(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.toml"
    damaged.write_text("clock_hz = = 3")
    table = on("amd-rx-7900-xtx", FIT, "voodoo", damaged, models=["roofline", "volkov"])
    assert [(one.device, one.model, one.lacks) for one in table.answers] == [
        ("amd-rx-7900-xtx", "roofline", ""),
        ("amd-rx-7900-xtx", "volkov", "device.classes.load.global.32.latency"),
        (FIT, "", "device"),
        ("voodoo", "", "device"),
        ("damaged.toml", "", "device"),
    ]
    first, *others = object_of(table)["answers"]
    assert first["time_s"] == pytest.approx(12 * 2**22 / 960e9, rel=1e-5)
    assert first["breakdown_s"] == {"memory": first["time_s"]}
    assert all(row["reason"] and row["time_s"] is None for row in others)
    assert "no description of nvidia-gtx-680, which roofline, volkov needs" in text_of(table)


def test_devices_and_fits_are_named_by_files_too(tmp_path: Path) -> None:
    path, weights = tmp_path / "mine.json", tmp_path / "weights.json"
    load_device("nvidia-v100").with_values(slug="mine").write_file(path)
    load_weights("pocl-epyc-zen5", model="linear").write_file(weights)
    table = on(path, load_device("nvidia-a100"), weights)
    assert [(one.device, one.model) for one in table.answers] == [
        ("nvidia-a100", "roofline"),
        ("mine", "roofline"),
        ("nvidia-a100", "wfg-corrected"),
        ("mine", "wfg-corrected"),
        ("pocl-epyc-zen5", "linear"),
    ]


def test_weights_of_ones_own_are_named_beside_their_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store_own_fit(load_weights("pocl-epyc-zen5", model="linear"), name="run")
    table = on("mine/run", models=["linear", "structural", "roofline"])
    assert [(one.device, one.weights, one.model, one.lacks) for one in table.answers] == [
        ("pocl-epyc-zen5", "mine/run", "linear", ""),
        ("pocl-epyc-zen5", "", "roofline", ""),
        ("pocl-epyc-zen5", "mine/run", "structural", "weights"),
    ]
    assert object_of(table)["answers"][0]["weights"] == "mine/run"
    assert text_of(table).splitlines()[1].split()[:3] == ["device", "weights", "model"]
    prediction = table.answers[0].prediction
    named = {"device": "pocl-epyc-zen5", "weights": "mine/run", "model": "linear"}
    assert {name: object_of(prediction)[name] for name in named} == named
    assert "pocl-epyc-zen5, n = 4194304; linear model, weights mine/run" in text_of(prediction)


@pytest.mark.parametrize(
    ("devices", "more", "kind", "said"),
    [
        (["voodoo"], {}, DeviceError, "no fit and no description of a device is called 'voodoo'"),
        (["voodoo", "banshee"], {}, PredictionError, "no device answers: .*voodoo.*; .*banshee"),
        (["nvidia-a100", "nvidia-v100"], {"n": ()}, ParameterError, "n has no value"),
        (["nvidia-a100"], {"models": "linear"}, DeviceError, "there is no fit of nvidia-a100"),
        (["nvidia-a100"], {"models": ["roofline", "x"]}, PredictionError, "a fit, which x needs"),
        ([], {}, PredictionError, "none is named"),
    ],
)
def test_without_an_answer_there_is_an_error(
    devices: list[str], more: dict[str, Any], kind: type[CountperfError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        on(*devices, **more)
