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

from countperf.api.evaluation import compare, list_measured_devices
from countperf.api.prediction import predict
from countperf.cli import main
from countperf.devices.parameters import DeviceParameters, load_device
from countperf.errors import CountingError, DeviceError, DocumentError, FitError, ParameterError
from countperf.measuring import Measurement, MeasurementSet, TimedSize, Timing
from countperf.mechanistic import profile as base
from countperf.mechanistic.comparison import (
    LEVELS,
    Comparison,
    ModelResult,
    compare_models,
    time_of,
)
from countperf.mechanistic.roofline import ByteRooflineModel
from countperf.models.library import load_weights
from countperf.models.metrics import EvaluatedCase
from measurement_kernels.catalog import entry
from tests.mechanistic.builders import STREAM, time_as
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


FACTORS = {2**24: 1.1, 2**25: 0.9, 2**26: 1.05}
TIMES_S = {n: 8 * n / 3.352e12 for n in FACTORS}  # of two arrays at the H100's 3.352 TB/s
TAKEN_S = {n: factor * TIMES_S[n] for n, factor in FACTORS.items()}


def test_a_kernel_of_the_users_is_judged_by_its_own_times(tmp_path: Path) -> None:
    path = tmp_path / "timing.json"
    time_as("nvidia-h100", TAKEN_S).write_file(path)
    models = ["wfg-original", "roofline-bytes", "pipeline-gto"]
    options = {"registers_per_work_item": 16}
    compared = compare(kernel=STREAM, timing=path, models=models, profile_options=options)
    published, scaled = (result(compared, "roofline-bytes", level) for level in LEVELS)
    assert [case.predicted_s for case in published.cases] == pytest.approx([*TIMES_S.values()])
    errors = [abs(1 / factor - 1) for factor in FACTORS.values()]
    assert published.overall_error() == pytest.approx(math.prod(errors) ** (1 / 3))
    # a size is scaled by the median factor of the others, of two their geometric mean
    others = [math.sqrt(math.prod(FACTORS.values()) / f) for f in FACTORS.values()]
    at_others = [t * other for t, other in zip(TIMES_S.values(), others, strict=True)]
    assert [case.predicted_s for case in scaled.cases] == pytest.approx(at_others)
    assert scaled.factor == pytest.approx(1.05)
    assert text_of(compared).splitlines()[0] == (
        "trust roofline-bytes as published, off by 7.8 % over 3 of 3 sizes of mine on nvidia-h100"
    )
    assert [m.overall_error() for m in compared.models] == sorted(
        error for m in compared.models if (error := m.overall_error()) is not None
    )


def test_models_with_weights_are_judged_by_a_kernels_times_too() -> None:
    measured = some_measurements()
    case = next(m for m in measured if m.purpose == "test")
    timing = Timing(
        kernel="mine",
        device=measured.device,
        protocol=measured.header.protocol,
        environment=measured.header.environment,
        sizes=(TimedSize(measurement=case.model_copy(update={"kernel": "mine"})),),
    )
    compared = compare(kernel=entry(case.kernel).build(), timing=timing, models=["linear"])
    (linear,) = compared.models
    weights = load_weights(measured.device.slug, model="linear")
    predicted = predict(entry(case.kernel).build(), case.parameters, weights=weights)
    assert linear.cases[0].predicted_s == pytest.approx(float(predicted.time_s))
    assert text_of(compared).splitlines()[1].startswith("of one size: more of them tell")


def _refuse_work(*_: object) -> None:
    raise AssertionError("nothing is counted before the inputs are checked")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"kernel": "my.py:kernel"}, ParameterError, "countperf time KERNEL"),
        (
            {"measurements": "x", "kernel": STREAM, "timing": "x"},
            ParameterError,
            "by its times alone",
        ),
        ({"kernel": STREAM, "timing": "no.json"}, DocumentError, "no.json: cannot be read"),
        ({"kernel": STREAM, "device": "nvidia-voodoo"}, DeviceError, "no description of a device"),
        (
            {"kernel": STREAM, "slug": "voodoo"},
            DeviceError,
            "there is no description of voodoo; it is measured",
        ),
        ({"measurements": "x", "models": ["rooflin"]}, ParameterError, "no model is called 'roofl"),
    ],
)
def test_inputs_of_a_comparison_are_checked_before_the_work(
    arguments: Any, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countperf.api.evaluation.profiler_of", _refuse_work)
    monkeypatch.setattr("countperf.api.evaluation.prepare_answers", _refuse_work)
    timing = time_as("nvidia-h100", TAKEN_S)
    if slug := arguments.pop("slug", None):
        identity = timing.device.model_copy(update={"slug": slug})
        timing = timing.model_copy(update={"device": identity})
    if arguments.get("kernel") is STREAM:
        arguments = {"timing": timing, **arguments}
    with pytest.raises(error, match=said):
        compare(**arguments)


def test_stores_that_come_along_go_by_their_slug() -> None:
    assert {"pocl-epyc-zen5", "intel-epyc-zen5"} <= set(list_measured_devices())
    with pytest.raises(ParameterError, match=r"no file pocl-epyc-zen33, .* of .*pocl-epyc-zen3,"):
        compare("pocl-epyc-zen33")
