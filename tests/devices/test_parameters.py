"""Device parameters: what they hold, and what they refuse, by field."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from countperf.devices.parameters import (
    COMPUTE_CAPABILITIES,
    UNITS,
    DeviceParameters,
    InstructionClass,
    LinkParameters,
    capability_device,
    capability_limits,
    declare_device,
    with_capability_limits,
)
from countperf.errors import DeviceParameterError, DocumentError

FMA = InstructionClass(name="fma", subsystem="alu", cpi=0.25, latency=4, kind="compute")
LINK = LinkParameters(startup_s=1e-6, bandwidth_byte_per_s=1e10)
FULL = declare_device(
    "full", clock_hz=1e9, num_compute_units=2, classes={"fma": FMA}, links={"h2d": LINK}
)


def test_numbers_are_required_by_name_and_absent_ones_named() -> None:
    assert FULL.require("clock_hz") == 1e9
    assert FULL.require_int("num_compute_units") == 2
    assert FULL.require_class("fma") == FMA
    for ask, field in ((FULL.require, "peak_flops"), (FULL.require_class, "div")):
        with pytest.raises(DeviceParameterError) as caught:
            ask(field)
        assert caught.value.field in (field, f"classes.{field}")


def test_every_number_has_a_unit() -> None:
    kinds = {"format", "version", "slug", "name", "compute_capability", "register_mode"}
    tables = {"classes", "links", "sources", "coarse_registers"}
    assert set(UNITS) == set(DeviceParameters.model_fields) - kinds - tables


ZERO_IS_FINE = {"launch_overhead_s", "local_reserved_bytes_per_group", "cpi_mem_instr"}
_IMPOSSIBLE: list[tuple[Any, dict[str, Any], str]] = [
    *((declare_device, {name: value}, name) for name in UNITS for value in (-1, math.nan, "3")),
    (declare_device, {"coarse_registers": (21, 0)}, "coarse_registers[1]"),
    (declare_device, {"clock_mhz": 1000}, "clock_mhz"),
    *((FULL.with_values, {name: 0}, name) for name in UNITS if name not in ZERO_IS_FINE),
]


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        *((FMA, name, v) for name, v in (("cpi", 0), ("cpi", math.inf), ("latency", -1))),
        (FMA, "kind", "magic"),
        *((LINK, name, -1.0) for name in ("startup_s", "bandwidth_byte_per_s", "lambda_c")),
    ],
)
def test_costs_that_cannot_be_are_refused(part: Any, name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        replace(part, **{name: value})


@pytest.mark.parametrize(("make", "values", "field"), _IMPOSSIBLE)
def test_what_is_impossible_is_refused_by_field(
    make: Any, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(DeviceParameterError) as caught:
        make(**values)
    assert caught.value.field == field


def test_document_survives_writing_and_reading_and_a_bad_class_is_refused_by_path() -> None:
    for device in (FULL, capability_device("2.0")):
        assert DeviceParameters.read_text(device.write_text()) == device
    content = FULL.to_object()
    content["classes"]["fma"]["cpi"] = -1
    with pytest.raises(DocumentError) as caught:
        DeviceParameters.from_object(content)
    assert caught.value.field == "$.classes.fma.cpi"


def test_capabilities_of_all_generations_are_known() -> None:
    wanted = "1.0 1.3 2.0 3.0 3.5 5.0 5.2 6.1 7.5 8.0 8.6 8.9 9.0 10.0 12.0"
    assert set(wanted.split()) <= set(COMPUTE_CAPABILITIES)
    for capability in COMPUTE_CAPABILITIES:
        device = capability_device(capability)
        most = device.require("max_sub_groups_per_compute_unit")
        assert device.require("max_work_items_per_compute_unit") == 32 * most
        assert all(name in device.sources for name in UNITS if getattr(device, name) is not None)


def test_stated_limits_win_over_those_of_the_capability() -> None:
    device = declare_device(
        compute_capability="9.0", max_groups_per_compute_unit=3, register_mode="work_item"
    )
    found = with_capability_limits(device)
    assert (found.max_groups_per_compute_unit, found.register_mode) == (3, "work_item")
    assert found.registers_per_compute_unit == 65536


def test_unknown_capabilities_are_refused() -> None:
    with pytest.raises(DeviceParameterError) as unknown:
        capability_limits("4.2")
    assert unknown.value.field == "compute_capability"
    assert with_capability_limits(declare_device()) == declare_device()
