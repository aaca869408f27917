"""Files: read as text or lines, replaced at once, appended to, locked.

Files of lines hold a JSON object each, and programs append to them (`AppendedLines`). A writer that
dies leaves a last line without its line feed: readers leave it out unless it is whole. Everything
else that is wrong with a file is damage: an error says in which line and how to mend it, and the
file stays as it is. A file is replaced atomically: readers see the old one or the new one.
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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypeVar
from uuid import uuid4

from countperf.errors import DocumentError, MeasurementError, OutputError

COMPRESSED = ".gz"
"""Ending of the names of compressed files."""

_GZIP = b"\x1f\x8b"
_MAX_BYTES = 2**26
"""Most bytes that a compressed file may become."""


def _locate(message: str, path: Path | str | None) -> str:
    """Put the path of a file before a message about it."""
    return message if path is None else f"{path}: {message}"


def make_file_error(message: str, path: Path | str | None, **details: Any) -> DocumentError:
    """Make the error of what is wrong with a file, with its path if there is one."""
    return DocumentError(
        _locate(message, path), path=None if path is None else str(path), **details
    )


def read_file_text(path: Path | str) -> str:
    """Read a text file: UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it."""
    encoding = "utf-8"
    try:
        data = Path(path).read_bytes()
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        return io.StringIO(data.decode(encoding), newline=None).read()
    except OSError as error:
        raise make_file_error(f"cannot be read: {error.strerror or error}", path) from error
    except UnicodeDecodeError as error:
        what = f"not a text file (byte {error.start} is not {encoding.upper()})"
        raise make_file_error(what, path) from error


_PROBE = b"\0" * 4096
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MENDS = {
    **dict.fromkeys(_NO_SPACE, "free some space there, or name a file on another disk"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "name a file in a folder that you may write to"
    ),
    errno.EISDIR: "name a file in that folder",
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST), "a part of the path is a file: name a path of folders"
    ),
    errno.ENAMETOOLONG: "name a shorter one",
}


def output_error(path: Path | str, error: OSError, *, what: str = "") -> OutputError:
    """Make the error of a file that cannot be written, from what the system says."""
    said = error.strerror or str(error)
    mend = _MENDS.get(error.errno or 0, "name another file")
    written = f"{what} to {path}" if what else path
    return OutputError(f"cannot write {written}: {said}; {mend}", path=str(path))


def check_writable(*paths: Path | str | None) -> None:
    """Find out, before the work that fills them, whether files can be written.

    Missing folders are made, and a file of 4 KiB is written beside each file and removed.
    """
    for path in paths:
        if path is None:
            continue
        target = _real(path)
        try:
            if _is_special(target):
                if not os.access(target, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                continue
            with _replacing(target) as scratch, scratch.open("wb") as file:
                _flush(file, _PROBE)
        except OSError as error:
            raise output_error(path, error) from error


def write_atomically(path: Path | str, content: str | bytes) -> None:
    """Replace a file by a new one with this content, synced first; makes missing folders.

    What a symbolic link leads to is replaced, and pipes and devices (``/dev/stdout``) are written
    to.
    """
    # names of files need not be UTF-8
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    target = _real(path)
    try:
        if _is_special(target):
            target.write_bytes(data)
            return
        with _replacing(target) as scratch, scratch.open("wb") as file:
            _flush(file, data)
            scratch.replace(target)
    except OSError as error:
        raise output_error(path, error) from error


@contextmanager
def _replacing(target: Path) -> Generator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    scratch = target.with_name(f".{target.name[:200]}.{uuid4().hex[:12]}.new")
    try:
        yield scratch
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def _append(file: IO[bytes], path: Path | str, data: bytes) -> None:
    """Append to an unbuffered file; the data are on the disk when this returns."""
    before = os.fstat(file.fileno()).st_size
    try:
        _flush(file, data)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(file.fileno(), before)
        raise output_error(path, error) from error


def _flush(file: IO[bytes], data: bytes) -> None:
    """Write all of the data, and have them on the disk."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    file.flush()
    os.fsync(file.fileno())


def _real(path: Path | str) -> Path:
    return Path(os.path.realpath(path))


def _is_special(target: Path) -> bool:
    """Tell whether there is a pipe or a device, which is written to and never replaced."""
    return target.exists() and not target.is_file() and not target.is_dir()


# --- files of lines

_Header = TypeVar("_Header")
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLines:
    """The whole lines of a file."""

    lines: tuple[str, ...]  # without their line feeds
    kept_bytes: int  # length of these lines in the file, line feeds included
    lacks_feed: bool = False  # whether the last line is whole, but for its line feed


def _read_bytes(path: Path | str) -> bytes:
    """Read a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise make_file_error(f"cannot be read: {error.strerror or error}", path) from error


def read_content(path: Path | str) -> bytes:
    """Read a file that may be compressed by gzip, which its first bytes tell, not its name."""
    content = _read_bytes(path)
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            plain = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise make_file_error(
            f"damaged gzip file: {error}; restore it from a copy", path
        ) from error
    if len(plain) > _MAX_BYTES:
        size = f"more than {_MAX_BYTES >> 20} MiB of {len(content) / 2**20:.3g} MiB"
        message = f"decompresses to {size}; if that is right, decompress it with gunzip first"
        raise make_file_error(message, path)
    return plain


def split_lines(content: bytes, *, path: Path | str | None = None) -> FileLines:
    """Split a file into lines, and leave out a last line that was cut short."""
    *whole, tail = content.split(b"\n")
    lines: list[str] = []
    for number, raw in enumerate(whole, start=1):
        try:
            lines.append(raw.decode())
        except UnicodeDecodeError as error:
            said = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
            raise make_damaged_line_error(said, number, path=path) from error
    if not _is_object(tail):
        return FileLines(lines=tuple(lines), kept_bytes=len(content) - len(tail))
    return FileLines(lines=(*lines, tail.decode()), kept_bytes=len(content), lacks_feed=True)


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw.decode()), dict)
    except (ValueError, RecursionError):
        return False


def make_damaged_line_error(
    said: str, number: int, *, path: Path | str | None = None, field: str | None = None
) -> DocumentError:
    """Make the error of a damaged line, with the advice that mends it."""
    return make_file_error(
        f"{said} (line {number}); {_mend(number, path)}",
        path,
        field=field or f"line {number}: $",
        line=number,
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
    """Parse the lines of a file; an error says which line is damaged, and how to mend it."""
    try:
        header = parse_header(lines[0])
    except DocumentError as error:
        if not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        raise _make_damaged_error(error, 1, path) from error
    entries: list[_Entry] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            entries.append(parse(line, number))
        except DocumentError as error:
            raise _make_damaged_error(error, number, path) from error
    return header, entries


def _make_damaged_error(
    error: DocumentError, number: int, path: Path | str | None
) -> DocumentError:
    said = str(error).removeprefix(_locate("", path))
    return make_damaged_line_error(said, number, path=path, field=error.field)


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
            stack.enter_context(lock_file(self.path))
            try:
                self._file = stack.enter_context(self.path.open("ab", buffering=0))
            except OSError as error:
                raise output_error(path, error, what=what) from error
            raw = _read_bytes(self.path)
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
        _append(self._file, self.path, line.encode(errors="backslashreplace"))

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
def lock_file(path: Path | str, *, wait: bool = False) -> Generator[None]:
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
