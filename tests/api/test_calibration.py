"""Calibrations: what is asked for is checked first, and a device gets weights that predict."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from countperf.api import calibration as calibrating
from countperf.api.calibration import CalibrationTask, calibrate, size_here
from countperf.api.prediction import predict
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES
from countperf.devices.device import Device
from countperf.devices.identity import memory_hierarchy_of
from countperf.errors import MeasurementError, ParameterError
from countperf.measuring import MeasurementSet
from countperf.measuring.runner import CALIBRATION, KernelRunner
from countperf.models import library
from countperf.models.fitting import prior
from countperf.models.fitting.prior import CalibrationResult, KernelChoice, load_shipped_choice
from countperf.models.library import list_fits, load_weights
from countperf.models.weights import WeightSet
from countperf.text import MOST_LINES
from measurement_kernels.catalog import entry


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the user's own fits are; it is empty."""
    folder = tmp_path / "fits"
    for module in (library, calibrating):
        monkeypatch.setattr(module, "user_fits_folder", lambda: folder)
    return folder


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minutes": 0.5}, "not between 1 and 60"),
        ({"minutes": 61.0}, "not between 1 and 60"),
        ({"name": "a b"}, "cannot name a fit"),
    ],
)
def test_what_is_asked_for_is_checked_first(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        calibrate(**options)


def _find_small() -> KernelChoice:
    """Return the cheapest kernels of the choice, one size each."""
    choice = load_shipped_choice()
    cheap = sorted(choice.kernels[:60], key=lambda kernel: kernel.sizes[0].run_s)[:10]
    kernels = tuple(kernel.model_copy(update={"sizes": kernel.sizes[:1]}) for kernel in cheap)
    return choice.model_copy(update={"kernels": kernels})


SMALL = _find_small()


def _prepare(monkeypatch: pytest.MonkeyPatch, **how: Any) -> partial[CalibrationResult]:
    """Return a calibration by the small choice of kernels alone, without compiled code."""
    monkeypatch.setattr(calibrating, "why_no_code", lambda _: "not read in this test")
    monkeypatch.setattr(prior, "load_shipped_choice", lambda: SMALL)
    return partial(calibrate, minutes=10.0, **how)


def _stored(result: CalibrationResult) -> dict[str, WeightSet]:
    """Return the weights of a calibration, loaded by the names of models that it says."""
    names = [model.model for model in result.models]
    models = {name: load_weights(result.name, model=name) for name in names}
    assert sorted(models) == sorted(list_fits()[result.name].models)
    return models


@pytest.mark.device
@pytest.mark.usefixtures("own")
def test_a_device_gets_weights_that_predict(
    tmp_path: Path, pocl: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"device": pocl, "name": "test", "store": tmp_path / "c.jsonl"}
    calibrated = _prepare(monkeypatch, busy=True, **given)  # the machine may be
    monkeypatch.setattr(prior, "find_error", lambda *_: 100.0)  # of weights that ship
    result = calibrated()
    assert result.is_stored
    assert (result.name, result.without_code) == ("mine/test", "not read in this test")
    assert result.is_complete
    assert len(repr(result).splitlines()) <= MOST_LINES
    assert repr(result).startswith("mine/test: ")
    (weights,) = _stored(result).values()
    assert list(result.to_frame()["model"]) == [result.models[0].model]
    assert weights.device == pocl.identity
    assert weights.source is not None
    assert weights.source.protocol == CALIBRATION.name
    assert result.models[0].path is not None
    kernel = SMALL.kernels[0]
    prediction = predict(kernel.name, kernel.sizes[0].parameters, weights=weights)
    assert prediction.interval_s is not None
    low, high = prediction.interval_s
    assert 0 <= low < prediction.time_s < high
    again = calibrated()
    assert again.name == "mine/test"  # its own weights are replaced
    assert again.cases == result.cases  # nothing is measured again
    copied = WeightSet.read_file(result.models[0].path)
    by_hand = copied.model_copy(update={"source": None})
    by_hand.write_file(result.models[0].path)
    assert calibrated().name == "mine/test-2"  # those of somebody else are not
    assert WeightSet.read_file(result.models[0].path) == by_hand


@pytest.mark.device
@pytest.mark.usefixtures("own")
def test_weights_that_ship_are_kept_if_they_predict_better_and_memory_is_to_be_as_usual(
    tmp_path: Path, pocl: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated = _prepare(monkeypatch, device=pocl, name="test")
    monkeypatch.setattr(calibrating, "_load_shipped", lambda *_: {})
    (model,) = calibrated(store=tmp_path / "c.jsonl", busy=True).models
    path = model.path
    assert path is not None
    made = WeightSet.read_file(path)
    assert made.source is not None
    assert len(made.source.memory_s) == 2
    path.unlink()
    ships = made.model_copy(update={"name": "ships"})
    monkeypatch.setattr(calibrating, "_load_shipped", lambda *_: {"structural": ships})
    monkeypatch.setattr(prior, "find_error", lambda *_: 1e-6)
    result = calibrated(store=tmp_path / "c.jsonl", busy=True)
    assert (result.name, result.is_stored, path.exists()) == ("ships", False, False)
    assert "nothing is stored: the shipped weights, ships, are off by less" in repr(result)
    source = made.source.model_copy(update={"memory_s": (1e-9, 1e-9)})
    ships = ships.model_copy(update={"source": source})
    with pytest.raises(MeasurementError, match=r"memory is \d+\.\d times slower .* pass busy=True"):
        calibrated(store=tmp_path / "c.jsonl")


@pytest.mark.device
def test_sizes_are_found_on_devices_for_which_none_ship(
    tmp_path: Path, pocl: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "_SEARCH_SHARE", 0.0)
    task = CalibrationTask(
        device=pocl,
        runner=KernelRunner.open(pocl),
        memory=memory_hierarchy_of(pocl.identity),
        caches=DEFAULT_CACHES,
        store=tmp_path / "c.jsonl",
        reads_code=False,
        deadline=0.0,
        minutes=1.0,
    )
    cases = size_here(task, [entry(kernel.name) for kernel in SMALL.kernels])
    names = [case.name for case in cases]
    assert len({case.kernel for case in cases}) <= 8
    assert len(set(names)) == len(names) >= 8
    assert (tmp_path / "c.sizes.json").exists()


@pytest.mark.device
def test_a_busy_machine_ends_it_early_and_its_bad_times_are_taken_again(
    own: Path, tmp_path: Path, pocl: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "c.jsonl"
    calibrated = _prepare(monkeypatch, device=pocl, name="b", store=store)
    monkeypatch.setattr(prior, "find_error", lambda *_: 100.0)  # of weights that ship
    monkeypatch.setattr(calibrating, "_FIRST_CASES", 3)
    strict = CALIBRATION.with_values(
        spread_limit=1e-9, noise_limit=1e-9, extra_rounds=0, separation_s=0.0
    )
    monkeypatch.setattr(calibrating, "CALIBRATION", strict)  # no time settles
    with pytest.raises(MeasurementError, match=r"calibrate again.*pass busy=True"):
        calibrated()
    assert len(MeasurementSet.read_file(store)) == 3
    assert not own.exists() or not list(own.glob("*/*.json"))
    calibrating.forget_unsettled(store)
    assert len(MeasurementSet.read_file(store)) == 0
    result = calibrated(busy=True)
    assert result.unsettled == result.cases == 10
    assert "10 times did not settle and were used: intervals are wider" in repr(result)
    assert _stored(result)
