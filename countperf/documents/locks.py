"""Locks that keep other processes, and other threads, away from a file or a folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from countperf.documents.lines import COMPRESSED
from countperf.documents.output import output_error
from countperf.errors import MeasurementError


def open_locked(path: Path, what: str, *, new: bool = True) -> IO[bytes]:
    """Open a file to append to, and keep other processes out until it is closed."""
    if path.name.endswith(COMPRESSED):
        name, plain = shlex.quote(str(path)), shlex.quote(str(path).removesuffix(COMPRESSED))
        raise MeasurementError(
            f"{path}: no lines are appended to a compressed file; run gunzip {name}, or begin a new"
            f" file, and name {plain}"
        )
    while True:
        try:
            if new:
                path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab" if new else "r+b", buffering=0)
        except OSError as error:
            raise output_error(path, error, what=what) from error
        try:
            lock_file(file, path)
            if _is_still(file, path):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # replaced by another process before it was locked


def _is_still(file: IO[bytes], path: Path) -> bool:
    """Tell whether an open file is the one that is there now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def locked(path: Path | str, *, wait: bool = False) -> Generator[None]:
    """Have a file or folder that is replaced, or changed file by file, to oneself.

    The lock is a hidden file beside it, which is removed at the end. Where none can be made, what
    is done inside will say why.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name[:200]}.lock")
    while True:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = beside.open("ab", buffering=0)
        except OSError:
            yield
            return
        with file:
            lock_file(file, target, wait=wait)
            if not _is_still(file, beside):
                continue  # removed by who had it
            try:
                yield
            finally:
                with suppress(OSError):
                    beside.unlink()
            return


def lock_file(file: IO[bytes], path: Path, *, wait: bool = False) -> None:
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
