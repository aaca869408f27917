"""Result of a fit: weights, their errors and verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from countperf.display import Table, printed
from countperf.fitting.design import Design, Diagnosis, Observation
from countperf.fitting.estimate import Estimate
from countperf.fitting.leaving_out import HeldOutCase
from countperf.fitting.solve import Solution, Vector
from countperf.models.weights import WeightSet
from countperf.predictions import Verdict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitResult(Table):
    """A fit."""

    weights: WeightSet  # the weights with their uncertainty, ready to predict with and to be stored
    verdicts: tuple[Verdict, ...]  # one per check
    observations: tuple[Observation, ...]  # the measured cases of the fit
    estimate: Estimate  # the fitted function over the design, and what the design can tell apart
    # each case, predicted without its family, and corrected if the weights' predictions are
    held_out: tuple[HeldOutCase, ...]

    @property
    def design(self) -> Design:
        """The design matrix."""
        return self.estimate.design

    @property
    def diagnosis(self) -> Diagnosis:
        """Rank analysis of the design."""
        return self.estimate.diagnosis

    @property
    def solution(self) -> Solution:
        """The weights and then the parameters, with residuals as they were minimised."""
        return self.estimate.solution

    @property
    def predicted_s(self) -> Vector:
        """Times that the fit gives its own cases, s."""
        return self.estimate.predicted_s

    @property
    def relative_errors(self) -> Vector:
        """``|predicted - measured| / measured`` of each case of the fit."""
        return self.estimate.relative_errors

    @property
    def caveats(self) -> tuple[Verdict, ...]:
        """The verdicts that did not pass."""
        return tuple(verdict for verdict in self.verdicts if not verdict.passed)

    __repr__ = printed
