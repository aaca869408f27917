"""Corrections of sizes, in arrays and one by one, and their numbers as text in documents."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from countperf.models.correction import Correction, as_points, pack, unpack

COLUMNS, KERNELS, SCALE = 5, 2100, 3.0

Array = NDArray[np.float64]


def measured(number: int = KERNELS, seed: int = 3) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(COLUMNS), number).T
    return np.sqrt(shares), random.uniform(0.0, 9.0, (COLUMNS, number))


def test_sizes_are_corrected_alike_in_arrays_and_one_by_one() -> None:
    alpha = np.random.default_rng(7).normal(size=KERNELS)
    own = measured()
    correction = Correction(
        kernels=tuple(f"k{i}" for i in range(KERNELS)),
        roots=tuple(map(tuple, own[0].T.tolist())),
        logs=tuple(map(tuple, own[1].T.tolist())),
        coefficients=tuple(alpha.tolist()),
        scale=SCALE,
    )
    roots, logs = measured(300, seed=4)

    points, axes = as_points(roots, logs, SCALE), as_points(*own, SCALE)
    expected = [
        np.exp(-np.sqrt(((axes - point[:, np.newaxis]) ** 2).sum(axis=0))) @ alpha
        for point in points.T
    ]
    log_factor = correction.of_columns(range(len(roots)))
    together = log_factor(roots, logs)
    assert together == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)
    single = [log_factor(roots[:, i], logs[:, i]) for i in range(300)]
    assert single == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert isinstance(single[0], float)


@pytest.mark.parametrize(
    "content",
    [[], [[]], [[1.0, -2.5], [], [255.0]], [[math.pi, 1e-60, 2.0**-90]], ["copy", "größe"]],
)
def test_packed_content_comes_back_as_it_was(content: object) -> None:
    assert unpack(pack(content)) == unpack(content) == content


@pytest.mark.parametrize("packed", [pack, list])
def test_rows_become_tuples_of_numbers(packed: Callable[[Any], Any]) -> None:
    fields = {"kernels": ["k"], "roots": [[0.5]], "logs": [[1.5]], "coefficients": [2.0]}
    plain = {"scale": 1.0, **{name: packed(rows) for name, rows in fields.items()}}
    correction = Correction.model_validate_json(json.dumps(plain))
    assert (correction.roots, correction.coefficients) == (((0.5,),), (2.0,))
    for bad in ([["a"]], [[True]], [0.5], {"a": 1}):
        with pytest.raises(ValidationError, match="logs"):
            Correction.model_validate_json(json.dumps(plain | {"logs": bad}))


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "text",
    ["numbers!", "AAAA", _packed(b"[1, 2"), _packed(bytes(range(200)))[:80], _packed(b"[NaN]")],
    ids=["no base64", "no zlib", "no JSON", "cut off", "not finite"],
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(text)
