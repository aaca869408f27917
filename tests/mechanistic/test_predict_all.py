"""All models in one call: each predicts, or says what it lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import loopy as lp
import pytest

from countperf.errors import (
    CountingError,
    DeviceParameterError,
    ModelNotApplicableError,
    ParameterError,
)
from countperf.hardware.library import available_devices, load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.classes import with_known_classes
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.merpsys import MerpsysModel
from countperf.mechanistic.model import MechanisticPrediction
from countperf.mechanistic.pipeline import PipelineModel
from countperf.mechanistic.predict_all import Answer, model_names, predict_all
from countperf.mechanistic.volkov import VolkovModel, latency_from_graph
from countperf.mechanistic.wfg import WorkFlowModel
from measurement_kernels import catalog
from tests.counting import profiled

K620 = load_device("nvidia-k620")
GTX_970 = load_device("nvidia-gtx-970").replaced(
    # the costs of another device of its generation, and rough constants of the older models
    classes=K620.classes,
    bandwidth_byte_per_s=224e9,
    peak_flops=3.5e12,
    issue_cycles=1.0,
    mem_ld_cycles=440.0,
    departure_del_coal_cycles=4.0,
    departure_del_uncoal_cycles=10.0,
    latency_steps=440.0,
)
SIZES = {"n": 256, "m": 256, "l": 256}
OPTIONS: dict[str, Any] = {"registers_per_work_item": 32}


def matmul() -> Any:
    return catalog.entry("matmul-tiled/square/16x16").builder()


def answered(found: Mapping[str, Answer]) -> dict[str, MechanisticPrediction]:
    return {
        name: answer for name, answer in found.items() if isinstance(answer, MechanisticPrediction)
    }


def test_every_model_answers_where_nothing_is_missing() -> None:
    found = predict_all(matmul(), GTX_970, SIZES, profile_options=OPTIONS)

    assert list(found) == list(model_names())
    predictions = answered(found)
    assert list(predictions) == list(found), found
    for prediction in predictions.values():
        assert prediction.kernel == "matmul_tiled"
        assert prediction.parameters == SIZES
        assert 0 < float(prediction.time_s) < 1
        total = math.fsum(float(part) for part in prediction.breakdown.values())
        assert total == pytest.approx(float(prediction.time_s), rel=1e-9)
    # the roofline is a lower bound of every model with the same costs and no lost instructions
    for name in ("volkov", "transit", "pipeline-rr", "mwp-cwp-corrected", "wfg-corrected"):
        assert float(predictions[name].time_s) >= float(predictions["roofline"].time_s) * 0.999


@pytest.mark.parametrize("slug", available_devices())
def test_on_every_device_of_the_catalogue_a_model_answers_or_names_what_it_lacks(
    slug: str,
) -> None:
    device = load_device(slug)
    if device.cache_line_bytes is None and device.compute_capability is None:
        device = device.replaced(cache_line_bytes=64)
    if device.sub_group_size is None:
        pytest.fail(f"{slug} states no size of sub-groups")
    kernel = matmul()

    found = predict_all(kernel, device, {"n": 64, "m": 64, "l": 64}, profile_options=OPTIONS)

    assert list(found) == list(model_names())
    for answer in found.values():
        match answer:
            case MechanisticPrediction():
                assert float(answer.time_s) > 0
            case DeviceParameterError():
                assert answer.field is not None
                assert answer.field.removeprefix("classes.") in str(answer)
            case _:
                assert answer.parameter in ("registers_per_work_item", "work_items_per_group")


def test_a_device_without_lines_has_no_profile() -> None:
    device = load_device("pocl-epyc-zen5").replaced(cache_line_bytes=None)

    with pytest.raises(DeviceParameterError) as raised:
        predict_all(matmul(), device, SIZES)
    assert raised.value.field == "cache_line_bytes"


def test_only_models_that_need_the_occupancy_ask_for_registers() -> None:
    found = predict_all(matmul(), GTX_970, SIZES)

    assert list(answered(found)) == ["roofline", "roofline-bytes"]
    for name, answer in found.items():
        if not name.startswith("roofline"):
            assert isinstance(answer, ModelNotApplicableError)
            assert answer.parameter == "registers_per_work_item"


def test_a_class_without_a_cost_is_named() -> None:
    classes = {name: cost for name, cost in K620.classes.items() if name != "ld.local.s32"}
    device = GTX_970.replaced(classes=classes)

    found = predict_all(matmul(), device, SIZES, profile_options=OPTIONS)

    answer = found["volkov"]
    assert isinstance(answer, DeviceParameterError)
    assert answer.field in ("classes.load.local.32", "classes.store.local.32")
    assert "none that stands in for it" in str(answer)
    assert "roofline-bytes" in answered(found)


def test_only_the_simulation_has_a_cost_of_barriers() -> None:
    classes = {name: cost for name, cost in K620.classes.items() if name != "bar.sync"}

    found = predict_all(matmul(), GTX_970.replaced(classes=classes), SIZES, profile_options=OPTIONS)

    predictions = answered(found)
    assert [name for name in found if name not in predictions] == ["pipeline-rr"]
    missing = found["pipeline-rr"]
    assert isinstance(missing, DeviceParameterError)
    assert missing.field == "classes.barrier"
    for name in ("roofline", "volkov", "transit", "gpumech-gto", "merpsys"):
        assert "barriers" in predictions[name].ignored


@pytest.mark.parametrize("slug", ["nvidia-h200", "pocl-epyc-zen5", "intel-epyc-zen5"])
def test_devices_of_today_get_most_predictions(slug: str) -> None:
    found = predict_all(matmul(), load_device(slug), SIZES, profile_options=OPTIONS)

    expected = {"roofline", "roofline-bytes", "volkov", "transit", "wfg-corrected", "gpumech-gto"}
    assert expected | {"mwp-cwp-corrected", "merpsys"} - _unknown(found) <= set(answered(found))


def _unknown(found: Mapping[str, Answer]) -> set[str]:
    """Return the models for which the device document lacks a number that is no class."""
    return {
        name
        for name, answer in found.items()
        if isinstance(answer, DeviceParameterError)
        and not (answer.field or "").startswith("classes.")
    }


def test_errors_of_counting_and_of_sizes_are_not_swallowed() -> None:
    with pytest.raises(ParameterError, match="no value for parameter m"):
        predict_all(matmul(), GTX_970, {"n": 64, "l": 64}, profile_options=OPTIONS)
    unit = lp.make_kernel(
        "{ [i]: 0 <= i < 64 }",
        "x[i] = x[i] + 1 {atomic}",
        [lp.GlobalArg("x", "float32", shape=64, for_atomic=True)],
        lang_version=(2018, 2),
    )
    with pytest.raises(CountingError):
        predict_all(unit, GTX_970)


def test_launches_add_up() -> None:
    def launched(*lines: str) -> Any:
        unit = lp.make_kernel(
            "{ [i, j]: 0 <= i, j < n }",
            list(lines),
            [lp.GlobalArg("x,y,z", "float32", shape="n"), lp.ValueArg("n", "int32")],
            assumptions="n mod 64 = 0 and n >= 64",
            lang_version=(2018, 2),
        )
        for name in "ij":
            if any(f"[{name}]" in line for line in lines):
                unit = profiled.spread(unit, name, 64)
        return unit

    def times(unit: Any) -> dict[str, float]:
        found = predict_all(unit, GTX_970, {"n": 6400}, profile_options=OPTIONS)
        return {name: float(each.time_s) for name, each in answered(found).items()}

    both = times(
        launched(
            "y[i] = 2 * x[i] {id=first}",
            "... gbarrier {id=barrier, dep=first}",
            "z[j] = y[n - 1 - j]*3 {dep=barrier}",
        )
    )
    first = times(launched("y[i] = 2 * x[i]"))
    second = times(launched("z[j] = y[n - 1 - j]*3"))

    assert len(both) >= 10
    for name, time_s in both.items():
        assert time_s == pytest.approx(first[name] + second[name], rel=1e-9)


def _predicted(model: Any, profiled_kernel: Any) -> float:
    return float(model.predict(profiled_kernel).time_s)


@pytest.mark.parametrize(
    "model",
    [VolkovModel, WorkFlowModel, MerpsysModel],
    ids=lambda each: each.__name__,
)
def test_a_shortened_program_predicts_what_the_whole_one_does(
    model: type[VolkovModel | WorkFlowModel | MerpsysModel],
) -> None:
    sizes = {"n": 64, "m": 4096, "l": 64}
    whole = profile_kernel(matmul(), GTX_970, **OPTIONS).at(sizes)
    short = profile_kernel(matmul(), GTX_970, max_instructions=2000, **OPTIONS).at(sizes)
    device: DeviceParameters = with_known_classes(GTX_970, whole.profile.alpha)[0]

    assert short.profile.idg_is_sample
    assert _predicted(model(device=device), short) == pytest.approx(
        _predicted(model(device=device), whole), rel=0.01
    )


def test_simulations_of_a_shortened_program_agree() -> None:
    sizes = {"n": 64, "m": 1024, "l": 64}
    whole = profile_kernel(matmul(), GTX_970, **OPTIONS).at(sizes)
    short = profile_kernel(matmul(), GTX_970, max_instructions=1000, **OPTIONS).at(sizes)
    model = PipelineModel(device=with_known_classes(GTX_970, whole.profile.alpha)[0])

    assert _predicted(model, short) == pytest.approx(_predicted(model, whole), rel=0.03)


def test_latency_of_saxpy_is_that_of_its_chain() -> None:
    profile = profile_kernel(profiled.saxpy(), GTX_970, **OPTIONS).at({"n": 640}).profile
    device = with_known_classes(GTX_970, profile.alpha)[0]
    assert profile.idg is not None

    # loads at 0 and 18, the fused addition at 458, the store at 464
    assert latency_from_graph(profile.idg, device) == 18 + 440 + 6 + 440


def test_rooflines_by_hand() -> None:
    found = answered(predict_all(matmul(), GTX_970, SIZES, profile_options=OPTIONS))
    # per sub-group: 2 * 16 loads and a store of 18 cycles; 2 * 16 stores and 512 loads of one
    cycles = max(33 * 18.0, 32 + 512, 256 * 0.375, 32 * 4.5, (33 + 544 + 256 + 32) / 4)
    if GTX_970.issue_limit is None:
        cycles = max(33 * 18.0, 32 + 512, 256 * 0.375, 32 * 4.5)
    sub_groups = 256 * 256 / 32
    time_s = sub_groups * cycles / (13 * 1.253e9)

    assert float(found["roofline"].time_s) == pytest.approx(time_s, rel=1e-12)
    assert found["roofline"].bound == "memory"
    traffic = 33 * 128 * sub_groups
    assert float(found["roofline-bytes"].time_s) == pytest.approx(
        max(2 * 256**3 / 3.5e12, traffic / 224e9), rel=1e-12
    )


OLD_CONSTANTS = {"device.issue_cycles", "device.latency_steps"}


@pytest.mark.parametrize(
    "slug",
    ["nvidia-v100", "nvidia-t4", "nvidia-a100", "nvidia-rtx-2080-ti", "nvidia-h100", "nvidia-h200"],
)
def test_characterized_gpus_lack_only_what_nobody_published(slug: str) -> None:
    found = predict_all(matmul(), load_device(slug), SIZES, profile_options=OPTIONS)

    lacking = set(found.lacking.values())
    assert lacking <= {*OLD_CONSTANTS, "device.classes.barrier"}
    assert len(found.predictions) >= 12
    roof = float(found.predictions["roofline"].time_s)
    assert float(found.predictions["volkov"].time_s) >= roof * (1 - 1e-12)


@pytest.mark.parametrize(
    "slug",
    [
        *("nvidia-rtx-3090", "nvidia-rtx-a4000", "nvidia-rtx-a6000"),
        *("amd-mi210", "amd-mi250x", "amd-radeon-pro-w6600"),
    ],
)
def test_gpus_without_published_latencies_have_the_roofline_in_bytes(slug: str) -> None:
    found = predict_all(matmul(), load_device(slug), SIZES, profile_options=OPTIONS)

    assert list(found.predictions) == ["roofline-bytes"]
    for field in found.lacking.values():
        assert field.startswith("device.classes.") or field in OLD_CONSTANTS
