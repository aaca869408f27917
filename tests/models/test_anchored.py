"""Predictions corrected by measured runs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from countperf.errors import ParameterError, PredictionError
from countperf.models.function import Calibration, FitQuality
from countperf.models.weights import WeightSet
from countperf.properties.vector import PropertyVector
from tests.models.builders import make_weights

KERNEL = PropertyVector.from_mapping(
    {"flop.add.f32": "[n] -> { 3 * n : n > 0 }", "launches": 1}, kernel="axpy"
)
OTHER = PropertyVector.from_mapping({"flop.add.f32": "[n] -> { n : n > 0 }"}, kernel="other")


def _weights(between: float = 0.5, within: float = 0.1, **changes: Any) -> WeightSet:
    quality = FitQuality(
        in_sample_error=0.1,
        held_out_error=0.3,
        in_sample_scatter=0.1,
        held_out_scatter=0.4,
        calibration=Calibration(
            log_errors_90=0.8,
            log_errors_95=1.0,
            between_kernels=between,
            within_kernels=within,
            families=9,
            cases=200,
        ),
    )
    fields: dict[str, Any] = {"quality": quality}
    return make_weights({"flop.add.f32": 2e-9, "launches": 1e-6}, **(fields | changes))


def test_one_run_moves_predictions_nearly_all_the_way() -> None:
    weights = _weights()
    predicted = float(weights.predict(KERNEL, n=1000).time_s)

    anchored = weights.anchored(KERNEL, ({"n": 1000}, 2 * predicted))

    # 0.25 / (0.25 + 0.01) of the logarithm
    assert anchored.factor == pytest.approx(2 ** (0.25 / 0.26))
    assert anchored.predict(KERNEL, n=77).time_s == pytest.approx(
        anchored.factor * float(weights.predict(KERNEL, n=77).time_s)
    )


def test_more_runs_move_further_and_narrow_the_interval() -> None:
    weights = _weights()
    runs = [({"n": n}, 2 * float(weights.predict(KERNEL, n=n).time_s)) for n in (10, 100, 1000)]

    few, many = weights.anchored(KERNEL, runs[0]), weights.anchored(KERNEL, *runs)

    assert few.factor < many.factor < 2
    # (1 / (1/0.25 + n/0.01) + 0.01) / 0.26
    assert few.shrink == pytest.approx(((1 / 104 + 0.01) / 0.26) ** 0.5)
    assert many.shrink == pytest.approx(((1 / 304 + 0.01) / 0.26) ** 0.5)


def test_interval_and_breakdown_follow() -> None:
    weights = _weights()
    plain = weights.predict(KERNEL, n=1000, level=0.9)
    anchored = weights.anchored(KERNEL, ({"n": 1000}, 2 * float(plain.time_s)))

    found = anchored.predict(None, {"n": 1000}, level=0.9)

    assert plain.interval_s is not None
    assert found.interval_s is not None
    for end, old in zip(found.interval_s, plain.interval_s, strict=True):
        assert np.log(end / found.time_s) == pytest.approx(
            anchored.shrink * np.log(old / plain.time_s)
        )
    assert sum(found.breakdown.values()) == pytest.approx(found.time_s)
    assert found.interval_level == 0.9
    assert found.model == "linear, anchored"


def test_arrays_and_compiled_functions_are_corrected_too() -> None:
    anchored = _weights().anchored(KERNEL, ({"n": 10}, 1e-5), ({"n": 20}, 1e-5))
    sizes = np.array([5, 50])

    times = anchored.predict(KERNEL, n=sizes).time_s
    compiled = pickle.loads(pickle.dumps(anchored.compile()))

    assert compiled(n=sizes) == pytest.approx(times)
    assert compiled(n=50) == pytest.approx(np.asarray(times)[1])


def test_a_kernel_with_its_own_factor_is_found_within_the_stated_scatter() -> None:
    random = np.random.default_rng(6)
    errors: list[float] = []
    weights = _weights()
    predicted = {n: float(weights.predict(KERNEL, n=n).time_s) for n in (100, 1000)}
    draws = 1000
    for _ in range(draws):
        own = random.normal(0, 0.5)
        run, new = (time * np.exp(own + random.normal(0, 0.1)) for time in predicted.values())
        anchored = weights.anchored(KERNEL, ({"n": 100}, float(run)))
        errors.append(float(np.log(new / (anchored.factor * predicted[1000]))))

    # three standard errors, of a standard deviation and of a mean
    stated = (1 / 104 + 0.01) ** 0.5
    assert np.std(errors) == pytest.approx(stated, rel=3 / (2 * draws) ** 0.5)
    assert np.mean(errors) == pytest.approx(0, abs=3 * stated / draws**0.5)


def test_anchored_weights_are_a_time_model_of_their_kernel_alone() -> None:
    model = _weights().anchored(KERNEL, ({"n": 10}, 1e-5))

    with pytest.raises(PredictionError, match="anchored on runs of 'axpy'"):
        model.predict(OTHER, {"n": 10})


@pytest.mark.parametrize(
    ("weights", "runs", "error", "said"),
    [
        pytest.param(_weights(), [], ParameterError, "needs a measured run", id="no run"),
        pytest.param(_weights(), [({"n": 1}, 0.0)], ParameterError, "positive", id="no time"),
        pytest.param(
            _weights(), [({"n": 1}, np.nan)], ParameterError, "positive", id="not a number"
        ),
        pytest.param(
            make_weights({"flop.add.f32": 1e-9, "launches": 1e-6}),
            [({"n": 1}, 1.0)],
            PredictionError,
            "fit them anew",
            id="an old document",
        ),
        pytest.param(
            make_weights({"flop.add.f32": -1e-9, "launches": 1e-12}, quality=_weights().quality),
            [({"n": 1}, 1.0)],
            PredictionError,
            "no factor corrects",
            id="a negative time",
        ),
    ],
)
def test_what_cannot_be_anchored(
    weights: WeightSet, runs: list[Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        weights.anchored(KERNEL, *runs)
