"""Costs of global memory at measured ratios of DRAM's bytes, by Lemeire's formulas by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from countperf.errors import ParameterError
from countperf.hardware.parameters import load_device
from countperf.mechanistic.classes import SECOND_LEVEL, memory_cost, with_dram_ratio
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.predict_all import predict_all
from countperf.mechanistic.profiler_csv import KernelMetrics
from measurement_kernels import catalog

K620 = load_device("nvidia-k620")
DRAM = K620.classes["ld.global.s32"]  # 18 cycles, latency 440
CACHED = replace(DRAM, name=SECOND_LEVEL, cpi=6.0, latency=200.0)


@pytest.mark.parametrize(
    ("ratio", "cpi", "latency"),
    [
        (0.25, 0.25 * 18 + 0.75 * 6, 0.25 * 440 + 0.75 * 200),
        (0.0, 6, 200),
        (1.0, 18, 440),
        (1.5, 27, 440 + 0.5 * 18),
    ],
)
def test_costs_are_those_of_section_6_3(ratio: float, cpi: float, latency: float) -> None:
    found = memory_cost(ratio, dram=DRAM, cache=CACHED)
    assert (found.cpi, found.latency) == pytest.approx((cpi, latency))


def test_only_global_memory_changes_and_only_where_costs_are_known() -> None:
    device = K620.replaced(classes={**K620.classes, SECOND_LEVEL: CACHED})
    changed = with_dram_ratio(device, 0.5).classes
    assert changed["ld.global.s32"].cpi == 12
    assert {name: c for name, c in changed.items() if name != "ld.global.s32"} == {
        name: c for name, c in device.classes.items() if name != "ld.global.s32"
    }
    assert with_dram_ratio(K620, 0.5).classes == K620.classes
    assert with_dram_ratio(K620, None) is K620
    with pytest.raises(ParameterError, match="ratio"):
        with_dram_ratio(K620, -1.0)


def test_models_take_the_measured_ratio() -> None:
    unit = catalog.entry("vector-scale-add/stride1/256x1").builder()
    n = 2**20
    accessed = 12 * n  # two loads and a store of four bytes
    device = K620.replaced(classes={**K620.classes, SECOND_LEVEL: CACHED})
    times: list[float] = []
    for moved in (accessed, 2 * accessed, accessed / 2):
        metrics = (KernelMetrics(kernel="vector_scale_add", launches=1, values={}),)
        name = profile_kernel(unit, device, registers_per_work_item=16).kernel
        metrics = (replace(metrics[0], kernel=name, values={"dram__bytes.sum": moved}),)
        profiler = profile_kernel(unit, device, registers_per_work_item=16, metrics=metrics)
        assert profiler.at({"n": n}).profile.dram_ratio == moved / accessed
        found = predict_all(profiler, device, n=n, models="volkov").predictions["volkov"]
        times.append(float(found.time_s))
    # memory bounds the time: 18, 36 and (18 + 6) / 2 cycles for each access
    assert times[1] / times[0] == pytest.approx(2)
    assert times[2] / times[0] == pytest.approx(12 / 18)
