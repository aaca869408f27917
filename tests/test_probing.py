"""Weights are held against the machine at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from countperf.errors import DeviceError
from countperf.harness.device import Device
from countperf.measurements import KernelCase
from countperf.models import library
from countperf.models.fit_summaries import NOTABLE_FACTOR, Probe
from countperf.models.library import load_weights
from countperf.report.weights import checks_text
from countperf.workflow.fits import PROBES, check_device, check_weights
from measurement_kernels.catalog import entry
from tests.harness.fakes import make_device

DEVICE = make_device("pocl:0", "testchip")
WEIGHTS = load_weights("pocl-epyc-zen5")


def _predicted(kernel: str) -> float:
    name, sizes = next(each for each in PROBES.values() if each[0] == kernel)
    return float(WEIGHTS.predict(entry(name).build(), sizes).time_s)


@pytest.mark.parametrize(
    ("slower", "fits"),
    [
        pytest.param({"stride1": 1.1, "independent-chains": 0.9}, True, id="the same machine"),
        pytest.param({"stride1": 3.0, "independent-chains": 1.0}, False, id="slower memory"),
        pytest.param({"stride1": 1.0, "independent-chains": 0.5}, False, id="a faster clock"),
    ],
)
def test_a_machine_as_fast_as_the_weights_say_passes(slower: dict[str, float], fits: bool) -> None:
    def fastest_run(_: Device, case: KernelCase) -> float:
        kernel = next(name for name, _ in PROBES.values() if case.name.startswith(name))
        return slower[kernel.partition("/")[0]] * _predicted(kernel)

    check = check_weights("shipped", WEIGHTS, DEVICE, fastest_run=fastest_run)

    assert check.fits == fits
    assert check.to_object()["fits"] == fits
    said = checks_text([check])
    assert said.startswith(
        f"{'ok' if fits else '!!'}  weights shipped on {DEVICE.label}: bandwidth"
    )
    assert ("mend: stop other programs and check again" in said) != fits
    speeds = [probe.predicted_s / probe.measured_s for probe in check.probes]
    assert speeds == pytest.approx([1 / factor for factor in slower.values()])


def test_a_device_that_fails_is_a_problem_with_its_mend() -> None:
    def fastest_run(_: Device, case: KernelCase) -> float:
        raise DeviceError(f"no memory for {case.name}")

    check = check_weights("shipped", WEIGHTS, DEVICE, fastest_run=fastest_run)

    assert not check.fits
    said = checks_text([check])
    assert "no memory for stride1/copy" in said
    assert "mend: run countperf doctor" in said


def test_a_factor_either_way_is_noticed() -> None:
    for measured_s in (1.01 * NOTABLE_FACTOR, 0.99 / NOTABLE_FACTOR):
        assert not Probe(of="clock", measured_s=measured_s, predicted_s=1.0).is_as_fitted
    assert Probe(of="clock", measured_s=1.5, predicted_s=1.0).is_as_fitted


def test_a_device_without_weights_is_not_checked() -> None:
    assert check_device(DEVICE) == ()
    assert checks_text([]).startswith("no weights to check")


def test_own_fits_are_checked_beside_shipped_ones_and_kernels_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_times = [
        weight.model_copy(update={"value_s": 3 * weight.value_s}) for weight in WEIGHTS.weights
    ]
    scaled = WEIGHTS.model_copy(update={"weights": tuple(three_times), "correction": None})
    own = tmp_path / "fits" / "scaled" / "weights.json"
    own.parent.mkdir(parents=True)
    scaled.write_file(own)
    monkeypatch.setattr(library, "user_fits_folder", lambda: tmp_path / "fits")
    device = replace(DEVICE, identity=WEIGHTS.device)
    ran: list[str] = []

    def fastest_run(_: Device, case: KernelCase) -> float:
        ran.append(case.name)
        return _predicted(next(n for n, _ in PROBES.values() if case.name.startswith(n)))

    checks = {check.weights: check for check in check_device(device, fastest_run=fastest_run)}

    assert list(checks) == ["pocl-epyc-zen5", "mine/scaled"]
    assert checks["pocl-epyc-zen5"].fits
    assert not checks["mine/scaled"].fits
    assert len(ran) == len(PROBES)
    assert "countperf calibrate fits its weights" in checks["mine/scaled"].mend
    assert "weights mine/scaled on pocl:0: bandwidth" in checks_text(list(checks.values()))
