"""Costs of a kernel's instruction classes on devices that state a few."""

from __future__ import annotations

import pytest

from countperf.errors import DeviceParameterError
from countperf.hardware.library import load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.classes import kernel_class, with_known_classes
from tests.mechanistic.builders import example_device, make_class


@pytest.fixture
def device() -> DeviceParameters:
    """Quadro K620: mul.f32 0.375/6, mul.s32 0.875/12.5, ld.global.s32 18/440, ld.local 1/28."""
    return load_device("nvidia-k620")


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
def test_costs(device: DeviceParameters, name: str, cpi: float, latency: float) -> None:
    found = kernel_class(device, name)

    assert found.name == name
    assert (found.cpi, found.latency) == pytest.approx((cpi, latency), abs=1e-12)


def test_kind_and_subsystem_are_those_of_the_stated_class(device: DeviceParameters) -> None:
    found = with_known_classes(device, ["store.local.32", "load.global.64.x2", "barrier"])[0]

    assert [found.classes[n].kind for n in ("store.local.32", "load.global.64.x2", "barrier")] == [
        "compute",
        "memory",
        "barrier",
    ]
    assert found.classes["store.local.32"].subsystem == "local"
    assert "(as ld.local.s32)" in found.classes["store.local.32"].source


def test_a_stated_class_wins() -> None:
    device = example_device(
        classes={
            "fma.f32": make_class("fma.f32", "alu", 1, 4),
            "mul.f32": make_class("mul.f32", "alu", 2, 8),
            "add.s32": make_class("add.s32", "alu", 3, 3),
        }
    )

    assert kernel_class(device, "mul.f32").cpi == 2
    assert kernel_class(device, "add.f32").cpi == 1
    assert kernel_class(device, "compare.i32").cpi == 3
    assert with_known_classes(device, ["mul.f32"])[0] == device


@pytest.mark.parametrize(
    "name",
    ["div.f64", "special.f64.rsqrt", "mod.i32", "add.f16", "load.global.32", "barrier", "mul.i32"],
)
def test_a_class_without_a_stand_in_is_refused(name: str) -> None:
    device = example_device(
        classes={
            "mul.f32": make_class("mul.f32", "alu", 1, 4),
            "add.s32": make_class("add.s32", "alu", 1, 4),
        }
    )

    with pytest.raises(DeviceParameterError, match="add one to the device's document") as raised:
        kernel_class(device, name)
    assert raised.value.field == f"classes.{name}"
