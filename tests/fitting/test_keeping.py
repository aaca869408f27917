"""Weights that a fit keeps: those of the features that take the largest shares of the time."""

from __future__ import annotations

import numpy as np
import pytest

from countperf.fitting.design import Observation, inputs_of
from countperf.fitting.estimate import estimate, recipe_of
from countperf.fitting.fit import fit
from countperf.fitting.keeping import keep_largest, smallest_features
from countperf.models.definition import ModelDefinition
from tests.fitting.builders import measure

LOAD, ADD, LOCAL = "gmem.load.32.stride1", "flop.add.f32", "lmem.load.32"


def model(most: int | None) -> ModelDefinition:
    return ModelDefinition.from_object(
        {
            "format": "countperf-model",
            "version": 3,
            "name": "some",
            "residual": "log",
            "most_weights": most,
            "terms": {"cost": ["launches", "gmem.*.*.*", "flop.*.*", "lmem.*.*"]},
        }
    )


def cases() -> list[Observation]:
    random = np.random.default_rng(5)
    found: list[Observation] = []
    for i, (a, b, c) in enumerate(10 ** random.uniform(5, 6, (40, 3))):
        counts = {"launches": 1, LOAD: int(a), ADD: int(b), LOCAL: int(c)}
        # shares of about 1, 90, 9 and 0.001 percent
        time_s = 3e-7 + 3e-11 * counts[LOAD] + 3e-12 * counts[ADD] + 3e-16 * counts[LOCAL]
        found.append(
            Observation(name=f"c{i}", kernel=f"k{i}", family="f", counts=counts, time_s=time_s)
        )
    return found


@pytest.mark.parametrize(
    ("most", "dropped"),
    [
        (None, ()),
        (4, ()),
        (3, (LOCAL,)),
        (2, (LOCAL,)),  # the next one goes after a new fit
    ],
)
def test_features_with_the_smallest_shares_are_negligible(
    most: int | None, dropped: tuple[str, ...]
) -> None:
    definition = model(most)
    fitted = estimate(cases(), definition, recipe_of(definition))

    found = smallest_features(fitted)

    assert found == dropped


def test_features_go_until_the_model_has_as_few_weights_as_it_may() -> None:
    definition = model(1)
    recipe = recipe_of(definition)
    inputs = inputs_of(given := cases(), definition)
    fitted = estimate(given, definition, recipe, inputs=inputs)

    smaller, _ = keep_largest(given, fitted, recipe, inputs)

    assert set(smaller.negligible) == {ADD, "launches", LOCAL}


def test_a_model_with_few_enough_weights_stays_as_it_is() -> None:
    definition = model(4)
    recipe = recipe_of(definition)
    inputs = inputs_of(given := cases(), definition)
    fitted = estimate(given, definition, recipe, inputs=inputs)

    assert keep_largest(given, fitted, recipe, inputs) == (definition, inputs)


def test_a_fit_keeps_no_more_weights_than_its_model_may() -> None:
    whole = fit(measure(), model=model(None))
    fewer = fit(measure(), model=model(2))

    assert len(whole.weights.weights) > 2
    assert len(fewer.weights.weights) == 2
    kept = {weight.feature for weight in fewer.weights.weights}
    everything = {weight.feature for weight in whole.weights.weights}
    assert set(fewer.weights.definition.negligible) == everything - kept


def test_a_feature_that_is_the_only_one_of_its_term_stays() -> None:
    definition = ModelDefinition.from_object(
        {
            "format": "countperf-model",
            "version": 3,
            "name": "some",
            "residual": "log",
            "most_weights": 1,
            "terms": {"memory": ["bytes_loaded"], "chip": ["adds"]},
            "derived": {"bytes_loaded": "4*gmem_load_32_stride1", "adds": "2*flop_add_f32"},
            "ignored": ["launches", "lmem.*"],
        }
    )
    recipe = recipe_of(definition)
    inputs = inputs_of(given := cases(), definition)
    fitted = estimate(given, definition, recipe, inputs=inputs)

    smaller, _ = keep_largest(given, fitted, recipe, inputs)

    assert [term.charged for term in smaller.terms.values()] == [("bytes_loaded",), ("adds",)]
