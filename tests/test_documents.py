"""Documents: what is read back, what is refused, and where the refusal points."""

from __future__ import annotations

import json
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
    validate,
    write_atomically,
)
from countperf.errors import DocumentError


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


def test_a_document_read_back_is_equal(tmp_path: Path) -> None:
    BREAD.write_file(tmp_path / "new" / "bread.json")

    assert Recipe.read_file(tmp_path / "new" / "bread.json") == BREAD


def test_writing_leaves_no_scratch_file_and_keeps_the_old_file_on_failure(tmp_path: Path) -> None:
    target = tmp_path / "bread.json"
    BREAD.write_file(target)

    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "half written \ud800")

    assert Recipe.read_file(target) == BREAD
    assert [path.name for path in tmp_path.iterdir()] == ["bread.json"]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        pytest.param({"version": "3"}, "$.version", "should be 3", id="version is text"),
        pytest.param({"version": True}, "$.version", "version number", id="version is a boolean"),
        pytest.param({"version": 4}, "$.version", "upgrade countperf", id="newer version"),
        pytest.param({"version": 1}, "$.version", "cook it again", id="forgotten version"),
        pytest.param({"format": "poem"}, "$.format", '"poem"', id="foreign format"),
        pytest.param({"colour": 1}, "$.colour", "not permitted", id="unknown field"),
        pytest.param(
            {"ingredients": [{"name": "flour", "grams": "1"}]},
            "$.ingredients[0].grams",
            'found: "1"',
            id="text for a number is not coerced",
        ),
        pytest.param(
            {"ingredients": [{"name": "a", "grams": 1}, {"name": "b"}]},
            "$.ingredients[1].grams",
            "required",
            id="missing field of the second entry",
        ),
        pytest.param(
            {"notes": {"flop.add.f32": None}},
            '$.notes["flop.add.f32"]',
            "integer",
            id="a key with dots is quoted",
        ),
    ],
)
def test_a_bad_field_is_named(changes: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Recipe.read_text(json.dumps(_fields(**changes)), path="bread.json")

    assert caught.value.field == field
    assert caught.value.path == "bread.json"
    assert f"bread.json: {field}: " in str(caught.value)
    assert said in str(caught.value)


def test_the_first_of_several_bad_fields_is_named_and_the_others_are_counted() -> None:
    fields = _fields(ingredients=[{}], notes=3)

    with pytest.raises(DocumentError, match="2 more bad fields") as caught:
        Recipe.from_object(fields)

    assert caught.value.field == "$.ingredients[0].name"


@pytest.mark.parametrize("content", [[], "text", None, 3])
def test_what_is_not_an_object_is_refused(content: object) -> None:
    with pytest.raises(DocumentError) as caught:
        Recipe.from_object(content)

    assert caught.value.field == "$"


def test_an_object_without_a_format_is_refused() -> None:
    with pytest.raises(DocumentError, match="a kitchen-recipe document is wanted") as caught:
        Recipe.from_object({"beta": 1, "alpha": 2})

    assert caught.value.field == "$.format"


def test_damaged_json_gives_line_and_column() -> None:
    with pytest.raises(DocumentError, match=r"bread.json: damaged JSON at line 2, column 3"):
        Recipe.read_text('{\n  ,"format": 1}', path="bread.json")


def test_lines_of_a_file_keep_their_number() -> None:
    with pytest.raises(DocumentError, match="line 17, column 2"):
        parse_json("{", first_line=17)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused(constant: str) -> None:
    with pytest.raises(DocumentError, match=f"{constant} is not JSON"):
        parse_json(constant)


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


def test_a_part_is_validated_under_the_root_it_is_given() -> None:
    with pytest.raises(DocumentError) as caught:
        validate(Ingredient, {"name": 3, "grams": 1}, root="$.pantry[2]")

    assert caught.value.field == "$.pantry[2].name"


def test_field_path_quotes_what_is_no_identifier() -> None:
    assert field_path(("a", 0, 'b"c', "d e")) == '$.a[0]["b\\"c"]["d e"]'


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


def test_a_repeated_field_among_many_is_found_in_linear_time() -> None:
    fields = [f'"a{number}": 1' for number in range(100_000)]  # all pairs would take hours
    with pytest.raises(DocumentError, match="the field a99999 is there twice"):
        parse_json("{" + ", ".join([*fields, fields[-1]]) + "}")
