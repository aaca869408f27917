"""The rehearsal of the campaign on a GPU: the simulated plan keeps the budget and has a fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign_simulation import Host, SimulatedClock, SimulatedRunner, Simulation
from countperf.measuring import MeasurementSet
from measurement_kernels.catalog import entry
from rehearse_gpu_campaign import campaign_kernels
from rental.stages import plan

FAMILIES = ("transpose", "empty")


def test_a_run_takes_the_time_of_the_roofline() -> None:
    sized = entry("transpose/tiled/16x16/f32").case_at(n=4096, m=4096)
    runner = SimulatedRunner("nvidia-a100", Host(), SimulatedClock())

    # the arrays once through memory at 1555 GB/s, and a launch
    assert runner.run_s(sized) == pytest.approx(3e-6 + 2 * 4 * 4096**2 / 1.555e12, rel=1e-6)


@pytest.mark.parametrize("budget_s", [460.0, 120.0])
def test_the_campaign_ends_in_time(tmp_path: Path, budget_s: float) -> None:
    simulation = Simulation(gpu="nvidia-t4", host=Host(), folder=tmp_path, families=FAMILIES)

    progress, seconds = simulation.run(budget_s)

    assert seconds <= budget_s
    ran = [row["stage"] for row in progress.log]
    assert ran == [stage.name for stage in plan()]
    assert json.loads((tmp_path / "campaign.json").read_text())["finished"] == progress.finished
    if budget_s == 460.0:
        assert {"check", "measure", "fit"} <= set(progress.finished)
        measured = MeasurementSet.read_file(tmp_path / "measurements.jsonl")
        assert {entry.family for entry in measured} <= set(FAMILIES)


def test_a_slow_host_is_cut_off_and_goes_on(tmp_path: Path) -> None:
    slow = Host(compile_s=0.5)  # 160 s for the checks, which may take 92
    simulation = Simulation(gpu="nvidia-t4", host=slow, folder=tmp_path, families=FAMILIES)

    progress, _ = simulation.run()

    first = next(row for row in progress.log if row["stage"] == "check")
    assert (first["outcome"], first["seconds"]) == ("cut off", pytest.approx(92.0))
    assert "fit" in progress.finished


def test_every_kernel_of_the_campaign_is_compiled_in_the_rehearsal() -> None:
    kernels = campaign_kernels()
    names = {kernel.name for kernel in kernels}

    assert len(names) == len(kernels)
    assert "matmul-tiled/square/16x16/f64" in names
    assert any(name.startswith("variants-matmul") for name in names)
    purposes = {kernel.purpose for kernel in kernels}
    assert purposes == {"measurement", "test", "application", "variant"}
