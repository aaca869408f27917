"""Files: read as text or lines, replaced at once, appended to, locked.

Files of lines hold a JSON object each. A writer that dies leaves a last line without its line feed:
readers leave it out unless it is whole. All else is damage: the file stays as it is.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import json
import os
import shlex
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self, TypeVar
from uuid import uuid4

from countperf.errors import DocumentError, MeasurementError, OutputError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None

COMPRESSED = ".gz"  # ending of the names of compressed files

_MAX_BYTES = 2**26  # that a compressed file may become


def make_file_error(message: str, path: Path | str | None, **details: Any) -> DocumentError:
    """Make the error of what is wrong with a file, with its path if there is one."""
    if path is None:
        return DocumentError(message, path=None, **details)
    return DocumentError(f"{path}: {message}", path=str(path), **details)


def _read_bytes(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise make_file_error(f"cannot be read: {error.strerror or error}", path) from error


def read_file_text(path: Path | str) -> str:
    """Read a text file: UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it."""
    data = _read_bytes(path)
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "UTF-16" if is_wide else "UTF-8"
    try:
        return data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        what = f"not a text file (byte {error.start} is not {encoding})"
        raise make_file_error(what, path) from error


def read_content(path: Path | str) -> bytes:
    """Read a file that may be compressed by gzip, which its first bytes tell, not its name."""
    content = _read_bytes(path)
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            plain = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        message = f"damaged gzip file: {error}; restore it from a copy"
        raise make_file_error(message, path) from error
    if len(plain) > _MAX_BYTES:
        size = f"more than {_MAX_BYTES >> 20} MiB of {len(content) / 2**20:.3g} MiB"
        message = f"decompresses to {size}; if that is right, decompress it with gunzip first"
        raise make_file_error(message, path)
    return plain


def _make_output_error(path: Path | str, error: OSError) -> OutputError:
    said = error.strerror or str(error)
    mend = "name a file in a folder that you may write to"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        mend = "free some space there, or name a file on another disk"
    return OutputError(f"cannot write {path}: {said}; {mend}", path=str(path))


def check_writable(*paths: Path | str | None) -> None:
    """Find out, before the work that fills them, whether files can be written; make folders."""
    for path in paths:
        if path is not None:
            _replace(path, None)


def write_atomically(path: Path | str, content: str | bytes) -> None:
    """Replace a file by a new one with this content, synced first; makes missing folders.

    What a symbolic link leads to is replaced; pipes and devices (``/dev/stdout``) are written to.
    """
    # names of files need not be UTF-8
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    _replace(path, data)


def _replace(path: Path | str, data: bytes | None) -> None:
    """Replace a file; without data only find out whether that is possible."""
    target = Path(os.path.realpath(path))
    scratch = target.with_name(f".{target.name[:200]}.{uuid4().hex[:12]}.new")
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):  # a pipe or a device
            with target.open("wb") as file:
                file.write(data or b"")
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with scratch.open("wb", buffering=0) as file:
            _write_through(file, b"\0" * 4096 if data is None else data)
        if data is not None:
            scratch.replace(target)
    except OSError as error:
        raise _make_output_error(path, error) from error
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def _write_through(file: IO[bytes], data: bytes) -> None:
    """Write all of the data to an unbuffered file, and have them on the disk."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


# --- files of lines

_Header = TypeVar("_Header")
_Entry = TypeVar("_Entry")


def split_lines(content: bytes, *, path: Path | str | None = None) -> tuple[str, ...]:
    """Split a file into lines, and leave out a last line that was cut short."""
    *lines, tail = content.split(b"\n")
    if _is_object(tail):  # it lacks nothing but its line feed
        lines.append(tail)
    try:
        return tuple(map(bytes.decode, lines))
    except UnicodeDecodeError as error:  # the line is the first of its kind
        number = 1 + lines.index(error.object)
        said = f"the byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise make_line_error(said, number, path=path) from error


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


def make_line_error(
    said: str, number: int, *, path: Path | str | None = None, field: str | None = None
) -> DocumentError:
    """Make the error of a damaged line, with the advice that mends it."""
    mend = "name another file: its first line says what all others are of"
    if number > 1:
        name = "FILE" if path is None else shlex.quote(str(path))
        mend = (
            f"delete the line (sed -i.damaged {number}d {name} keeps the damaged file), and what it"
            " held is found anew when the work resumes"
        )
    return make_file_error(
        f"{said} (line {number}; nothing was written; restore the file from a copy, or {mend})",
        path,
        field=field or f"line {number}: $",
        line=number,
    )


def parse_lines(
    lines: Sequence[str],
    parse_header: Callable[[str], _Header],
    parse: Callable[[str, int], _Entry],
    *,
    path: Path | str | None = None,
) -> tuple[_Header, list[_Entry]]:
    """Parse the lines of a file; an error says which line is damaged, and how to mend it."""
    number = 1
    entries: list[_Entry] = []
    try:
        header = parse_header(lines[0])
        for number, line in enumerate(lines[1:], start=2):
            entries.append(parse(line, number))
    except DocumentError as error:
        if number == 1 and not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        said = str(error).removeprefix(f"{path}: ")
        raise make_line_error(said, number, path=path, field=error.field) from error
    return header, entries


class AppendedLines:
    """A file of lines that this process alone appends to; a context manager.

    It begins with a header line, or goes on: `read` takes the lines that are there. A last line
    that was cut short is removed, and one that lacks nothing but its line feed is ended.
    """

    def __init__(
        self, path: Path | str, header: str, read: Callable[[tuple[str, ...]], object]
    ) -> None:
        self.path = Path(path)
        with ExitStack() as stack:
            stack.enter_context(lock_file(self.path))
            try:
                self._file = stack.enter_context(self.path.open("ab", buffering=0))
            except OSError as error:
                raise _make_output_error(path, error) from error
            raw = _read_bytes(self.path)
            lines = split_lines(raw, path=self.path)
            beginning = header.partition(",")[0].encode()
            if not lines and raw[: len(beginning)] == beginning[: len(raw)]:
                self._file.truncate(0)  # empty, or died while writing the header
                self.write(header)
            else:
                read(lines)
                whole = sum(len(line.encode()) + 1 for line in lines)
                self._file.truncate(min(whole, len(raw)))
                if whole > len(raw):
                    self.write("\n")
            self._held = stack.pop_all()

    def write(self, line: str) -> None:
        """Write a line, with its line feed; it is on the disk when this returns."""
        before = os.fstat(self._file.fileno()).st_size
        try:
            _write_through(self._file, line.encode(errors="backslashreplace"))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(before)
            raise _make_output_error(self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


@contextmanager
def lock_file(path: Path | str, *, wait: bool = False) -> Generator[None]:
    """Have a file or folder to oneself, by a hidden file beside it; `MeasurementError` if taken.

    Where no lock can be made, what is done inside will say why.
    """
    target = Path(os.path.realpath(path))
    if target.name.endswith(COMPRESSED):
        mend = f"run gunzip {shlex.quote(str(path))}, and name the file that it makes"
        raise MeasurementError(f"{path}: no lines are appended to a compressed file; {mend}")
    with ExitStack() as stack:
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.with_name(f".{target.name[:200]}.lock")
            file = stack.enter_context(beside.open("ab", buffering=0))
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError as error:
                    message = f"{path} is in use by another campaign; wait for it, or name another"
                    raise MeasurementError(message) from error
        yield
