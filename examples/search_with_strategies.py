"""A cost function under strategies in the manner of Kernel Tuner: random sampling, local search.

They see what Kernel Tuner's strategies see: ``tune_params`` (lists of values), ``restrictions``,
and a function from a configuration to seconds, here a prediction instead of a run:
``python examples/search_with_strategies.py [EVALUATIONS]``.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import countperf
from countperf.api.searching import load_space
from countperf.errors import PredictionError

Configuration = dict[str, Any]
INFINITE_S = float("inf")


class Evaluations:
    """Counts and remembers what was evaluated, and ends the search when the budget is spent."""

    def __init__(self, seconds_of: Callable[[Configuration], float], budget: int) -> None:
        self._seconds_of = seconds_of
        self._left = budget
        self.known: dict[tuple[Any, ...], float] = {}
        self.best: tuple[float, Configuration] = (INFINITE_S, {})

    def __call__(self, configuration: Configuration) -> float:
        """Return the seconds of a configuration; a known one costs nothing."""
        key = tuple(configuration.values())
        if key not in self.known:
            if not self._left:
                raise StopIteration
            self._left -= 1
            self.known[key] = self._seconds_of(configuration)
            if self.known[key] < self.best[0]:
                self.best = (self.known[key], configuration)
        return self.known[key]


def random_sample(
    evaluate: Evaluations, choices: list[Configuration], chance: random.Random
) -> None:
    """Evaluate configurations drawn from the space."""
    while True:
        evaluate(chance.choice(choices))


def greedy_local_search(
    evaluate: Evaluations, choices: list[Configuration], chance: random.Random
) -> None:
    """Go from random starts to a neighbor that is better, while there is one (Kernel Tuner's mls).

    Neighbors differ in one parameter.
    """
    while True:
        here = chance.choice(choices)
        seconds, improved = evaluate(here), True
        while improved:
            improved = False
            near = [c for c in choices if sum(c[name] != here[name] for name in c) == 1]
            for neighbor in chance.sample(near, len(near)):
                if evaluate(neighbor) < seconds:
                    here, seconds, improved = neighbor, evaluate(neighbor), True
                    break


def main(budget: int) -> None:
    """Run both strategies, and print what each found."""
    space = load_space("transpose")
    weights = countperf.load_weights("pocl-epyc-zen5")
    choices = list(islice(space.choices(), 5000))

    def seconds_of(configuration: Configuration) -> float:
        try:
            return float(weights.compile(space.build(**configuration))(**space.sizes))
        except PredictionError:  # a property without a weight
            return INFINITE_S

    for strategy in (random_sample, greedy_local_search):
        evaluate = Evaluations(seconds_of, budget)
        with contextlib.suppress(StopIteration):
            strategy(evaluate, choices, random.Random(0))
        seconds, configuration = evaluate.best
        print(f"{strategy.__name__}: {seconds * 1e3:.3f} ms: {space.label(configuration)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
