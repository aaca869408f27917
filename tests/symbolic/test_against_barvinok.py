"""Counts against those of barvinok, which scripts/cross_check_barvinok wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import islpy as isl
import pytest

from countperf.symbolic import sets
from countperf.symbolic.cardinality import Counter, FactoredDomain
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial

FILES = sorted((Path(__file__).parent.parent / "golden" / "barvinok").glob("*.jsonl"))


def _counter(document: dict[str, Any]) -> Counter:
    assumptions = document.get("assumptions")
    return Counter(sets.parameter_set(assumptions) if assumptions else None)


def _evaluated(count: PiecewiseQuasiPolynomial, document: dict[str, Any]) -> list[int]:
    names = document["parameters"]
    return [
        int(count.evaluate(dict(zip(names, row[:-1], strict=True)))) for row in document["counts"]
    ]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_counts_equal_those_of_barvinok(path: Path) -> None:
    documents = [json.loads(line) for line in path.read_text().splitlines()]
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
