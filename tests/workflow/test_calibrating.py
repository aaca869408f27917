"""Calibrations: what is asked for is checked first, and a device gets weights that predict."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from countperf.display import MOST_LINES
from countperf.errors import DeviceError, MeasurementError, ParameterError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES
from countperf.fitting.prior import KernelChoice, shipped_choice
from countperf.fitting.with_prior import CalibrationResult
from countperf.hardware.identity import memory_hierarchy_of
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.harness.runner import CALIBRATION, KernelRunner
from countperf.measurements import MeasurementSet
from countperf.models import library
from countperf.models.library import load_weights, named_fits
from countperf.models.weights import WeightSet
from countperf.workflow import calibrating
from countperf.workflow.calibrating import CalibrationTask, calibrate, sized_here
from countperf.workflow.prediction import predict
from measurement_kernels.catalog import entry


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the user's own fits are; it is empty."""
    folder = tmp_path / "fits"
    for module in (library, calibrating):
        monkeypatch.setattr(module, "user_fits_folder", lambda: folder)
    return folder


@pytest.mark.parametrize("minutes", [0.5, 61.0])
def test_a_budget_out_of_range_is_refused(minutes: float) -> None:
    with pytest.raises(ParameterError, match="not between 1 and 60"):
        calibrate(minutes=minutes)


def test_a_name_that_is_none_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(ParameterError, match="cannot name a fit"):
        calibrate(name="a b")


def _small() -> KernelChoice:
    """Return the cheapest kernels of the choice, one size each."""
    choice = shipped_choice()
    cheap = sorted(choice.kernels[:60], key=lambda each: each.sizes[0].run_s)[:10]
    kernels = tuple(each.model_copy(update={"sizes": each.sizes[:1]}) for each in cheap)
    return choice.model_copy(update={"kernels": kernels})


@pytest.fixture
def device() -> Device:
    try:
        return find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))


def _stored(result: CalibrationResult) -> dict[str, WeightSet]:
    """Return the weights of a calibration, loaded by the names of models that it says."""
    models = {each.model: load_weights(result.name, model=each.model) for each in result.models}
    assert sorted(models) == sorted(named_fits()[result.name].models)
    return models


@pytest.mark.device
@pytest.mark.usefixtures("own")
def test_a_device_gets_weights_that_predict(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "_why_no_code", lambda _: "not read in this test")
    calibrated = partial(
        calibrate,
        device=device,
        minutes=10.0,
        name="test",
        store=tmp_path / "c.jsonl",
        choice=_small(),
        busy=True,  # the machine may be
    )
    found = calibrated()

    assert found.without_code == "not read in this test"
    assert found.name == "mine/test"
    assert found.is_complete
    assert len(repr(found).splitlines()) <= MOST_LINES
    assert repr(found).startswith("mine/test: ")
    (weights,) = _stored(found).values()
    assert list(found.to_frame()["model"]) == [found.models[0].model]
    assert weights.device == device.identity
    assert weights.source is not None
    assert weights.source.protocol == CALIBRATION.name
    small = _small()
    prediction = predict(
        small.kernels[0].name, small.kernels[0].sizes[0].parameters, weights=weights
    )
    assert prediction.interval_s is not None
    low, high = prediction.interval_s
    assert 0 <= low < prediction.time_s < high

    again = calibrated()
    assert again.name == "mine/test"  # its own weights are replaced
    assert again.cases == found.cases  # nothing is measured again
    copied = WeightSet.read_file(found.models[0].path)
    by_hand = copied.model_copy(update={"source": None})
    by_hand.write_file(found.models[0].path)
    assert calibrated().name == "mine/test-2"  # those of somebody else are not
    assert WeightSet.read_file(found.models[0].path) == by_hand


@pytest.mark.device
def test_sizes_are_found_on_devices_for_which_none_ship(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "_SEARCH_SHARE", 0.0)
    task = CalibrationTask(
        device=device,
        runner=KernelRunner.open(device),
        memory=memory_hierarchy_of(device.identity),
        caches=DEFAULT_CACHES,
        store=tmp_path / "c.jsonl",
        reads_code=False,
        deadline=0.0,
        minutes=1.0,
    )
    entries = [entry(each.name) for each in _small().kernels]

    cases = sized_here(task, entries)

    names = [case.name for case in cases]
    assert len({case.kernel for case in cases}) <= 8
    assert len(set(names)) == len(names) >= 8
    assert (tmp_path / "c.sizes.json").exists()


@pytest.mark.device
def test_a_busy_machine_ends_it_early_and_its_bad_times_are_taken_again(
    own: Path, tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "_why_no_code", lambda _: "not read in this test")
    monkeypatch.setattr(calibrating, "_FIRST_CASES", 3)
    store = tmp_path / "c.jsonl"
    calibrated = partial(
        calibrate, device=device, minutes=10.0, name="b", store=store, choice=_small()
    )
    strict = CALIBRATION.changed(
        spread_limit=1e-9, noise_limit=1e-9, extra_rounds=0, separation_s=0.0
    )
    monkeypatch.setattr(calibrating, "CALIBRATION", strict)  # no time settles

    with pytest.raises(MeasurementError, match=r"calibrate again.*pass busy=True"):
        calibrated()

    bad = len(MeasurementSet.read_file(store))
    assert 3 <= bad < 10
    assert not own.exists() or not list(own.glob("*/*.json"))
    calibrating.forget_unsettled(store)
    assert len(MeasurementSet.read_file(store)) == 0
    found = calibrated(busy=True)
    assert found.unsettled == found.cases == 10
    assert "10 times did not settle and were used: intervals are wider" in repr(found)
    assert _stored(found)
