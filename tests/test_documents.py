"""Documents: what is read back, what is refused, and where the refusal points; mutated ones."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countperf.documents import (
    Document,
    Part,
    field_path,
    format_json,
    parse_json,
    parse_toml,
    validate,
)
from countperf.errors import DocumentError, OutputError
from countperf.store import write_atomically
from countperf.tuning.result import read_journal
from tests.document_kinds import kinds
from tests.mutations import Kind, mutants, outcome_of
from tests.tuning.test_search import scripted, search


class Ingredient(Part):
    name: str
    grams: float


class Recipe(Document):
    format: Literal["kitchen-recipe"] = "kitchen-recipe"
    version: Literal[3] = 3
    remade_by = "cook it again"
    ingredients: tuple[Ingredient, ...]
    notes: dict[str, int]


BREAD = Recipe(ingredients=(Ingredient(name="flour", grams=0.1),), notes={"flop.add.f32": 3})


def _fields(**changes: object) -> dict[str, Any]:
    return {**BREAD.to_object(), **changes}


def test_a_document_read_back_is_equal_and_a_failure_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new" / "bread.json"
    BREAD.write_file(target)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError):
        write_atomically(target, "half written")
    assert Recipe.read_file(target) == BREAD
    assert [path.name for path in target.parent.iterdir()] == ["bread.json"]


def test_the_same_text_is_validated_once(tmp_path: Path) -> None:
    target = tmp_path / "bread.json"
    BREAD.write_file(target)
    first = Recipe.read_file(target)
    assert Recipe.read_file(target) is first
    target.write_text(BREAD.write_text().replace("flour", "wheat"))  # of the same size
    assert Recipe.read_file(target).ingredients[0].name == "wheat"
    target.unlink()
    with pytest.raises(DocumentError, match="No such file"):
        Recipe.read_file(target)


_SECOND = {"ingredients": [{"name": "a", "grams": 1}, {"name": "b"}]}
_TEXT = {"ingredients": [{"name": "flour", "grams": "1"}]}
_SEVERAL = {"ingredients": [{}], "notes": 3}


@pytest.mark.parametrize(
    ("content", "field", "said"),
    [
        (_fields(version="3"), "$.version", 'version "3" is not read, 3 is'),
        (_fields(version=True), "$.version", "version true is not read"),
        (_fields(version=4), "$.version", "upgrade countperf"),
        (_fields(version=1), "$.version", "cook it again"),
        (_fields(format="poem"), "$.format", '"poem"'),
        (_fields(colour=1), "$.colour", "not permitted"),
        (_fields(**_TEXT), "$.ingredients[0].grams", 'found: "1"'),
        (_fields(**_SECOND), "$.ingredients[1].grams", "required"),
        (_fields(notes={"flop.add.f32": None}), '$.notes["flop.add.f32"]', "integer"),
        (_fields(**_SEVERAL), "$.ingredients[0].name", "2 more bad fields"),
        ({"beta": 1, "alpha": 2}, "$.format", "a kitchen-recipe document is wanted"),
        *((value, "$", "") for value in ([], "text", None, 3)),
    ],
)
def test_a_bad_field_is_named(content: object, field: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Recipe.read_text(json.dumps(content), path="bread.json")
    assert (caught.value.field, caught.value.path) == (field, "bread.json")
    assert f"bread.json: {field}: " in str(caught.value)
    assert said in str(caught.value)


_LINES = ", ".join(f'"a{number}": 1' for number in range(100_000))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1" * 5000, r"the integer 1{21}\.\.\. has more than 64"),
        (f"{2**64}", "has more than 64 bits"),
        (f"-{2**64}", "has more than 64 bits"),
        ('{"a": 1, "b": 2, "a": 1}', "the field a is there twice"),
        (f'{{{_LINES}, "a99999": 1}}', "the field a99999 is there twice"),  # pairs would take hours
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{\n  ,"format": 1}', "damaged JSON at line 2, column 3"),
        *((constant, f"{constant} is not JSON") for constant in ("NaN", "Infinity", "-Infinity")),
        ("a = 1979-05-27", "finite numbers .* are wanted, no dates"),
        ("a = [1.0, inf]", "finite numbers .* are wanted, no dates"),
        (f"a = {2**64}", "more than 64 bits"),
        (f"a = {'1' * 5000}", "numbers of 64 bits"),
        (f"a = {'[' * 5000}{']' * 5000}", "nested too deeply"),
        ("a = ", "damaged TOML: "),
    ],
    ids=lambda value: value[:20],
)
def test_text_that_is_no_document_is_refused(text: str, said: str) -> None:
    parse = parse_toml if text.startswith("a =") else parse_json
    with pytest.raises(DocumentError, match=said) as caught:
        parse(text, path="document")
    assert caught.value.path == "document"


def test_the_largest_integers_are_read_and_lines_keep_their_number() -> None:
    assert parse_json(f"[{2**64 - 1}, {-(2**63)}]") == [2**64 - 1, -(2**63)]
    with pytest.raises(DocumentError, match="line 17, column 2"):
        parse_json("{", first_line=17)


def test_a_missing_file_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"abc\xff")
    with pytest.raises(DocumentError, match="No such file"):
        Recipe.read_file(tmp_path / "absent.json")
    with pytest.raises(DocumentError, match="byte 3 is not UTF-8"):
        Recipe.read_file(tmp_path / "binary")


def test_documents_are_immutable_and_hold_no_nan() -> None:
    with pytest.raises(ValueError, match="frozen"):
        BREAD.notes = {}
    with pytest.raises(ValueError, match="finite"):
        Ingredient(name="flour", grams=float("nan"))


def test_fields_are_named_under_their_root_and_quoted_where_they_are_no_identifier() -> None:
    assert field_path(("a", 0, 'b"c', "d e")) == '$.a[0]["b\\"c"]["d e"]'
    with pytest.raises(DocumentError) as caught:
        validate(Ingredient, {"name": 3, "grams": 1}, root="$.pantry[2]")
    assert caught.value.field == "$.pantry[2].name"


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(_JSON)
def test_text_for_people_is_the_same_json(value: object) -> None:
    assert json.loads(format_json(value)) == value


def test_arrays_of_numbers_stay_on_one_line() -> None:
    rows = [[float(i) / 3 for i in range(20)] for _ in range(3)]
    assert len(format_json({"covariance": rows}).splitlines()) == 7


_EACH = int(os.environ.get("COUNTPERF_MUTANTS", "25"))


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
    number: int, changes: dict[str, Any], field: str, tmp_path: Path
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
