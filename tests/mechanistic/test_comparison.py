"""All models beside each other, on a part of the committed measurements."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.api.evaluation import compare, list_measured_devices, read_measurements
from countperf.cli import main
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.errors import CountingError, FitError, ParameterError
from countperf.measuring import Measurement, MeasurementSet, TimedSize, Timing
from countperf.mechanistic import profile as base
from countperf.mechanistic.comparison import Comparison, ModelResult, compare_models, time_of
from countperf.mechanistic.roofline import ByteRooflineModel
from countperf.models.metrics import EvaluatedCase
from measurement_kernels.catalog import entry
from tests.printing import object_of, text_of
from tests.shipped import shipped_measurements


@cache
def some_measurements() -> MeasurementSet:
    small = {"transpose", "vector-scale-add", "matmul-skinny", "finite-differences"}
    return shipped_measurements("pocl-epyc-zen5").select(
        lambda m: m.family in small and m.group_shape in ((16, 16), (256, 1))
    )


def bytes_only(measurement: Measurement) -> base.ProfiledKernel:
    if measurement.family == "transpose":
        raise CountingError("no profile of transposes in this test")
    counts = measurement.property_vector()
    assert counts is not None
    values = counts.evaluate(measurement.parameters)
    moved = 4.0 * sum(float(v) for name, v in values.items() if ".32." in name)
    return base.ProfiledKernel(
        profile=base.KernelProfile(
            name=measurement.kernel,
            total_flops=1.0 + sum(float(v) for n, v in values.items() if n.startswith("flop")),
            total_bytes=moved,
        ),
        launch=base.LaunchConfiguration(work_items_per_group=256, num_groups=1024),
    )


ROOFS = ("roofline", "roofline-bytes")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare_models(pocl(), tuple(some_measurements()), bytes_only, models=ROOFS)


def pocl() -> DeviceParameters:
    return load_device("pocl-epyc-zen5")


def result(comparison: Comparison, model: str, level: str) -> ModelResult:
    (only,) = [m for m in comparison.models if (m.model, m.level) == (model, level)]
    return only


def test_applications_are_evaluated_where_asked_for_and_never_calibrate() -> None:
    relabeled = [
        m.model_copy(update={"purpose": "application"}) if m.variant == "stride2" else m
        for m in some_measurements()
    ]
    applications = {m.kernel for m in relabeled if m.purpose == "application"}
    tests = {m.kernel for m in relabeled if m.purpose == "test"}
    profiled = [m for m in relabeled if m.family != "transpose"]
    learned = sum(m.purpose == "measurement" for m in profiled)
    assert applications
    for purposes, wanted in ((("test",), tests), (("test", "application"), tests | applications)):
        compared = compare_models(
            pocl(), relabeled, bytes_only, models=ROOFS, levels=("scaled",), purposes=purposes
        )
        evaluated = result(compared, "roofline-bytes", "scaled")
        assert {c.kernel for c in evaluated.cases} == wanted
        assert evaluated.calibrated_on == learned
        assert compared.test_cases == sum(m.kernel in wanted for m in relabeled)


def test_levels_differ_by_what_is_fitted(comparison: Comparison) -> None:
    published = result(comparison, "roofline-bytes", "published")
    scaled = result(comparison, "roofline-bytes", "scaled")
    assert (published.factor, published.constants, published.calibrated_on) == (1.0, {}, 0)
    for before, after in zip(published.cases, scaled.cases, strict=True):
        assert after.predicted_s == pytest.approx(scaled.factor * before.predicted_s)
    off = [
        m.time_s / float(time_of(ByteRooflineModel(device=pocl()), bytes_only(m)))
        for m in some_measurements()
        if m.purpose == "measurement" and m.family != "transpose"
    ]
    assert scaled.factor == pytest.approx(float(np.exp(np.median(np.log(off)))))


def test_what_cannot_be_predicted_is_said(comparison: Comparison) -> None:
    lacking = result(comparison, "roofline", "published")
    assert lacking.cases == ()
    assert "alpha" in lacking.lacking
    assert set(comparison.unprofiled) == {
        m.kernel for m in some_measurements() if m.family == "transpose"
    }
    text = text_of(comparison)
    (line,) = [row for row in text.splitlines() if row.startswith("roofline (published)")]
    assert ": no prediction: " in line
    assert ": no profile: " in text


def test_documents_come_back_equal(comparison: Comparison, tmp_path: Path) -> None:
    comparison.write_file(tmp_path / "comparison.json")
    assert Comparison.read_file(tmp_path / "comparison.json") == comparison
    content = {"comparisons": [object_of(comparison)]}
    assert json.loads(json.dumps(content)) == content


def test_means_are_those_of_the_cases() -> None:
    cases = tuple(
        EvaluatedCase(kernel=kernel, parameters={"n": n}, measured_s=1.0, predicted_s=predicted)
        for kernel, n, predicted in (("a", 1, 1.1), ("a", 2, 1.4), ("b", 1, 0.6))
    )
    overall = ModelResult(model="m", level="published", cases=cases).overall_error()
    assert overall == pytest.approx(((0.1 * 0.4) ** 0.5 * 0.4) ** 0.5)


def test_a_model_that_gives_infinite_times_is_said_and_not_averaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def predict(self: ByteRooflineModel, *kernel: Any) -> base.MechanisticPrediction:
        return replace(super(ByteRooflineModel, self).predict(*kernel), time_s=math.inf)

    monkeypatch.setattr(ByteRooflineModel, "predict", predict)
    compared = compare_models(pocl(), tuple(some_measurements()), bytes_only, models=ROOFS[1:])
    assert all(not m.cases and m.in_sample is None for m in compared.models)
    assert "gives inf s, which is no time" in text_of(compared)
    json.dumps(object_of(compared), allow_nan=False)


def test_no_profile_at_all_is_refused() -> None:
    def refuse(measurement: Measurement) -> base.ProfiledKernel:
        raise CountingError(f"no profile of {measurement.kernel}")

    with pytest.raises(FitError, match="none of the"):
        compare_models(pocl(), tuple(some_measurements()), refuse)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "measurements.jsonl"
    some_measurements().select(lambda m: m.family != "transpose").write_file(path)
    return path


def test_profiles_of_measured_kernels_are_made_from_the_catalogue(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = compare(file, models=["roofline", "linear"])
    assert compared.unprofiled == {}
    assert {m.model for m in compared.models} == {"roofline", "linear"}
    assert result(compared, "linear", "fitted").cases
    assert main(["compare", str(file), "--model", "roofline-bytes", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert {m["level"] for m in document["geometric_mean"]} == {"published", "scaled"}


def _timing(file: Path, slug: str | None = None) -> Timing:
    """Return a test kernel's time as that of a kernel of the user's, on the file's device."""
    measured = read_measurements(file)
    case = next(m for m in measured if m.purpose == "test")
    one = case.model_copy(update={"kernel": "mine", "case": "mine", "properties": None})
    identity = (
        measured.device if slug is None else measured.device.model_copy(update={"slug": slug})
    )
    return Timing(
        kernel="mine",
        device=identity,
        protocol=measured.header.protocol,
        environment=measured.header.environment,
        sizes=(TimedSize(measurement=one),),
    )


