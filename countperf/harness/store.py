"""File of a campaign, to which each finished case is appended at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Self

from countperf.documents import (
    FileLines,
    append_synced,
    read_bytes,
    replacing,
    split_lines,
)
from countperf.documents.locks import lock_file, open_locked
from countperf.errors import IncompatibleMeasurementsError
from countperf.measurements import (
    Environment,
    FailedCase,
    Header,
    Measurement,
    MeasurementSet,
    Resumption,
)
from countperf.measurements.lines import format_line

_BEGINNING = b'{"format": "countperf-measurements"'


class Store:
    """A measurement file that is open for appending; a context manager."""

    def __init__(
        self,
        path: Path,
        file: IO[bytes],
        content: MeasurementSet,
        environment: Environment,
        *,
        begun: bool,
    ) -> None:
        self.path = path
        self.content = content
        self.environment = environment
        self.begun = begun
        self._file = file

    @classmethod
    def open(cls, path: Path | str, header: Header) -> Store:
        """Open a file to go on with its campaign, or begin a new one.

        A last line that was cut short when an earlier session died is removed.
        """
        target = Path(path)
        file = open_locked(target, "measurements")
        try:
            return cls._begin(target, file, header)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _begin(cls, path: Path, file: IO[bytes], header: Header) -> Store:
        raw = read_bytes(path)
        found = split_lines(raw, path=path)
        if not found.lines and raw[: len(_BEGINNING)] == _BEGINNING[: len(raw)]:
            file.truncate(0)  # empty, or died while writing the header
            empty = MeasurementSet(header=header)
            store = cls(path, file, empty, header.environment, begun=False)
            store._write(header)
            sync_folder(path.parent)
            return store
        content = MeasurementSet.read_lines(found.lines, path=path)
        check_compatible(content.header, header, path)
        go_on_behind(file, path, found)
        return cls(path, file, content, header.environment, begun=True)

    def resume(self, entry: Resumption) -> None:
        """Write that a later session goes on with the campaign."""
        self._write(entry)

    def append(self, entry: Measurement | FailedCase) -> None:
        """Write a finished case; it is on the disk when this returns."""
        self._write(entry)

    def _write(self, entry: Header | Measurement | FailedCase | Resumption) -> None:
        append_synced(self._file, self.path, format_line(entry).encode())

    def close(self) -> None:
        """Close the file and let others write to it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_compatible(stored: Header, wanted: Header, path: Path) -> None:
    """Compare what a file holds with what is to be added to it."""
    differences = [
        f"{name} is {old!r} there and {new!r} now"
        for name, (old, new) in stored.device.differences(wanted.device).items()
    ]
    before, now = stored.protocol.model_dump(), wanted.protocol.model_dump()
    differences += [
        f"protocol's {name} is {before[name]!r} there and {now[name]!r} now"
        for name in before
        if before[name] != now[name]
    ]
    if stored.timer != wanted.timer:
        differences.append(f"times are by the {stored.timer} timer there, the {wanted.timer}'s now")
    if differences:
        message = f"{path} holds other measurements: {'; '.join(differences)}; use another file"
        raise IncompatibleMeasurementsError(message)


def sync_folder(folder: Path) -> None:
    """Have a new file's entry in its folder on the disk, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # systems on which a folder is not a file
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Rewriting:
    """A measurement file that no other process writes to while it is written anew.

    A context manager. A reader sees the old file or the new one, and a campaign that asks for the
    file is refused, between two writes as well.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        if not self._path.exists():
            MeasurementSet.read_file(path)  # says what is wrong
        self._file = open_locked(self._path, "measurements", new=False)

    def read(self) -> MeasurementSet:
        """Return what is in the file."""
        return MeasurementSet.read_file(self._path)

    def write(self, content: MeasurementSet) -> None:
        """Replace the file; what replaces it is locked before it is there."""
        with replacing(self._path) as scratch:
            file = scratch.open("wb", buffering=0)
            try:
                lock_file(file, self._path)
                append_synced(file, self._path, content.to_text().encode())
                scratch.replace(self._path)
            except BaseException:
                file.close()
                raise
        self._file.close()
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def go_on_behind(file: IO[bytes], path: Path, found: FileLines) -> None:
    """Drop a last line that was cut short, and end one that lacks nothing but its line feed."""
    file.truncate(found.kept_bytes)
    if found.lacks_feed:
        append_synced(file, path, b"\n")
