"""The winner of a search is held against the default variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.cli import main
from countperf.report.tuning import tuning_object, tuning_text
from countperf.tuning.contrast import OTHERS, Contrast, contrast_of
from countperf.tuning.points import Predicted
from countperf.tuning.space import Choice
from tests.tuning.test_search import scripted, search

FIRST = {"group": 16, "each": 1, "fetch": False}


def predicted(tile: int, time_s: float, **parts: float) -> Predicted:
    return Predicted(choice={"tile": tile}, time_s=time_s, parts=parts)


def contrast(points: list[Predicted], measured_s: dict[int, float]) -> Contrast | None:
    def time_of(choice: Choice) -> float | None:
        return measured_s.get(int(choice["tile"]))

    return contrast_of(
        points, {"tile": 8}, {"tile": 1}, time_of=time_of, model="linear", device="d", sizes={}
    )


def test_the_default_has_the_first_values() -> None:
    """4096 numbers in groups of 16 are 256 groups, in groups of 128 times 4 they are 8."""
    found = search(scripted()).contrast

    assert found is not None
    assert found.default.choice == FIRST
    assert found.winner.choice == {"group": 128, "each": 4, "fetch": False}
    parts = found.pair.first.breakdown, found.pair.second.breakdown
    each_s = 1e-7  # weight of a group
    assert parts[0]["groups"] == pytest.approx(8 * each_s, rel=2e-3)
    assert parts[1]["groups"] == pytest.approx(256 * each_s, rel=2e-3)
    assert "default takes 24.8 µs longer than winner" in found.pair.cause
    assert "starting work groups (24.8 µs)" in found.pair.cause


def test_parts_sum_to_the_time() -> None:
    points = [
        predicted(8, 1e-3, groups=0.25, launches=0.7499),  # rounded
        predicted(1, 4e-3, groups=0.9),  # what is below a hundredth is left out
    ]
    found = contrast(points, {8: 1.1e-3})

    assert found is not None
    winner, default = found.pair.first.breakdown, found.pair.second.breakdown
    assert sum(winner.values()) == pytest.approx(1e-3)
    assert OTHERS not in winner
    assert default == pytest.approx({"groups": 3.6e-3, OTHERS: 0.4e-3})
    assert found.default_s is None


def test_nothing_is_compared_without_two_predictions() -> None:
    assert contrast([predicted(8, 1e-3)], {8: 1e-3}) is None
    assert contrast([predicted(1, 1e-3)], {8: 1e-3}) is None
    assert contrast([predicted(8, 1e-3), predicted(1, 2e-3)], {1: 1e-3}) is None


@pytest.mark.extra("report")
def test_results_and_pages_say_why(tmp_path: Path) -> None:
    store, page = tmp_path / "search.jsonl", tmp_path / "search.html"
    result = search(scripted(), store=store)

    text = tuning_text(result)
    assert "against the default variant (group=16 each=1 fetch=no): predicted 2.36 times" in text
    assert "why, as predicted: default takes 24.8 µs longer than winner" in text
    assert tuning_object(result)["against_default"]["default"]["choice"] == FIRST

    main(["report", str(store), "--output", str(page)])
    written = page.read_text()
    assert "Why it beats the default variant" in written
    assert "default takes 24.8 µs longer than winner" in written
    assert search(scripted(), store=store).contrast == result.contrast  # read from the file
