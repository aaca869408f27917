"""Optuna runs our sampler."""

from __future__ import annotations

from doctest import DocTestParser
from itertools import product
from typing import Any

import pytest

optuna: Any = pytest.importorskip("optuna", reason="needs the extra 'tuners'")

from countperf.errors import ParameterError  # noqa: E402
from countperf.integrations import optuna as sampling  # noqa: E402
from countperf.integrations.optuna import PosteriorSampler  # noqa: E402
from countperf.tuning.space import SearchSpace  # noqa: E402

CONFIGURATIONS = [
    {"tile": tile, "unroll": unroll, "layout": layout}
    for tile, unroll, layout in product((8, 16, 32, 64), range(1, 7), ("soa", "aos"))
    if tile * unroll <= 256
]


def seconds(trial: Any) -> float:
    tile = trial.suggest_categorical("tile", [8, 16, 32, 64])
    unroll = trial.suggest_categorical("unroll", [1, 2, 3, 4, 5, 6])
    layout = trial.suggest_categorical("layout", ["soa", "aos"])
    assert {"tile": tile, "unroll": unroll, "layout": layout} in CONFIGURATIONS
    if layout == "soa" and unroll == 6:
        raise optuna.TrialPruned
    return 1e-3 * (1 + abs(unroll - 4) + (tile != 32) + (layout == "soa"))


def study_of(configurations: Any, trials: int = 0, **options: Any) -> Any:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=PosteriorSampler(configurations, **options))
    if trials:
        study.optimize(seconds, n_trials=trials)
    return study


def suggest_tile(trial: Any) -> Any:
    return trial.suggest_categorical("tile", [8, 16, 32])


def test_the_best_of_the_list_is_found_in_a_third_of_it() -> None:
    study = study_of(CONFIGURATIONS, 15, seed=1)
    assert study.best_params == {"tile": 32, "unroll": 4, "layout": "aos"}


def test_the_study_ends_when_all_were_tried() -> None:
    configurations = [{"tile": tile, "pad": pad} for tile in (8, 16, 32) for pad in (False, True)]
    study = study_of(configurations)

    def objective(trial: Any) -> float:
        tile = suggest_tile(trial)
        trial.suggest_categorical("pad", [False, True])
        trial.suggest_float("else", 0.0, 1.0)
        return float(tile)

    study.optimize(objective, n_trials=50)
    assert len({(t.params["tile"], t.params["pad"]) for t in study.trials}) == 6
    assert len(study.trials) <= 7


def test_trials_by_ask_and_tell_go_on_with_the_best_when_all_were_tried() -> None:
    study = study_of([{"tile": tile} for tile in (8, 16, 32)])
    for _ in range(5):
        trial = study.ask()
        study.tell(trial, 1.0 + abs(suggest_tile(trial) - 16))
    assert {trial.params["tile"] for trial in study.trials[:3]} == {8, 16, 32}
    assert [trial.params["tile"] for trial in study.trials[3:]] == [16, 16]


def test_enqueued_trials_teach_their_own_configuration() -> None:
    study = study_of([{"tile": tile} for tile in (8, 16, 32)])
    study.enqueue_trial({"tile": 32})
    study.optimize(suggest_tile, n_trials=3)
    assert study.trials[0].params == {"tile": 32}
    assert {trial.params["tile"] for trial in study.trials} == {8, 16, 32}


@pytest.mark.parametrize("directions", [["maximize"], ["minimize", "minimize"]])
def test_other_objectives_than_one_time_are_refused(directions: list[str]) -> None:
    study = optuna.create_study(sampler=PosteriorSampler(CONFIGURATIONS), directions=directions)
    with pytest.raises(ParameterError, match='create the study with direction="minimize"'):
        study.optimize(seconds, n_trials=1)


def test_a_cost_function_decides_the_first() -> None:
    study = study_of(CONFIGURATIONS, 1, cost=lambda c: 1.0 + abs(c["tile"] * c["unroll"] - 96))
    assert study.trials[0].params["tile"] * study.trials[0].params["unroll"] == 96


def test_the_example_of_the_documentation_runs() -> None:
    space = SearchSpace(
        name="toy", parameters={"x": (4, 1, 2), "y": (2, 3, 1)}, build=dict, constraints=("x > 1",)
    )
    names: dict[str, Any] = {"space": space, "cost": lambda choice: choice["x"] + 1 / choice["y"]}
    assert sampling.__doc__ is not None
    for example in DocTestParser().get_examples(sampling.__doc__):
        exec(example.source, names)
    assert names["study"].best_params == {"x": 2, "y": 3}
    assert len({str(trial.params) for trial in names["study"].trials}) == 6


def test_values_that_the_objective_lacks_are_named() -> None:
    study = study_of([{"x": 1}, {"x": 2}])
    with pytest.raises(ParameterError, match=r"suggests x of \[3, 4\].* suggest all values"):
        study.optimize(lambda trial: trial.suggest_categorical("x", [3, 4]), n_trials=1)
