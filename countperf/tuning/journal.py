"""File of a search, to which each result is appended at once, and from which it resumes."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

from pydantic import ConfigDict, NonNegativeFloat, PositiveInt, create_model

from countperf.documents import Part, parse_json, parse_lines, read_content, split_lines, validate
from countperf.documents.lines import AppendedLines
from countperf.errors import DocumentError, MeasurementError, ParameterError
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.runner import CaseRunner
from countperf.tuning.points import PredictionTask, Refused
from countperf.tuning.result import Budget, Outlook, Plan, Stop, Trial
from countperf.tuning.space import SearchSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Outlook):
    """End of a search."""

    stopped: Stop  # why
    budget: Budget  # the one that it had


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a search, but for the first."""

    number: int  # of the line
    spent_s: float  # by then, s
    content: Trial | Refused | End


class SearchHeader(Part):
    """The question of a search: space, sizes, device, weights, plan."""

    model_config = ConfigDict(extra="ignore")
    space: str
    parameters: tuple[str, ...]
    sizes: dict[str, PositiveInt]
    device: DeviceIdentity
    weights: str
    plan: Plan


_KINDS: Mapping[str, type[Trial | Refused | End]] = {"tried": Trial, "refused": Refused, "end": End}


def _line_of(kind: str) -> type[Part]:
    """Return what a line with all fields of a result is validated by."""
    hints = get_type_hints(_KINDS[kind], include_extras=True)
    given: dict[str, Any] = {field.name: (hints[field.name], ...) for field in fields(_KINDS[kind])}
    given |= {"kind": (Literal[kind], ...), "spent_s": (NonNegativeFloat, ...)}
    return create_model(kind, __base__=Part, **given)


_LINES = {kind: _line_of(kind) for kind in _KINDS}


def read_line(entry: Mapping[str, Any], number: int, *, path: Path) -> Entry:
    """Validate a line below the first one."""
    root = f"line {number}: $"
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        field = f"{root}.kind"
        message = f"{path}: {field}: one of {', '.join(_KINDS)} is wanted, not {kind!r}"
        raise DocumentError(message, path=str(path), field=field)
    line: Any = validate(_LINES[kind], entry, path=path, root=root)
    values = {each.name: getattr(line, each.name) for each in fields(_KINDS[kind])}
    try:
        return Entry(number, line.spent_s, _KINDS[kind](**values))
    except ParameterError as error:
        message = f"{path}: {root}: {error}"
        raise DocumentError(message, path=str(path), field=root) from error


def written(content: Trial | Refused | End) -> dict[str, Any]:
    """Return a result as a line, but for the time that was spent."""
    (kind,) = (name for name, of in _KINDS.items() if isinstance(content, of))
    return {"kind": kind, **asdict(content)}


FORMAT = "countperf-tuning"
VERSION = 3


class Journal(AppendedLines):
    """A search's file, open for appending, to begin a search or to go on with it."""

    def __init__(self, path: Path | str, header: Mapping[str, Any]) -> None:
        self.entries: list[Entry] = []
        wanted = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **header}))

        def read(lines: Sequence[str]) -> None:
            there, self.entries = _parsed(Path(path), lines)
            different = sorted(k for k in {*there, *wanted} if there.get(k) != wanted.get(k))
            if different:
                said = "; ".join(_difference(n, there.get(n), wanted.get(n)) for n in different)
                raise MeasurementError(
                    f"{path} holds another search: {said}; name another file, or ask for what it"
                    " holds"
                )

        super().__init__(path, "the search", _line(wanted), read)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write a line; it is on the disk when this returns."""
        self.write(_line(entry))


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"


_DIGESTS = {
    "space_digest": "the values, constraints or builder of the space have changed",
    "weights_digest": "the weights, or whether they may leave properties out, have changed",
}


def _difference(name: str, there: Any, now: Any) -> str:
    """Say how a field of the header differs: of several values those that do."""
    if name in _DIGESTS:
        return _DIGESTS[name]
    if isinstance(there, dict) and isinstance(now, dict):
        before, after = cast("dict[str, Any]", there), cast("dict[str, Any]", now)
        return "; ".join(
            f"{part} of {name} is {before.get(part)} there, {after.get(part)} now"
            for part in sorted({*before, *after})
            if before.get(part) != after.get(part)
        )
    return f"{name} is {there} there, {now} now"


def read_journal(path: Path) -> tuple[SearchHeader, list[Entry]]:
    """Read a file without going on with it: its header, and the entries."""
    header, entries = _parsed(path, split_lines(read_content(path), path=path).lines)
    return validate(SearchHeader, header, path=path, root="line 1: $"), entries


def _parsed(path: Path, lines: Sequence[str]) -> tuple[dict[str, Any], list[Entry]]:
    """Parse the header and the entries, and check what the header says of the format."""

    def parse(line: str, number: int) -> Entry:
        entry = parse_json(line, path=path, first_line=number)
        if not isinstance(entry, dict):
            raise DocumentError("an object is wanted", path=str(path), field=f"line {number}: $")
        return read_line(cast("dict[str, Any]", entry), number, path=path)

    def parse_header(line: str) -> dict[str, Any]:
        header = parse_json(line, path=path)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise DocumentError(f"{path} is no file of a search; use another one", path=str(path))
        version = header.get("version")
        if type(version) is not int or version != VERSION:  # true equals 1
            message = f"{path} has version {version!r}; this reads {VERSION}: name another file"
            raise DocumentError(message, path=str(path), field="$.version")
        return cast("dict[str, Any]", header)

    if not lines:
        raise DocumentError(f"{path} is no file of a search; use another one", path=str(path))
    return parse_lines(lines, parse_header, parse, path=path)


def search_header(
    question: PredictionTask, space: SearchSpace, runner: CaseRunner, plan: Plan
) -> dict[str, Any]:
    """Say what a search is of, so that it goes on with nothing else."""
    weights = question.weights
    text = repr((sorted(weights.to_object().items()), question.incomplete_ok))
    listed = repr([(name, list(values)) for name, values in space.parameters.items()])
    rules = repr(
        [str(getattr(constraint, "__qualname__", constraint)) for constraint in space.constraints]
    )
    return {
        "space": space.name,
        "parameters": list(space.parameters),
        "space_digest": hashlib.sha256(
            (listed + rules + _source(space.build)).encode()
        ).hexdigest()[:16],
        "sizes": {**space.sizes, **question.sizes},
        "device": runner.identity.to_object(),
        "timer": "event",
        "weights": f"{weights.model} for {weights.device.slug}",
        "weights_digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        "plan": asdict(plan),
    }


def _source(function: Callable[..., Any]) -> str:
    """Return a function's source, if there is, so that no search goes on with another function."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
