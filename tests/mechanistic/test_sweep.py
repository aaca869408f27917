"""Curves over occupancy and group size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from countperf.api.mechanistic_models import sweep as sweep_kernel
from countperf.devices.parameters import load_device
from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.occupancy import find_unused_local_bytes
from countperf.mechanistic.profile import MechanisticPrediction, ProfiledKernel
from countperf.mechanistic.sweep import AXES, sweep, vary
from measurement_kernels import catalog
from tests.devices.fakes import PROTOCOL
from tests.mechanistic.builders import example_device, example_profile, launch_at
from tests.printing import object_of, text_of

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
LARGE = {"n": 1024, "m": 1024, "l": 1024}


def test_curves_of_the_example() -> None:
    # Lemeire et al., Fig. 2: 1/25 sub-groups per cycle each, up to 1/4 from the seventh on
    curve = sweep(EXAMPLE, DEVICE, over="occupancy", models=["volkov"], values=range(1, 11))
    rates = [curve.throughput(point, "volkov") for point in curve.points]
    assert rates == pytest.approx([min(w / 25, 0.25) for w in range(1, 11)])
    # the default axis ends with what the device holds
    points = sweep(EXAMPLE, DEVICE, models="roofline").points
    assert [point.value for point in points] == list(range(1, 65))


def test_a_timed_sweep_has_errors_of_each_model() -> None:
    # Volkov's 1/25, 2/25, 3/25 sub-groups per cycle and unit; measured are 1/25, 1/20, 1/10
    curve = sweep(EXAMPLE, DEVICE, models=["volkov", "tmm"], values=(1, 2, 3))
    times_s = [1300 * cycles / (13 * 1.253e9) for cycles in (25, 20, 10)]
    points = [
        replace(point, measured_s=time_s)
        for point, time_s in zip(curve.points, times_s, strict=True)
    ]
    timed = replace(curve, points=tuple(points), measured_on="example")
    # off by 0, 0.03, 0.02: from the line 0.02/3, 0.05/3, 0.08/3 they are 0.02/3, 0.04/3, 0.02/3
    shape = (0.02 / 3 / 0.04 + 0.04 / 3 / 0.05 + 0.02 / 3 / 0.1) / 3
    whole = (0 + 0.03 / 0.05 + 0.02 / 0.1) / 3
    assert timed.errors()["volkov"] == pytest.approx({"MAPE": whole, "MAPE_shape": shape})
    assert set(timed.errors()) == {"volkov"}
    lines = text_of(timed).splitlines()
    # the least point from which on no time is more than 2 % below: 3 of 1, 2 and 3
    assert lines[1] == "throughput grows 3 times from 1 to 3 sub-groups, by volkov"
    assert lines[8] == "times still fall up to 3 sub-groups, by volkov"
    assert [line.split()[:3] for line in lines[6:8]] == [
        ["MAPE", "27", "%"],
        ["MAPE_shape", "17", "%"],
    ]
    assert object_of(timed)["points"][0]["measured_s"] == times_s[0]


def test_local_memory_leaves_these_numbers_of_groups() -> None:
    # groups of 256 work items with 32 registers and 2 KiB: eight of them; a group of a GTX 1060 has
    # half of the local memory at most, so that two stay (Lemeire et al., Table 9)
    profiled = profile_kernel(MATMUL, K620, registers_per_work_item=32).at(LARGE)
    gtx_1060 = load_device("nvidia-gtx-1060")
    able = find_unused_local_bytes(profiled, K620)
    assert list(able) == list(range(1, 9))
    assert (able[1], able[8]) == (32 * 1024 + 1 - 2048, 0)
    assert [*find_unused_local_bytes(profiled, gtx_1060)] == [*range(2, 9)]


@pytest.mark.device
@pytest.mark.usefixtures("pocl")
def test_a_kernel_is_timed_over_resident_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    once = PROTOCOL.with_values(rounds=1, separation_s=0.0, extra_rounds=0)
    monkeypatch.setattr("countperf.api.timing.TIMING", once)
    described = load_device("pocl-epyc-zen5").with_values(
        max_groups_per_compute_unit=4, local_bytes_per_compute_unit=65536
    )
    timed = sweep_kernel(
        "matmul-tiled/square/16x16", described, SIZES, models="volkov", timed_on="pocl:0"
    )
    assert [point.value for point in timed.points] == [1, 2, 3, 4]
    assert all(point.measured_s is not None and point.measured_s > 0 for point in timed.points)
    assert timed.failures == ()
    assert timed.errors().keys() == {"volkov"}


def test_a_group_of_another_size_does_the_same_work() -> None:
    curves = profile_kernel(MATMUL, K620, registers_per_work_item=32).at(SIZES)
    varied = vary(curves, "group_size", 128)
    assert varied.launch.work_items_per_group == 128
    assert varied.launch.num_groups == 2 * curves.launch.num_groups
    local = curves.profile.local_bytes_per_group
    assert local is not None
    assert varied.profile.local_bytes_per_group == local // 2


@pytest.mark.parametrize("axis", AXES)
def test_every_model_has_a_curve_or_says_what_it_lacks(axis: Any) -> None:
    profiler = profile_kernel(MATMUL, K620, registers_per_work_item=32, max_instructions=200)
    curves = sweep(profiler.at(SIZES), K620, over=axis)
    frame = curves.to_frame()
    assert set(frame["model"]) == set(curves.models)
    assert len(frame) == len(curves.points) * len(curves.models)
    lacking = frame[frame["time_s"].isna()]
    assert set(lacking["model"]) == {"mwp-cwp"}
    assert set(lacking["lacks"]) == {"device.issue_cycles"}
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
    with pytest.raises(ModelNotApplicableError, match="registers"):
        sweep(unknown, K620, over="group_size")
