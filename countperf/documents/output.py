"""Files that results go into: checked before the work, replaced as a whole.

What cannot be written is an `OutputError` that says which file, why, and how to mend it. A reader
sees the old file or the new one, never a part of one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

from countperf.errors import OutputError

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
    data = content.encode() if isinstance(content, str) else content
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
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def append_synced(file: IO[bytes], path: Path | str, data: bytes) -> None:
    """Append to an unbuffered file; the data are on the disk when this returns."""
    before = os.fstat(file.fileno()).st_size
    try:
        _flush(file, data)
    except OSError as error:
        with contextlib.suppress(OSError):
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
