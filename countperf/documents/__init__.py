"""Versioned documents on pydantic: read, validate, name the bad field, refuse other versions.

A document is a JSON object with the fields ``format`` (what it is) and ``version`` (which layout).
A subclass of `Document` declares both as a ``Literal`` with that value as the default::

    class Recipe(Document):
        format: Literal["kitchen-recipe"] = "kitchen-recipe"
        version: Literal[2] = 2
        remade_by = "cook it again"            # advice for files of version 1
        title: str

Objects inside a document derive from `Part`. Both are immutable, refuse unknown fields, do not
coerce (``"3"`` is no number) and hold no NaN or infinity. Everything that can be wrong with a file
becomes a `DocumentError` that says where: line and column of damaged JSON, else the path of the
first bad field, such as ``$.weights[3].value``.
"""

from __future__ import annotations

from countperf.documents.base import (
    Document,
    Interval,
    IntervalOfTimes,
    Part,
    check_format,
    check_writable,
    field_path,
    format_json,
    output_error,
    parse_json,
    parse_toml,
    read_file_text,
    validate,
    write_atomically,
)
from countperf.documents.lines import (
    COMPRESSED,
    FileLines,
    damaged_line,
    parse_lines,
    read_bytes,
    read_content,
    split_lines,
)

__all__ = ["COMPRESSED", "Document", "FileLines", "Interval", "IntervalOfTimes", "Part"]
__all__ += ["check_format", "check_writable", "damaged_line", "field_path", "format_json"]
__all__ += ["output_error", "parse_json", "parse_lines", "parse_toml", "read_bytes", "read_content"]
__all__ += ["read_file_text", "split_lines", "validate", "write_atomically"]
