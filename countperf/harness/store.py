"""Files of a campaign, to which each finished case is appended at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from countperf.documents import write_atomically
from countperf.documents.locks import AppendedLines, locked
from countperf.errors import MeasurementError
from countperf.measurements import (
    FailedCase,
    Header,
    Measurement,
    MeasurementSet,
    Resumption,
)
from countperf.measurements.lines import format_line


class Store(AppendedLines):
    """A measurement file that is open for appending, to begin a campaign or to go on with it."""

    def __init__(self, path: Path | str, header: Header) -> None:
        self.content = MeasurementSet(header=header)
        self.resumption: Resumption | None = None  # of a campaign that was begun before

        def read(lines: tuple[str, ...]) -> None:
            self.content = MeasurementSet.read_lines(lines, path=path)
            check_compatible(self.content.header, header, Path(path))
            self.resumption = Resumption(environment=header.environment)

        super().__init__(path, "measurements", format_line(header), read)

    def append(self, entry: Measurement | FailedCase | Resumption) -> None:
        """Write a line; it is on the disk when this returns."""
        self.write(format_line(entry))


def check_compatible(stored: Header, wanted: Header, path: Path) -> None:
    """Compare what a file holds with what is to be added to it."""
    before, now = stored.protocol.model_dump(), wanted.protocol.model_dump()
    pairs = {f"protocol's {name}": (before[name], now[name]) for name in before}
    refuse_differences(stored.device.differences(wanted.device) | pairs, path, "measurements")


def refuse_differences(pairs: Mapping[str, tuple[object, object]], path: Path, what: str) -> None:
    """Refuse a file of something else, if of some pair what is there differs from what is now."""
    differences = [
        f"{name} is {old!r} there and {new!r} now"
        for name, (old, new) in pairs.items()
        if old != new
    ]
    if differences:
        message = f"{path} holds other {what}: {'; '.join(differences)}; use another file"
        raise MeasurementError(message)


class Rewriting:
    """A measurement file that no other process writes to while it is written anew.

    A context manager. A reader sees the old file or the new one; a campaign that asks for the file
    is refused.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        if not self._path.exists():
            MeasurementSet.read_file(path)  # says what is wrong
        self._lock = locked(self._path)

    def read(self) -> MeasurementSet:
        """Return what is in the file."""
        return MeasurementSet.read_file(self._path)

    def write(self, content: MeasurementSet) -> None:
        """Replace the file."""
        write_atomically(self._path, content.to_text())

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._lock.__exit__(*details)
