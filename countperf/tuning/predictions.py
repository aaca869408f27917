"""Predictions in the course of a search: a sample at first, the others beside the measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from countperf.deferred_interrupts import end_if_interrupted
from countperf.tuning.ranker import Ranker
from countperf.tuning.ranking import Ranking
from countperf.tuning.result import Key, Plan
from countperf.tuning.state import Spending

_WAIT_S = 0.25  # for an answer of the executor, before it is seen whether Ctrl-C was pressed
_OVERTIME_S = 1.0  # for a first prediction, where others were refused
_SAMPLE = 8  # points that are predicted before the first measurement, from all over the space


class Predictions:
    """Has a ranking go on as long as a search's seconds allow."""

    def __init__(
        self, ranker: Ranker, plan: Plan, spending: Spending, say: Callable[[str], None]
    ) -> None:
        self._ranker = ranker
        self._plan = plan
        self._spending = spending
        self._now = spending.now
        self._say = say
        self._is_over = False
        self._share = plan.ranking_share

    def begin(self) -> Ranking:
        """Predict for the first share of the seconds, and go on until there is a sample.

        Where no variant can be predicted, that ends soon after the seconds.
        """
        while not self._ranker.is_done:
            end_if_interrupted()
            left_s = self._left_s(self._plan.first_share)
            if left_s > 0:
                self._ranker.work(self._now() + min(_WAIT_S, left_s))
            elif self._is_enough() or self._is_in_vain():
                break
            else:
                self._ranker.work(None, most=1, wait_s=_WAIT_S)
        return self._told()

    def go_on(self) -> bool:
        """Have the executor go on while others work, and tell whether it does."""
        if self._is_over:
            return False
        end_if_interrupted()
        if self._left_s(self._share) <= 0:
            self._ranker.pause()
            self._is_over = True
        else:
            self._ranker.feed()
            self._is_over = self._ranker.is_done
        if self._is_over:
            self._told()
        return not self._is_over

    def correct(self, times_s: Mapping[Key, float]) -> None:
        """Have predictions follow what measurements say of points; see `Ranker.correct`."""
        self._ranker.correct(times_s)

    def keep_on(self) -> None:
        """Keep the executor busy while something else is waited for."""
        if self._is_over:
            return
        if self._left_s(self._share) > 0:
            self._ranker.feed()
        else:
            self._ranker.withdraw()

    def after(self, begin: Callable[[], None]) -> None:
        """Go on with predictions after something else has begun."""
        self._ranker.withdraw()
        begin()
        if not self._is_over:
            self._ranker.feed()

    def resume(self) -> bool:
        """Use the rest of the seconds for predictions, since nothing else is worth them.

        Tells whether anything is left to be predicted, and time for it.
        """
        self._is_over = self._ranker.is_done or self._left_s(1.0) <= 0
        self._share = 1.0
        return not self._is_over

    def wait(self) -> None:
        """Wait for predictions, since nothing else is to be done."""
        end_if_interrupted()
        self._ranker.work(self._now() + _WAIT_S)

    def ranking(self) -> Ranking:
        """Return what was predicted so far."""
        return self._ranker.ranking()

    def _left_s(self, share: float) -> float:
        """Return what is left of a share of the seconds, s."""
        seconds = self._spending.budget.seconds
        return float("inf") if seconds is None else share * seconds - self._spending.spent_s()

    def _is_enough(self) -> bool:
        """Tell whether the time being up, there is something to go on with."""
        ranker = self._ranker
        if not ranker.has_predictions:
            return False
        return ranker.answered >= _SAMPLE or self._left_s(self._plan.ranking_share) <= 0

    def _is_in_vain(self) -> bool:
        """Tell whether the seconds are over, and all variants that were looked at are refused."""
        answered = self._ranker.answered and not self._ranker.has_predictions
        return bool(answered) and self._left_s(1.0) < -_OVERTIME_S

    def _told(self) -> Ranking:
        """Say what was predicted, and return it."""
        ranking = self._ranker.ranking()
        some = "" if ranking.complete else ", others not looked at"
        self._say(f"{ranking.predicted} variants predicted, {ranking.refused} refused{some}")
        return ranking
