"""Curves over occupancy, group size and intensity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.hardware.parameters import load_device
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.profile import MechanisticPrediction, ProfiledKernel
from countperf.mechanistic.sweep import AXES, sweep, vary
from countperf.mechanistic.volkov import latency_from_graph
from measurement_kernels import catalog
from tests.mechanistic.builders import chain, example_device, example_profile, launch_at

DEVICE = example_device()
EXAMPLE = ProfiledKernel(
    profile=example_profile(
        total_flops=4.0 * 32 * 1300, total_bytes=2.0 * 128 * 1300, registers_per_work_item=0
    ),
    launch=launch_at(None),
)
K620 = load_device("nvidia-k620")


MATMUL = catalog.entry("matmul-tiled/square/16x16").builder()
SIZES = {"n": 64, "m": 64, "l": 64}


def test_curves_of_the_example() -> None:
    # Lemeire et al., Fig. 2: 1/25 sub-groups per cycle each, up to 1/4 from the seventh on
    curve = sweep(EXAMPLE, DEVICE, over="occupancy", models=["volkov"], values=range(1, 11))
    rates = [curve.throughput(point, "volkov") for point in curve.points]
    assert rates == pytest.approx([min(w / 25, 0.25) for w in range(1, 11)])
    # the default axis ends with what the device holds
    points = sweep(EXAMPLE, DEVICE, models="roofline").points
    assert [point.value for point in points] == list(range(1, 65))
    # 4k computations of 1 cycle against 2 memory instructions of 2 cycles
    curve = sweep(EXAMPLE, DEVICE, over="intensity", values=(1, 2, 4), models="roofline")
    rates = [curve.throughput(point, "roofline") for point in curve.points]
    assert rates == pytest.approx([1 / 4, 1 / 8, 1 / 16])
    assert [point.intensity for point in curve.points] == pytest.approx([0.5, 1.0, 2.0])


def test_repeated_operations_wait_for_each_other() -> None:
    varied = vary(EXAMPLE, "intensity", 3, DEVICE).profile
    assert varied.idg is not None

    # six C one after the other until 24; M until 30; C at 30, 34, 38, and, behind them in program
    # order, C at 39, 43, 47, done at 51; M until 57
    assert varied.idg.counts() == {"C": 12, "M": 2}
    assert latency_from_graph(varied.idg, DEVICE) == 57
    assert varied.alpha == {"C": 12, "M": 2}


def test_a_group_of_another_size_does_the_same_work() -> None:
    curves = profile_kernel(MATMUL, K620, registers_per_work_item=32).at(SIZES)

    varied = vary(curves, "group_size", 128, K620)

    assert varied.launch.work_items_per_group == 128
    assert varied.launch.num_groups == 2 * curves.launch.num_groups
    local = curves.profile.local_bytes_per_group
    assert local is not None
    assert varied.profile.local_bytes_per_group == local // 2


@pytest.mark.parametrize("axis", AXES)
def test_every_model_has_a_curve_or_says_what_it_lacks(axis: Any) -> None:
    profiler = profile_kernel(MATMUL, K620, registers_per_work_item=32, max_instructions=200)
    values = (1, 4) if axis == "intensity" else None
    curves = sweep(profiler.at(SIZES), K620, over=axis, values=values)

    frame = curves.to_frame()
    assert set(frame["model"]) == set(curves.models)
    assert len(frame) == len(curves.points) * len(curves.models)
    lacking = frame[frame["time_s"].isna()]
    assert set(lacking["model"]) == {"mwp-cwp", "tmm"}
    assert set(lacking["lacks"]) == {"device.issue_cycles", "device.latency_steps"}
    for point in curves.points:
        volkov, roof = point.answers["volkov"], point.answers["roofline"]
        assert isinstance(volkov, MechanisticPrediction)
        assert isinstance(roof, MechanisticPrediction)
        assert float(volkov.time_s) >= float(roof.time_s) * (1 - 1e-12)


def test_what_cannot_be_varied_is_refused() -> None:
    with pytest.raises(ParameterError, match="over must be one of"):
        sweep(EXAMPLE, DEVICE, over="color")  # pyright: ignore[reportArgumentType] - wrong on purpose
    unit = catalog.entry("transpose/stride1-reads/16x16").builder()
    unknown = profile_kernel(unit, K620).launches_at({"n": 64, "m": 64})[0][0]
    copies = example_profile(alpha={"M": 2}, idg=chain("MM"))
    cases: tuple[tuple[ProfiledKernel, Any, str], ...] = (
        (replace(EXAMPLE, profile=copies), "intensity", "no operations"),
        (replace(EXAMPLE, profile=example_profile(idg=None)), "intensity", "no idg"),
        (unknown, "group_size", "registers"),
    )
    for kernel, axis, lacks in cases:
        with pytest.raises(ModelNotApplicableError, match=lacks):
            sweep(kernel, K620 if kernel is unknown else DEVICE, over=axis)
