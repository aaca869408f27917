"""Files of lines, a JSON object each, that programs append to.

A writer that dies leaves a last line without its line feed, of which nothing is lost that had been
finished: readers leave such a line out. Everything else that is wrong with a file is damage.
Damage is an error that says where it is and how to mend it, and leaves the file as it is.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, TypeVar

from countperf.documents.base import append_synced, bad_document, located, output_error
from countperf.errors import DocumentError, MeasurementError

COMPRESSED = ".gz"
"""Ending of the names of compressed files."""

_GZIP = b"\x1f\x8b"
_LARGEST = 2**26
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
        raise bad_document(f"cannot be read: {error.strerror or error}", path) from error


def read_content(path: Path | str) -> bytes:
    """Read a file that may be compressed by gzip, which its first bytes tell, not its name."""
    content = read_bytes(path)
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            plain = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise bad_document(f"damaged gzip file: {error}; restore it from a copy", path) from error
    if len(plain) > _LARGEST:
        size = f"more than {_LARGEST >> 20} MiB of {len(content) / 2**20:.3g} MiB"
        message = f"decompresses to {size}; if that is right, decompress it with gunzip first"
        raise bad_document(message, path)
    return plain


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
        position = offset + len(text[: text.rindex(rest)].encode())
        said = f"{rest[:20]!r} follows the object, where a line feed is wanted"
        raise damaged_line(said, number, position, path=path)
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
    return bad_document(
        f"{said} (byte {offset}, line {number}); {_mend(number, path)}",
        path,
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
    entries: list[_Entry] = []
    offset = len(lines[0].encode()) + 1
    for number, line in enumerate(lines[1:], start=2):
        try:
            entries.append(parse(line, number))
        except DocumentError as error:
            raise _damaged(error, number, offset, path) from error
        offset += len(line.encode()) + 1
    return header, entries


def _damaged(
    error: DocumentError, number: int, offset: int, path: Path | str | None
) -> DocumentError:
    said = str(error).removeprefix(located("", path))
    position = offset + (error.offset or 0)
    return damaged_line(said, number, position, path=path, field=error.field)


# --- locks that keep other processes, and other threads, away from a file or a folder


class AppendedLines:
    """A file of lines that this process alone appends to; a context manager.

    It begins with a header line, or goes on: `read` takes the lines that are there, and refuses
    those of something else. A last line that was cut short when an earlier process died is removed,
    and one that lacks nothing but its line feed is ended.
    """

    def __init__(
        self, path: Path | str, what: str, header: str, read: Callable[[tuple[str, ...]], object]
    ) -> None:
        self.path = Path(path)
        with ExitStack() as stack:
            stack.enter_context(locked(self.path))
            try:
                self._file = stack.enter_context(self.path.open("ab", buffering=0))
            except OSError as error:
                raise output_error(path, error, what=what) from error
            raw = read_bytes(self.path)
            there = split_lines(raw, path=self.path)
            beginning = header.partition(",")[0].encode()
            if not there.lines and raw[: len(beginning)] == beginning[: len(raw)]:
                self._file.truncate(0)  # empty, or died while writing the header
                self.write(header)
                _sync_folder(self.path.parent)
            else:
                read(there.lines)
                self._file.truncate(there.kept_bytes)
                if there.lacks_feed:
                    self.write("\n")
            self._held = stack.pop_all()

    def write(self, line: str) -> None:
        """Write a line, with its line feed; it is on the disk when this returns."""
        append_synced(self._file, self.path, line.encode(errors="backslashreplace"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


def _sync_folder(folder: Path) -> None:
    """Have a new file's entry in its folder on the disk, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # systems on which a folder is not a file
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path | str, *, wait: bool = False) -> Generator[None]:
    """Have a file or folder that is appended to, or replaced, to oneself.

    The lock is a hidden file beside it, which is removed at the end. Where none can be made, what
    is done inside will say why. `MeasurementError` if another has it.
    """
    target = Path(os.path.realpath(path))
    if target.name.endswith(COMPRESSED):
        name, plain = shlex.quote(str(path)), shlex.quote(str(path).removesuffix(COMPRESSED))
        raise MeasurementError(
            f"{path}: no lines are appended to a compressed file; run gunzip {name}, or begin a new"
            f" file, and name {plain}"
        )
    beside = target.with_name(f".{target.name[:200]}.lock")
    while True:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = beside.open("ab", buffering=0)
        except OSError:
            yield
            return
        with file:
            _lock(file, target, wait=wait)
            if not _is_still(file, beside):
                continue  # removed by who had it
            try:
                yield
            finally:
                with suppress(OSError):
                    beside.unlink()
            return


def _is_still(file: IO[bytes], path: Path) -> bool:
    """Tell whether an open file is the one that is there now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: IO[bytes], path: Path, *, wait: bool) -> None:
    """Lock an open file where the system can; `MeasurementError` if another has it."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        message = f"{path} is in use by another campaign; wait for it, or use another file"
        raise MeasurementError(message) from error
    except OSError:  # a file system without locks
        return
