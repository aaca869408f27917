"""What fits record about the measurements that they rest on."""

from __future__ import annotations

import pytest

from countperf.fitting.exercise import exercise
from countperf.fitting.fit import fit, observations_of
from countperf.models.weights import WeightSet
from tests.fitting.builders import KERNELS, TRUE_WEIGHTS, MadeUpKernel, measure
from tests.models.builders import sum_model

MEASURED = measure()
GROUPED = tuple(
    MadeUpKernel(
        name=k.name,
        family=k.family,
        counts={**k.counts, "groups": "[n] -> { floor((n + 255)/256) }"} if k.counts else k.counts,
        sizes=k.sizes,
    )
    for k in KERNELS
)


def test_cases_families_and_properties_of_each_weight() -> None:
    found = fit(MEASURED).weights.exercise

    special = found["flop.special.f32"]
    assert special.families == {"arithmetic": 3}
    assert (special.kernels, special.cases) == (1, 3)
    assert special.properties == ("flop.special.f32.exp", "flop.special.f32.rsqrt")
    assert found["flop.add.f32"].families == {"stride1": 3, "stride2": 3, "arithmetic": 3}


def test_shares_are_of_the_measured_time_each_case_counting_the_same() -> None:
    found = fit(MEASURED).weights.exercise["flop.special.f32"]

    rsqrt = KERNELS[4]
    shares = [
        350 * n * TRUE_WEIGHTS["flop.special.f32"] / case.time_s
        for n, case in zip(rsqrt.sizes, rsqrt.observe(), strict=True)
    ]
    assert found.mean_share == pytest.approx(sum(shares) / 3, rel=1e-6)
    assert found.largest_share == pytest.approx(max(shares), rel=1e-6)


def test_a_weight_rests_on_families_without_which_nothing_determines_it() -> None:
    found = fit(MEASURED).weights.exercise

    # additions and stores occur together but for what two families of kernels say of them
    assert found["gmem.load.32.1of2"].relies_on == ("stride1", "stride2", "arithmetic")
    assert found["launches"].relies_on == ()


def test_a_weight_rests_on_no_family_that_another_can_stand_for() -> None:
    twins = [
        MadeUpKernel(name=f"{k.name}-b", family=f"{k.family}-b", counts=k.counts)
        for k in KERNELS
        if k.family in ("stride1", "arithmetic")
    ]
    found = fit(measure((*KERNELS, *twins))).weights.exercise

    assert found["gmem.load.32.1of2"].relies_on == ("stride2",)
    assert found["flop.special.f32"].relies_on == ()


def test_ranges_are_of_each_work_group() -> None:
    weights = {**TRUE_WEIGHTS, "groups": 1e-9}
    found = fit(measure(GROUPED, weights=weights)).weights.exercise

    loads = found["gmem.load.32.stride1"].per_group
    assert loads is not None
    assert (loads.smallest, loads.largest) == (256, 1024)  # copy, and the sum of four


def test_scales_of_terms_are_recorded() -> None:
    model = sum_model(
        {"launch": ["launches"], "work": {"charged": ["flop.*.*", "gmem.*.*.*"], "scale": "twice"}},
        derived={"twice": "2*launches"},
        ignored=["lmem.*", "barrier.*", "groups"],
    )
    weights = fit(MEASURED, model=model).weights
    found = weights.exercise

    assert set(found) == {*weights.function.keys, "twice"}
    assert found["twice"].properties == ("launches",)
    assert found["twice"].mean_share is None


def test_documents_keep_it_and_the_measurements_give_it_again() -> None:
    weights = fit(MEASURED).weights

    assert WeightSet.from_object(weights.to_object()).exercise == weights.exercise
    again = exercise(weights.function, weights.unknowns, observations_of(MEASURED))
    assert again == weights.exercise
