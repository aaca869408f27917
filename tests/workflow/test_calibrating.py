"""Calibrations: what is asked for is checked first, and a device gets weights that predict."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.cli import main
from countperf.display import MOST_LINES
from countperf.documents import Document
from countperf.errors import DeviceError, ParameterError, UnstableMeasurementError
from countperf.execution.memory_hierarchy import DEFAULT_CACHES
from countperf.fitting.transfer.choice import KernelChoice, shipped_choice
from countperf.fitting.transfer.prior import shipped_devices
from countperf.hardware.memory import memory_hierarchy_of
from countperf.harness.devices import find_device
from countperf.harness.progress import ProgressEvent, silent
from countperf.harness.protocols import CALIBRATION
from countperf.harness.runner import KernelRunner
from countperf.models import library
from countperf.models.library import load_weights
from countperf.models.structural import STRUCTURAL
from countperf.workflow import calibrating, calibration_cases, refreshing
from countperf.workflow.calibrating import calibrate
from countperf.workflow.calibration_cases import CalibrationTask, cost_s, sized_here
from countperf.workflow.prediction import predict
from countperf.workflow.refreshing import refresh
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


def test_a_fit_to_be_refreshed_has_to_exist() -> None:
    with pytest.raises(ParameterError, match="no fit is named 'mine/nothing'"):
        refresh("mine/nothing")


def test_sizes_without_kernels_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "n=16"]) == 1

    assert "add --for FILE.py:NAME" in capsys.readouterr().err


def test_a_kernel_costs_its_building_its_rounds_and_its_code() -> None:
    rounds = CALIBRATION.rounds * (0.13 + CALIBRATION.runs * 1e-3)

    assert cost_s([1e-3], reads_code=False) == pytest.approx(0.6 + rounds)
    assert cost_s([1e-3], reads_code=True) == pytest.approx(0.6 + 0.55 + rounds)
    # a slow case runs until the protocol's time is over, at least three times
    slow = CALIBRATION.rounds * (0.13 + 3 * 1.0)
    assert cost_s([1.0], reads_code=False) == pytest.approx(0.6 + slow)


def _small() -> KernelChoice:
    """Return the cheapest kernels of the choice, one size each."""
    choice = shipped_choice()
    cheap = sorted(choice.kernels[:60], key=lambda each: each.sizes[0].run_s)[:10]
    kernels = tuple(each.model_copy(update={"sizes": each.sizes[:1]}) for each in cheap)
    return choice.model_copy(update={"kernels": kernels})


@pytest.mark.device
def test_a_device_gets_weights_that_predict_and_can_be_refreshed(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        device = find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    for module in (calibrating, refreshing):
        monkeypatch.setattr(module, "_MOST_UNSETTLED", 1.1)  # the machine may be busy
    monkeypatch.setattr(calibrating, "_why_no_code", lambda _: "not read in this test")
    events: list[ProgressEvent] = []

    found = calibrate(
        device=device,
        minutes=10.0,
        name="test",
        store=tmp_path / "c.jsonl",
        choice=_small(),
        progress=events.append,
    )
    again = calibrate(
        device=device, minutes=10.0, name="test", store=tmp_path / "c.jsonl", choice=_small()
    )
    small = _small()
    refreshed = refresh(found.name, device=device, choice=small)

    assert events[0].kind == "limited"
    assert "(not read in this test): usual kernels are off by 20% instead of 15%" in (
        events[0].message
    )
    assert found.name == again.name == "mine/test"
    assert found.is_complete
    assert again.cases == found.cases
    assert len(repr(found).splitlines()) <= MOST_LINES
    assert repr(found).startswith("mine/test: ")
    assert list(found.to_frame()["model"]) == ["structural"]
    assert set(refreshed.to_frame()["model"]) == {"structural"}
    weights = load_weights("mine/test", own=own)
    assert weights.device == device.identity
    assert weights.source is not None
    assert weights.source.protocol == CALIBRATION.name
    prediction = predict(
        small.kernels[0].name, small.kernels[0].sizes[0].parameters, weights=weights
    )
    assert prediction.interval_s is not None
    low, high = prediction.interval_s
    assert 0 <= low < prediction.time_s < high
    assert refreshed.name == "mine/test-refreshed"
    assert set(refreshed.factors) == {weights.model}


@pytest.mark.device
def test_sizes_are_found_on_devices_for_which_none_ship(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        device = find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(calibration_cases, "_SEARCH_SHARE", 0.0)
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

    timed = sized_here(task, entries, silent)

    names = [case.name for case, _ in timed]
    assert len({case.kernel for case, _ in timed}) <= 8
    assert len(set(names)) == len(names) >= 8
    assert all(run_s > 0 for _, run_s in timed)
    assert (tmp_path / "c.sizes.json").exists()


@pytest.mark.device
def test_times_that_do_not_settle_are_kept_and_not_fitted(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        device = find_device("pocl:0")
    except DeviceError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(calibrating, "_MOST_UNSETTLED", -1.0)
    store = tmp_path / "c.jsonl"

    with pytest.raises(UnstableMeasurementError, match="measurements are kept"):
        calibrate(device=device, minutes=10.0, store=store, choice=_small())

    assert store.exists()
    assert not own.exists() or not list(own.glob("*/*.json"))


def test_the_shipped_choice_and_prior_have_the_same_columns() -> None:
    model = shipped_devices().of(STRUCTURAL)

    assert isinstance(shipped_choice(), Document)
    assert model is not None
    assert shipped_choice().columns == model.columns
