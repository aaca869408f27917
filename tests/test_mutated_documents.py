"""Documents of every kind, mutated: read or refused, never a traceback, never nonsense accepted.

``scripts/fuzz_documents.py`` does the same with thousands of documents.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from countperf.counting.taxonomy import COUNTING_RULES_VERSION
from countperf.counting.vector import PropertyVector
from countperf.errors import DocumentError
from countperf.tuning.result import read_journal
from tests.document_kinds import kinds
from tests.mutations import Kind, mutants, outcome_of
from tests.tuning.test_search import scripted, search

_EACH = 25


@pytest.mark.filterwarnings("ignore::countperf.errors.CacheWarning")
@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_documents_are_read_and_mutated_ones_read_or_refused(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / f"document{kind.suffix}"
    path.write_bytes(kind.content)
    assert kind.content.isascii()
    kind.read(path)

    some = itertools.islice(mutants(kind, random.Random(f"test {kind.name}")), _EACH)
    results = [(mutant.change, *outcome_of(mutant, tmp_path)) for mutant in some]

    assert [row for row in results if row[1] not in ("refused", "accepted")] == []
    assert sum(outcome == "refused" for _, outcome, _ in results) > _EACH // 3


_GUARDS = "assumption_guards"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"counting_rules": COUNTING_RULES_VERSION + 1}, "$.counting_rules"),
        ({_GUARDS: [{"nonnegative": ["n - 16"]}, {"zero": 3}]}, f"$.{_GUARDS}[1].zero"),
        ({_GUARDS: [{"nonnegative": "n - 16"}]}, f"$.{_GUARDS}[0].nonnegative"),
        ({_GUARDS: [{"positive": ["n"]}]}, f"$.{_GUARDS}[0].positive"),
        ({_GUARDS: [{"nonnegative": ["n ->"]}]}, f"$.{_GUARDS}[0].nonnegative[0]"),
        ({_GUARDS: {"n": 1}}, f"$.{_GUARDS}"),
        ({_GUARDS: None}, f"$.{_GUARDS}"),
    ],
)
def test_bad_fields_of_counts_are_named(changes: dict[str, Any], field: str) -> None:
    document = PropertyVector.from_mapping({"groups": "[n] -> { n }"}).to_document()

    with pytest.raises(DocumentError) as caught:
        PropertyVector.from_document({**document, **changes})

    assert caught.value.field == field
    assert ("by a newer countperf" in str(caught.value)) is ("counting_rules" in changes)


@pytest.mark.parametrize(
    ("number", "changes", "field"),
    [
        (0, {"sizes": None}, "sizes"),
        (0, {"sizes": {"n": -1}}, "sizes.n"),
        (0, {"parameters": "n"}, "parameters"),
        (0, {"plan": {"rounds": -1}}, "plan.rounds"),
        (0, {"plan": {"first_share": -0.5}}, "plan.first_share"),
        (0, {"device": {}}, "device.slug"),
        (1, {"samples_s": [1.0, -1.0]}, "tried.samples_s[1]"),
        (1, {"samples_s": [0.0]}, "tried.samples_s[0]"),
        (1, {"samples_s": []}, "tried.samples_s"),
        (1, {"predicted_s": -1.0}, "tried.predicted_s"),
        (1, {"at_s": -1.0}, "tried.at_s"),
        (1, {"rounds": [1]}, "tried"),
        (1, {"rounds": [-1, 1]}, "tried.rounds[0]"),
        (1, {"interval_s": [2.0, 1.0]}, "tried.interval_s"),
        (1, {"choice": {"group": 16, "each": 3, "fetch": False}}, "tried.choice"),
        (1, {"choice": {"group": 16, "each": 1}}, "tried.choice"),
        (1, {"kind": "guessed"}, "kind"),
        (1, {"mood": "good"}, "tried.mood"),
    ],
)
def test_bad_fields_of_a_search_are_named(
    number: int,
    changes: dict[str, Any],
    field: str,
    tmp_path: Path,
) -> None:
    store = tmp_path / "search.jsonl"
    search(scripted(), store=store)
    lines = store.read_text().splitlines()
    number = number and next(n for n, line in enumerate(lines) if '"tried"' in line)
    changed = {**json.loads(lines[number]), **changes}
    lines[number] = json.dumps(
        {name: value for name, value in changed.items() if value is not None}
    )
    store.write_text("\n".join(lines) + "\n")
    before = store.read_bytes()
    said = f"line {number + 1}: $.{field}"

    with pytest.raises(DocumentError) as caught:
        search(scripted(), store=store) if number else read_journal(store)
    assert caught.value.field == said
    assert store.read_bytes() == before
