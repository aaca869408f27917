"""Locks that keep other processes, and other threads, away from a file or a folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from countperf.documents.files import append_synced, output_error
from countperf.documents.lines import COMPRESSED, read_bytes, split_lines
from countperf.errors import MeasurementError


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
            found = split_lines(raw, path=self.path)
            beginning = header.partition(",")[0].encode()
            if not found.lines and raw[: len(beginning)] == beginning[: len(raw)]:
                self._file.truncate(0)  # empty, or died while writing the header
                self.write(header)
                _sync_folder(self.path.parent)
            else:
                read(found.lines)
                self._file.truncate(found.kept_bytes)
                if found.lacks_feed:
                    self.write("\n")
            self._held = stack.pop_all()

    def write(self, line: str) -> None:
        """Write a line, with its line feed; it is on the disk when this returns."""
        append_synced(self._file, self.path, line.encode())

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
