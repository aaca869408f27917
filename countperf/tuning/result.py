"""Results of a search, and its file: each is appended at once, and the search resumes from it."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import pydantic
from pydantic import Field, NonNegativeFloat, NonNegativeInt

from countperf import text
from countperf.devices.identity import DeviceIdentity
from countperf.documents import IntervalOfTimes, Part, parse_json, validate
from countperf.errors import DocumentError, ParameterError, option
from countperf.measuring.campaign import refuse_differences
from countperf.store import AppendedLines, parse_lines, read_content, split_lines
from countperf.text import Result, ShortRepr
from countperf.tuning import ranker
from countperf.tuning.refusals import RefusalCount, Refused
from countperf.tuning.space import Choice, SearchSpace, Value

Stop: TypeAlias = Literal["confident", "budget", "exhausted", "interrupted"]
"""Why a search ended; `_STOPS` says it in words."""

Key: TypeAlias = tuple[tuple[str, Value], ...]  # a choice as something that can be looked up

_LARGEST_CLAIM = 0.995
_MOST_TIES = 5
_STOPS: Mapping[Stop, str] = {
    "confident": "it ended when no variant left promised to be faster than the best by then",
    "budget": "the budget is spent",
    "exhausted": "every variant was tried",
    "interrupted": "it was interrupted",
}
_LONGEST_S = 60.0  # that a variant may take in the longest of searches, and in the shortest
_SHORTEST_S = 3.0
Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget of a search: at least one of the two limits."""

    seconds: float | None = None  # time, ranking and building included, s
    measurements: int | None = None  # variants that are built and run

    def __post_init__(self) -> None:
        if self.seconds is None and self.measurements is None:
            raise ParameterError("no budget; pass seconds or measurements", parameter="seconds")
        for name, value in (("seconds", self.seconds), ("measurements", self.measurements)):
            if value is not None and not 0 < value < math.inf:
                raise ParameterError(f"a budget of {value} {name} is none", parameter=name)

    @property
    def longest_s(self) -> float:
        """Time that a variant may take unless the caller says otherwise, s."""
        if self.seconds is None:
            return _LONGEST_S
        return min(_LONGEST_S, max(_SHORTEST_S, self.seconds / 2))

    def exceeds(self, spent: Budget) -> bool:
        """Tell whether it allows for more than another one did."""
        limits = ((self.seconds, spent.seconds), (self.measurements, spent.measurements))
        return any(was is not None and (now is None or now > was) for now, was in limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a search: confidence, tolerance, rounds."""

    confidence: Share = 0.95  # at which it stops, and at which the regret is bounded
    # fraction of the best time that is not worth looking for
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.02
    runs: pydantic.PositiveInt = 10  # of a variant that may be the best
    max_case_s: pydantic.PositiveFloat = 1.0  # after so long a variant gets no third run, s
    warm_up_s: Annotated[pydantic.FiniteFloat, Field(ge=0)] = 0.05
    first_share: Share = 0.15
    ranking_share: Share = 0.5
    rounds: pydantic.PositiveInt = 5
    # how far ``ln(measured / predicted)`` is held to scatter before anything is measured
    prior_scatter: pydantic.PositiveFloat = 0.5

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Plan, include_extras=True).items():
            value = getattr(self, name)
            try:
                pydantic.TypeAdapter[Any](hint).validate_python(value)
            except pydantic.ValidationError as error:
                said = error.errors()[0]["msg"].removeprefix("Input ")
                raise ParameterError(f"{name} is {value}; it {said}", parameter=name) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(ShortRepr):
    """A variant that was built, checked and run."""

    choice: dict[str, Value]  # which one
    predicted_s: pydantic.PositiveFloat  # what was predicted, before any correction, s
    # time of each run, s
    samples_s: Annotated[tuple[pydantic.PositiveFloat, ...], Field(min_length=1)]
    # how many of the runs, one after the other, were in the same memory
    rounds: tuple[pydantic.PositiveInt, ...] = ()
    # low and high end of the prediction's interval, s
    interval_s: IntervalOfTimes | None = None
    interval_level: Share = 0.95  # the share of cases whose time the interval is to hold
    model: str = ""  # that predicted it
    cut_short: bool = False  # whether its first runs left no hope, so that it was not run further
    at_s: NonNegativeFloat = 0.0  # how much of the budget was spent when it was done, s

    def __post_init__(self) -> None:
        if self.rounds and sum(self.rounds) != len(self.samples_s):
            runs = f"{sum(self.rounds)} runs in rounds, but {len(self.samples_s)} samples"
            raise ParameterError(runs, parameter="rounds")

    @property
    def time_s(self) -> float:
        """Shortest run of a round, the median of all rounds, s: the shortest of all is luck."""
        return median(self.rounds_s)

    @property
    def rounds_s(self) -> tuple[float, ...]:
        """Shortest run of each round, s."""
        ends = tuple(accumulate(self.rounds)) or (len(self.samples_s),)
        return tuple(min(self.samples_s[start:end]) for start, end in pairwise((0, *ends)))

    @property
    def noise(self) -> float:
        """Fraction by which the median run exceeds the time."""
        return max(0.0, median(self.samples_s) / self.time_s - 1)

    def again(self, samples_s: tuple[float, ...], *, cut_short: bool) -> Trial:
        """Return the variant with the runs of another round, s."""
        rounds = (*(self.rounds or (len(self.samples_s),)), len(samples_s))
        samples_s = (*self.samples_s, *samples_s)
        return replace(self, samples_s=samples_s, rounds=rounds, cut_short=cut_short)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Knowledge of a search about the variants that it did not measure."""

    # variants that there are not, by stage, those that failed on the device included
    refusals: Mapping[str, RefusalCount] = field(default_factory=dict)
    predicted: NonNegativeInt  # variants with a prediction
    ranking_complete: bool  # whether all of the space was looked at
    regret_bound: float | None
    bounded: NonNegativeInt  # variants with a prediction, but for those that failed on the device
    # others that there may be, of which nothing is known: not looked at, or without a prediction
    unbounded: NonNegativeInt
    ranking_s: NonNegativeFloat  # how much of the time went into predicting, s


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult(Outlook, Result):
    """The fastest variant found, and how sure that is."""

    space: str  # name of the space, slug of the device
    device: str
    weights: str  # name of the weights, and of the model that was chosen
    model: str
    sizes: Mapping[str, int]  # sizes of the kernel
    winner: Trial  # the fastest
    within_noise: tuple[Trial, ...]  # others that may be as fast, as far as the noise of both tells
    tried: tuple[Trial, ...]  # all that ran, in order
    failed: tuple[Refused, ...] = ()  # those that failed on the device
    stopped: Stop  # why it ended
    confidence: float  # of the bound
    spent_s: float  # time spent over all sessions, s
    # whether each variant's numbers were compared with the space's reference
    numbers_checked: bool = True
    model_choice: str = ""  # which model was chosen, and why; empty where it was not free

    __repr__ = Result.__str__

    def lay_out(self) -> text.Printed:
        """Give the winner, how sure that is (null where nothing else is known), what it took."""
        fastest = accumulate((trial.time_s for trial in self.tried), min)
        rows = [
            {
                **text.extract(trial, "choice", "time_s", "predicted_s", "model", "noise"),
                "runs": len(trial.samples_s),
                **text.extract(trial, "cut_short", "at_s"),
                "best_s": best_s,
                "is_winner": trial.choice == self.winner.choice,
            }
            for trial, best_s in zip(self.tried, fastest, strict=True)
        ]
        what = ("space", "device", "weights", "model", "model_choice", "regret_bound")
        seconds = text.format_seconds
        return text.Printed(
            head=self._sentences(),
            rows=rows,
            columns={
                **{"choice": text.EACH, **text.columns_of("time_s predicted_s", seconds)},
                **text.columns_of("model"),
                **text.columns_of("noise", text.format_percent),
                **text.columns_of("runs cut_short"),
                **text.columns_of("at_s best_s", seconds),
                **text.columns_of("is_winner"),
            },
            parts=[text.Printed(notes=ranker.write_refusals(self.refusals))],
            facts={
                **text.extract(self, *what, "bounded", "unbounded", "confidence", "stopped"),
                **text.extract(self, "spent_s", "ranking_s", "numbers_checked", "predicted"),
                "parameters": dict(self.sizes),
                "winner": _list_facts(self.winner),
                "within_noise": [_list_facts(trial) for trial in self.within_noise],
                "complete": self.ranking_complete,
                "tried": [_list_facts(trial) for trial in self.tried],
                "refused": ranker.list_refusals(self.refusals),
            },
        )

    def _sentences(self) -> list[str]:
        winner, percent = self.winner, text.format_percent
        times_s = winner.time_s, winner.predicted_s, self.spent_s, self.ranking_s
        time, predicted, spent, ranking = map(text.format_seconds, times_s)
        if winner.interval_s is not None:
            ends = text.interval_text(winner.interval_s)
            predicted += f", {ends} at {percent(winner.interval_level)}"
        are = "checked" if self.numbers_checked else "not checked, for the space has no reference"
        where = f"{self.space} on {self.device}, {text.point_text(self.sizes)}"
        model = winner.model or text.short_name(self.model)
        by = f"{model} model{text.weights_text(self.weights, self.device)}"
        bound = f"too little was measured to bound the fastest of {self.space}"
        if self.regret_bound is not None and self.regret_bound <= _LARGEST_CLAIM:
            several = f"the {self.bounded} variants that have a prediction"
            bound = (
                f"the fastest of {several if self.unbounded else 'the space'} takes at most"
                f" {percent(self.regret_bound)} less than a median run of this one, at"
                f" {percent(self.confidence)} confidence"
            )
        others = f"nothing is known of the {self.unbounded} others that the space may have"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        ties = [(text.format_seconds(t.time_s), t.choice) for t in self.within_noise]
        return [
            f"{time} (noise {percent(winner.noise)}, predicted {predicted})",
            f"{where}; numbers {are}; predicted by the {by}",
            f"  {text.choice_text(winner.choice)}",
            *(f"  as fast within noise: {t}, {text.choice_text(c)}" for t, c in ties[:_MOST_TIES]),
            bound,
            *([others] if self.unbounded else []),
            f"{len(self.tried)} of {self.predicted} predicted variants ran{failed}; {spent} spent,"
            f" {ranking} of it on predictions; {_STOPS[self.stopped]}",
        ]


def _list_facts(trial: Trial) -> dict[str, Any]:
    what = ("choice", "time_s", "predicted_s", "model", "samples_s", "rounds", "cut_short", "at_s")
    return text.extract(trial, *what, "interval_s", "interval_level")


class SearchInterrupt(KeyboardInterrupt):
    """Ctrl-C in a search; what was found by then comes with it."""

    def __init__(self, result: TuningResult | None, store: str | None, counted: str) -> None:
        kept = f"kept in {store}: the same call goes on from there"
        if store is None:
            kept = f"nothing is kept; with {option('store', 'FILE')} the same call would go on"
        super().__init__(f"the search was interrupted: {counted}; {kept}")
        self.result = result
        self.store = store


def fastest_of(tried: Iterable[Trial]) -> Trial:
    """Return the winner among variants, the first of equally fast ones."""
    return min(tried, key=lambda trial: trial.time_s)


def ties(tried: tuple[Trial, ...], floor: float) -> tuple[Trial, tuple[Trial, ...]]:
    """Return the fastest variant, and those that its noise, theirs, or a floor leaves as fast."""
    winner = fastest_of(tried)
    others = (trial for trial in tried if trial is not winner and not trial.cut_short)
    noise = max(floor, winner.noise)
    as_fast = [t for t in others if t.time_s <= winner.time_s * (1 + max(noise, t.noise))]
    return winner, tuple(sorted(as_fast, key=lambda trial: trial.time_s))


def as_key(choice: Choice) -> Key:
    """Return a choice as something that can be looked up."""
    return tuple(sorted(choice.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Outlook):
    """End of a search."""

    stopped: Stop  # why
    budget: Budget  # the one that it had


class Entry(Part):
    """A line of a search, but for the first."""

    spent_s: NonNegativeFloat  # by then, s
    tried: Trial | None = None
    refused: Refused | None = None
    end: End | None = None

    @property
    def content(self) -> Trial | Refused | End:
        """The measured variant, the refused one, or the end that the line states."""
        content = self.tried or self.refused or self.end
        assert content is not None
        return content


class SearchHeader(Part):
    """The question of a search: space, sizes, device, weights, plan."""

    model_config = pydantic.ConfigDict(extra="ignore")
    space: str
    parameters: tuple[str, ...]
    sizes: dict[str, pydantic.PositiveInt]
    statistics: dict[str, float | str] = Field(default_factory=dict)
    device: DeviceIdentity
    weights: str
    plan: Plan


FORMAT = "countperf-tuning"
VERSION = 3
_KINDS: Mapping[str, type[Trial | Refused | End]] = {"tried": Trial, "refused": Refused, "end": End}


class Journal(AppendedLines):
    """A search's file, open for appending, to begin a search or to go on with it."""

    def __init__(
        self, path: Path | str, task: ranker.PredictionTask, device: DeviceIdentity, plan: Plan
    ) -> None:
        self.entries: list[Entry] = []
        wanted = json.loads(json.dumps(_make_header(task, device, plan)))

        def read(lines: Sequence[str]) -> None:
            _, self.entries = _parse(Path(path), lines, wanted, task.space)

        super().__init__(path, json.dumps(wanted, allow_nan=False) + "\n", read)

    def append(self, content: Trial | Refused | End, spent_s: float) -> None:
        """Write a line; it is on the disk when this returns."""
        (kind,) = (name for name, of in _KINDS.items() if isinstance(content, of))
        line = {"kind": kind, **asdict(content), "spent_s": spent_s}
        line.pop("statistics", None)
        self.write(json.dumps(line, allow_nan=False) + "\n")


_DIGESTS = {
    "space_digest": "digest of the space's values, constraints and builder",
    "weights_digest": "digest of the weights, and of whether they may leave properties out",
}


def _pair_fields(
    there: Mapping[str, Any], now: Mapping[str, Any], of: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Return the fields of two headers, and of the objects in them, with both values."""
    pairs: dict[str, tuple[Any, Any]] = {}
    for name in sorted({*there, *now}):
        before, after = there.get(name), now.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            pairs |= _pair_fields(before, after, f" of {name}")
        else:
            pairs[_DIGESTS.get(name, name) + of] = before, after
    return pairs


def read_journal(path: Path) -> tuple[SearchHeader, tuple[Trial, ...]]:
    """Read a file without going on with it: its header, and the variants that ran, in order.

    Of one that ran again it is the line with all its runs.
    """
    header, entries = _parse(path, split_lines(read_content(path), path=path))
    ran = [entry.content for entry in entries if isinstance(entry.content, Trial)]
    last = {as_key(trial.choice): trial for trial in ran}
    trials = tuple(sorted(last.values(), key=lambda trial: trial.at_s))
    return validate(SearchHeader, header, path=path, root="line 1: $"), trials


def _parse(
    path: Path,
    lines: Sequence[str],
    wanted: Mapping[str, Any] | None = None,
    space: SearchSpace | None = None,
) -> tuple[dict[str, Any], list[Entry]]:
    """Parse the header, which has to be the wanted one, and the entries, of the space."""

    def parse_header(line: str) -> dict[str, Any]:
        header: Any = parse_json(line, path=path)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise DocumentError(f"{path} is no file of a search; use another one", path=str(path))
        version = header.get("version")
        if type(version) is not int or version != VERSION:  # true equals 1
            message = f"{path} has version {version!r}; this reads {VERSION}: name another file"
            raise DocumentError(message, path=str(path), field="$.version")
        if wanted is not None:
            refuse_differences(_pair_fields(header, wanted), path, "trials")
        return header

    def parse(line: str, number: int) -> Entry:
        root = f"line {number}: $"
        fields: Any = parse_json(line, path=path, first_line=number)
        kind = fields.pop("kind", None) if isinstance(fields, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            said = f"{root}.kind: one of {', '.join(_KINDS)} is wanted, not {kind!r}"
            raise DocumentError(f"{path}: {said}", path=str(path), field=f"{root}.kind")
        spent = {"spent_s": fields.pop("spent_s", None)}
        entry = validate(Entry, {**spent, kind: fields}, path=path, root=root)
        content = entry.content
        if space is not None and not isinstance(content, End) and content.choice not in space:
            field = f"{root}.{kind}.choice"
            said = f"{field}: {content.choice} is none of the space '{space.name}'"
            raise DocumentError(f"{path}: {said}", path=str(path), field=field)
        return entry

    return parse_lines(lines or ["{}"], parse_header, parse, path=path)


def _make_header(task: ranker.PredictionTask, device: DeviceIdentity, plan: Plan) -> dict[str, Any]:
    """Say what a search is of, so that it goes on with nothing else."""
    space, weights = task.space, task.weights
    listed = repr([(name, list(values)) for name, values in space.parameters.items()])
    rules = [str(getattr(rule, "__qualname__", rule)) for rule in space.constraints]
    statistics: dict[str, float | str] = {}
    for some in (space.statistics, task.statistics or {}):
        if callable(some):
            statistics["a function"] = _digest(_source(some))
        else:
            statistics |= {n: v if isinstance(v, str) else float(v) for n, v in some.items()}
    return {
        "format": FORMAT,
        "version": VERSION,
        "space": space.name,
        "parameters": list(space.parameters),
        "space_digest": _digest(f"{listed}{rules!r}{_source(space.build)}"),
        "sizes": task.sizes,
        **({"statistics": statistics} if statistics else {}),
        "device": device.to_object(),
        "timer": "event",
        "weights": f"{weights.model} for {weights.device.slug}",
        "weights_digest": _digest(repr((sorted(weights.to_object().items()), task.incomplete_ok))),
        "plan": asdict(plan),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source(function: Callable[..., Any]) -> str:
    """Return a function's source, if there is, so that no search goes on with another function."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""
