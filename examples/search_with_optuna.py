"""A cost function as Optuna's objective: variants of a transpose, by predicted time.

``python examples/search_with_optuna.py [TRIALS]``. Each trial builds and counts a variant, which
takes some tens of milliseconds. Choices that the space's constraints rule out are pruned, and so
are variants for which the weights lack a cost.
"""

from __future__ import annotations

import sys

import optuna

import countperf
from countperf.api.searching import load_space
from countperf.errors import PredictionError


def main(trials: int) -> None:
    """Search, and print what was found."""
    space = load_space("transpose")
    weights = countperf.load_weights("pocl-epyc-zen5")

    def objective(trial: optuna.Trial) -> float:
        choice = {
            name: trial.suggest_categorical(name, list(values))
            for name, values in space.parameters.items()
        }
        if choice not in space:
            raise optuna.TrialPruned
        try:
            cost = weights.compile(space.build(**choice))
            return float(cost(**space.sizes))
        except PredictionError as error:  # a property without a weight
            raise optuna.TrialPruned(str(error)) from error

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=trials)
    print(f"{study.best_value * 1e3:.3f} ms predicted: {space.label(study.best_params)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
