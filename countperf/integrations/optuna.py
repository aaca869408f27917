"""Sampler for Optuna, over an explicit list of configurations, such as those of a search space.

>>> import optuna  # doctest: +SKIP
>>> from countperf.integrations.optuna import PosteriorSampler  # doctest: +SKIP
>>> def objective(trial):  # doctest: +SKIP
...     choice = {
...         name: trial.suggest_categorical(name, list(values))
...         for name, values in space.parameters.items()
...     }
...     return cost(space.build(**choice))
>>> sampler = PosteriorSampler(list(space.choices()))  # doctest: +SKIP
>>> study = optuna.create_study(sampler=sampler)  # doctest: +SKIP
>>> study.optimize(objective, n_trials=50)  # doctest: +SKIP

The objective suggests each parameter from all values that the list has, in any order, and returns
seconds; parameters that the list does not have are drawn at random. A trial that fails, or is
pruned, counts as a configuration that does not run. Enqueued trials are learned from if the list
has their configuration.

Source: Optuna's documentation, "User-defined sampler" (``optuna.samplers.BaseSampler``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from countperf.errors import MissingExtraError, ParameterError
from countperf.integrations import Cost, predict_times
from countperf.tuning.posterior import FIRST, Chooser
from countperf.tuning.space import Choice

try:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    said = "this sampler needs Optuna 4 or later: pip install 'countperf[tuners]'"
    raise MissingExtraError(said, extra="tuners") from error


class PosteriorSampler(BaseSampler):
    """Sampler that suggests configurations of a list, all parameters of one together."""

    def __init__(
        self,
        configurations: Sequence[Choice],
        cost: Cost | None = None,
        *,
        first: int = FIRST,
        seed: int = 0,
    ) -> None:
        self._configurations = list(configurations)
        predicted_s = None if cost is None else predict_times(cost, self._configurations)
        self._chooser = Chooser(self._configurations, predicted_s, first=first, seed=seed)
        self._asked: dict[int, int] = {}
        self._chosen: dict[int, Choice] = {}
        self._others = RandomSampler(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Choose the configuration to try next; the study ends when all were tried."""
        if study.directions != [StudyDirection.MINIMIZE]:
            mend = 'create the study with direction="minimize" and no further objective'
            said = f"this sampler looks for the shortest time: {mend}"
            raise ParameterError(said, parameter="direction")
        index = self._chooser.ask()
        if index is None:
            with contextlib.suppress(RuntimeError):  # trials by ask and tell run in no loop
                study.stop()
            index = self._chooser.best
        else:
            self._asked[trial.number] = index
        self._chosen[trial.number] = self._configurations[index]

    def infer_relative_search_space(self, *_: Any, **__: Any) -> dict[str, BaseDistribution]:
        """Return nothing: the objective says in which order a parameter has its values."""
        return {}

    def sample_relative(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return nothing, as there is no relative search space."""
        return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the value of the chosen configuration; one at random for other parameters."""
        chosen = self._chosen[trial.number]
        if param_name not in chosen:
            return self._others.sample_independent(study, trial, param_name, param_distribution)
        value = chosen[param_name]
        values = getattr(param_distribution, "choices", (value,))
        if value not in values:
            said = f"the objective suggests {param_name} of {list(values)}, and a configuration has"
            message = f"{said} {value!r}: suggest all values of the configurations"
            raise ParameterError(message, parameter=param_name)
        return value

    def after_trial(
        self,
        study: Study,  # noqa: ARG002
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Learn from a trial that has ended."""
        index = self._asked.pop(trial.number, None)
        self._chosen.pop(trial.number, None)
        given: dict[str, Any] = {name: trial.params.get(name) for name in self._configurations[0]}
        asked = {} if index is None else self._configurations[index]
        if any(asked.get(name) != value for name, value in trial.params.items() if name in given):
            if given not in self._configurations:
                return
            index = self._configurations.index(given)
        if index is None:
            return
        ran = state == TrialState.COMPLETE and values is not None and values[0] > 0
        self._chooser.tell(index, float(values[0]) if ran and values is not None else None)
