"""Versioned documents on pydantic: read, validate, name the bad field, refuse other versions.

They are immutable, refuse unknown fields, do not coerce, and hold no NaN or infinity. What is wrong
with a file becomes a `DocumentError` that says where: line and column of damaged JSON, else the
path of the first bad field, such as ``$.weights[3].value``.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

import pydantic

from countperf.store import make_file_error, read_file_text, write_atomically
from countperf.text import cut, short_repr

_LINE_WIDTH = 100
_DIGITS = 20  # of the largest integer of 64 bits


def parse_json(
    text: str, *, path: Path | str | None = None, first_line: int = 1, allow_nan: bool = False
) -> object:
    """Parse JSON strictly; NaN and infinities, where they are allowed, become None."""

    def refuse(message: str) -> NoReturn:
        where = "" if first_line == 1 else f" (line {first_line})"
        raise make_file_error(message + where, path)

    def read_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
        content = dict(pairs)
        if len(content) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            refuse(f"the field {cut(twice, 40)} is there twice in an object; leave one of them")
        return content

    def read_integer(digits: str) -> int:
        if len(digits) > _DIGITS or abs(int(digits)) >= 2**64:
            refuse(f"the integer {cut(digits, 24)} has more than 64 bits")
        return int(digits)

    try:
        return json.loads(
            text,
            object_pairs_hook=read_object,
            parse_int=read_integer,
            parse_constant=lambda it: None if allow_nan else refuse(f"{it} is not JSON"),
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno + first_line - 1}, column {error.colno}"
        raise make_file_error(f"damaged JSON at {where}: {error.msg}", path) from error
    except RecursionError as error:
        raise make_file_error("damaged JSON: nested too deeply", path) from error


def parse_toml(text: str, *, path: Path | str | None = None) -> dict[str, object]:
    """Parse TOML of the values that JSON has as well."""
    try:
        content: Any = parse_json(json.dumps(tomllib.loads(text), allow_nan=False), path=path)
    except RecursionError as error:
        raise make_file_error("damaged TOML: nested too deeply", path) from error
    except (TypeError, ValueError) as error:  # besides a date, an infinite or a huge number
        is_damaged = isinstance(error, tomllib.TOMLDecodeError)
        wanted = "texts, finite numbers of 64 bits, arrays and tables are wanted, no dates"
        raise make_file_error(f"damaged TOML: {error if is_damaged else wanted}", path) from error
    return content


def format_json(value: object, *, indent: str = "") -> str:
    """Write JSON for people: what fits on a line and every array of numbers stays on one line."""
    line = json.dumps(value, allow_nan=False, ensure_ascii=False)
    inner = indent + "  "
    if len(indent) + len(line) <= _LINE_WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        entries = [
            f"{json.dumps(str(key), ensure_ascii=False)}: {format_json(entry, indent=inner)}"
            for key, entry in value.items()
        ]
    elif all(isinstance(entry, int | float) for entry in value):
        return line
    else:
        entries = [format_json(entry, indent=inner) for entry in value]
    content = ",\n".join(inner + entry for entry in entries)
    return f"{line[0]}\n{content}\n{indent}{line[-1]}"


_Part = TypeVar("_Part", bound="Part")


def _in_order(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("the low end of the interval is above the high one")
    return ends


Interval = Annotated[tuple[float, float], pydantic.AfterValidator(_in_order)]  # low and high end

IntervalOfTimes = Annotated[
    tuple[pydantic.NonNegativeFloat, pydantic.PositiveFloat], pydantic.AfterValidator(_in_order)
]
"""Low and high end of a time, s."""


class Part(pydantic.BaseModel):
    """A validated, immutable object inside a document, or one line of a file of lines."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed; what was cached of the original is left out."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            object.__delattr__(copied, name)
        return copied

    def __repr__(self) -> str:
        return short_repr(self)

    __str__ = __repr__


class Document(Part):
    """Base of all documents; a subclass declares its own fields.

    Each has ``format`` and ``version`` as a ``Literal`` with that value as the default.
    """

    remade_by: ClassVar[str] = "make the file anew"  # advice for files of older versions

    @classmethod
    def read_text(cls, text: str, *, path: Path | str | None = None) -> Self:
        """Parse and validate a document."""
        return cls.from_object(parse_json(text, path=path), path=path)

    @classmethod
    def from_object(cls, content: object, *, path: Path | str | None = None) -> Self:
        """Validate parsed JSON; errors as in `read_text`."""
        fields = check_format(content, str(cls.model_fields["format"].default), path=path)
        version, current = fields.get("version"), cls.model_fields["version"].default
        if type(version) is not int or version != current:
            is_newer = type(version) is int and version > current
            mend = "a newer countperf wrote it: upgrade countperf" if is_newer else cls.remade_by
            message = f"$.version: version {_abbreviate(version)} is not read, {current} is: {mend}"
            raise make_file_error(message, path, field="$.version")
        return validate(cls, fields, path=path)

    @classmethod
    def read_file(cls, path: Path | str) -> Self:
        """Read and validate a document from a file; errors as in `read_text`, with ``path`` set."""
        return _read_document(cls, read_file_text(path), str(path))

    def to_object(self) -> dict[str, Any]:
        """Return the document as plain JSON-able values."""
        return self.model_dump(mode="json")

    def write_text(self) -> str:
        """Return the document as JSON text; `read_text` of it gives an equal document."""
        return format_json(self.to_object()) + "\n"

    def write_file(self, path: Path | str) -> None:
        """Write the document; a reader sees the old file or the new one, never a part of it."""
        write_atomically(path, self.write_text())


_Document = TypeVar("_Document", bound=Document)


@lru_cache(64)  # the same text need not be validated again
def _read_document(kind: type[_Document], text: str, path: str) -> _Document:
    return kind.read_text(text, path=path)


def check_format(content: object, wanted: str, *, path: Path | str | None = None) -> dict[str, Any]:
    """Return parsed JSON as a dict if it is a document of the wanted format, else refuse it."""
    if not isinstance(content, dict):
        message = f"$: a {wanted} document is wanted, not {_abbreviate(content)}"
        raise make_file_error(message, path, field="$")
    if content.get("format") != wanted:
        there = _abbreviate(content.get("format"))
        message = f"$.format: a {wanted} document is wanted, not one of {there}"
        raise make_file_error(message, path, field="$.format")
    return dict(content)


def validate(
    part_type: type[_Part], content: object, *, path: Path | str | None = None, root: str = "$"
) -> _Part:
    """Validate parsed JSON against a type of `Part`."""
    try:
        # strict validation of JSON text takes arrays for tuples, that of Python values does not
        return part_type.model_validate_json(json.dumps(content))
    except RecursionError as error:
        raise make_file_error(f"{root}: nested too deeply", path, field=root) from error
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = field_path(first["loc"], root=root)
        is_whole = first["type"] == "missing" or not first["loc"]
        input_text = "" if is_whole else f" (found: {_abbreviate(first['input'])})"
        others = error.error_count() - 1
        more = f"; {others} more bad field{'s' if others > 1 else ''}" if others else ""
        said = first["msg"].removeprefix("Value error, ")  # pydantic's, before our own words
        raise make_file_error(f"{field}: {said}{input_text}{more}", path, field=field) from error


def field_path(location: Sequence[str | int], *, root: str = "$") -> str:
    """Write the place of a field as a JSON path: ``$.weights[3].value``."""
    steps = (
        f"[{step}]"
        if isinstance(step, int)
        else (f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]")
        for step in location
    )
    return root + "".join(steps)


def _abbreviate(value: object) -> str:
    return cut(json.dumps(value, default=str), 40)
