"""Share of a search's seconds that predictions get."""

from __future__ import annotations

from typing import Any, cast

import pytest

from countperf.tuning.exclusive_timing import TimingLock
from countperf.tuning.predictions import Predictions
from countperf.tuning.ranker import Ranker
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import Plan


class _Ranker:
    """A ranking without end."""

    is_done = False

    def ranking(self) -> Any:
        return cast(Ranking, type("Extent", (), {"position": 0, "ahead": ()}))

    def feed(self) -> None:
        pass

    def pause(self) -> None:
        pass


def _predictions(spent_s: float) -> Predictions:
    return Predictions(
        cast(Ranker, _Ranker()),
        TimingLock(),
        Plan(ranking_share=0.4, prior_scatter=0.5),
        seconds=100.0,
        now=lambda: spent_s,
        spent_s=lambda: spent_s,
        note=lambda _: None,
    )


@pytest.mark.parametrize(
    ("scatter", "share_s"),
    [(0.1, 40.0), (0.5, 40.0), (1.0, 20.0), (2.0, 10.0)],
)
def test_predictions_that_are_far_off_get_less_time(scatter: float, share_s: float) -> None:
    for spent_s, goes_on in ((share_s - 0.1, True), (share_s + 0.1, False)):
        predictions = _predictions(spent_s)
        predictions.trust(scatter)
        assert predictions.go_on() is goes_on


def test_predictions_that_nothing_else_is_worth_go_on() -> None:
    predictions = _predictions(60.0)
    assert not predictions.go_on()

    assert predictions.resume()
    predictions.trust(2.0)

    assert predictions.go_on()
