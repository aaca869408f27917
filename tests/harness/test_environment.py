"""What is read of the machine, and what is left out where it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.harness import environment

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
    found = environment.gather_environment({"max_group_size": 256}, 1800)

    assert found.cores >= 1
    assert found.recorded_at.endswith("+00:00")
    assert found.clocks_mhz["device_max"] == 1800
    assert found.device_limits == {"max_group_size": 256}
    assert {"python", "loopy", "islpy", "pyopencl", "numpy"} <= set(found.versions)


def test_the_processor_is_described_by_its_first_entry(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO)

    found = environment.read_processor(tmp_path / "cpuinfo")

    assert found == "AMD EPYC (AuthenticAMD family 26 model 2)"


@pytest.mark.parametrize("content", ["", "Features\t: fp asimd\n", None])
def test_other_processors_have_some_description(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "cpuinfo"
    if content is not None:
        path.write_text(content)

    assert environment.read_processor(path)


def test_clocks_that_are_readable(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(CPUINFO)
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_max_freq").write_text("3700000\n")
    (folder / "base_frequency").write_text("<unknown>\n")

    found = environment.read_clocks(tmp_path)

    assert found == {"cpu_current_mean": pytest.approx(2298.061), "scaling_max_freq": 3700.0}


def test_free_memory(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   24 kB\n")

    assert environment.available_memory(tmp_path / "meminfo") == 24 * 1024
    assert environment.available_memory(tmp_path / "absent") is None
