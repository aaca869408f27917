"""Importance of parameters, from what ran."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from countperf.errors import ParameterError
from countperf.tuning.importance import parameter_importance

RAN: list[dict[str, Any]] = [
    {"a": a, "b": b, "c": c, "d": 1} for a, b, c in product(range(4), range(3), "xy")
]


def test_shares_are_the_first_order_effects_of_an_additive_function() -> None:
    """Of y = 2 a + b the exact shares are Var(2a) = 5 and Var(b) = 2/3 of their sum."""
    times = [float(np.exp(2 * each["a"] + each["b"])) for each in RAN]

    shares = parameter_importance(RAN, times)

    assert list(shares)[:2] == ["a", "b"]
    assert shares["a"] == pytest.approx(5 / (5 + 2 / 3), rel=1e-9)
    assert shares["b"] == pytest.approx((2 / 3) / (5 + 2 / 3), rel=1e-9)
    assert shares["c"] == pytest.approx(0.0, abs=1e-12)
    assert "d" not in shares


def test_chance_explains_what_the_docstring_says() -> None:
    random = np.random.default_rng(0)
    shares = [
        parameter_importance(RAN, np.exp(random.normal(size=len(RAN))).tolist())["a"]
        for _ in range(400)
    ]

    assert np.mean(shares) == pytest.approx(3 / 23, rel=0.1)


def test_two_configurations_are_too_few() -> None:
    with pytest.raises(ParameterError, match="too few to tell"):
        parameter_importance(RAN[:2], [1.0, 2.0])