def test_a_kernel_of_the_users_is_compared_on_its_own_times(file: Path, tmp_path: Path) -> None:
    case = next(m for m in read_measurements(file) if m.purpose == "test")
    path = tmp_path / "timing.json"
    _timing(file).write_file(path)
    compared = compare(
        file,
        kernel=entry(case.kernel).build(),
        timing=path,
        models=["roofline", "tmm"],
        levels=["published", "scaled"],
    )
    assert compared.test_cases == 1
    (evaluated,) = result(compared, "roofline", "published").cases
    assert evaluated.kernel == "own kernel: mine"
    assert evaluated.measured_s == case.time_s
    plain = compare(file, models=["roofline"], levels=["published"])
    same = next(
        one
        for one in result(plain, "roofline", "published").cases
        if (one.kernel, one.parameters) == (case.kernel, case.parameters)
    )
    assert evaluated.predicted_s == pytest.approx(same.predicted_s)


def test_an_own_kernel_that_no_model_predicts_is_refused_before_others_are_profiled(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no kernel of the catalogue
    monkeypatch.setattr("countperf.api.evaluation.entry", None)
    device = load_device("pocl-epyc-zen3")  # its document has no latency
    kernel = entry(next(m for m in read_measurements(file) if m.purpose == "test").kernel).build()
    with pytest.raises(FitError, match=r"latency_steps, which tmm needs.*countperf characterize"):
        compare(file, device=device, kernel=kernel, timing=_timing(file), models=["tmm"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"kernel": "my.py:kernel"}, "countperf time KERNEL"),
        ({"kernel": "my.py:kernel", "timing": "other-device"}, "the times are of other-device"),
        ({"models": ["rooflin"]}, "no model is called 'rooflin'; there are roofline"),
    ],
)
def test_what_cannot_be_compared_is_refused(file: Path, arguments: Any, said: str) -> None:
    if slug := arguments.get("timing"):
        arguments = {**arguments, "timing": _timing(file, slug)}
    with pytest.raises(ParameterError, match=said):
        compare(file, **arguments)


def test_stores_that_come_along_go_by_their_slug() -> None:
    assert {"pocl-epyc-zen5", "intel-epyc-zen5"} <= set(list_measured_devices())
    with pytest.raises(ParameterError, match=r"no file pocl-epyc-zen33, .* of .*pocl-epyc-zen3,"):
        compare("pocl-epyc-zen33")
