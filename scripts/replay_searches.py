"""Search recorded spaces again: what share of the fastest variant's speed a search finds.

    python scripts/replay_searches.py fits/pocl-epyc-zen5/tuning/matmul.jsonl ...

Each file has the times of all variants of a space. A search ends after 5 % of the time that
building and measuring all of them took. Predictions are of today's weights and cost nothing; the
figures in README.md are of release 0.2.0, and predictions cost time there (`fits/searches.md`). A
file takes minutes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import numpy as np

from countperf.api.searching import load_space
from countperf.models.library import load_weights
from countperf.tuning.posterior import Chooser
from countperf.tuning.ranker import PredictionTask, predict_point

SHARE = 0.05
SEARCHES = 3


def replay(file: Path) -> dict[str, float]:
    """Return the share of the fastest variant's speed that each kind of search finds."""
    head, *lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    choices = [dict(zip(head["parameters"], line["choice"], strict=True)) for line in lines]
    times_s = [min(line["samples_s"]) for line in lines]
    costs_s = [
        line["build_s"] + line.get("warm_up_s", 0) + sum(line["samples_s"]) for line in lines
    ]
    budget_s = SHARE * sum(costs_s)
    task = PredictionTask(
        space=load_space(head["space"]),
        weights=load_weights(head["device"]["slug"]),
        sizes=head["sizes"],
        incomplete_ok=True,
    )
    points = [predict_point(task, choice) for choice in choices]
    predicted_s = np.array([getattr(point, "time_s", np.nan) for point in points])

    def share(order: Iterable[int]) -> float:
        """Return the share that a search finds which looks at variants in an order."""
        best_s, left_s = np.inf, budget_s
        for index in order:
            left_s -= costs_s[index]
            if left_s < 0:
                break
            best_s = min(best_s, times_s[index])
        return min(times_s) / best_s

    def search(chooser: Chooser) -> Iterable[int]:
        while (index := chooser.ask()) is not None:
            yield index
            chooser.tell(index, times_s[index])

    return {
        "model alone": min(times_s) / times_s[int(np.nanargmin(predicted_s))],
        "tune": share(search(Chooser(choices, predicted_s))),
        "tune without a model": median(
            share(search(Chooser(choices, seed=seed))) for seed in range(SEARCHES)
        ),
        "random search": median(
            share(np.random.default_rng(seed).permutation(len(lines))) for seed in range(SEARCHES)
        ),
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, {kind: f"{share:.0%}" for kind, share in replay(Path(name)).items()})
