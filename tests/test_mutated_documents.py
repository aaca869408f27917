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

from countperf.cli import main
from countperf.documents import parse_json, parse_toml
from countperf.errors import DocumentError
from countperf.properties.taxonomy import COUNTING_RULES_VERSION
from countperf.properties.vector import PropertyVector
from tests.document_kinds import kinds
from tests.mutations import Kind, mutants, read_mutant
from tests.tuning.test_search import scripted, search

KINDS = kinds()
_EACH = 25


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_document_is_valid_before_it_is_mutated(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / f"document{kind.suffix}"
    path.write_bytes(kind.content)

    assert kind.content.isascii()
    kind.read(path)


@pytest.mark.filterwarnings("ignore::countperf.errors.CountperfWarning")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_mutated_documents_are_read_or_refused(kind: Kind, tmp_path: Path) -> None:
    some = itertools.islice(mutants(kind, random.Random(f"test {kind.name}")), _EACH)
    results = [read_mutant(each, tmp_path) for each in some]

    wrong = [(r.mutant.change, r.outcome, r.said) for r in results if r.outcome != "refused"]
    assert [each for each in wrong if each[1] != "accepted"] == []
    assert len(results) - len(wrong) > _EACH // 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "1" * 5000,
            r"the integer 11111111111111111111\.\.\. \(5000 characters\) has more than 64",
        ),
        (f"{2**64}", "has more than 64 bits"),
        (f"-{2**63 + 1}", "has more than 64 bits"),
        ("1e999", "the number 1e999 is too large"),
        ('{"a": 1, "b": 2, "a": 1}', "the field a is there twice"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ],
    ids=lambda value: value[:20],
)
def test_json_that_is_no_document_is_refused(text: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        parse_json(text, path="document.json")

    assert caught.value.path == "document.json"


def test_the_largest_integers_are_read() -> None:
    assert parse_json(f"[{2**64 - 1}, {-(2**63)}]") == [2**64 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1979-05-27", "finite numbers .* are wanted, no dates"),
        ("a = [1.0, inf]", "finite numbers .* are wanted, no dates"),
        (f"a = {2**64}", "more than 64 bits"),
        (f"a = {'1' * 5000}", "numbers of 64 bits"),
        (f"a = {'[' * 5000}{']' * 5000}", "nested too deeply"),
        ("a = ", "damaged TOML: "),
    ],
)
def test_toml_that_is_no_document_is_refused(text: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        parse_toml(text, path="document.toml")

    assert caught.value.path == "document.toml"


def test_counts_under_rules_of_a_newer_version_are_refused() -> None:
    document = PropertyVector.from_mapping({"groups": "[n] -> { n }"}).to_document()
    newer = {**document, "counting_rules": COUNTING_RULES_VERSION + 1}
    with pytest.raises(DocumentError, match=r"by a newer countperf; .* upgrade countperf"):
        PropertyVector.from_document(newer)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sizes": None}, "sizes"),
        ({"sizes": {"n": -1}}, "sizes.n"),
        ({"parameters": "n"}, "parameters"),
        ({"plan": {"rounds": -1}}, "plan.rounds"),
        ({"plan": {"first_share": -0.5}}, "plan.first_share"),
        ({"device": {}}, "device"),
    ],
    ids=str,
)
def test_bad_headers_of_a_search_are_named(
    changes: dict[str, Any], field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kind,) = [each for each in KINDS if each.name == "search"]
    first, *lines = kind.content.decode().splitlines(keepends=True)
    header = {name: each for name, each in json.loads(first).items() if name not in changes}
    given = {name: each for name, each in changes.items() if each is not None}
    path = tmp_path / "search.jsonl"
    path.write_text(json.dumps({**header, **given}) + "\n" + "".join(lines))

    assert main(["report", str(path), "--output", str(tmp_path / "page.html")]) == 1
    assert f"line 1: $.{field}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("guards", "field"),
    [
        ([{"nonnegative": ["n - 16"]}, {"zero": 3}], "$.assumption_guards[1].zero"),
        ([{"nonnegative": "n - 16"}], "$.assumption_guards[0].nonnegative"),
        ([{"positive": ["n"]}], "$.assumption_guards[0].positive"),
        ([{"nonnegative": ["n ->"]}], "$.assumption_guards"),
        ({"n": 1}, "$.assumption_guards"),
        (None, "$.assumption_guards"),
    ],
)
def test_bad_assumption_guards_are_named(guards: object, field: str) -> None:
    document = PropertyVector.from_mapping({"groups": "[n] -> { n }"}).to_document()

    with pytest.raises(DocumentError) as caught:
        PropertyVector.from_document({**document, "assumption_guards": guards})

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"samples_s": [1.0, -1.0]}, "samples_s[1]"),
        ({"samples_s": [0.0]}, "samples_s[0]"),
        ({"samples_s": []}, "samples_s"),
        ({"predicted_s": -1.0}, "predicted_s"),
        ({"at_s": -1.0}, "at_s"),
        ({"rounds": [1]}, ""),
        ({"rounds": [-1, 1]}, "rounds[0]"),
        ({"interval_s": [2.0, 1.0]}, "interval_s"),
        ({"choice": {"group": 16, "each": 3, "fetch": False}}, "choice"),
        ({"choice": {"group": 16, "each": 1}}, "choice"),
        ({"kind": "guessed"}, "kind"),
        ({"mood": "good"}, "mood"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else value,
)
def test_bad_lines_of_a_search_are_named(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    store = tmp_path / "search.jsonl"
    search(scripted(), store=store)
    lines = store.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if '"tried"' in line)
    lines[number] = json.dumps({**json.loads(lines[number]), **changes})
    store.write_text("\n".join(lines) + "\n")
    before = store.read_bytes()

    with pytest.raises(DocumentError) as caught:
        search(scripted(), store=store)

    assert caught.value.field == f"line {number + 1}: $.{field}".removesuffix(".")
    assert store.read_bytes() == before


def test_a_document_that_is_nonsense_is_one_line_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vector.json"
    path.write_text('{"format": "countperf-property-vector", "version": ' + "1" * 5000 + "}")

    assert main(["count", str(path)]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"countperf: {path}: the integer 1111")
    assert len(said.splitlines()) == 1
