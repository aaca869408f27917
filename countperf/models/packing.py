"""Rows of numbers as compact text inside documents: fits have hundreds of thousands of them.

A text is ``rows:digits:type:data``: how many rows there are; after how many decimals the numbers
end, which are then stored as integers (empty: floating-point numbers); their NumPy type; and, in
base64, what zlib makes of the lengths of the rows followed by all numbers, little-endian. The
smallest type is taken that keeps every number as it is.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, PlainSerializer

Rows = Sequence[Sequence[float]]

_TEXT = re.compile(r"(\d{1,7}):(\d?):([uf][1248]):([A-Za-z0-9+/=]*)")
_INTEGERS = ("u1", "u2", "u4")
_FLOATS = ("f4", "f8")
_MOST_DIGITS = 4
_MOST_BYTES = 1 << 28
_LENGTH = np.dtype("<u4")


def pack(rows: Rows) -> str:
    """Return rows of numbers as text; `unpack` returns equal numbers."""
    lengths = np.array([len(row) for row in rows], _LENGTH)
    values = np.array([value for row in rows for value in row], np.float64)
    digits, kept = _smallest(values)
    data = zlib.compress(lengths.tobytes() + kept.tobytes(), 9)
    text = base64.b64encode(data).decode("ascii")
    return f"{len(lengths)}:{digits}:{kept.dtype.str[1:]}:{text}"


def unpack(text: str) -> tuple[tuple[float, ...], ...]:
    """Return the rows of a text that `pack` made."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError("this is no packed rows of numbers (rows:digits:type:data)")
    number, digits, kind = int(found[1]), found[2], found[3]
    content = _content(found[4])
    size = number * _LENGTH.itemsize
    lengths = np.frombuffer(content[:size], _LENGTH) if len(content) >= size else None
    type_ = np.dtype(f"<{kind}")
    if lengths is None or len(content) - size != int(lengths.sum()) * type_.itemsize:
        raise ValueError(f"the packed numbers are not of {number} rows: the document is damaged")
    values = np.frombuffer(content[size:], type_)
    if digits != "0":
        values = values.astype(np.float64) / 10.0 ** int(digits or 0)
    if not np.all(np.isfinite(values)):
        raise ValueError("the packed numbers are not finite: the document is damaged")
    ends = np.cumsum(lengths)[:-1]
    return tuple(tuple(row.tolist()) for row in np.split(values, ends)) if number else ()


def _content(data: str) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(base64.b64decode(data, validate=True), _MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the packed numbers are damaged: {error}") from error
    if not unpacker.eof:
        raise ValueError("the packed numbers are cut off: the document is damaged")
    return content


def _smallest(values: NDArray[np.float64]) -> tuple[str, NDArray[Any]]:
    """Return the decimals, empty for none, and the numbers in the smallest type that keeps them."""
    if not np.any(values < 0):
        for digits in range(_MOST_DIGITS + 1):
            whole = np.rint(values * 10.0**digits)
            if np.array_equal(whole / 10.0**digits, values):
                fitting = [t for t in _INTEGERS if whole.max(initial=0.0) <= np.iinfo(t).max]
                if fitting:
                    return str(digits), whole.astype(f"<{fitting[0]}")
    with np.errstate(over="ignore"):
        single, double = (values.astype(f"<{kind}") for kind in _FLOATS)
    return "", single if np.array_equal(single, values) else double


def pack_square(rows: Rows) -> str:
    """Return a symmetric matrix as text: of each row what is not above the diagonal."""
    matrix = [list(row) for row in rows]
    lower = [row[: i + 1] for i, row in enumerate(matrix)]
    is_symmetric = all(len(row) == len(matrix) for row in matrix) and np.array_equal(
        np.array(matrix), np.array(matrix).T
    )
    return pack(lower if is_symmetric else matrix)


def unpack_square(text: str) -> tuple[tuple[float, ...], ...]:
    """Return the matrix of a text that `pack_square` made; errors as in `unpack`."""
    rows = unpack(text)
    if [len(row) for row in rows] != list(range(1, len(rows) + 1)):
        return rows
    matrix = np.zeros((len(rows), len(rows)))
    for place, row in enumerate(rows):
        matrix[place, : place + 1] = row
    return tuple(map(tuple, (matrix + np.tril(matrix, -1).T).tolist()))


def pack_names(names: Sequence[str]) -> str:
    """Return names, which have no line breaks, as text: their number, and zlib's output."""
    data = zlib.compress("\n".join(names).encode(), 9)
    return f"{len(names)}:{base64.b64encode(data).decode('ascii')}"


def unpack_names(text: str) -> tuple[str, ...]:
    """Return the names of a text that `pack_names` made; `ValueError` if it is damaged."""
    number, _, data = text.partition(":")
    names = tuple(_content(data).decode(errors="replace").split("\n"))
    if str(len(names)) != number:
        raise ValueError(f"the packed names are not {number}: the document is damaged")
    return names


def as_tuples(content: Any) -> Any:
    """Return lists of lists as tuples of tuples, which strict validation takes; all else as is."""
    if not isinstance(content, list | tuple):
        return content
    rows = cast("Sequence[Any]", content)
    return tuple(tuple(cast("list[Any]", row)) if isinstance(row, list) else row for row in rows)


def _rows(content: Any) -> Any:
    return unpack(content) if isinstance(content, str) else as_tuples(content)


def _square(content: Any) -> Any:
    return unpack_square(content) if isinstance(content, str) else as_tuples(content)


def _one_row(content: Any) -> Any:
    if not isinstance(content, str):
        return tuple(cast("list[Any]", content)) if isinstance(content, list) else content
    rows = unpack(content)
    if len(rows) != 1:
        raise ValueError("this is not one packed row of numbers: the document is damaged")
    return rows[0]


def _names(content: Any) -> Any:
    if isinstance(content, str):
        return unpack_names(content)
    return tuple(cast("list[Any]", content)) if isinstance(content, list) else content


def _pack_row(row: Sequence[float]) -> str:
    return pack([row])


Floats = Annotated[
    tuple[float, ...],
    BeforeValidator(_one_row),
    PlainSerializer(_pack_row, return_type=str, when_used="json"),
]
"""Numbers that documents have as text; plain lists are read as well."""

Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_names),
    PlainSerializer(pack_names, return_type=str, when_used="json"),
]
"""Names that documents have as text; plain lists are read as well."""

FloatRows = Annotated[
    tuple[tuple[float, ...], ...],
    BeforeValidator(_rows),
    PlainSerializer(pack, return_type=str, when_used="json"),
]
"""Rows of numbers that documents have as text; plain lists are read as well."""

IntegerRows = Annotated[
    tuple[tuple[int, ...], ...],
    BeforeValidator(_rows),
    PlainSerializer(pack, return_type=str, when_used="json"),
]
"""The same of integers that are not negative."""

SquareRows = Annotated[
    tuple[tuple[float, ...], ...],
    BeforeValidator(_square),
    PlainSerializer(pack_square, return_type=str, when_used="json"),
]
"""The same of a symmetric matrix."""
