"""Weights that a fit keeps: those of the features that take the largest shares of the times.

A share is that of a weight in a predicted time, over the measured time; features are ranked by the
root mean square of theirs over cases. By their mean, or by a high quantile, what left-out families
are off by grows with far more weights left (`scripts/ablate_models.py`). Features go step by step,
each time after a new fit, since what one that is gone took goes to others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from countperf.fitting.design import Observation, inputs_of
from countperf.fitting.estimate import Estimate, estimate
from countperf.fitting.solve import Recipe
from countperf.models.definition import ModelDefinition
from countperf.models.function import ModelInputs
from countperf.models.negligible import without_features

_KEPT_AT_ONCE = 0.85
"""A step keeps at least this share of the weights."""

_GROUPS = "groups"

_TOLERANCE = 1e-6
"""Of fits that only rank features."""


def keep_largest(
    observations: Sequence[Observation],
    fitted: Estimate,
    recipe: Recipe,
    inputs: Mapping[int, ModelInputs],
) -> tuple[ModelDefinition, Mapping[int, ModelInputs]]:
    """Return a model with no more weights than it may have, and what it sees of the cases."""
    model = fitted.function.model
    rough = replace(recipe, tolerance=max(recipe.tolerance, _TOLERANCE))
    while dropped := smallest_features(fitted):
        model = without_features(model, dropped)
        inputs = inputs_of(observations, model)
        before = len(fitted.function.columns)
        fitted = estimate(observations, model, rough, inputs=inputs, near=fitted)
        if len(fitted.function.columns) >= before:  # all that is left is the only one of its term
            break
    return model, inputs


def smallest_features(fitted: Estimate) -> tuple[str, ...]:
    """Return the features that go next, by name; none if the model has few enough weights.

    Features that several terms charge are kept, and the number of groups, by which counts of
    kernels are compared (`countperf.models.correction`).
    """
    most = fitted.function.model.most_weights
    columns = fitted.function.columns
    if most is None or len(columns) <= most:
        return ()
    kept = max(most, int(_KEPT_AT_ONCE * len(columns)))
    design, unknowns = fitted.design, fitted.solution.coefficients
    sizes = np.sqrt(np.mean((design.relative * unknowns) ** 2, axis=0))
    features = [feature for _, feature in columns]
    sizes[[feature == _GROUPS or features.count(feature) > 1 for feature in features]] = np.inf
    smallest = np.argsort(-sizes, kind="stable")[kept:]
    return tuple(sorted(features[i] for i in smallest if np.isfinite(sizes[i])))
