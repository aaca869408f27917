"""Curves over occupancy, group size and intensity."""

from __future__ import annotations

from typing import Any

import pytest

from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.hardware.library import load_device
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.model import MechanisticPrediction
from countperf.mechanistic.profile import ProfiledKernel
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


def throughputs(over: Any, model: str, **options: Any) -> list[float | None]:
    found = sweep(EXAMPLE, DEVICE, over=over, models=[model], **options)
    return [found.throughput(point, model) for point in found.points]


def test_volkov_over_occupancy_is_the_figure_of_the_paper() -> None:
    # Lemeire et al., Fig. 2: 1/25 sub-groups per cycle each, up to 1/4 from the seventh on
    found = throughputs("occupancy", "volkov", values=range(1, 11))

    assert found == pytest.approx([min(w / 25, 0.25) for w in range(1, 11)])


def test_the_default_axis_ends_with_what_the_device_holds() -> None:
    found = sweep(EXAMPLE, DEVICE, models="roofline")

    assert [point.value for point in found.points] == list(range(1, 65))


def test_the_roofline_over_intensity() -> None:
    # 4k computations of 1 cycle against 2 memory instructions of 2 cycles
    found = throughputs("intensity", "roofline", values=(1, 2, 4))

    assert found == pytest.approx([1 / 4, 1 / 8, 1 / 16])
    points = sweep(EXAMPLE, DEVICE, over="intensity", values=(1, 2), models="roofline").points
    assert [point.intensity for point in points] == pytest.approx([0.5, 1.0])


def test_repeated_operations_wait_for_each_other() -> None:
    varied = vary(EXAMPLE, "intensity", 3, DEVICE).profile
    assert varied.idg is not None

    # six C one after the other until 24; M until 30; C at 30, 34, 38, and, behind them in program
    # order, C at 39, 43, 47, done at 51; M until 57
    assert varied.idg.counts() == {"C": 12, "M": 2}
    assert latency_from_graph(varied.idg, DEVICE) == 57
    assert varied.alpha == {"C": 12, "M": 2}


def test_a_group_of_another_size_does_the_same_work() -> None:
    unit = catalog.entry("matmul-tiled/square/16x16").builder()
    found = profile_kernel(unit, K620, registers_per_work_item=32).at({"n": 64, "m": 64, "l": 64})

    varied = vary(found, "group_size", 128, K620)

    assert varied.launch.work_items_per_group == 128
    assert varied.launch.num_groups == 2 * found.launch.num_groups
    local = found.profile.local_bytes_per_group
    assert local is not None
    assert varied.profile.local_bytes_per_group == local // 2


@pytest.mark.parametrize("axis", AXES)
def test_every_model_has_a_curve_or_says_what_it_lacks(axis: Any) -> None:
    unit = catalog.entry("matmul-tiled/square/16x16").builder()
    sizes = {"n": 64, "m": 64, "l": 64}
    found = sweep(
        profile_kernel(unit, K620, registers_per_work_item=32, max_instructions=200).at(sizes),
        K620,
        over=axis,
    )

    frame = found.to_frame()
    assert set(frame["model"]) == set(found.models)
    assert len(frame) == len(found.points) * len(found.models)
    lacking = frame[frame["time_s"].isna()]
    assert set(lacking["model"]) == {"mwp-cwp", "tmm"}
    assert set(lacking["lacks"]) == {"device.issue_cycles", "device.latency_steps"}
    for point in found.points:
        volkov, roof = point.answers["volkov"], point.answers["roofline"]
        assert isinstance(volkov, MechanisticPrediction)
        assert isinstance(roof, MechanisticPrediction)
        assert float(volkov.time_s) >= float(roof.time_s) * (1 - 1e-12)


def test_what_cannot_be_varied_is_refused() -> None:
    with pytest.raises(ParameterError, match="over must be one of"):
        sweep(EXAMPLE, DEVICE, over="color")  # pyright: ignore[reportArgumentType] - wrong on purpose
    copies = ProfiledKernel(
        profile=example_profile(alpha={"M": 2}, idg=chain("MM")),
        launch=launch_at(4),
    )
    with pytest.raises(ModelNotApplicableError, match="no operations"):
        sweep(copies, DEVICE, over="intensity")
    without = ProfiledKernel(profile=example_profile(idg=None), launch=launch_at(4))
    with pytest.raises(ModelNotApplicableError, match="no idg"):
        sweep(without, DEVICE, over="intensity")
    unit = catalog.entry("transpose/stride1-reads/16x16").builder()
    unknown = profile_kernel(unit, K620).launches_at({"n": 64, "m": 64})[0][0]
    with pytest.raises(ModelNotApplicableError, match="registers"):
        sweep(unknown, K620, over="group_size")
