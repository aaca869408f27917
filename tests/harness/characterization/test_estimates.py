"""What measured series say, with noise."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.errors import MeasurementError
from countperf.harness.characterization.bench import (
    Estimate,
    Sharing,
    fit_transfer,
    judge_mix,
    mix_throughput,
    time_per_turn,
)
from countperf.harness.characterization.experiments import chase_order, moved_together

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


def test_a_transfer_with_noise() -> None:
    random = np.random.default_rng(1)
    sizes = [2**k for k in range(10, 27, 2)]
    times = [(8e-6 + size / 2e10) * random.uniform(0.97, 1.03) for size in sizes]

    assert fit_transfer(sizes, times) == pytest.approx((8e-6, 2e10), rel=0.05)


@pytest.mark.parametrize("words", [4, 8, 16])
def test_what_moves_together(words: int) -> None:
    rates = {2**k: 1e9 / min(2**k, words) for k in range(6)}

    assert moved_together(rates) == 4 * words
    assert moved_together(dict.fromkeys(rates, 1e9)) is None


def test_a_chase_visits_every_line_once() -> None:
    following = chase_order(64)

    word, seen = 0, set[int]()
    for _ in range(64):
        seen.add(word)
        word = int(following[word])

    assert word == 0
    assert seen == {32 * line for line in range(64)}


def test_launching_and_other_load_do_not_count() -> None:
    random, calls = np.random.default_rng(0), list[int]()

    def quiet(turns: int) -> float:
        calls.append(turns)
        return 5e-6 + 2e-8 * turns

    def busy(turns: int) -> float:
        return quiet(turns) + float(random.exponential(1e-5))

    turn = time_per_turn(quiet, shortest_s=1e-4)
    assert turn.value == pytest.approx(2e-8)
    assert turn.spread < 1e-6
    assert 5e-6 + 2e-8 * max(calls) / 3 >= 1e-4
    assert time_per_turn(busy, shortest_s=1e-3, tries=5).value == pytest.approx(2e-8, rel=0.05)
    with pytest.raises(MeasurementError, match="barriers: longer runs take no longer"):
        Estimate(-1.0).checked("barriers")
