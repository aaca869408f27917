"""The base classes of documents and of the objects inside them; validation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    field_validator,
)

from countperf.display import short_repr
from countperf.documents.files import (
    format_json,
    located,
    parse_json,
    path_text,
    read_file_text,
    write_atomically,
)
from countperf.errors import DocumentError

_Part = TypeVar("_Part", bound="Part")

_OWN_WORDS = "Value error, "
"""Prefix that pydantic puts before the message of our validators' errors."""


def _in_order(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("the low end of the interval is above the high one")
    return ends


Interval = Annotated[tuple[float, float], AfterValidator(_in_order)]
"""Low and high end."""

IntervalOfTimes = Annotated[tuple[NonNegativeFloat, PositiveFloat], AfterValidator(_in_order)]
"""Low and high end of a time, s."""


class Part(BaseModel):
    """A validated, immutable object inside a document, or one line of a file of lines."""

    model_config = ConfigDict(
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
    """Base of all documents; a subclass declares ``format``, ``version`` and its own fields."""

    # advice for files of older versions, which are refused
    remade_by: ClassVar[str] = "make the file anew"

    @field_validator("version", mode="before", check_fields=False)
    @classmethod
    def _version_is_no_boolean(cls, version: object) -> object:
        if isinstance(version, bool):
            raise ValueError(f"a version number is wanted, not {version}")
        return version

    @classmethod
    def read_text(cls, text: str, *, path: Path | str | None = None) -> Self:
        """Parse and validate a document."""
        return cls.from_object(parse_json(text, path=path), path=path)

    @classmethod
    def from_object(cls, content: object, *, path: Path | str | None = None) -> Self:
        """Validate parsed JSON; errors as in `read_text`."""
        fields = check_format(content, str(cls.model_fields["format"].default), path=path)
        version, current = fields.get("version"), cls.model_fields["version"].default
        if type(version) is int and version != current:
            mend = "a newer countperf wrote it: upgrade countperf"
            mend = mend if version > current else cls.remade_by
            message = f"version {version} is not read, {current} is: {mend}"
            _fail(message, path=path, field="$.version")
        return validate(cls, fields, path=path)

    @classmethod
    def read_file(cls, path: Path | str) -> Self:
        """Read and validate a document from a file; errors as in `read_text`, with ``path`` set."""
        return cls.read_text(read_file_text(path), path=path)

    def to_object(self) -> dict[str, Any]:
        """Return the document as plain JSON-able values."""
        return self.model_dump(mode="json")

    def write_text(self) -> str:
        """Return the document as JSON text; `read_text` of it gives an equal document."""
        return format_json(self.to_object()) + "\n"

    def write_file(self, path: Path | str) -> None:
        """Write the document; a reader sees the old file or the new one, never a part of it."""
        write_atomically(path, self.write_text())


def check_format(content: object, wanted: str, *, path: Path | str | None = None) -> dict[str, Any]:
    """Return parsed JSON as a dict if it is a document of the wanted format, else refuse it."""
    if not isinstance(content, dict):
        kind = "an array" if isinstance(content, list) else f"the value {_abbreviated(content)}"
        _fail(f"a {wanted} document is wanted, not {kind}", path=path, field="$")
    if content.get("format") != wanted:
        found = _abbreviated(content.get("format"))
        _fail(f"a {wanted} document is wanted, not one of {found}", path=path, field="$.format")
    return dict(content)


def validate(
    part_type: type[_Part], content: object, *, path: Path | str | None = None, root: str = "$"
) -> _Part:
    """Validate parsed JSON against a type of `Part`."""
    try:
        # strict validation of JSON text takes arrays for tuples, that of Python values does not
        return part_type.model_validate_json(json.dumps(content, allow_nan=False))
    except RecursionError as error:
        message = located(f"{root}: nested too deeply", path)
        raise DocumentError(message, path=path_text(path), field=root) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = field_path(first["loc"], root=root)
        is_whole = first["type"] == "missing" or not first["loc"]
        found = "" if is_whole else f" (found: {_abbreviated(first['input'])})"
        others = error.error_count() - 1
        more = f"; {others} more bad field{'s' if others > 1 else ''}" if others else ""
        said = first["msg"].removeprefix(_OWN_WORDS)
        message = located(f"{field}: {said}{found}{more}", path)
        raise DocumentError(message, path=path_text(path), field=field) from error


def field_path(location: Sequence[str | int], *, root: str = "$") -> str:
    """Write the place of a field as a JSON path: ``$.weights[3].value``."""
    steps = (
        f"[{step}]"
        if isinstance(step, int)
        else (f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]")
        for step in location
    )
    return root + "".join(steps)


def _fail(message: str, *, path: Path | str | None, field: str) -> NoReturn:
    raise DocumentError(located(f"{field}: {message}", path), path=path_text(path), field=field)


def _abbreviated(value: object, limit: int = 40) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= limit else text[: limit - 3] + "..."
