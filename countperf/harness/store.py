"""Files of a campaign, to which each finished case, and each round, is appended at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, Literal, Self

from pydantic import AwareDatetime

from countperf.documents import (
    Document,
    FileLines,
    Part,
    append_synced,
    output_error,
    parse_json,
    parse_lines,
    read_bytes,
    replacing,
    split_lines,
    validate,
)
from countperf.documents.locks import lock_file, open_locked
from countperf.errors import IncompatibleMeasurementsError
from countperf.harness.environment import timestamp
from countperf.harness.repeats import Round
from countperf.measurements import (
    Environment,
    FailedCase,
    Header,
    KernelCase,
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


class RoundsHeader(Document):
    """First line of the file."""

    format: Literal["countperf-rounds"] = "countperf-rounds"
    version: Literal[1] = 1
    store: Header  # first line of the store that the rounds belong to


class SessionLine(Part):
    """Beginning of a session, before its rounds."""

    began_at: str  # when, UTC, ISO 8601


class RoundLine(Round):
    """A round of a case."""

    case: str  # name of the case
    parameters: dict[str, int]  # its sizes
    recorded_at: AwareDatetime  # when the round ended, UTC, ISO 8601


class RoundsFile:
    """Rounds of cases that a campaign has not finished yet, in a file beside its store.

    A context manager. Each round is on the disk before the next one begins, so that a campaign
    advances however often it is interrupted. Whoever has the store's lock writes to the file, and
    it is removed when no case is left.
    """

    def __init__(self, store: Path, header: Header) -> None:
        self.path = rounds_path(store)
        self.lines: tuple[RoundLine, ...] = ()
        self.before: int | None = None
        with ExitStack() as stack:
            try:
                self._file: IO[bytes] = stack.enter_context(self.path.open("ab", buffering=0))
            except OSError as error:
                raise output_error(self.path, error, what="rounds") from error
            self._begin(RoundsHeader(store=header))
            stack.pop_all()

    def _begin(self, header: RoundsHeader) -> None:
        found = split_lines(read_bytes(self.path), path=self.path)
        if found.lines:
            there, lines = parse_lines(
                found.lines,
                lambda line: RoundsHeader.read_text(line, path=self.path),
                self._parsed,
                path=self.path,
            )
            if there == header:
                go_on_behind(self._file, self.path, found)
                self.lines = tuple(each for each in lines if isinstance(each, RoundLine))
                sessions = [n for n, each in enumerate(lines) if isinstance(each, SessionLine)]
                self.before = len(lines) - 1 - sessions[-1] if sessions else 0
                self._append(SessionLine(began_at=timestamp()))
                return
        self._file.truncate(0)
        self._append(header)
        self._append(SessionLine(began_at=timestamp()))

    def _parsed(self, text: str, number: int) -> RoundLine | SessionLine:
        content = parse_json(text, path=self.path, first_line=number)
        is_session = isinstance(content, dict) and "began_at" in content
        kind = SessionLine if is_session or number == 2 else RoundLine
        return validate(kind, content, path=self.path, root=f"line {number}: $")

    def _append(self, entry: Part) -> None:
        line = json.dumps(entry.model_dump(mode="json"), allow_nan=False) + "\n"
        append_synced(self._file, self.path, line.encode())

    def append(self, case: KernelCase, turn: Round) -> None:
        """Write a round; it is on the disk when this returns."""
        self._append(
            RoundLine(
                case=case.name,
                parameters=dict(case.parameters),
                recorded_at=datetime.fromisoformat(timestamp()),
                **turn.model_dump(),
            )
        )

    def rounds_of(self, case: KernelCase) -> list[RoundLine]:
        """Return the rounds that a case has had at its sizes."""
        sizes = dict(case.parameters)
        return [each for each in self.lines if (each.case, each.parameters) == (case.name, sizes)]

    def remove(self) -> None:
        """Remove the file: no case is left."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def rounds_path(store: Path) -> Path:
    """Return the file of the rounds of a store."""
    return store.with_suffix(".rounds.jsonl")


def waits_s(lines: Mapping[str, list[RoundLine]], separation_s: float) -> dict[str, float]:
    """Return how long cases still wait for their next round, s, from when their last one ended."""
    now = datetime.fromisoformat(timestamp())
    some = {name: rounds for name, rounds in lines.items() if rounds}
    ended = {name: max(each.recorded_at for each in rounds) for name, rounds in some.items()}
    return {
        name: min(separation_s, max(0.0, separation_s - (now - end).total_seconds()))
        for name, end in ended.items()
    }
