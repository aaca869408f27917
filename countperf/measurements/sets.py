"""Measurements of one device, read from and written to files of lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from countperf.display import short_repr
from countperf.documents import write_atomically
from countperf.errors import DocumentError
from countperf.hardware.identity import DeviceIdentity
from countperf.measurements.header import Header
from countperf.measurements.lines import (
    FailedCase,
    Measurement,
    Resumption,
    format_line,
    located,
    parse_line,
)

if TYPE_CHECKING:
    import pandas as pd


_FRAME_FIELDS = (
    "case",
    "kernel",
    "family",
    "variant",
    "element_type",
    "purpose",
    "time_s",
    "spread",
    "noise_floor",
    "noise",
    "stable",
    "settling",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSet:
    """Measurements of one device by one protocol; iterates over them.

    Attributes
    ----------
    header : Header
        Device, protocol, environment.
    measurements : tuple of Measurement
        Finished cases, in the order in which they finished.
    failures : tuple of FailedCase
        Cases that failed and have not been measured since.
    resumptions : tuple of Resumption
        Later sessions.
    """

    header: Header
    measurements: tuple[Measurement, ...] = ()
    failures: tuple[FailedCase, ...] = ()
    resumptions: tuple[Resumption, ...] = ()

    def __repr__(self) -> str:
        return short_repr(self)

    def __len__(self) -> int:
        return len(self.measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    @property
    def device(self) -> DeviceIdentity:
        """The device that was measured."""
        return self.header.device

    def select(self, wanted: Callable[[Measurement], bool]) -> MeasurementSet:
        """Return the set with only the measurements for which `wanted` holds."""
        return replace(self, measurements=tuple(filter(wanted, self.measurements)))

    def frame(self) -> pd.DataFrame:
        """Return a table, one row per measurement, parameters in columns of their own names.

        Columns: case, kernel, family, variant, element_type, purpose, group_x, group_y, time_s,
        spread, noise_floor, noise, stable, settling, runs, and the parameters (missing
        where a kernel lacks one).
        """
        import pandas as pd

        rows = [
            {
                **{name: getattr(entry, name) for name in _FRAME_FIELDS},
                "group_x": entry.group_shape[0],
                "group_y": entry.group_shape[1],
                "runs": sum(map(len, entry.samples_s)),
                **entry.parameters,
            }
            for entry in self.measurements
        ]
        return pd.DataFrame(rows)

    @classmethod
    def read_file(cls, path: Path | str) -> MeasurementSet:
        """Read a measurement file; a last line that was cut short is left out.

        Parameters
        ----------
        path : Path or str
            The file.

        Returns
        -------
        MeasurementSet
            The validated measurements.

        Raises
        ------
        DocumentError
            The file is missing, foreign or damaged; ``field`` holds line and path of the field,
            such as ``line 12: $.samples_s[0][3]``.
        """
        return cls.read_text(complete_text(read_bytes(path)), path=path)

    @classmethod
    def read_text(cls, text: str, *, path: Path | str | None = None) -> MeasurementSet:
        """Parse the text of a measurement file; errors as in `read_file`."""
        first, *others = text.removesuffix("\n").split("\n")
        if not first:
            field = "line 1: $"
            message = located(f"{field}: empty; a countperf-measurements file is wanted", path)
            raise DocumentError(message, path=None if path is None else str(path), field=field)
        measured: dict[str, Measurement] = {}
        failed: dict[str, FailedCase] = {}
        resumed: list[Resumption] = []
        for number, line in enumerate(others, start=2):
            match parse_line(line, number, path=path):
                case Measurement() as entry:
                    failed.pop(entry.case, None)
                    measured[entry.case] = entry
                case FailedCase() as entry:
                    failed[entry.case] = entry
                case Resumption() as entry:
                    resumed.append(entry)
        return cls(
            header=Header.read_text(first, path=path),
            measurements=tuple(measured.values()),
            failures=tuple(failed.values()),
            resumptions=tuple(resumed),
        )

    def write_file(self, path: Path | str) -> None:
        """Write the set as one file; a reader sees the old file or the new one."""
        entries = (self.header, *self.resumptions, *self.measurements, *self.failures)
        write_atomically(path, "".join(map(format_line, entries)))


def read_bytes(path: Path | str) -> bytes:
    """Read a file.

    Raises
    ------
    DocumentError
        It is missing or unreadable.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = located(f"cannot be read: {error.strerror or error}", path)
        raise DocumentError(message, path=str(path)) from error


def complete_text(content: bytes) -> str:
    """Return a file of lines as text without a last line that was cut short.

    A last line without its line feed is whole if it is JSON: no part of an object is.
    """
    head, feed, tail = content.rpartition(b"\n")
    text = (head + feed).decode("utf-8", errors="replace")
    try:
        json.loads(tail)
    except ValueError:
        return text
    return text + tail.decode() + "\n"
