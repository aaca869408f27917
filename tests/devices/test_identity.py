"""Which device it is, whether weights apply, and what is read of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from countperf.devices import identity as machine
from countperf.devices.identity import DeviceIdentity, make_slug, platform_prefix
from countperf.errors import DocumentError
from countperf.measuring.campaign import gather_environment
from tests.devices.fakes import LIMITS

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
        ("Intel(R) OpenCL Graphics", "UHD 770", "", "intel-uhd-770"),
        ("Some New Platform", "x", "", "some-x"),
        ("", "x", "", "opencl-x"),
    ],
)
def test_slug(platform: str, name: str, processor: str, slug: str) -> None:
    assert make_slug(platform, name, processor) == slug
    assert platform_prefix(platform) == slug.partition("-")[0]


@pytest.mark.parametrize(
    ("change", "matches"),
    [
        *(({}, True), ({"driver_version": "6.0"}, True), ({"slug": "other"}, True)),
        *(({"platform": "Intel(R) OpenCL"}, False), ({"compute_units": 4}, False)),
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


CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
cpu MHz\t\t: 2596.122

processor\t: 1
cpu MHz\t\t: 2000.000
"""


def test_the_environment_of_this_machine_is_complete() -> None:
    limits = replace(LIMITS, max_clock_mhz=1800)
    found = gather_environment(limits, {"driver": "1"})
    assert found.cores >= 1
    assert found.recorded_at.endswith("+00:00")
    assert found.clocks_mhz["device_max"] == 1800
    assert found.device_limits["max_group_size"] == LIMITS.max_group_size
    assert {"driver", "python", "loopy", "islpy", "pyopencl", "numpy"} <= set(found.versions)


def test_the_processor_is_described_by_its_first_entry(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    description = machine.read_processor(tmp_path / "cpuinfo")
    assert description == "AMD EPYC (AuthenticAMD family 26 model 2)"
    (tmp_path / "other").write_text("Features\t: fp asimd\n")
    for other in ("other", "absent"):  # processors of others have some description
        assert machine.read_processor(tmp_path / other)


def test_clocks_that_are_readable(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(CPUINFO)
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_max_freq").write_text("3700000\n")
    (folder / "base_frequency").write_text("<unknown>\n")
    found = machine.read_clocks(tmp_path)
    assert found == {"cpu_current_mean": pytest.approx(2298.061), "scaling_max_freq": 3700.0}


def test_free_memory(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   24 kB\n")
    assert machine.available_memory(tmp_path / "meminfo") == 24 * 1024
    assert machine.available_memory(tmp_path / "absent") is None


linux_only = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux only")

_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _used_by(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _PER_SECOND


@linux_only
def test_a_busy_program_counts() -> None:
    before = machine.time_of_others_s()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
        while (used := _used_by(program.pid)) < 0.3:
            pass
        during = machine.time_of_others_s()
        program.kill()
    assert before is not None
    assert during is not None
    assert during - before > used - 0.1


@linux_only
def test_only_our_cores_count_and_not_what_we_use(tmp_path: Path) -> None:
    ours, path = sorted(os.sched_getaffinity(0)), tmp_path / "stat"
    lines = [f"cpu{n} 500 100 200 7 7 30 40 30 9 9" for n in [*ours, max(ours) + 1]]
    path.write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines, "intr 5", "ctxt 7", ""]))
    own = sum(os.times()[:4])
    found = machine.time_of_others_s(path)
    assert found == pytest.approx(900 / _PER_SECOND * len(ours) - own, abs=0.2)
    path.write_text("\n".join(lines[1:]))
    assert machine.time_of_others_s(path) is None
    assert machine.time_of_others_s(tmp_path / "none") is None


@linux_only
def test_the_time_of_others_is_averaged_over_half_a_second_and_more() -> None:
    clock, spent = [0.0], [10.0]
    neighbors = machine.Neighbors(lambda: spent[0], lambda: clock[0])
    cores = machine.available_cores()
    looks: list[bool] = []
    for now, others in ((0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (1.0, 0.5), (3.0, 1.0), (4.0, 1.1)):
        clock[0], spent[0] = now, others * cores
        looks.append(neighbors.are_busy())
    assert looks == [False, False, True, False, True, False]
    assert not machine.Neighbors(lambda: None, lambda: 0.0).are_busy()
