"""The catalogue of devices, and descriptions that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.devices.library import available_devices, load_device, read_device
from countperf.devices.parameters import UNITS
from countperf.errors import DeviceError, DocumentError
from countperf.mechanistic.pipeline import implied_bandwidth

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


@pytest.mark.parametrize("slug", available_devices())
def test_every_description_is_valid_and_each_number_has_a_source(slug: str) -> None:
    device = load_device(slug)

    assert device.slug == slug
    assert all(device.sources[name] for name in UNITS if getattr(device, name) is not None)
    assert all(len(entry.source) > 20 for entry in device.classes.values())


def test_the_published_devices_are_there() -> None:
    models = "gtx-970 titan-x gtx-1070 8800-gtx fx-5600 8800-gt gtx-280 c2050 gtx-650-ti k620"
    wanted = {f"nvidia-{name}" for name in [*models.split(), "gtx-1060", "rtx-2070", "h200"]}

    assert wanted | {"amd-r9-380", "pocl-epyc-zen5", "intel-epyc-zen5"} == set(available_devices())


@pytest.mark.parametrize(
    ("slug", "rate"),
    [("nvidia-c2050", 89.6), ("nvidia-k620", 22.6), ("nvidia-gtx-1060", 160.6)],
)
def test_bandwidths_of_the_source_follow_from_its_memory_costs(slug: str, rate: float) -> None:
    device = load_device(slug)

    found = implied_bandwidth(
        num_compute_units=device.require_int("num_compute_units"),
        sub_group_size=device.require_int("sub_group_size"),
        bytes_per_work_item=4,
        cpi_mem=device.require_class("ld.global.s32").cpi,
        clock_hz=device.require("clock_hz"),
    )

    assert found / 1e9 == pytest.approx(rate, abs=0.05)


def test_peak_of_the_h200_follows_from_its_cores_and_clock() -> None:
    device = load_device("nvidia-h200")
    lanes = device.require("num_compute_units") * device.require("cores_per_compute_unit")

    assert 2 * lanes * device.require("clock_hz") == pytest.approx(
        device.require("peak_flops"), rel=0.005
    )


def test_a_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(GOOD)

    device = load_device(path)

    assert device.clock_hz == 1e9
    assert device.source_of("clock_hz") == "measured here"
    assert device.classes["mul.f32"].latency == 4
    assert device.links["h2d"].lambda_c == 0.7
    assert load_device(str(path)) == device


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        pytest.param('"Hz"', '"MHz"', "$.clock_hz.unit", id="another unit"),
        pytest.param(', source = "us" }', " }", "$.clock_hz.source", id="no source"),
        pytest.param('"us" }', '"them" }', "$.clock_hz.source", id="unknown source"),
        pytest.param("value = 1e9", "value = -1", "$.clock_hz", id="out of range"),
        pytest.param("value = 1e9", 'value = "fast"', "$.clock_hz", id="no number"),
        pytest.param("clock_hz", "clock_mhz", "$.clock_mhz", id="unknown field"),
        pytest.param("value = 1e9", "value = 1e9, note = 1", "$.clock_hz.note", id="extra"),
        pytest.param("cpi = 1", "cpi = 0", '$.classes["mul.f32"]', id="free instruction"),
        pytest.param("cpi = 1, ", "", '$.classes["mul.f32"].cpi', id="no cost"),
        pytest.param('"cycle"', '"s"', '$.classes["mul.f32"].unit', id="unit of a class"),
        pytest.param("startup_s = 1e-6, ", "", "$.links.h2d.startup_s", id="link without startup"),
        pytest.param('name = "Toy"\n', "", "$.name", id="nameless"),
        pytest.param('"countperf-device-parameters"', '"other"', "$.format", id="format"),
        pytest.param("version = 1", "version = 2", "$.version", id="version"),
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
    with pytest.raises(DeviceError) as caught:
        load_device("nvidia-none")

    assert caught.value.device == "nvidia-none"
