"""Search of configurations without a model."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from countperf.errors import ParameterError
from countperf.tuning.configuration_search import (
    ConfigurationSearch,
    Evidence,
    inputs_of,
    prior_logs,
)

SPACE: list[dict[str, Any]] = [
    {"tile": tile, "unroll": unroll, "layout": layout, "fixed": 3}
    for tile, unroll, layout in product(
        (1, 2, 4, 8, 16, 32, 64, 128), range(8), ("soa", "aos", "x")
    )
]


def time_of(choice: dict[str, Any]) -> float:
    apart = abs(np.log2(choice["tile"] / 16)) + 0.3 * abs(choice["unroll"] - 5)
    return 1e-3 * 1.4**apart * (1.0 if choice["layout"] == "aos" else 1.6)


def search_for(search: ConfigurationSearch, measurements: int) -> list[int]:
    """Run a search on the space's times."""
    for _ in range(measurements):
        place = search.ask()
        assert place is not None
        search.tell(place, time_of(SPACE[place]))
    return list(search.told)


def test_the_optimum_of_a_smooth_space_is_found_in_a_tenth_of_it() -> None:
    search = ConfigurationSearch(SPACE, seed=1)

    search_for(search, 20)

    assert search.best is not None
    assert SPACE[search.best] == {"tile": 16, "unroll": 5, "layout": "aos", "fixed": 3}


def test_nothing_is_asked_twice_and_the_search_ends() -> None:
    some = SPACE[:12]
    search = ConfigurationSearch(some)

    asked = []
    while (place := search.ask()) is not None:
        asked.append(place)
        search.tell(place, time_of(some[place]))

    assert sorted(asked) == list(range(12))


def test_the_same_seed_asks_the_same() -> None:
    assert search_for(ConfigurationSearch(SPACE, seed=3), 12) == search_for(
        ConfigurationSearch(SPACE, seed=3), 12
    )


def test_regions_that_fail_are_left_alone() -> None:
    """A third of the space fails; a search that did not learn it would meet about a third."""
    search = ConfigurationSearch(SPACE, seed=2)
    failed = 0
    for _ in range(40):
        place = search.ask()
        assert place is not None
        fails = SPACE[place]["layout"] == "x"
        failed += fails
        search.tell(place, None if fails else time_of(SPACE[place]))

    assert failed <= 7
    assert search.best is not None
    assert SPACE[search.best]["layout"] == "aos"


def test_a_ranking_model_decides_the_first_and_measurements_correct_it() -> None:
    errors = np.random.default_rng(5).normal(scale=0.4, size=len(SPACE))
    times = np.array([time_of(each) for each in SPACE])
    predicted = times * np.exp(errors)
    search = ConfigurationSearch(SPACE, predicted_s=predicted)

    first = search.ask()
    search_for(search, 12)

    assert first == int(np.argmin(predicted))
    assert times[first] > times.min()
    assert search.best == int(np.argmin(times))


def test_dear_configurations_wait() -> None:
    """Of two halves that promise alike, the one that costs a thousand times less comes first."""
    space = [{"a": a, "slow": slow} for a in range(30) for slow in (False, True)]
    search = ConfigurationSearch(space, seed=4)
    for place in (0, 1, 20, 21, 40, 41, 58, 59, 10, 11):
        time_s = 1.0 if space[place]["slow"] else 1e-3
        search.tell(place, time_s, cost_s=1e-6 + 1000 * time_s)

    place = search.ask()

    assert place is not None
    assert not space[place]["slow"]


def test_inputs_are_logarithms_ranks_and_indicators() -> None:
    space = [
        {"size": size, "count": count, "mode": mode}
        for size, count, mode in ((1, 5, "a"), (2, 6, "b"), (16, 9, "a"))
    ]

    inputs = inputs_of(space)

    np.testing.assert_allclose(inputs, [[0, 0, 0], [0.25, 0.5, 1], [1, 1, 0]])


def test_gradient_of_the_evidence_is_that_of_finite_differences() -> None:
    random = np.random.default_rng(0)
    there = random.uniform(size=(9, 3))
    evidence = Evidence(
        apart=np.abs(there[:, None] - there[None]),
        values=random.normal(size=9),
        base=0.25 * np.outer(there[:, 0], there[:, 0]),
    )
    at = prior_logs(3) + random.normal(size=4) / 2

    _, gradient = evidence(at)

    steps = 1e-6 * np.eye(4)
    numeric = [(evidence(at + step)[0] - evidence(at - step)[0]) / 2e-6 for step in steps]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-7)


def test_factors_that_grow_are_those_of_all_measurements_at_once() -> None:
    """The mean and deviation are compared with the textbook's formulas (Rasmussen, Williams)."""
    random = np.random.default_rng(1)
    search = ConfigurationSearch(SPACE, predicted_s=random.uniform(1, 2, len(SPACE)))
    places = random.permutation(len(SPACE))[:60]
    values = random.normal(size=60)
    for count in (30, 33, 34):  # the scales are kept from 30 on
        mean, deviation = search._process(places[:count], values[:count])
    factors = search._factors
    assert factors is not None
    scales, inputs, slopes = factors.scales, search._inputs, search._slopes
    similar = np.exp(-(np.abs(inputs[:, None] - inputs[None]) / scales.lengths).sum(axis=2))
    covariance = similar + np.outer(slopes, slopes)
    own = scales.noise + 1e-6
    some = places[:34]
    inverse = np.linalg.inv(covariance[np.ix_(some, some)] + own * np.eye(34))
    square = (values[:34] @ inverse @ values[:34] + 1) / 35
    reach = covariance[:, some]
    variance = np.diag(covariance) + own - np.einsum("ij,jk,ik->i", reach, inverse, reach)

    np.testing.assert_allclose(mean, reach @ inverse @ values[:34], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(deviation, np.sqrt(square * variance), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ConfigurationSearch([]), "no configuration to search"),
        (
            lambda: ConfigurationSearch(SPACE, predicted_s=[1.0]),
            "pass one time for each of the 192",
        ),
        (lambda: ConfigurationSearch(SPACE).tell(192, 1.0), "there is no configuration 192"),
        (lambda: ConfigurationSearch(SPACE).tell(0, -1.0), "is not positive and finite"),
        (lambda: ConfigurationSearch(SPACE).tell(0, float("nan")), "pass None for one that failed"),
    ],
)
def test_bad_input_is_refused(call: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        call()
