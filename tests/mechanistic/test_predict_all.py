"""All models in one call: each predicts, or says what it lacks."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from countperf.devices.parameters import DeviceParameters, available_devices, load_device
from countperf.errors import (
    CountingError,
    DeviceParameterError,
    ModelNotApplicableError,
    ParameterError,
)
from countperf.mechanistic.classes import with_known_classes
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.merpsys import MerpsysModel
from countperf.mechanistic.occupancy import program_occupancy
from countperf.mechanistic.pipeline import PipelineModel
from countperf.mechanistic.predict_all import ModelAnswers, answers_of, model_names
from countperf.mechanistic.profile import MechanisticPrediction
from countperf.mechanistic.roofline import VolkovModel, latency_from_graph
from countperf.mechanistic.wfg import WorkFlowModel
from measurement_kernels import catalog
from tests.counting import profiled
from tests.kernels import in_groups, made
from tests.printing import object_of, text_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
K620 = load_device("nvidia-k620")
GTX_970 = load_device("nvidia-gtx-970").with_values(
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
SMALL = dict.fromkeys(SIZES, 64)
OPTIONS: dict[str, Any] = {"registers_per_work_item": 32}


def predict_all(
    kernel: Any,
    device: DeviceParameters,
    sizes: dict[str, int] | None = None,
    profile_options: dict[str, Any] | None = None,
    **more: Any,
) -> ModelAnswers:
    profiler = profile_kernel(kernel, device, **(profile_options or {}))
    return answers_of(profiler, sizes or {}, **more)


def matmul() -> Any:
    return catalog.entry("matmul-tiled/square/16x16").builder()


@pytest.fixture(scope="module")
def everything() -> ModelAnswers:
    return predict_all(matmul(), GTX_970, SIZES, profile_options=OPTIONS)


def test_every_model_answers_where_nothing_is_missing(everything: ModelAnswers) -> None:
    answers = everything
    assert list(answers) == list(model_names())
    predictions = answers.predictions
    assert list(predictions) == list(answers)
    for prediction in predictions.values():
        assert prediction.kernel == "matmul_tiled"
        assert prediction.parameters == SIZES
        assert 0 < float(prediction.time_s) < 1
        total = math.fsum(float(part) for part in prediction.breakdown.values())
        assert total == pytest.approx(float(prediction.time_s), rel=1e-9)
    # the roofline is a lower bound of every model with the same costs and no lost instructions
    for name in ("volkov", "transit", "pipeline-rr", "mwp-cwp-corrected", "wfg-corrected"):
        assert float(predictions[name].time_s) >= float(predictions["roofline"].time_s) * 0.999


CHARACTERIZED = (
    *("nvidia-v100", "nvidia-t4", "nvidia-a100", "nvidia-rtx-2080-ti", "nvidia-rtx-4090"),
    *("nvidia-l40s", "nvidia-h100", "nvidia-h100-pcie", "nvidia-gh200", "nvidia-h200"),
    *("nvidia-b200", "nvidia-rtx-5090", "amd-mi210", "amd-mi250x", "amd-mi300x"),
    *("nvidia-rtx-3090", "nvidia-rtx-a4000", "nvidia-rtx-a6000", "nvidia-p4", "nvidia-a10"),
    *("nvidia-l4", "nvidia-rtx-6000-ada", "nvidia-a100-80gb", "nvidia-a100-80gb-pcie"),
    *("nvidia-p100", "nvidia-p100-pcie", "nvidia-h100-nvl", "nvidia-b300", "nvidia-gb200"),
    "amd-mi325x",
)
LACKING = {"device.issue_cycles", "device.latency_steps", "device.classes.barrier"}
"""What nobody published of these GPUs."""


@pytest.mark.parametrize("slug", available_devices())
def test_on_every_device_of_the_catalogue_a_model_answers_or_names_what_it_lacks(slug: str) -> None:
    device = load_device(slug)
    if device.cache_line_bytes is None and device.compute_capability is None:
        device = device.with_values(cache_line_bytes=64)
    profiler = profile_kernel(matmul(), device, **OPTIONS)
    answers = answers_of(profiler, SMALL)
    assert list(answers) == list(model_names())
    if slug.startswith(("nvidia", "amd")):
        assert {"roofline", "roofline-bytes"} <= {*answers.predictions}
        assert program_occupancy(profiler.at(SMALL), device).residency.active_groups >= 1
    if slug in ("pocl-epyc-zen5", "intel-epyc-zen5", *CHARACTERIZED):
        common = {"roofline", "roofline-bytes", "volkov", "transit", "wfg-corrected", "gpumech-gto"}
        assert common <= {*answers.predictions}
    if slug in CHARACTERIZED:
        assert {*answers.lacking.values()} <= LACKING
        assert len(answers.predictions) >= 12
        assert {"mwp-cwp-restated", "mwp-cwp-corrected"} <= {*answers.predictions}
        roof_s = float(answers.predictions["roofline"].time_s)
        assert float(answers.predictions["volkov"].time_s) >= roof_s * (1 - 1e-12)
    for answer in answers.values():
        match answer:
            case MechanisticPrediction():
                assert float(answer.time_s) > 0
            case DeviceParameterError():
                assert answer.field is not None
                assert answer.field.removeprefix("classes.") in str(answer)
            case _:
                assert answer.parameter in ("registers_per_work_item", "work_items_per_group")


def test_only_models_that_need_the_occupancy_ask_for_registers() -> None:
    answers = predict_all(matmul(), GTX_970, SIZES)
    assert list(answers.predictions) == ["roofline", "roofline-bytes"]
    for name, answer in answers.items():
        if not name.startswith("roofline"):
            assert isinstance(answer, ModelNotApplicableError)
            assert answer.parameter == "registers_per_work_item"


def test_a_class_without_a_cost_is_named() -> None:
    def without(name: str) -> ModelAnswers:
        classes = {key: cost for key, cost in K620.classes.items() if key != name}
        device = GTX_970.with_values(classes=classes)
        return predict_all(matmul(), device, SIZES, profile_options=OPTIONS)

    answers = without("ld.local.s32")
    lacking = answers["volkov"]
    assert isinstance(lacking, DeviceParameterError)
    assert lacking.field in ("classes.load.local.32", "classes.store.local.32")
    assert "none that stands in for it" in str(lacking)
    assert "roofline-bytes" in answers.predictions
    # only the simulation has a cost of barriers
    answers = without("bar.sync")
    assert answers.lacking == {"pipeline-rr": "device.classes.barrier"}
    for name in ("roofline", "volkov", "transit", "gpumech-gto", "merpsys"):
        assert "barriers" in answers.predictions[name].ignored


def test_models_whose_times_depend_on_barriers_do_not_ignore_them() -> None:
    cost = K620.classes["bar.sync"]
    slow = K620.with_values(
        classes={**K620.classes, "bar.sync": replace(cost, cpi=1e3 * cost.cpi, latency=1e6)}
    )
    before, after = (predict_all(matmul(), d, SIZES, profile_options=OPTIONS) for d in (K620, slow))
    slower = {n for n, of in after.predictions.items() if of.time_s != before.predictions[n].time_s}
    assert slower == {"roofline", "volkov", "pipeline-rr", "mwp-cwp-corrected", "merpsys"}
    ignore = {name for name in slower if "barriers" in before.predictions[name].ignored}
    assert ignore == {"roofline"}  # until they are its roof
    assert not any("barriers" in after.predictions[name].ignored for name in slower)


def test_errors_of_counting_are_not_swallowed() -> None:
    unit = made("i<64", "x[i] = x[i] + 1 {atomic}", "x f32 64", arrays={"for_atomic": True})
    with pytest.raises(CountingError):
        predict_all(unit, GTX_970)


def test_latency_of_saxpy_is_that_of_its_chain() -> None:
    profile = profile_kernel(profiled.saxpy(), GTX_970, **OPTIONS).at({"n": 640}).profile
    device = with_known_classes(GTX_970, profile.alpha)[0]
    assert profile.idg is not None
    # loads at 0 and 18, the fused addition at 458, the store at 464
    assert latency_from_graph(profile.idg, device) == 18 + 440 + 6 + 440


def test_rooflines_by_hand(everything: ModelAnswers) -> None:
    answers = everything.predictions
    # per sub-group: 2 * 16 loads and a store of 18 cycles, as far as L2 does not hold the arrays;
    # 2 * 16 stores and 512 loads of one
    sub_groups = 256 * 256 / 32
    traffic = 3 * 256**2 * 4
    ratio = traffic / (33 * 128 * sub_groups)
    cycles = max(ratio * 33 * 18.0, 32 + 512, 256 * 0.375, 32 * 4.5)
    time_s = sub_groups * cycles / (13 * 1.253e9)
    assert float(answers["roofline"].time_s) == pytest.approx(time_s, rel=1e-12)
    assert answers["roofline"].bound == "compute"
    assert float(answers["roofline-bytes"].time_s) == pytest.approx(
        max(2 * 256**3 / 3.5e12, traffic / 224e9), rel=1e-12
    )


def test_launches_add_up() -> None:
    first, second = "y[i] = 2 * x[i] {id=first}", "z[j] = y[n - 1 - j]*3 {dep=barrier}"

    def times(*lines: str) -> dict[str, float]:
        whole = "n mod 64 = 0 and n >= 64"
        unit = made("i<n, j<n", list(lines), "x,y,z f32 n; n i32", assumptions=whole)
        for name in "ij":
            if any(f"[{name}]" in line for line in lines):
                unit = in_groups(unit, f"{name}:64")
        answers = predict_all(unit, GTX_970, {"n": 6400}, profile_options=OPTIONS)
        return {name: float(made.time_s) for name, made in answers.predictions.items()}

    both = times(first, "... gbarrier {id=barrier, dep=first}", second)
    apart = times(first), times(second.replace(" {dep=barrier}", ""))
    assert len(both) >= 10
    for name, time_s in both.items():
        assert time_s == pytest.approx(sum(each[name] for each in apart), rel=1e-9)


def test_a_shortened_program_predicts_what_the_whole_one_does() -> None:
    sizes = {"n": 64, "m": 2048, "l": 64}
    whole = profile_kernel(matmul(), GTX_970, **OPTIONS).at(sizes)
    short = profile_kernel(matmul(), GTX_970, max_instructions=2000, **OPTIONS).at(sizes)
    device = with_known_classes(GTX_970, whole.profile.alpha)[0]
    assert short.profile.idg_is_sample
    for model, rel in (
        (VolkovModel, 0.01),
        (WorkFlowModel, 0.01),
        (MerpsysModel, 0.01),
        (PipelineModel, 0.03),
    ):
        by_sample, by_all = (float(model(device=device).predict(k).time_s) for k in (short, whole))
        assert by_sample == pytest.approx(by_all, rel=rel), model


def test_saxpy_on_new_gpus_by_hand() -> None:
    def predicted(slug: str, model: str) -> float:
        device = load_device(slug)
        answers = predict_all(profiled.saxpy(), device, {"n": 1 << 24}, OPTIONS, models=model)
        return float(answers.predictions[model].time_s)

    # 2 loads and a store of 4 bytes, 2**24 times, at 1008 GB/s
    assert predicted("nvidia-rtx-4090", "roofline") == pytest.approx(12 * 2**24 / 1.008e12, 1e-4)
    # a B200 has 148 compute units with 64 sub-groups each, which take the latencies of the second
    # load, of the fused operation and of the store
    time_s = 2**24 / 32 / 148 / 64 * (4.65312 + 860 + 4.1 + 860) / 1.965e9
    assert predicted("nvidia-b200", "volkov") == pytest.approx(time_s, rel=1e-9)


def test_models_are_chosen_by_name_in_the_order_of_the_names() -> None:
    chosen = predict_all(matmul(), K620, SMALL, models=["volkov", "roofline", "volkov"])
    assert list(chosen) == ["volkov", "roofline"]
    with pytest.raises(ParameterError, match=r"no mechanistic model is called 'magic'.*volkov"):
        predict_all(matmul(), K620, SMALL, models=["roofline", "magic"])


def test_frame_text_and_html_show_the_same_models_and_what_they_lack() -> None:
    # nobody knows the registers
    answers = predict_all(matmul(), K620, SMALL, models=["roofline", "volkov"])
    frame = answers.to_frame().set_index("model")
    assert frame.loc["roofline", "bound"] == answers.predictions["roofline"].bound
    assert frame.loc["roofline", "time_s"] == float(answers.predictions["roofline"].time_s)
    assert frame.loc["volkov", "lacks"] == "kernel.registers_per_work_item"
    assert answers.lacking == {"volkov": "kernel.registers_per_work_item"}
    text = text_of(answers)
    assert repr(answers) == text
    assert text.splitlines()[0] == "matmul_tiled on nvidia-k620, n = 64, m = 64, l = 64"
    assert text.splitlines()[1].startswith("computations bound it, by roofline: local memory takes")
    assert text.splitlines()[4].split()[0] == "roofline"
    assert "registers_per_work_item=N" in " ".join(text.split())
    html = answers._repr_html_()  # pyright: ignore[reportPrivateUsage] - what a notebook calls
    assert "roofline" in html
    assert "kernel.registers_per_work_item" in html


def test_what_is_below_the_roofline_or_without_a_cost_of_barriers_is_marked() -> None:
    device = load_device("nvidia-a100")
    costs = {name: cost for name, cost in device.classes.items() if name != "bar.sync"}
    device = device.with_values(classes=costs, l1_bytes_per_compute_unit=0, l2_bytes=0)
    device = device.with_values(achievable_bandwidth_share=None)
    sizes = dict.fromkeys(SIZES, 512)
    answers = predict_all(matmul(), device, sizes, profile_options=OPTIONS)
    # 4 * (2 * 512**3 / 16 + 512**2) byte take 44 us at the peak, 2 * 512**3 flop less
    least_s = answers.total_bytes / device.require("bandwidth_byte_per_s", model="peak")
    low = [name for name, made in answers.predictions.items() if made.time_s < 0.999 * least_s]
    assert low == ["gpumech-rr"]
    # the costs of classes are those measured, which are above the peak
    assert [name for name in answers if answers.is_below_roof(name)] == ["gpumech-rr"]
    (line,) = [line for line in text_of(answers).splitlines() if "below its roof" in line]
    assert line.split()[0] == "gpumech-rr"
    assert "barriers" in answers.predictions["wfg-original"].ignored
    assert answers.lacking["pipeline-rr"] == "device.classes.barrier"


def test_all_models_are_ranked_by_published_errors(everything: ModelAnswers) -> None:
    # with barriers, Lemeire et al. err by 25, 42, 64 ... % (below); the others have no number
    ranked = everything.rank_models()
    errors = [
        error for name in ranked if (error := everything.find_published_error(name)) is not None
    ]
    assert ranked[:3] == ["pipeline-rr", "wfg-corrected", "gpumech-gto"]
    assert errors[:-1] == sorted(errors[:-1])  # gpumech-rr is below its roof
    assert ranked[-1:] == [name for name in ranked if everything.is_below_roof(name)]
    rows = [line.split()[0] for line in text_of(everything).splitlines()[5:20]]
    assert rows == ranked
    models = object_of(everything)["models"]
    assert [models[name]["rank"] for name in ranked] == list(range(1, 16))
    assert models["gpumech-rr"]["below_roof"]
    assert sum(models["volkov"]["breakdown_s"].values()) == pytest.approx(
        models["volkov"]["time_s"]
    )
    assert models["volkov"]["results"]["occupancy"] > 0
    assert sum(models["gpumech-rr"]["stalls_s"].values()) > 0


def test_published_errors_are_means_over_kernels_with_and_without_barriers(
    everything: ModelAnswers,
) -> None:
    lines = (GOLDEN / "lemeire_tables_10_to_12.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    # tests/measurement_kernels/test_published.py counts them
    barriers = ("nw_kernel1", "lud_perimeter", "lud_internal", "bpnn_layerforward_ocl")
    barriers = (*barriers, "bpnn_adjust_weights_ocl")
    exchanged = {"wfg-original": "mwp-cwp-corrected", "mwp-cwp-corrected": "wfg-original"}
    for name in set(rows[0]) - {"table", "kernel"}:
        for with_barriers in (True, False):
            errors = [
                float(row[exchanged.get(name, name) if row["table"] == "12" else name])
                for row in rows
                if (row["kernel"] in barriers) == with_barriers
            ]
            answers = replace(everything, described=K620, has_barriers=with_barriers)
            assert answers.find_published_error(name) == pytest.approx(
                math.fsum(errors) / len(errors) / 100, abs=5.1e-4
            )
    for slug, name, error in (
        ("pocl-epyc-zen5", "volkov", None),
        ("nvidia-gtx-280", "mwp-cwp", 0.133),
    ):
        answers = replace(everything, described=load_device(slug), has_barriers=True)
        assert answers.find_published_error(name) == error


def test_text_says_what_mwp_cwp_says_of_the_kernel(everything: ModelAnswers) -> None:
    text = " ".join(text_of(everything).split())
    results = everything.predictions["mwp-cwp"].results
    said = f"{everything.predictions['mwp-cwp'].advice}; MWP {results['mwp']:.3g}, CWP"
    assert f"- mwp-cwp: {said} {results['cwp']:.3g}, " in text
    assert f"CPI {results['cpi']:.3g} -" in text
    assert "gpumech-gto: stalls waiting for load.global.32" in text
