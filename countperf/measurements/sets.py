"""Measurements of one device, read from and written to files of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from countperf.display import Table, short_repr
from countperf.documents import damaged_line, parse_lines, read_bytes, split_lines, write_atomically
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSet(Table):
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
        return cls.read_lines(split_lines(read_bytes(path), path=path).lines, path=path)

    @classmethod
    def read_text(cls, text: str, *, path: Path | str | None = None) -> MeasurementSet:
        """Parse the text of a measurement file; errors as in `read_file`."""
        return cls.read_lines(text.removesuffix("\n").split("\n"), path=path)

    @classmethod
    def read_lines(cls, lines: Sequence[str], *, path: Path | str | None = None) -> MeasurementSet:
        """Parse the lines of a measurement file, without line feeds; errors as in `read_file`."""
        if not lines or not lines[0]:
            field = "line 1: $"
            message = located(f"{field}: empty; a countperf-measurements file is wanted", path)
            raise DocumentError(message, path=None if path is None else str(path), field=field)
        measured: dict[str, Measurement] = {}
        failed: dict[str, FailedCase] = {}
        resumed: list[Resumption] = []
        header, entries = parse_lines(
            lines,
            lambda line: Header.read_text(line, path=path),
            lambda line, number: parse_line(line, number, path=path),
            path=path,
        )
        for number, line in enumerate(entries, start=2):
            if not isinstance(line, Resumption):
                _check_new(line.case, number, measured, lines, path)
            match line:
                case Measurement() as entry:
                    failed.pop(entry.case, None)
                    measured[entry.case] = entry
                case FailedCase() as entry:
                    failed[entry.case] = entry
                case Resumption() as entry:
                    resumed.append(entry)
        return cls(
            header=header,
            measurements=tuple(measured.values()),
            failures=tuple(failed.values()),
            resumptions=tuple(resumed),
        )

    def write_file(self, path: Path | str) -> None:
        """Write the set as one file; a reader sees the old file or the new one."""
        write_atomically(path, self.to_text())

    def to_text(self) -> str:
        """Return the text of the set's file."""
        entries = (self.header, *self.resumptions, *self.measurements, *self.failures)
        return "".join(map(format_line, entries))


def _check_new(
    case: str,
    number: int,
    measured: Mapping[str, Measurement],
    lines: Sequence[str],
    path: Path | str | None,
) -> None:
    """Refuse a line of a case that an earlier line has measured: which of them holds is unknown."""
    if case in measured:
        field = f"line {number}: $.case"
        said = f"{field}: {case} is measured in an earlier line; a case has one measurement"
        offset = sum(len(line.encode()) + 1 for line in lines[: number - 1])
        raise damaged_line(said, number, offset, path=path, field=field)
