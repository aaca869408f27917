"""Device parameters: what they hold and refuse, the catalogue, and its descriptions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from countperf.devices.parameters import (
    COMPUTE_CAPABILITIES,
    UNITS,
    DeviceParameters,
    InstructionClass,
    LinkParameters,
    available_devices,
    capability_device,
    capability_limits,
    declare_device,
    load_device,
    read_device,
    with_capability_limits,
)
from countperf.errors import DeviceError, DeviceParameterError, DocumentError
from tests.mechanistic.builders import implied_bandwidth

FMA = InstructionClass(name="fma", subsystem="alu", cpi=0.25, latency=4, kind="compute")
LINK = LinkParameters(startup_s=1e-6, bandwidth_byte_per_s=1e10)
FULL = declare_device(
    "full", clock_hz=1e9, num_compute_units=2, classes={"fma": FMA}, links={"h2d": LINK}
)


def test_numbers_are_required_by_name_and_have_units() -> None:
    assert FULL.require("clock_hz") == 1e9
    assert FULL.require_int("num_compute_units") == 2
    assert FULL.require_class("fma") == FMA
    for ask, field in ((FULL.require, "peak_flops"), (FULL.require_class, "div")):
        with pytest.raises(DeviceParameterError) as caught:
            ask(field)
        assert caught.value.field in (field, f"classes.{field}")
    kinds = {"format", "version", "slug", "name", "compute_capability", "register_mode"}
    tables = {"classes", "links", "sources", "coarse_registers"}
    assert set(UNITS) == set(DeviceParameters.model_fields) - kinds - tables


ZERO_IS_FINE = {
    *("launch_overhead_s", "local_reserved_bytes_per_group", "cpi_mem_instr"),
    *("l1_bytes_per_compute_unit", "l2_bytes"),
}
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
    wanted = "1.0 1.3 2.0 3.0 3.5 5.0 5.2 6.0 6.1 7.5 8.0 8.6 8.9 9.0 10.0 12.0"
    assert set(wanted.split()) <= set(COMPUTE_CAPABILITIES)
    for capability in COMPUTE_CAPABILITIES:
        device = capability_device(capability)
        most = device.require("max_sub_groups_per_compute_unit")
        assert device.require("max_work_items_per_compute_unit") == 32 * most
        assert all(name in device.sources for name in UNITS if getattr(device, name) is not None)


def test_stated_limits_win_over_those_of_the_capability_and_unknown_ones_are_refused() -> None:
    stated: Any = {"max_groups_per_compute_unit": 3, "register_mode": "work_item"}
    found = with_capability_limits(declare_device(compute_capability="9.0", **stated))
    assert {name: getattr(found, name) for name in stated} == stated
    assert found.registers_per_compute_unit == 65536
    assert with_capability_limits(declare_device()) == declare_device()
    with pytest.raises(DeviceParameterError) as unknown:
        capability_limits("4.2")
    assert unknown.value.field == "compute_capability"


GOOD = """
format = "countperf-device-parameters"
version = 1
slug = "toy"
name = "Toy"
clock_hz = { value = 1e9, unit = "Hz", source = "us" }
[sources]
us = "measured here"
[classes]
"mul.f32" = { kind = "compute", subsystem = "alu", cpi = 1, latency = 4, unit = "cycle", source = "us" }
[links]
h2d = { startup_s = 1e-6, bandwidth_byte_per_s = 1e10, lambda_c = 0.7, source = "us" }
"""  # noqa: E501 - one line per class


LEMEIRE = """
class           c2050   gtx-650-ti  k620        gtx-1060  rtx-2070  r9-380
cos.approx.f32  8/40    1/18        1/15        1/15      2/21      5/24
mul.f32         1/18    0.25/9      0.375/6     0.25/6    0.5/4     1/5.25
mul.f64         2/22    4/22        7.5/42      8/43      19/45     8/76
mul.s32         2/18    0.5/5       0.875/12.5  0.75/12   0.25/2    1/5.25
div.f32         3/45    0.75/28.5   1.125/20    0.75/18   1.5/12.5  2.25/14
div.f64         19/253  26/260      47/376      47/376    -         155/740
div.s32         20/200  3/96        7/105       5/100     5/65      24/192
bar.sync        2/40    0.75/24     4.5/125     2.25/70   1.5/17    7.5/150
ld.global.s32   23/475  7.5/300     18/440      12/345    18/450    42/136
ld.local.s32    2/28    1/28        1/28        1/25      2/32      2/60
"""
ISSUE_LIMITS = {"c2050": 1, "gtx-650-ti": 4, "k620": 4, "gtx-1060": 4, "rtx-2070": 2, "r9-380": 1}


def test_costs_are_those_of_the_source() -> None:
    names, *rows = (line.split() for line in LEMEIRE.strip().splitlines())
    for column, name in enumerate(names[1:], 1):
        device = load_device(f"{'amd' if name == 'r9-380' else 'nvidia'}-{name}")
        costs = {entry.name: (entry.cpi, entry.latency) for entry in device.classes.values()}
        assert costs == {
            row[0]: tuple(map(float, row[column].split("/"))) for row in rows if row[column] != "-"
        }
        assert device.issue_limit == ISSUE_LIMITS[name]


_HONG_AND_KIM = (
    *("num_compute_units", "clock_hz", "bandwidth_byte_per_s", "mem_ld_cycles"),
    *("departure_del_uncoal_cycles", "departure_del_coal_cycles", "issue_cycles"),
)
_GAJGER = ("mem_clock_hz", "bus_width_bits", "data_rate", "num_compute_units", "clock_hz")


@pytest.mark.parametrize(
    ("slug", "names", "constants"),
    [
        ("nvidia-8800-gtx", _HONG_AND_KIM, (16, 1.35e9, 86.4e9, 420, 10, 4, 4)),
        ("nvidia-fx-5600", _HONG_AND_KIM, (16, 1.35e9, 76.8e9, 420, 10, 4, 4)),
        ("nvidia-8800-gt", _HONG_AND_KIM, (14, 1.5e9, 57.6e9, 420, 10, 4, 4)),
        ("nvidia-gtx-280", _HONG_AND_KIM, (30, 1.3e9, 141.7e9, 450, 40, 4, 4)),
        ("nvidia-gtx-970", _GAJGER, (1753e6, 256, 4, 13, 1253e6)),
        ("nvidia-titan-x", _GAJGER, (1753e6, 384, 4, 24, 1076e6)),
        ("nvidia-gtx-1070", _GAJGER, (2002e6, 256, 4, 15, 1923e6)),
    ],
)
def test_constants_of_publications(slug: str, names: Any, constants: Any) -> None:
    device = load_device(slug)
    assert tuple(getattr(device, name) for name in names) == constants


@pytest.mark.parametrize("slug", available_devices())
def test_numbers_have_sources_and_agree_with_the_peaks(slug: str) -> None:
    device = load_device(slug)
    assert device.slug == slug
    assert all(device.sources[name] for name in UNITS if getattr(device, name) is not None)
    assert all(len(entry.source) > 20 for entry in device.classes.values())
    cores, bandwidth = device.cores_per_compute_unit or 0, device.bandwidth_byte_per_s
    flops = 2 * device.require("num_compute_units") * cores * device.require("clock_hz")
    assert flops == pytest.approx(device.require("peak_flops"), rel=0.005)
    if device.mem_clock_hz is not None:
        transfers = device.mem_clock_hz * device.require("data_rate")
        assert bandwidth == pytest.approx(transfers * device.require("bus_width_bits") / 8)
    if "fma.f64" in device.classes:
        assert implied_bandwidth(device) == pytest.approx(bandwidth, rel=0.001)
        assert device.require("sub_group_size") / device.classes["fma.f32"].cpi == cores


@pytest.mark.parametrize(
    ("slug", "name"),
    [
        ("nvidia-rtx-5090", "bar.sync"),
        ("pocl-epyc-zen5", "bar.sync"),
        ("intel-epyc-zen5", "cos.approx.f32"),
        ("nvidia-gtx-480", "div.f64"),
    ],
)
def test_costs_that_nobody_published_are_missed_by_name(slug: str, name: str) -> None:
    with pytest.raises(DeviceParameterError, match="pipeline-rr") as caught:
        load_device(slug).require_class(name, model="pipeline-rr")
    assert caught.value.field == f"classes.{name}"


def test_a_latency_that_nobody_published_is_missed_by_name() -> None:
    cost = load_device("amd-rx-7900-xtx").require_class("ld.global.s32")
    with pytest.raises(DeviceParameterError, match="all models but rooflines") as caught:
        assert cost.known_latency
    assert caught.value.field == "classes.ld.global.s32.latency"
    assert cost.cpi == pytest.approx(128 * 96 * 2.5e9 / 960e9)


def test_links_are_those_of_the_source() -> None:
    # PCI Express 3.0, 4.0 and 5.0: 8, 16 and 32 GT/s per lane, of 130 bits 128 of data
    for slug, rate in (("nvidia-v100", 8e9), ("nvidia-a100", 16e9), ("nvidia-h100", 32e9)):
        link = load_device(slug).links["h2d"]
        assert link.bandwidth_byte_per_s == pytest.approx(16 * rate / 8 * 128 / 130, rel=1e-5)
    # 51 GB/s from the host, measured on H100s
    assert link.lambda_c == pytest.approx(51 / 63.015, abs=1e-3)


def test_a_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(GOOD)
    device = load_device(path)
    assert (device.clock_hz, device.source_of("clock_hz")) == (1e9, "measured here")
    assert (device.classes["mul.f32"].latency, device.links["h2d"].lambda_c) == (4, 0.7)
    assert load_device(str(path)) == device


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"Hz"', '"MHz"', "$.clock_hz.unit"),
        (', source = "us" }', " }", "$.clock_hz.source"),
        ('"us" }', '"them" }', "$.clock_hz.source"),
        ("value = 1e9", "value = -1", "$.clock_hz"),
        ("value = 1e9", 'value = "fast"', "$.clock_hz"),
        ("clock_hz", "clock_mhz", "$.clock_mhz"),
        ("value = 1e9", "value = 1e9, note = 1", "$.clock_hz.note"),
        ("cpi = 1", "cpi = 0", '$.classes["mul.f32"].cpi'),
        ("cpi = 1, ", "", '$.classes["mul.f32"].cpi'),
        ('"cycle"', '"s"', '$.classes["mul.f32"].unit'),
        ("startup_s = 1e-6, ", "", "$.links.h2d.startup_s"),
        ('name = "Toy"\n', "", "$.name"),
        ('"countperf-device-parameters"', '"other"', "$.format"),
        ("version = 1", "version = 2", "$.version"),
    ],
)
def test_bad_descriptions_are_refused_by_field(old: str, new: str, field: str) -> None:
    assert old in GOOD
    with pytest.raises(DocumentError) as caught:
        read_device(GOOD.replace(old, new, 1), path="toy.toml")
    assert (caught.value.field, caught.value.path) == (field, "toy.toml")


def test_damaged_files_and_unknown_devices_are_refused() -> None:
    with pytest.raises(DocumentError, match="damaged TOML"):
        read_device("clock_hz = = 3")
    with pytest.raises(DeviceError, match="no description of a device 'nvidia-none'"):
        load_device("nvidia-none")
