"""Which device it is: names, and whether weights apply."""

from __future__ import annotations

import pytest

from countperf.errors import DocumentError
from countperf.hardware.identity import DeviceIdentity, make_slug, platform_prefix

ZEN5 = "AMD EPYC (AuthenticAMD family 26 model 2)"
POCL = "Portable Computing Language"
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
        pytest.param(POCL, "pocl", id="PoCL spells its name out"),
        pytest.param("Intel(R) OpenCL", "intel", id="Intel's processors"),
        pytest.param("Intel(R) OpenCL Graphics", "intel", id="Intel's graphics"),
        pytest.param("NVIDIA CUDA", "nvidia", id="NVIDIA"),
        pytest.param("AMD Accelerated Parallel Processing", "amd", id="AMD"),
        pytest.param("Some New Platform", "some", id="unknown: its first word"),
        pytest.param("", "opencl", id="nameless"),
    ],
)
def test_platform_prefix(platform: str, prefix: str) -> None:
    assert platform_prefix(platform) == prefix


@pytest.mark.parametrize(
    ("platform", "name", "processor", "slug"),
    [
        pytest.param(POCL, "pthread-skylake-avx512-AMD EPYC", ZEN5, "pocl-epyc-zen5", id="PoCL"),
        pytest.param("Intel(R) OpenCL", "AMD EPYC", ZEN5, "intel-epyc-zen5", id="Intel on AMD"),
        pytest.param(
            POCL,
            "pthread-AMD EPYC 7742 64-Core Processor",
            "AMD EPYC 7742 64-Core Processor (AuthenticAMD family 23 model 49)",
            "pocl-epyc-7742-zen2",
            id="number of cores left out",
        ),
        pytest.param(
            "Intel(R) OpenCL",
            "Intel(R) Xeon(R) Platinum 8488C",
            "Intel(R) Xeon(R) Platinum 8488C (GenuineIntel family 6 model 143)",
            "intel-xeon-platinum-8488c",
            id="Intel on Intel",
        ),
        pytest.param(
            POCL,
            "pthread-skylake-avx512-Intel(R) Xeon(R) Processor",
            "Intel(R) Xeon(R) Processor (GenuineIntel family 6 model 167)",
            "pocl-xeon-model167",
            id="Intel in a virtual machine: the number of the model",
        ),
        pytest.param(POCL, "cpu", "aarch64", "pocl-aarch64", id="Arm tells little"),
        pytest.param("NVIDIA CUDA", "NVIDIA H200", "", "nvidia-h200", id="NVIDIA GPU"),
        pytest.param(
            "AMD Accelerated Parallel Processing", "gfx1100", "", "amd-gfx1100", id="AMD GPU"
        ),
        pytest.param("NVIDIA CUDA", "", "", "nvidia-device", id="nameless"),
    ],
)
def test_slug(platform: str, name: str, processor: str, slug: str) -> None:
    assert make_slug(platform, name, processor) == slug


@pytest.mark.parametrize(
    ("change", "matches"),
    [
        pytest.param({}, True, id="same"),
        pytest.param({"driver_version": "6.0"}, True, id="a new driver is a caveat"),
        pytest.param({"slug": "other"}, True, id="the slug is only a name"),
        pytest.param({"platform": "Intel(R) OpenCL"}, False, id="another driver"),
        pytest.param({"compute_units": 4}, False, id="more compute units"),
        pytest.param(
            {"processor": "AMD EPYC (AuthenticAMD family 25 model 17)"},
            False,
            id="another processor that PoCL calls by the same name",
        ),
    ],
)
def test_matches(change: dict[str, object], matches: bool) -> None:
    other = DeviceIdentity.model_validate({**IDENTITY.model_dump(), **change})

    assert IDENTITY.matches(other) is matches
    assert set(IDENTITY.differences(other)) == set(change) - {"slug"}


def test_differences_hold_both_values() -> None:
    other = IDENTITY.model_copy(update={"compute_units": 8})

    assert IDENTITY.differences(other) == {"compute_units": (2, 8)}


def test_a_slug_is_a_folder_name() -> None:
    text = IDENTITY.write_text().replace("pocl-epyc-zen5", "../pocl")

    with pytest.raises(DocumentError) as caught:
        DeviceIdentity.read_text(text)

    assert caught.value.field == "$.slug"
