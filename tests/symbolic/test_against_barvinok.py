"""Counts against those of barvinok, which scripts/cross_check_barvinok wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import islpy as isl
import pytest

from countperf.symbolic import sets
from countperf.symbolic.cardinality import Counter

FILES = sorted((Path(__file__).parent.parent / "golden" / "barvinok").glob("*.jsonl"))


def _counted(document: dict[str, Any]) -> list[int]:
    assumptions = document.get("assumptions")
    counter = Counter(sets.parameter_set(assumptions) if assumptions else None)
    count = counter.count(isl.Set(document["set"]))
    names = document["parameters"]
    return [
        int(count.evaluate(dict(zip(names, row[:-1], strict=True)))) for row in document["counts"]
    ]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_counts_equal_those_of_barvinok(path: Path) -> None:
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    for document in documents:
        assert _counted(document) == [row[-1] for row in document["counts"]], document["set"]
    assert documents
