"""Made-up devices whose weights are known, and their cases."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from countperf.fitting.design import Observation
from countperf.models.definition import ModelDefinition
from countperf.models.terms import Term

MODEL = ModelDefinition(
    name="made-up",
    terms={
        "launch": Term(charged=("launches",)),
        "work": Term(charged=("flop.add.f32", "flop.mul.f32", "gmem.load.32.stride1")),
    },
    residual="log",
)
COLUMNS = (
    ("launch", "launches"),
    ("work", "flop.add.f32"),
    ("work", "flop.mul.f32"),
    ("work", "gmem.load.32.stride1"),
)
WEIGHTS = {
    "launches": 1e-5,
    "flop.add.f32": 1e-9,
    "flop.mul.f32": 2e-9,
    "gmem.load.32.stride1": 4e-9,
}


def case(
    name: str, counts: Mapping[str, int], weights: Mapping[str, float] = WEIGHTS, off: float = 1.0
) -> Observation:
    """Return a case that takes what the weights say, times a factor."""
    counts = {"launches": 1, **counts}
    time_s = off * sum(weights[key] * count for key, count in counts.items())
    return Observation(
        name=name, kernel=name, family=name.split("/")[0], counts=counts, time_s=time_s
    )


def random_cases(number: int, *, noise: float = 0.05, seed: int = 1) -> list[Observation]:
    """Return cases with all features, off by a little."""
    random = np.random.default_rng(seed)
    return [
        case(
            f"family{i % 7}/{i}",
            {key: int(random.integers(1, 100_000)) for key in WEIGHTS if key != "launches"},
            off=float(np.exp(random.normal(0.0, noise))),
        )
        for i in range(number)
    ]
