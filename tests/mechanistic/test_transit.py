"""Transit: worked examples, closed form, equality with Volkov without parallelism, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from countperf.errors import ParameterError
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.transit import (
    TransitModel,
    TwoSubsystems,
    transit_throughput,
)
from countperf.mechanistic.volkov import occupancy_roof
from tests.mechanistic.builders import example_device, example_profile, launch_at

EXAMPLE = TwoSubsystems(
    alpha_comp=4, alpha_mem=2, cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=6
)
LONG = TwoSubsystems(
    alpha_comp=10, alpha_mem=1, cpi_comp=1, latency_comp=20, cpi_mem=8, latency_mem=400
)


@pytest.mark.parametrize(
    ("system", "occupancy", "wpc"),
    [
        pytest.param(EXAMPLE, 5, 5 / 28, id="example, below the roofs"),
        pytest.param(EXAMPLE, 7, 0.25, id="example, at both roofs"),
        pytest.param(EXAMPLE, 10, 0.25, id="example, above"),
        pytest.param(LONG, 40, 1 / 15, id="long latency"),
        pytest.param(LONG, 64, 0.1, id="compute roof"),
        pytest.param(replace(EXAMPLE, alpha_comp=1), 20, 0.25, id="memory roof"),
    ],
)
def test_worked_examples(system: TwoSubsystems, occupancy: float, wpc: float) -> None:
    assert transit_throughput(system, occupancy) == pytest.approx(wpc, rel=1e-9)


GRID = list(
    product((1, 4, 30), (1, 2, 9), (0.25, 1, 4), (4, 18, 40), (0.5, 2, 18, 42), (6, 136, 450))
)


@pytest.mark.parametrize("occupancy", [0.5, 1, 2, 5, 7, 16, 48, 64])
def test_theorem_1_without_parallelism_transit_is_volkov(occupancy: float) -> None:
    for comp, mem, cpi_comp, latency_comp, cpi_mem, latency_mem in GRID:
        system = TwoSubsystems(
            alpha_comp=comp,
            alpha_mem=mem,
            cpi_comp=cpi_comp,
            latency_comp=latency_comp,
            cpi_mem=cpi_mem,
            latency_mem=latency_mem,
        )
        volkov = occupancy_roof(
            occupancy=occupancy,
            latency_app=comp * latency_comp + mem * latency_mem,
            wpc_roof=system.wpc_roof,
        )

        assert transit_throughput(system, occupancy) == pytest.approx(volkov.wpc, rel=1e-12), system


@pytest.mark.parametrize(
    ("computations", "occupancy", "bound", "waiting"),
    [(4, 5, "latency", 15 / 7), (4, 7, "compute", 3), (4, 10, "compute", 3), (1, 20, "memory", 19)],
)
def test_prediction(computations: int, occupancy: float, bound: str, waiting: float) -> None:
    profile = example_profile(alpha={"C": computations, "M": 2})
    kernel = ProfiledKernel(profile=profile, launch=launch_at(occupancy))

    prediction = TransitModel(device=example_device()).predict(kernel)

    wpc = min(occupancy / (4 * computations + 12), 0.25)
    assert prediction.time_s == pytest.approx(1300 / wpc / (13 * 1.253e9))
    assert prediction.bound == bound
    assert prediction.results["waiting"] == pytest.approx(waiting)
    assert prediction.results["computing"] == pytest.approx(occupancy - waiting)


@pytest.mark.parametrize("name", ["alpha_comp", "alpha_mem"])
def test_negative_counts_are_refused(name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        replace(EXAMPLE, **{name: -1})

    assert caught.value.parameter == name


@pytest.mark.parametrize("name", ["cpi_comp", "latency_comp", "cpi_mem", "latency_mem"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_bad_costs_are_refused(name: str, value: float) -> None:
    values = {
        "alpha_comp": 1.0,
        "alpha_mem": 1.0,
        "cpi_comp": 1.0,
        "latency_comp": 1.0,
        "cpi_mem": 1.0,
        "latency_mem": 1.0,
        name: value,
    }

    with pytest.raises(ParameterError) as caught:
        TwoSubsystems(**values)

    assert caught.value.parameter == name


@pytest.mark.parametrize("occupancy", [0, -2, float("inf")])
def test_bad_occupancies_are_refused(occupancy: float) -> None:
    with pytest.raises(ParameterError) as caught:
        transit_throughput(EXAMPLE, occupancy)

    assert caught.value.parameter == "occupancy"
