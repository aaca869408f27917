"""Numbers and names as compact text inside documents: fits have tens of thousands of them.

The text is base64 of what zlib makes of their JSON. Plain lists are read as well.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator, PlainSerializer

_MOST_BYTES = 1 << 28


def pack(content: Any) -> str:
    """Return lists of numbers or names as text; `unpack` returns the same."""
    text = json.dumps(content, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def unpack(content: Any) -> Any:
    """Return what a text has, as tuples; `ValueError` if it is damaged."""
    if not isinstance(content, str):
        return _tuples(content)
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(base64.b64decode(content, validate=True), _MOST_BYTES)
        if not unpacker.eof:
            raise ValueError("they are cut off")
        return _tuples(json.loads(found, parse_constant=_refuse))
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ValueError(f"packed numbers of a damaged document: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _tuples(content: Any) -> Any:
    """Turn lists into tuples, which strict validation takes."""
    return tuple(map(_tuples, content)) if isinstance(content, list | tuple) else content


_READ, _WRITTEN = (
    BeforeValidator(unpack),
    PlainSerializer(pack, return_type=str, when_used="json"),
)
Names = Annotated[tuple[str, ...], _READ, _WRITTEN]
Floats = Annotated[tuple[float, ...], _READ, _WRITTEN]
FloatRows = Annotated[tuple[tuple[float, ...], ...], _READ, _WRITTEN]
