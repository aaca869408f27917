"""What measured series say, with noise."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.errors import MeasurementError
from countperf.harness.characterization.bench import Estimate, time_per_turn
from countperf.harness.characterization.estimates import (
    Sharing,
    bank_count,
    find_cache_levels,
    fit_transfer,
    judge_mix,
    mix_throughput,
)
from countperf.harness.characterization.experiments import chase_order

RATIOS = (1, 2, 4, 8, 16)


@pytest.mark.parametrize(
    ("sharing", "limit", "noise"),
    [
        ("one subsystem", None, 0.0),
        ("one subsystem", None, 0.03),
        ("two subsystems", None, 0.0),
        ("two subsystems", None, 0.03),
        ("two subsystems with an issue limit", 1.0, 0.0),
        ("two subsystems with an issue limit", 1.0, 0.03),
        # shows at one ratio only, and by 4 %
        ("two subsystems with an issue limit", 1.2, 0.0),
    ],
)
def test_how_two_classes_share(sharing: Sharing, limit: float | None, noise: float) -> None:
    random = np.random.default_rng(5)
    measured = {
        ratio: mix_throughput(ratio, 1.0, 4.0, sharing, limit or np.inf)
        * (1 + noise * random.uniform(-1, 1))
        for ratio in RATIOS
    }

    verdict = judge_mix(measured, 1.0, 4.0)

    assert verdict.sharing == sharing
    assert verdict.error <= noise + 0.01
    if limit is not None:
        assert verdict.issue_limit == pytest.approx(limit, rel=0.02 + noise)


def test_cache_levels_with_noise_and_ramps() -> None:
    random = np.random.default_rng(2)
    sizes = [2**k for k in range(11, 28)]
    exact = [30.0 if s <= 2**17 else 250.0 if s <= 2**24 else 700.0 for s in sizes]
    exact[sizes.index(2**18)] = 120.0  # partly in the first cache
    noisy = [each * random.uniform(0.97, 1.03) for each in exact]

    levels = find_cache_levels(sizes, noisy)

    assert [level.size_bytes for level in levels] == [2**17, 2**24, None]
    assert [level.latency_s for level in levels] == pytest.approx([30, 250, 700], rel=0.03)


def test_one_level_is_memory() -> None:
    (level,) = find_cache_levels([1024, 2048, 4096], [9.0, 9.1, 8.9])

    assert level.size_bytes is None


def test_nothing_but_noise_gives_levels_all_the_same() -> None:
    random = np.random.default_rng(0)
    sizes = [2**k for k in range(11, 25)]
    for _ in range(200):
        levels = find_cache_levels(sizes, random.normal(1e-9, 5e-9, len(sizes)).tolist())

        assert levels[-1].size_bytes is None
        assert all(level.latency_s > 0 for level in levels)


def test_longer_runs_that_take_no_longer_are_named() -> None:
    with pytest.raises(MeasurementError, match="barriers: longer runs take no longer"):
        Estimate(-1.0).checked("barriers")


def test_a_transfer_with_noise() -> None:
    random = np.random.default_rng(1)
    sizes = [2**k for k in range(10, 27, 2)]
    times = [(8e-6 + size / 2e10) * random.uniform(0.97, 1.03) for size in sizes]

    assert fit_transfer(sizes, times) == pytest.approx((8e-6, 2e10), rel=0.05)


@pytest.mark.parametrize("banks", [16, 32, 64])
def test_banks(banks: int) -> None:
    costs = {2**k: float(min(2**k, banks)) for k in range(8)}

    assert bank_count(costs) == banks


def test_a_chase_visits_every_line_once() -> None:
    following = chase_order(64)

    place, seen = 0, set[int]()
    for _ in range(64):
        seen.add(place)
        place = int(following[place])

    assert place == 0
    assert seen == {32 * line for line in range(64)}


def test_launching_does_not_count() -> None:
    calls: list[int] = []

    def run(turns: int) -> float:
        calls.append(turns)
        return 5e-6 + 2e-8 * turns

    found = time_per_turn(run, shortest_s=1e-4)

    assert found.value == pytest.approx(2e-8)
    assert found.spread < 1e-6
    assert 5e-6 + 2e-8 * max(calls) / 3 >= 1e-4


def test_other_load_does_not_count() -> None:
    random = np.random.default_rng(0)

    def run(turns: int) -> float:
        return 5e-6 + 2e-8 * turns + float(random.exponential(1e-5))

    assert time_per_turn(run, shortest_s=1e-3, tries=5).value == pytest.approx(2e-8, rel=0.05)
