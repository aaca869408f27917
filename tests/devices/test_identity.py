"""Which device it is: names, and whether weights apply."""

from __future__ import annotations

import pytest

from countperf.devices.identity import DeviceIdentity, make_slug, platform_prefix
from countperf.errors import DocumentError

ZEN5 = "AMD EPYC (AuthenticAMD family 26 model 2)"
POCL = "Portable Computing Language"
EPYC, ZEN2, VIRTUAL = "AMD EPYC 7742", "pocl-epyc-7742", "pocl-xeon-model167"
XEON, INTEL_XEON = "Intel(R) Xeon(R) Platinum 8488C", "intel-xeon-platinum-8488c"
IDENTITY = DeviceIdentity(
    slug="pocl-epyc-zen5",
    platform=POCL,
    vendor="AuthenticAMD",
    name="pthread-skylake-avx512-AMD EPYC",
    driver_version="3.1+debian",
    device_type="cpu",
    compute_units=2,
    processor=ZEN5,
)


@pytest.mark.parametrize(
    ("platform", "prefix"),
    [
        (POCL, "pocl"),
        ("Intel(R) OpenCL", "intel"),
        ("Intel(R) OpenCL Graphics", "intel"),
        ("NVIDIA CUDA", "nvidia"),
        ("AMD Accelerated Parallel Processing", "amd"),
        ("Some New Platform", "some"),
        ("", "opencl"),
    ],
)
def test_platform_prefix(platform: str, prefix: str) -> None:
    assert platform_prefix(platform) == prefix


@pytest.mark.parametrize(
    ("platform", "name", "processor", "slug"),
    [
        (POCL, "pthread-skylake-avx512-AMD EPYC", ZEN5, "pocl-epyc-zen5"),
        ("Intel(R) OpenCL", "AMD EPYC", ZEN5, "intel-epyc-zen5"),
        # the number of cores is left out
        (POCL, "", f"{EPYC} 64-Core Processor (AuthenticAMD family 23 model 49)", f"{ZEN2}-zen2"),
        ("Intel(R) OpenCL", XEON, f"{XEON} (GenuineIntel family 6 model 143)", INTEL_XEON),
        # in a virtual machine: the number of the model
        (POCL, "", "Intel(R) Xeon(R) Processor (GenuineIntel family 6 model 167)", VIRTUAL),
        (POCL, "cpu", "aarch64", "pocl-aarch64"),
        ("NVIDIA CUDA", "NVIDIA H200", "", "nvidia-h200"),
        ("AMD Accelerated Parallel Processing", "gfx1100", "", "amd-gfx1100"),
        ("NVIDIA CUDA", "", "", "nvidia-device"),
    ],
)
def test_slug(platform: str, name: str, processor: str, slug: str) -> None:
    assert make_slug(platform, name, processor) == slug


@pytest.mark.parametrize(
    ("change", "matches"),
    [
        ({}, True),
        ({"driver_version": "6.0"}, True),  # a caveat
        ({"slug": "other"}, True),  # only a name
        ({"platform": "Intel(R) OpenCL"}, False),
        ({"compute_units": 4}, False),
        # that PoCL calls by the same name
        ({"processor": "AMD EPYC (AuthenticAMD family 25 model 17)"}, False),
    ],
)
def test_matches(change: dict[str, object], matches: bool) -> None:
    other = DeviceIdentity.model_validate({**IDENTITY.model_dump(), **change})
    assert IDENTITY.matches(other) is matches
    values = IDENTITY.model_dump()
    differences = {name: (values[name], now) for name, now in change.items() if name != "slug"}
    assert IDENTITY.differences(other) == differences


def test_a_slug_is_a_folder_name() -> None:
    text = IDENTITY.write_text().replace("pocl-epyc-zen5", "../pocl")
    with pytest.raises(DocumentError) as caught:
        DeviceIdentity.read_text(text)
    assert caught.value.field == "$.slug"
