"""Answers of models side by side, as table, frame and notebook output."""

from __future__ import annotations

import pytest

from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import load_device
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.predict_all import model_names, predict_all
from measurement_kernels import catalog
from tests.printing import object_of, text_of

K620 = load_device("nvidia-k620")
SIZES = {"n": 64, "m": 64, "l": 64}
MATMUL = catalog.entry("matmul-tiled/square/16x16")


def test_models_are_chosen_by_name_in_the_order_of_the_names() -> None:
    found = predict_all(MATMUL.builder(), K620, SIZES, models=["volkov", "roofline", "volkov"])

    assert list(found) == ["volkov", "roofline"]
    assert list(predict_all(MATMUL.builder(), K620, SIZES, models="all")) == list(model_names())


def test_an_unknown_model_is_named_with_those_there_are() -> None:
    with pytest.raises(ParameterError, match=r"no mechanistic model is called 'magic'.*volkov"):
        predict_all(MATMUL.builder(), K620, SIZES, models=["roofline", "magic"])


def test_a_frame_has_a_row_per_model_with_what_it_lacks() -> None:
    profiler = profile_kernel(MATMUL.builder(), K620)  # nobody knows the registers

    found = predict_all(profiler, K620, SIZES, models=["roofline", "volkov"])
    frame = found.to_frame().set_index("model")

    assert frame.loc["roofline", "bound"] == found.predictions["roofline"].bound
    assert frame.loc["roofline", "time_s"] == float(found.predictions["roofline"].time_s)
    assert frame.loc["volkov", "lacks"] == "kernel.registers_per_work_item"
    assert found.lacking == {"volkov": "kernel.registers_per_work_item"}
    assert isinstance(found["volkov"], ModelNotApplicableError)


def test_text_and_html_show_the_same_models_and_how_to_mend() -> None:
    found = predict_all(MATMUL.builder(), K620, SIZES, models=["roofline", "volkov"])

    text = text_of(found)
    assert repr(found) == text
    assert text.splitlines()[0] == "matmul_tiled on nvidia-k620, n = 64, m = 64, l = 64"
    assert text.splitlines()[2].split()[0] == "roofline"
    assert "registers_per_work_item=N" in " ".join(text.split())
    html = found._repr_html_()  # pyright: ignore[reportPrivateUsage] - what a notebook calls
    assert "roofline" in html
    assert "kernel.registers_per_work_item" in html


def test_what_is_below_the_roofline_or_without_a_cost_of_barriers_is_marked() -> None:
    device = load_device("nvidia-h100")
    options = {"registers_per_work_item": 32}
    sizes = dict.fromkeys(SIZES, 512)
    found = predict_all(MATMUL.builder(), device, sizes, profile_options=options)

    # 4 * (2 * 512**3 / 16 + 512**2) byte take 20 us at the peak, 2 * 512**3 flop less
    least_s = found.total_bytes / device.require("bandwidth_byte_per_s", model="peak")
    low = [name for name, each in found.predictions.items() if each.time_s < 0.999 * least_s]
    assert low == ["gpumech-rr"]
    (said,) = [line for line in text_of(found).splitlines() if "below the roofline" in line]
    assert said.endswith("which they leave out: gpumech-rr")
    assert "barriers" in found.predictions["wfg-original"].ignored
    assert found.lacking["pipeline-rr"] == "device.classes.barrier"


def test_the_object_has_parts_that_sum_to_the_time() -> None:
    options = {"registers_per_work_item": 32}
    found = predict_all(MATMUL.builder(), K620, SIZES, models="volkov", profile_options=options)

    model = object_of(found)["models"]["volkov"]

    assert sum(model["breakdown_s"].values()) == pytest.approx(model["time_s"])
    assert model["results"]["occupancy"] > 0
