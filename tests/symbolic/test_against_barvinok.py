"""Counts against those of barvinok, which scripts/cross_check_barvinok wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import islpy as isl
import pytest

from countperf.symbolic import isl_sets
from countperf.symbolic.cardinality import Counter, FactoredDomain
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from tests.oracles import enumeration

GOLDEN = Path(__file__).parents[1] / "golden" / "barvinok"
FILES = sorted(GOLDEN.glob("*.jsonl"))


def _counter(document: dict[str, Any]) -> Counter:
    assumptions = document.get("assumptions")
    return Counter(isl.Set(assumptions) if assumptions else None)


def _evaluated(count: PiecewiseQuasiPolynomial, document: dict[str, Any]) -> list[int]:
    names = document["parameters"]
    return [
        int(count.evaluate(dict(zip(names, row[:-1], strict=True)))) for row in document["counts"]
    ]


@pytest.mark.parametrize("share", [2, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_counts_equal_those_of_barvinok(path: Path, share: int) -> None:
    documents = [json.loads(line) for line in path.read_text().splitlines()[::share]]
    for document in documents:
        count = _counter(document).count(isl.Set(document["set"]))
        expected = [row[-1] for row in document["counts"]]
        assert _evaluated(count, document) == expected, document["set"]
    assert documents


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_products_of_factors_equal_counts_of_barvinok(path: Path) -> None:
    counters: dict[str | None, Counter] = {}
    compared = 0
    for document in map(json.loads, path.read_text().splitlines()[:60]):
        factored = FactoredDomain.of(isl.Set(document["set"]))
        if factored is None:
            continue
        factors = factored.onto(frozenset(factored.polyhedron.dimensions))
        assert factors is not None
        # one counter for all sets, so that factors are looked up that differ in names only
        counter = counters.setdefault(document.get("assumptions"), _counter(document))
        expected = [row[-1] for row in document["counts"]]
        assert _evaluated(counter.count_product(factors), document) == expected, document["set"]
        compared += 1
    assert compared > 4


def test_weights_summed_over_hard_sets_equal_enumeration() -> None:
    compared = 0
    for line in (GOLDEN / "adversarial.jsonl").read_text().splitlines()[::4]:
        document = json.loads(line)
        text = document["set"]
        names = isl_sets.names_of(isl.Set(text), parameters=False)
        if len(names) != 2 or "exists" in text:
            continue  # takes long
        first, last = map(QuasiPolynomial.name, names)
        weight = first * last * 2 + (first + last * 3).floor_divide(2) - 5
        total = _counter(document).count(isl.Set(text), weight)
        for row in document["counts"]:
            if max(map(abs, row[:-1])) <= 12 and row[-1] <= 2000:
                values = dict(zip(document["parameters"], row[:-1], strict=True))
                expected = enumeration.weighted_sum(
                    text, values, lambda a, b: 2 * a * b + (a + 3 * b) // 2 - 5
                )
                assert total.evaluate(values) == expected, (text, values)
                compared += expected != 0
    assert compared > 10
