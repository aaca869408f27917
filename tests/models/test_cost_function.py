"""Cost functions: equal to predictions, picklable, as careful as they."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.counting.vector import PropertyVector
from countperf.errors import ParameterError, UnmeasuredPropertyError
from countperf.models.correction import Correction
from countperf.models.function import Range
from countperf.models.library import load_weights
from countperf.models.weights import WeightSet
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from tests.kernels import made
from tests.models.builders import make_weight, make_weights, sum_model

WEIGHTS = make_weights({"flop.add.f32": 2e-9, "flop.special.f32": 7e-9, "launches": 1e-6})
KERNEL = PropertyVector.from_mapping(
    {
        "flop.add.f32": "[n] -> { 3 * n : n > 0 }",
        "flop.special.f32.rsqrt": "[n] -> { n^2 : n > 0 }",
        "flop.special.f32.exp": "[n] -> { n : n > 0 }",
        "iop.add.i32": "[n] -> { n : n > 0 }",
        "launches": 1,
    },
    kernel="example",
)
UNMEASURED = PropertyVector.from_mapping(
    {"launches": 1, "flop.div.f32": "[n] -> { n - 1 : n > 0 }"}, kernel="divides"
)


@pytest.mark.parametrize(
    ("error", "shortest_s"),
    [(None, 0.2e-6), (0.6e-8, 0.2e-6), (0.5e-8, 1.6e-8)],
    ids=["unknown", "not-known-well", "known-well"],
)
def test_no_time_is_below_the_shortest_launch(error: float | None, shortest_s: float) -> None:
    known = make_weights({"flop.add.f32": 2e-9, "launches": 0.0, "flop.special.f32": 0.0})
    launch = make_weight("launches", 1.6e-8, standard_error_s=error)
    weights = known.model_copy(update={"weights": (known.weights[0], launch, known.weights[2])})
    for n in (1, 5, 10, 33, 60, 1000):
        expected = max(3 * n * 2e-9 + 1.6e-8, shortest_s)
        assert weights.predict(KERNEL, n=n).time_s == pytest.approx(expected, rel=1e-12)
        assert weights.compile(KERNEL)(n=n) == pytest.approx(expected, rel=1e-12)
    sizes = np.array([1, 1000])
    assert weights.compile(KERNEL)(n=sizes) == pytest.approx(
        weights.predict(KERNEL, n=sizes).time_s
    )


def test_a_property_without_a_weight_raises_where_it_is_not_zero_also_after_pickling() -> None:
    cost = WEIGHTS.compile(UNMEASURED)
    assert cost(n=1) == pytest.approx(1e-6)
    assert WEIGHTS.predict(UNMEASURED, n=1).complete
    assert WEIGHTS.compile(UNMEASURED, incomplete_ok=True)(n=2) == pytest.approx(1e-6)
    with pytest.raises(UnmeasuredPropertyError):
        WEIGHTS.predict(UNMEASURED, n=np.array([1, 2]))
    for function in (cost, pickle.loads(pickle.dumps(cost))):
        with pytest.raises(UnmeasuredPropertyError) as caught:
            function(n=2)
        assert caught.value.properties == ("flop.div.f32",)
        with pytest.raises(UnmeasuredPropertyError):
            function(n=np.array([1, 2]))


def test_numbers_of_other_kinds_are_numbers() -> None:
    cost = WEIGHTS.compile(KERNEL)
    given: tuple[Any, ...] = (np.int32(100), np.uint64(100), 100.0, np.array(100))
    times = [cost(n=n) for n in given]
    assert times == pytest.approx([cost(n=100)] * len(given), rel=1e-14)
    assert {type(time_s) for time_s in times} == {float}


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({}, "no value for parameter n"),
        ({"n": 1, "m": 2}, "has no parameter m"),
        ({"n": 2.5}, "pass an integer"),
        ({"n": True}, "pass an integer"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        WEIGHTS.compile(KERNEL)(**parameters)


N = QuasiPolynomial.name("n")
POSITIVE, EVEN = frozenset({N - 1}), frozenset({N.modulo(2)})
NOTHING = frozenset[QuasiPolynomial]()


@pytest.mark.parametrize(
    ("guards", "holds"),
    [
        ((), (0, 1, 2)),
        (((POSITIVE, NOTHING),), (1, 2, 3)),
        (((POSITIVE, EVEN),), (2, 4)),
        (((POSITIVE, EVEN), (frozenset({N - 3}), NOTHING)), (2, 3, 4, 5)),
        (((POSITIVE, EVEN), (NOTHING, NOTHING)), (0, 1)),
    ],
    ids=["none", "inequality", "both", "alternatives", "an alternative that always holds"],
)
def test_assumptions_are_checked(guards: Any, holds: tuple[int, ...]) -> None:
    kernel = PropertyVector(
        {name: KERNEL[name] for name in KERNEL}, kernel="example", assumption_guards=guards
    )
    cost = WEIGHTS.compile(kernel)
    for n in range(6):
        expected = WEIGHTS.compile(KERNEL)(n=n)
        try:
            kernel.evaluate(n=n)
        except ParameterError:
            assert n not in holds
            with pytest.raises(ParameterError, match="which does not hold"):
                cost(n=n)
        else:
            assert cost(n=n) == expected
    assert all(cost(n=n) > 0 for n in holds)


def test_a_count_that_is_no_integer_is_refused() -> None:
    half = replace(KERNEL["flop.add.f32"], quantity=PiecewiseQuasiPolynomial.from_value(N / 2))
    whole = replace(half, quantity=half.quantity.scale(2))
    vector = KERNEL.map_counts(
        lambda counts: {**counts, "flop.add.f32": half, "flop.mul.f32": whole}
    )
    cost = WEIGHTS.compile(vector, incomplete_ok=True)
    assert cost(n=4) == pytest.approx(WEIGHTS.predict(vector, n=4, incomplete_ok=True).time_s)
    with pytest.raises(ParameterError, match="is no integer"):
        cost(n=3)


def test_counts_that_are_no_integers_by_their_nature_are_taken_as_they_are() -> None:
    quantity = PiecewiseQuasiPolynomial.from_value(N * N * Fraction(1, 12) + Fraction(1, 4))
    add = KERNEL["flop.add.f32"]
    share = replace(add, quantity=quantity, exact=False, reason="statistics")
    third = replace(share, quantity=share.quantity.scale(Fraction(1, 3)))
    vector = KERNEL.map_counts(
        lambda counts: {**counts, "flop.add.f32": share, "flop.special.f32.exp": third}
    )
    cost = WEIGHTS.compile(vector)
    time_s = cost(n=4)
    assert time_s == pytest.approx(WEIGHTS.predict(vector, n=4).time_s, rel=1e-14)
    assert time_s == pytest.approx(cost(n=np.array([4])), rel=1e-14)


LOAD = "gmem.load.32.stride1"
MODEL = sum_model(
    {
        "launch": ["launches", "groups"],
        "chip": {"charged": ["flop.*.*", "lmem.load.*"], "scale": "waves"},
        "memory": {"charged": ["gmem.load.*.*", "beyond"], "scale": "waves"},
    },
    derived={
        "bytes": "4*gmem_load_32_stride1",
        "beyond": "bytes*max(0, 1 - 4096/max(1, bytes))",
        "waves": "8*ceil(max(1, groups)/8)/max(1, groups)",
    },
    ignored=["iop.*"],
)
CHARGED = {
    **{("launch", "launches"): 1e-6, ("launch", "groups"): 2e-9, ("chip", "flop.add.f32"): 1e-10},
    **{("chip", "flop.mul.f32"): 3e-10, ("chip", "flop.div.f32"): 0.0, ("memory", LOAD): 5e-10},
    ("memory", "beyond"): 2e-10,
}
TILED = PropertyVector.from_mapping(
    {
        **{"launches": 1, "groups": "[n] -> { floor((n + 3)/4) : n > 0 }"},
        "flop.add.f32": "[n] -> { 64 * floor((n + 3)/4) : n > 0 }",
        "flop.mul.f32": "[n] -> { 6 * n^2 : n > 0 }",
        **{"flop.div.f32": "[n] -> { 6 * n^2 : n > 0 }", LOAD: "[n] -> { n^2 + 5 * n : n > 0 }"},
        "iop.add.i32": "[n] -> { n : n > 0 }",
    },
    kernel="tiled",
)


def _overlapping(**changes: Any) -> WeightSet:
    weights = tuple(
        make_weight("launches", value, term=term).model_copy(update={"feature": feature})
        for (term, feature), value in CHARGED.items()
    )
    fields = {"model": MODEL.name, "definition": MODEL, "quality": None}
    ranges = {"waves": Range(largest=1e6)}
    return make_weights({"launches": 1.0}, **fields, weights=weights, ranges=ranges, **changes)


def _correction() -> Correction:
    random = np.random.default_rng(5)
    number, columns = 300, len(CHARGED)
    shares = random.dirichlet(np.ones(columns), number)
    return Correction(
        kernels=tuple(f"k{i}" for i in range(number)),
        roots=tuple(map(tuple, np.sqrt(shares).tolist())),
        logs=tuple(map(tuple, random.uniform(0.0, 8.0, (number, columns)).tolist())),
        coefficients=tuple(random.normal(size=number).tolist()),
        scale=5.0,
    )


@pytest.mark.parametrize("is_corrected", [False, True], ids=["uncorrected", "corrected"])
def test_overlaps_and_derived_features_are_those_of_predictions(is_corrected: bool) -> None:
    weights = _overlapping(correction=_correction() if is_corrected else None)
    cost = weights.compile(TILED)
    sizes = np.array([1, 2, 31, 32, 33, 500, 4000])  # 4096 bytes are exceeded from 30 on
    times = np.array([cost(n=n) for n in sizes.tolist()])
    assert (type(cost(n=1)), cost.kernel, cost.device) == (float, "tiled", "pocl-testchip")
    expected = [float(weights.predict(TILED, n=n).time_s) for n in sizes.tolist()]
    for found in (times, cost(n=sizes), weights.predict(TILED, n=sizes).time_s):
        assert np.array_equal(found, expected)
    assert pickle.loads(pickle.dumps(cost))(n=33) == cost(n=33)
    # without groups, which are divided by
    assert cost(n=0) == float(weights.predict(TILED, n=0).time_s)


def test_what_does_nothing_takes_no_time_with_a_correction() -> None:
    weights = _overlapping(correction=_correction())
    nothing = PropertyVector.from_mapping({}, view=weights.view)
    assert weights.compile(nothing)() == weights.predict(nothing).time_s == 0.0


def test_threads_may_share_it() -> None:
    cost = _overlapping(correction=_correction()).compile(TILED)
    sizes = list(range(1, 400))
    with ThreadPoolExecutor(4) as pool:
        times = list(pool.map(lambda n: cost(n=n), sizes))
    assert times == [cost(n=n) for n in sizes]


def test_sizes_that_predict_refuses_are_refused() -> None:
    unit = made("i<n", "a[i] = 2", "a f32 n; n i32")
    weights = load_weights("pocl-epyc-zen5", model="structural")
    cost = weights.compile(unit)
    assert cost(n=2**31 - 1) == pytest.approx(
        countperf.predict(unit, n=2**31 - 1, weights=weights).time_s, rel=1e-9
    )
    for size in (2**31, 2**40, 2**62, -1, 0):
        told: list[str] = []
        for give in (lambda n: cost(n=n), lambda n: countperf.predict(unit, n=n, weights=weights)):
            with pytest.raises(ParameterError) as error:
                give(size)
            told.append(str(error.value))
        assert told[0] == told[1]
