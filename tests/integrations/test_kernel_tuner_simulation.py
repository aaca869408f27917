"""Kernel Tuner's strategies are judged by recorded time alone."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.extra("tuners")

VALUES = {"block_size_x": [16, 32, 64], "tile": [1, 2, 3, 4]}
MS = 250.0  # compiling and running a configuration; it takes 4 configurations a second


def content() -> dict[str, Any]:
    rows = {
        f"{x},{tile}": {
            "block_size_x": x,
            "tile": tile,
            "time": x + tile,
            "compile_time": MS - 50,
            "verification_time": None,
            "benchmark_time": 50.0,
        }
        for x in VALUES["block_size_x"]
        for tile in VALUES["tile"]
        if (x, tile) != (64, 4)
    }
    return {"tune_params": VALUES, "cache": rows}


def test_failures_are_the_ones_of_kernel_tuner() -> None:
    """Kernel Tuner writes them as texts, and gives strategies the largest number instead."""
    from kernel_tuner_simulation import Simulation

    with_failure = content()
    with_failure["cache"]["32,1"]["time"] = "RuntimeFailedConfig"
    asked: list[float] = []

    def strategy(func: Any, searchspace: Any) -> None:
        asked.extend(func(tuple(each)) for each in searchspace.list)

    run = Simulation(with_failure).run(strategy, limit_s=1e6, seed=0)
    assert max(asked) == sys.float_info.max
    assert np.isnan(run.values).sum() == 1
    assert run.spent_s[-1] == pytest.approx(11 * MS / 1e3)


class Slow:
    """Asks in order for what is there, and takes long to decide."""

    def __call__(self, func: Any, searchspace: Any) -> None:
        for configuration in searchspace.list:
            time.sleep(0.05)
            func(tuple(configuration))


class Stubborn:
    """Asks for the same again and again."""

    def __call__(self, func: Any, searchspace: Any) -> None:
        while True:
            func(tuple(searchspace.list[0]))


def test_clock_does_not_count() -> None:
    from kernel_tuner_simulation import Simulation

    run = Simulation(content()).run(Slow(), limit_s=1.1, seed=0)
    # The fifth configuration is the first to exceed 1.1 s; on the clock there would be fewer.
    assert run.spent_s == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.25])


def test_strategies_that_repeat_themselves_end(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernel_tuner_simulation

    monkeypatch.setattr(kernel_tuner_simulation, "IDLE", 50)
    run = kernel_tuner_simulation.Simulation(content()).run(Stubborn(), limit_s=10, seed=0)
    assert run.spent_s[-1] == pytest.approx(MS / 1e3)
    assert len(run.values) < 200


@pytest.mark.parametrize("name", ["random_sample", "genetic_algorithm", "mls"])
def test_strategies_by_name(name: str) -> None:
    from kernel_tuner_simulation import Simulation

    options = {"fraction": 1.0} if name == "random_sample" else {}
    run = Simulation(content()).run(name, limit_s=1e6, seed=3, options=options)
    measured = np.sum(np.diff(run.spent_s, prepend=0) > 0)
    assert measured <= 11
    assert run.spent_s[-1] == pytest.approx(measured * MS / 1e3)
    if name == "random_sample":
        assert sorted(run.values) == sorted(row["time"] for row in content()["cache"].values())


def test_every_configuration_has_to_be_recorded() -> None:
    from kernel_tuner_simulation import Simulation

    incomplete = content()
    incomplete["cache"]["128,1"] = next(iter(incomplete["cache"].values()))
    with pytest.raises(ValueError, match="11 of 12"):
        Simulation(incomplete)
