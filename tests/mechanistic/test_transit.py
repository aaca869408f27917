"""Transit: worked examples, closed form, equality with Volkov without parallelism, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from countperf.errors import ModelNotApplicableError, ParameterError
from countperf.mechanistic.profile import ProfiledKernel
from countperf.mechanistic.transit import (
    TransitModel,
    TwoSubsystems,
    transit,
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
    ("system", "occupancy", "waiting", "wpc"),
    [
        pytest.param(EXAMPLE, 5, 15 / 7, 5 / 28, id="example, below the roofs"),
        pytest.param(EXAMPLE, 7, 3, 0.25, id="example, at both roofs"),
        pytest.param(EXAMPLE, 10, 3, 0.25, id="example, above: fewest waiting"),
        pytest.param(LONG, 40, 80 / 3, 1 / 15, id="long latency"),
        pytest.param(LONG, 64, 40, 0.1, id="compute roof"),
    ],
)
def test_worked_examples(
    system: TwoSubsystems, occupancy: float, waiting: float, wpc: float
) -> None:
    found = transit(system, occupancy)

    assert found.waiting == pytest.approx(waiting, rel=1e-9)
    assert found.computing == pytest.approx(occupancy - waiting, rel=1e-9)
    assert found.wpc == pytest.approx(wpc, rel=1e-9)


def test_a_kernel_of_memory_is_bound_by_it() -> None:
    found = transit(
        TwoSubsystems(
            alpha_comp=1, alpha_mem=2, cpi_comp=1, latency_comp=4, cpi_mem=2, latency_mem=6
        ),
        20,
    )

    assert found.wpc == 0.25
    assert found.waiting >= 3


@pytest.mark.parametrize("occupancy", [0.5, 1, 3, 5])
def test_below_both_roofs_the_split_is_that_of_equation_11(occupancy: float) -> None:
    found = transit(EXAMPLE, occupancy)

    intensity = EXAMPLE.alpha_comp / EXAMPLE.alpha_mem
    ratio = intensity * EXAMPLE.latency_comp / EXAMPLE.latency_mem
    assert found.waiting == pytest.approx(occupancy / (1 + ratio), rel=1e-9)


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

        assert transit(system, occupancy).wpc == pytest.approx(volkov.wpc, rel=1e-9), system
        assert transit_throughput(system, occupancy) == pytest.approx(volkov.wpc, rel=1e-12)


def test_prediction() -> None:
    kernel = ProfiledKernel(profile=example_profile(), launch=launch_at(5))

    prediction = TransitModel(device=example_device()).predict(kernel)

    assert prediction.time_s == pytest.approx(1300 * 28 / 5 / (13 * 1.253e9))
    assert prediction.bound == "latency"
    assert prediction.results["waiting"] == pytest.approx(15 / 7)


@pytest.mark.parametrize(
    ("counts", "parameter"), [({"C": 4}, "alpha_mem"), ({"M": 2}, "alpha_comp")]
)
def test_a_kernel_with_one_subsystem_is_not_covered(
    counts: dict[str, float], parameter: str
) -> None:
    kernel = ProfiledKernel(profile=example_profile(alpha=counts, idg=None), launch=launch_at(5))

    with pytest.raises(ModelNotApplicableError) as caught:
        TransitModel(device=example_device()).predict(kernel)

    assert caught.value.parameter == parameter


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
        transit(EXAMPLE, occupancy)

    assert caught.value.parameter == "occupancy"
