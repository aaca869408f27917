"""The result of a search, from what was predicted and tried."""

from __future__ import annotations

from countperf.errors import TuningError
from countperf.tuning.candidates import Candidates
from countperf.tuning.contrast import Contrast, contrast_of, first_listed
from countperf.tuning.points import PredictionTask
from countperf.tuning.ranking import Ranking, by_stage
from countperf.tuning.result import Plan, Stop, Trial, TuningResult, as_key, ties
from countperf.tuning.space import SearchSpace

_UNPREDICTED = ("count", "predict")  # stages at which variants fall out that there may well be


def outcome(
    task: PredictionTask,
    space: SearchSpace,
    plan: Plan,
    known: Candidates,
    ranking: Ranking,
    *,
    device: str,
    stopped: Stop,
    spent_s: float,
) -> TuningResult:
    """Return the result of a search."""
    failed = tuple(known.refused.values())
    if not known.tried:
        reasons = [refused.reason for refused in failed]
        raise TuningError(
            f"no variant of '{space.name}' ran on {device}"
            f" ({len(reasons)} tried): {reasons[0] if reasons else 'no time for one'}",
            refusals=reasons,
        )
    tried = tuple(sorted(known.tried.values(), key=lambda each: each.at_s))
    winner, within = ties(tried, floor=0.0)
    unbounded = _unbounded(space, ranking)
    is_alone = known.known == 1 and unbounded > 0
    return TuningResult(
        space=space.name,
        device=device,
        sizes=ranking.sizes,
        winner=winner,
        within_noise=within,
        tried=tried,
        failed=failed,
        refusals={**ranking.refusals, **by_stage(failed)},
        predicted=ranking.predicted,
        ranking_complete=ranking.complete,
        stopped=stopped,
        confidence=plan.confidence,
        regret_bound=None if is_alone else known.regret(winner),
        bounded=known.known,
        unbounded=unbounded,
        spent_s=spent_s,
        ranking_s=ranking.seconds,
        numbers_checked=space.reference is not None,
        contrast=_contrast(task, space, known, ranking, winner),
    )


def _contrast(
    task: PredictionTask, space: SearchSpace, known: Candidates, ranking: Ranking, winner: Trial
) -> Contrast | None:
    """Hold the winner against the default variant."""
    default = first_listed(ranking.best, space)
    if default is None:
        return None
    tried = known.tried
    return contrast_of(
        ranking.best,
        winner.choice,
        default.choice,
        time_of=lambda each: tried[as_key(each)].time_s if as_key(each) in tried else None,
        model=task.weights.model,
        device=task.weights.device.slug,
        sizes=ranking.sizes,
    )


def _unbounded(space: SearchSpace, ranking: Ranking) -> int:
    """Return how many variants there may be of which nothing is known."""
    without = sum(ranking.refusals[s].count for s in _UNPREDICTED if s in ranking.refusals)
    if ranking.complete:
        return without
    return without + max(0, space.left(ranking.position) - len(ranking.ahead))
