"""Files of lines, a JSON object each, that programs append to.

A writer that dies leaves a last line without its line feed, of which nothing is lost that had been
finished: readers leave such a line out. Everything else that is wrong with a file is damage.
Damage is an error that says where it is and how to mend it, and leaves the file as it is.
"""

from __future__ import annotations

import gzip
import io
import json
import shlex
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from countperf.documents.files import located, path_text
from countperf.errors import DocumentError

COMPRESSED = ".gz"
"""Ending of the names of compressed files."""

_GZIP = b"\x1f\x8b"
_LARGEST = 2**28
"""Most bytes that a compressed file may become."""

_Header = TypeVar("_Header")
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLines:
    """The whole lines of a file."""

    lines: tuple[str, ...]  # without their line feeds
    kept_bytes: int  # length of these lines in the file, line feeds included
    lacks_feed: bool = False  # whether the last line is whole, but for its line feed


def read_bytes(path: Path | str) -> bytes:
    """Read a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = located(f"cannot be read: {error.strerror or error}", path)
        raise DocumentError(message, path=path_text(path)) from error


def read_content(path: Path | str) -> bytes:
    """Read a file that may be compressed by gzip, which its first bytes tell, not its name."""
    content = read_bytes(path)
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            found = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        message = located(f"damaged gzip file: {error}; restore it from a copy", path)
        raise DocumentError(message, path=path_text(path)) from error
    if len(found) > _LARGEST:
        size = f"more than {_LARGEST >> 20} MiB of {len(content) / 2**20:.3g} MiB"
        message = f"decompresses to {size}; if that is right, decompress it with gunzip first"
        raise DocumentError(located(message, path), path=path_text(path))
    return found


def split_lines(content: bytes, *, path: Path | str | None = None) -> FileLines:
    """Split a file into lines, and leave out a last line that was cut short."""
    *whole, tail = content.split(b"\n")
    lines: list[str] = []
    offset = 0
    for number, raw in enumerate(whole, start=1):
        try:
            lines.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise _undecodable(error, number, offset, path) from error
        offset += len(raw) + 1
    last = _whole_object(tail, len(lines) + 1, offset, path)
    if last is None:
        return FileLines(lines=tuple(lines), kept_bytes=offset)
    return FileLines(lines=(*lines, last), kept_bytes=len(content), lacks_feed=True)


def _whole_object(tail: bytes, number: int, offset: int, path: Path | str | None) -> str | None:
    """Return a last line without line feed if it is whole; None if it was cut short."""
    if not tail.startswith(b"{"):
        return None
    try:
        text = tail.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end == len(tail) and error.reason == "unexpected end of data":
            return None
        raise _undecodable(error, number, offset, path) from error
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if rest := text[end:].strip():
        place = offset + len(text[: text.rindex(rest)].encode())
        said = f"{rest[:20]!r} follows the object, where a line feed is wanted"
        raise damaged_line(said, number, place, path=path)
    return text


def _undecodable(
    error: UnicodeDecodeError, number: int, offset: int, path: Path | str | None
) -> DocumentError:
    byte = error.object[error.start]
    said = f"the byte 0x{byte:02x} is not UTF-8"
    return damaged_line(said, number, offset + error.start, path=path)


def damaged_line(
    said: str,
    number: int,
    offset: int,
    *,
    path: Path | str | None = None,
    field: str | None = None,
) -> DocumentError:
    """Make the error of a damaged line, with the advice that mends it."""
    message = located(f"{said} (byte {offset}, line {number})", path)
    return DocumentError(
        f"{message}; {_mend(number, path)}",
        path=path_text(path),
        field=field or f"line {number}: $",
        line=number,
        offset=offset,
    )


def _mend(number: int, path: Path | str | None) -> str:
    if number == 1:
        return (
            "nothing was written; the first line says what all others are of: restore the file from"
            " a copy, or name another file"
        )
    name = "FILE" if path is None else shlex.quote(str(path))
    first, last = "", ""
    if str(path).endswith(COMPRESSED):
        plain = shlex.quote(str(path).removesuffix(COMPRESSED))
        first, last, name = f"gunzip {name}; ", f"; gzip -n {plain}", plain
    return (
        f"nothing was written; restore the file from a copy, or delete the line ({first}sed"
        f" -i.damaged {number}d {name}{last} keeps the damaged file as {name}.damaged), and what it"
        " held is found anew when the work resumes"
    )


def parse_lines(
    lines: Sequence[str],
    parse_header: Callable[[str], _Header],
    parse: Callable[[str, int], _Entry],
    *,
    path: Path | str | None = None,
) -> tuple[_Header, list[_Entry]]:
    """Parse the lines of a file; an error says which byte is damaged, and how to mend it."""
    try:
        header = parse_header(lines[0])
    except DocumentError as error:
        if error.offset is None:
            raise
        raise _damaged(error, 1, 0, path) from error
    found: list[_Entry] = []
    offset = len(lines[0].encode()) + 1
    for number, line in enumerate(lines[1:], start=2):
        try:
            found.append(parse(line, number))
        except DocumentError as error:
            raise _damaged(error, number, offset, path) from error
        offset += len(line.encode()) + 1
    return header, found


def _damaged(
    error: DocumentError, number: int, offset: int, path: Path | str | None
) -> DocumentError:
    said = str(error).removeprefix(located("", path))
    place = offset + (error.offset or 0)
    return damaged_line(said, number, place, path=path, field=error.field)
