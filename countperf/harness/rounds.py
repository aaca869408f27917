"""Rounds of cases that a campaign has not finished yet, kept beside its store.

Each round is on the disk before the next one begins, so that a campaign advances however often it
is interrupted. The file is the store's name with ``.rounds.jsonl``; whoever has the store's lock
writes to it, and it is removed when no case is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, Literal, Self

from pydantic import AwareDatetime, Field, NonNegativeFloat, model_validator

from countperf.documents import (
    Document,
    Part,
    append_synced,
    output_error,
    parse_json,
    parse_lines,
    read_bytes,
    split_lines,
    validate,
)
from countperf.harness.clock import Timing
from countperf.harness.environment import timestamp
from countperf.harness.protocols import Round
from countperf.harness.store import go_on_behind
from countperf.measurements import Header, KernelCase


class RoundsHeader(Document):
    """First line of the file."""

    format: Literal["countperf-rounds"] = "countperf-rounds"
    version: Literal[1] = 1
    store: Header  # first line of the store that the rounds belong to


class SessionLine(Part):
    """Beginning of a session, before its rounds."""

    began_at: str  # when, UTC, ISO 8601


class RoundLine(Part):
    """A round of a case."""

    case: str  # name of the case
    parameters: dict[str, int]  # its sizes
    recorded_at: AwareDatetime  # when the round ended, UTC, ISO 8601
    # every run by the campaign's timer and by the host's clock, s
    samples_s: tuple[NonNegativeFloat, ...] = Field(min_length=1)
    host_s: tuple[NonNegativeFloat, ...] = Field(min_length=1)
    cut_short: bool  # as in `countperf.harness.protocols.Round`
    disturbed: bool

    @model_validator(mode="after")
    def _each_run_has_both_times(self) -> Self:
        if len(self.samples_s) != len(self.host_s):
            raise ValueError(f"{len(self.samples_s)} samples_s, but {len(self.host_s)} host_s")
        return self

    def to_round(self) -> Round:
        """Return the round."""
        pairs = zip(self.samples_s, self.host_s, strict=True)
        return Round(
            timings=tuple(Timing(time_s=time_s, host_s=host_s) for time_s, host_s in pairs),
            cut_short=self.cut_short,
            disturbed=self.disturbed,
        )


class RoundsFile:
    """The file of rounds of a store that is open; a context manager."""

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
                samples_s=tuple(timing.time_s for timing in turn.timings),
                host_s=tuple(timing.host_s for timing in turn.timings),
                cut_short=turn.cut_short,
                disturbed=turn.disturbed,
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
