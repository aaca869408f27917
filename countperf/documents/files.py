"""JSON text and files: parsing that says where it fails."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from countperf.errors import DocumentError

_LINE_WIDTH = 100
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_DIGITS = 20  # of the largest, or of the smallest with its sign


def parse_json(
    text: str, *, path: Path | str | None = None, first_line: int = 1, allow_nan: bool = False
) -> object:
    """Parse JSON strictly."""

    def refuse(message: str) -> NoReturn:
        where = "" if first_line == 1 else f" (line {first_line})"
        raise DocumentError(located(message + where, path), path=path_text(path))

    def whole(pairs: list[tuple[str, object]]) -> dict[str, object]:
        content = dict(pairs)
        if len(content) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice = next(name for name, count in counts.items() if count > 1)
            refuse(f"the field {_shortened(twice)} is there twice in an object; leave one of them")
        return content

    def integer(digits: str) -> int:
        if len(digits) > _DIGITS or not _SMALLEST <= (value := int(digits)) <= _LARGEST:
            refuse(f"the integer {_shortened(digits)} has more than 64 bits")
        return value

    def finite(digits: str) -> float:
        if math.isinf(value := float(digits)):
            refuse(f"the number {_shortened(digits)} is too large")
        return value

    try:
        return json.loads(
            text,
            object_pairs_hook=whole,
            parse_int=integer,
            parse_float=finite,
            parse_constant=float if allow_nan else lambda it: refuse(f"{it} is not JSON"),
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno + first_line - 1}, column {error.colno}"
        message = located(f"damaged JSON at {where}: {error.msg}", path)
        offset = len(text[: error.pos].encode("utf-8", errors="surrogatepass"))
        raise DocumentError(message, path=path_text(path), offset=offset) from error
    except RecursionError as error:
        message = located("damaged JSON: nested too deeply", path)
        raise DocumentError(message, path=path_text(path)) from error


def parse_toml(text: str, *, path: Path | str | None = None) -> dict[str, object]:
    """Parse TOML of the values that JSON has as well."""
    try:
        content: Any = parse_json(json.dumps(tomllib.loads(text), allow_nan=False), path=path)
    except RecursionError as error:
        message = located("damaged TOML: nested too deeply", path)
        raise DocumentError(message, path=path_text(path)) from error
    except (TypeError, ValueError) as error:  # besides a date, an infinite or a huge number
        is_damaged = isinstance(error, tomllib.TOMLDecodeError)
        wanted = "texts, finite numbers of 64 bits, arrays and tables are wanted, no dates"
        message = located(f"damaged TOML: {error if is_damaged else wanted}", path)
        raise DocumentError(message, path=path_text(path)) from error
    return content


def _shortened(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:20]}... ({len(text)} characters)"


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
        return "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{indent}}}"
    if all(isinstance(entry, int | float) for entry in value):
        return line
    entries = [format_json(entry, indent=inner) for entry in value]
    return "[\n" + ",\n".join(inner + entry for entry in entries) + f"\n{indent}]"


def read_file_text(path: Path | str) -> str:
    """Read a text file (UTF-8)."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        message = located(f"cannot be read: {error.strerror or error}", path)
        raise DocumentError(message, path=path_text(path)) from error
    except UnicodeDecodeError as error:
        message = located(f"not a text file (byte {error.start} is not UTF-8)", path)
        raise DocumentError(message, path=path_text(path)) from error


def located(message: str, path: Path | str | None) -> str:
    """Put the path of a file before a message about it."""
    return message if path is None else f"{path}: {message}"


def path_text(path: Path | str | None) -> str | None:
    """Return a path as errors hold it."""
    return None if path is None else str(path)
