"""Other programs on the processor that is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from countperf.harness.environment import available_cores
from countperf.harness.neighbors import Neighbors, time_of_others_s

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux only")

_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _used_by(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _PER_SECOND


def test_a_busy_program_counts() -> None:
    before = time_of_others_s()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
        while (used := _used_by(program.pid)) < 0.3:
            pass
        during = time_of_others_s()
        program.kill()
    assert before is not None
    assert during is not None
    assert during - before > used - 0.1


def test_only_our_cores_count_and_not_what_we_use(tmp_path: Path) -> None:
    ours = sorted(os.sched_getaffinity(0))
    path = tmp_path / "stat"
    lines = [f"cpu{n} 500 100 200 7 7 30 40 30 9 9" for n in [*ours, max(ours) + 1]]
    path.write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines, "intr 5", "ctxt 7", ""]))
    own = sum(os.times()[:4])
    found = time_of_others_s(path)
    assert found == pytest.approx(900 / _PER_SECOND * len(ours) - own, abs=0.2)

    path.write_text("\n".join(lines[1:]))
    assert time_of_others_s(path) is None
    assert time_of_others_s(tmp_path / "none") is None


def test_the_time_of_others_is_averaged_over_half_a_second_and_more() -> None:
    clock, spent = [0.0], [10.0]
    neighbors = Neighbors(lambda: spent[0], lambda: clock[0])
    looks: list[float] = []
    for now, others in ((0.0, 10.0), (0.25, 10.25), (0.5, 10.5), (1.0, 10.5), (3.0, 12.5)):
        clock[0], spent[0] = now, others
        looks.append(neighbors.look())
    assert looks == [0.0, 0.0, 1.0, 0.0, 1.0]
    assert Neighbors(lambda: None, lambda: 0.0).look() == 0.0
    assert Neighbors.disturb(available_cores() / 4)
    assert not Neighbors.disturb(available_cores() / 10)
