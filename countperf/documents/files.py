"""JSON text and files: parsing that says where it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from countperf.errors import DocumentError

_LINE_WIDTH = 100


def parse_json(text: str, *, path: Path | str | None = None, first_line: int = 1) -> object:
    """Parse JSON strictly (no NaN, no infinity).

    Parameters
    ----------
    text : str
        The JSON text.
    path : Path or str, optional
        Where it comes from, for messages.
    first_line : int, optional
        Number of the text's first line in that file, for texts that are one line of a file.

    Raises
    ------
    DocumentError
        The text is not JSON; the message gives line and column.
    """

    def refuse(constant: str) -> NoReturn:
        raise DocumentError(located(f"{constant} is not JSON", path), path=path_text(path))

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno + first_line - 1}, column {error.colno}"
        message = located(f"damaged JSON at {where}: {error.msg}", path)
        offset = len(text[: error.pos].encode("utf-8", errors="surrogatepass"))
        raise DocumentError(message, path=path_text(path), offset=offset) from error
    except RecursionError as error:
        message = located("damaged JSON: nested too deeply", path)
        raise DocumentError(message, path=path_text(path)) from error


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
    """Read a text file (UTF-8).

    Raises
    ------
    DocumentError
        The file is missing, unreadable or not text.
    """
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
