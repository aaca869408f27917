from __future__ import annotations

import itertools
import random

import islpy as isl
import pytest

from countperf.symbolic import isl_sets, sets
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from tests.oracles import enumeration
from tests.symbolic.adversarial_sets import FAMILIES, SetCase, adversarial_set

_NUMBER = 10
_POINTS = 4


def _sampled(case: SetCase, names: tuple[str, ...], seed: int) -> list[dict[str, int]]:
    """Return a few values of the parameters that satisfy the assumptions."""
    grid = list(itertools.product(range(-1, case.largest + 1), repeat=len(names)))
    random.Random(seed).shuffle(grid)
    found: list[dict[str, int]] = []
    for point in grid:
        values = dict(zip(names, point, strict=True))
        if len(found) < _POINTS and (
            case.assumptions is None or enumeration.holds(case.assumptions, values)
        ):
            found.append(values)
    return found


@pytest.mark.parametrize("family", range(len(FAMILIES)), ids=[f.__name__[1:] for f in FAMILIES])
def test_hard_sets_equal_enumeration(family: int) -> None:
    for seed in range(family, _NUMBER * len(FAMILIES), len(FAMILIES)):
        case = adversarial_set(seed)
        assumed = sets.parameter_set(case.assumptions) if case.assumptions else None
        integer_set = isl.Set(case.text)
        count = Counter(assumed).count(integer_set)
        assert not count.approximations
        for values in _sampled(case, isl_sets.names_of(integer_set, parameters=True), seed):
            expected = enumeration.weighted_sum(case.text, values)
            assert count.evaluate(values) == expected, (seed, case, values)


@pytest.mark.parametrize("family", range(len(FAMILIES)), ids=[f.__name__[1:] for f in FAMILIES])
def test_weights_summed_over_hard_sets_equal_enumeration(family: int) -> None:
    for seed in range(family, 3 * len(FAMILIES), 2 * len(FAMILIES)):
        case = adversarial_set(seed)
        assumed = sets.parameter_set(case.assumptions) if case.assumptions else None
        integer_set = isl.Set(case.text)
        names = isl_sets.names_of(integer_set, parameters=False)
        first, last = QuasiPolynomial.name(names[0]), QuasiPolynomial.name(names[-1])
        weight = first * last * 2 + (first + last * 3).floor_divide(2) - 5
        total = Counter(assumed).count(integer_set, weight)
        for values in _sampled(case, isl_sets.names_of(integer_set, parameters=True), seed):
            expected = enumeration.weighted_sum(
                case.text, values, lambda *p: 2 * p[0] * p[-1] + (p[0] + 3 * p[-1]) // 2 - 5
            )
            assert total.evaluate(values) == expected, (seed, case, values)


def test_a_weight_may_hold_parameters() -> None:
    text = "[n, m] -> { [i] : 0 <= i < n }"
    name = QuasiPolynomial.name
    total = Counter().count(isl.Set(text), name("m") * name("i") + name("n").floor_divide(3))
    for n, m in itertools.product(range(-1, 8), repeat=2):
        expected = sum(m * i + n // 3 for i in range(n))
        assert total.evaluate({"n": n, "m": m}) == expected
