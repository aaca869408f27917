"""The choice of kernels: its rule against one that is written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from countperf.fitting.solve import LogPrior
from countperf.fitting.transfer import choice as choice_module
from countperf.fitting.transfer.choice import (
    ChosenKernel,
    ChosenSize,
    KernelChoice,
    shipped_choice,
    sparse,
)
from countperf.fitting.transfer.choosing import Knowledge, Offer, Population, choose_kernels
from measurement_kernels.catalog import entry


def _population(rows: int = 6, seed: int = 3) -> Population:
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(4, 0.5), rows)
    root = random.normal(size=(4, 4))
    return Population(
        shares=shares,
        importance=np.full(rows, 1.0 / rows),
        covariance=root @ root.T + 0.1 * np.eye(4),
        error=0.2,
    )


def _mean_variance(population: Population, covariance: np.ndarray) -> float:
    return float(np.mean([share @ covariance @ share for share in population.shares]))


@pytest.mark.parametrize("row", range(6))
def test_the_reduction_is_what_a_regression_with_the_case_leaves(row: int) -> None:
    population = _population()
    known = Knowledge(population)
    share = population.shares[row]
    after = np.linalg.inv(np.linalg.inv(population.covariance) + np.outer(share, share) / 0.2**2)

    expected = known.reductions(np.arange(6), np.full(6, 0.2))[row]
    before = known.variance
    known.measure(row, 0.2)

    assert before - known.variance == pytest.approx(expected)
    assert known.covariance == pytest.approx(after)
    assert known.variance == pytest.approx(_mean_variance(population, after))


def test_the_first_choice_gains_most_for_its_cost() -> None:
    population = _population()
    costs = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0]
    offers = [
        Offer(name=str(i), family=str(i), rows=((i,),), cost_s=cost) for i, cost in enumerate(costs)
    ]
    rates: list[float] = []
    for row, cost in enumerate(costs):
        known = Knowledge(population)
        before = known.variance
        known.measure(row, 0.2)
        rates.append((before - known.variance) / cost)

    chosen = list(choose_kernels([population], offers, budget_s=5.0))

    assert chosen[0].name == str(int(np.argmax(rates)))
    assert sum(each.cost_s for each in chosen) <= 5.0
    errors = [each.expected_error for each in chosen]
    assert errors == sorted(errors, reverse=True)


def test_a_family_is_not_measured_twice_before_others() -> None:
    shares = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    population = Population(
        shares=shares, importance=np.full(3, 1 / 3), covariance=np.eye(2), error=0.3
    )
    offers = [
        Offer(name="a1", family="a", rows=((0,),), cost_s=1.0),
        Offer(name="a2", family="a", rows=((1,),), cost_s=1.0),
        Offer(name="b", family="b", rows=((2,),), cost_s=1.0),
    ]

    chosen = [each.name for each in choose_kernels([population], offers, budget_s=2.0)]

    assert "b" in chosen


def test_a_choice_serves_the_kernels_that_are_named() -> None:
    kernels = tuple(
        ChosenKernel(
            name=name,
            family=name,
            sizes=(ChosenSize(parameters={"n": 1}, run_s=1e-3, shares=sparse(np.array(row))),),
        )
        for name, row in (("adds", [0.99, 0.01]), ("loads", [0.0, 1.0]))
    )
    choice = KernelChoice(
        population="made up",
        error=0.2,
        columns=(("compute", "a"), ("traffic", "b")),
        kernels=kernels,
    )
    prior = LogPrior(mean=np.zeros(2), covariance=np.eye(2))
    costs = {"adds": 1.0, "loads": 1.0}

    served = choice.serving(np.array([[0.0, 1.0]]), prior, costs, budget_s=10.0)

    assert [each.name for each in served] == ["loads", "adds"]


def test_what_ships_can_be_measured() -> None:
    path = Path(choice_module.__file__).parent / "kernels.json"
    choice = shipped_choice()

    assert path.stat().st_size < 300_000
    assert len(choice.kernels) > 100
    assert {entry(each.name).purpose for each in choice.kernels} == {"measurement"}
    for each in choice.kernels[:40]:
        cases = [entry(each.name).case_at(**size.parameters) for size in each.sizes]
        assert [case.family for case in cases] == [each.family] * len(cases)
        bytes_in_all = [case.global_memory_bytes for case in cases]
        assert bytes_in_all == sorted(bytes_in_all)
