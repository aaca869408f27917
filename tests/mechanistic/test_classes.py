"""Costs of instruction classes on devices that state a few, and of memory at measured ratios."""

from __future__ import annotations

import pytest

from countperf.devices.parameters import InstructionClass, load_device
from countperf.errors import DeviceParameterError
from countperf.mechanistic.classes import (
    charge_traffic,
    kernel_class,
    memory_cost,
    with_known_classes,
)
from tests.mechanistic.builders import example_device, make_class

K620 = load_device("nvidia-k620")
"""mul.f32 0.375/6, mul.s32 0.875/12.5, ld.global.s32 18/440, ld.local 1/28."""
DRAM = K620.classes["ld.global.s32"]
TWO_CLASSES = example_device(
    classes={
        "mul.f32": make_class("mul.f32", "alu", 1, 4),
        "add.s32": make_class("add.s32", "alu", 3, 3),
    }
)


@pytest.mark.parametrize(
    ("name", "cpi", "latency"),
    [
        pytest.param("fma.f32", 0.375, 6, id="like any addition of the type"),
        pytest.param("select.f32", 0.375, 6, id="selections too"),
        pytest.param("add.f64", 7.5, 42, id="type by type"),
        pytest.param("div.f32", 1.125, 20, id="stated"),
        pytest.param("special.f32.rsqrt", 1, 15, id="any special function of the type"),
        pytest.param("pow.f32", 2, 16, id="logarithm and exponential"),
        pytest.param("add.i32", 0.875, 12.5, id="like the only integers stated"),
        pytest.param("add.u64", 1.75, 13.375, id="in two halves"),
        pytest.param("load.global.32", 18, 440, id="another name"),
        pytest.param("store.global.32", 18, 440, id="stores cost what loads do"),
        pytest.param("load.global.64", 36, 458, id="twice the bytes"),
        pytest.param("load.global.8", 18, 440, id="fewer bytes cost no less"),
        pytest.param("load.global.32.x2.5", 45, 467, id="waste, as in the pipeline's example 5"),
        pytest.param("load.local.32", 1, 28, id="local memory"),
        pytest.param("load.local.32.x4", 4, 31, id="conflicts, as in the pipeline's example 5"),
        pytest.param("barrier", 4.5, 125, id="barrier"),
    ],
)
def test_costs(name: str, cpi: float, latency: float) -> None:
    cost = kernel_class(K620, name)
    assert cost.name == name
    assert (cost.cpi, cost.latency) == pytest.approx((cpi, latency), abs=1e-12)


def test_kind_and_subsystem_are_those_of_the_stated_class() -> None:
    kinds = {"store.local.32": "compute", "load.global.64.x2": "memory", "barrier": "barrier"}
    classes = with_known_classes(K620, list(kinds))[0].classes
    assert {name: classes[name].kind for name in kinds} == kinds
    assert classes["store.local.32"].subsystem == "local"
    assert "(as ld.local.s32)" in classes["store.local.32"].source


def test_a_stated_class_wins() -> None:
    fused = {"fma.f32": make_class("fma.f32", "alu", 1, 4)}
    mul = make_class("mul.f32", "alu", 2, 8)
    device = TWO_CLASSES.with_values(classes={**TWO_CLASSES.classes, **fused, "mul.f32": mul})
    costs = [kernel_class(device, name).cpi for name in ("mul.f32", "add.f32", "compare.i32")]
    assert costs == [2, 1, 3]
    assert with_known_classes(device, ["mul.f32"])[0] == device


@pytest.mark.parametrize(
    "name",
    ["div.f64", "special.f64.rsqrt", "mod.i32", "add.f16", "load.global.32", "barrier", "mul.i32"],
)
def test_a_class_without_a_stand_in_is_refused(name: str) -> None:
    with pytest.raises(DeviceParameterError, match="add one to the device's document") as raised:
        kernel_class(TWO_CLASSES, name)
    assert raised.value.field == f"classes.{name}"


@pytest.mark.parametrize(
    ("ratio", "cpi", "latency"),
    [
        (0.5, 18, 440),  # what the second-level cache costs, nothing measures
        (1.0, 18, 440),
        (1.5, 27, 440 + 0.5 * 18),
    ],
)
def test_costs_of_memory_are_those_of_section_6_3(ratio: float, cpi: float, latency: float) -> None:
    cost = memory_cost(ratio, DRAM)
    assert (cost.cpi, cost.latency) == pytest.approx((cpi, latency))


def test_only_global_memory_changes_with_the_ratio() -> None:
    changed = charge_traffic(K620, 1.5).classes
    assert changed["ld.global.s32"].cpi == 27
    assert {**changed, "ld.global.s32": DRAM} == K620.classes


L2 = {"ld.l2.s32": make_class("ld.l2.s32", "memory", 6, 200, "memory")}
LATENCIES = {"l1_latency_cycles": 40, "l2_latency_cycles": 200}


@pytest.mark.parametrize(
    ("classes", "more", "reaching_l2", "overlaps", "cpi", "latency"),
    [
        # section 6.3: R times the cost of DRAM, and 1 - R times that of L2
        (L2, {}, 1.0, False, 0.25 * 18 + 0.75 * 6, 0.25 * 440 + 0.75 * 200),
        (L2, {}, 0.5, False, 0.25 * 18 + 0.25 * 6, 0.25 * 440 + 0.75 * 200),
        ({}, {"l2_bandwidth_byte_per_s": 116e9}, 1.0, False, 0.25 * 18 + 0.75 * 4.5, 440),
        ({}, {"l2_bandwidth_byte_per_s": 116e9}, 1.0, True, 4.5, 440),
        ({}, {"l2_bandwidth_byte_per_s": 58e9}, 1.0, True, 9, 440),
        ({}, {"l1_bandwidth_byte_per_s": 58e9}, 0.5, True, 9, 440),
        ({}, {}, 1.0, True, 4.5, 440),
        ({}, {}, 1.0, False, 18, 440),  # what the second-level cache costs, nothing states
        ({}, {"achievable_bandwidth_share": 0.5}, 0.25, True, 9, 440),
        ({}, LATENCIES, 0.75, True, 4.5, 0.25 * 440 + 0.5 * 200 + 0.25 * 40),
        ({}, LATENCIES, 0.25, True, 4.5, 0.25 * 440 + 0.75 * 40),
    ],
)
def test_bytes_of_caches_cost_what_their_bandwidth_says(
    classes: dict[str, InstructionClass],
    more: dict[str, float],
    reaching_l2: float,
    overlaps: bool,
    cpi: float,
    latency: float,
) -> None:
    device = K620.with_values(
        classes={**K620.classes, **classes}, bandwidth_byte_per_s=29e9, **more
    )
    cost = charge_traffic(device, 0.25, reaching_l2, overlaps=overlaps).classes["ld.global.s32"]
    assert (cost.cpi, cost.latency) == pytest.approx((cpi, latency))
