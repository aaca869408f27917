"""Records of a space on a device: times of its variants, measured once, for replays of searches.

A record is a file: a header that identifies the space, the sizes and the device, then a line for
each variant, with the time of building it and checking its numbers and the times of its runs, or
the reason why it failed. It holds nothing of a model, so that searches with any model can be
replayed from it (`tuning_replay.replay`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from countperf.counting.unattended import without_disk_caches
from countperf.errors import DocumentError, MeasurementError, TuningError
from countperf.hardware.identity import DeviceIdentity
from countperf.harness.runner import CaseRunner
from countperf.tuning.measuring import Bench, stage_of
from countperf.tuning.points import Stage, one_line
from countperf.tuning.result import Key, Plan, as_key
from countperf.tuning.space import Choice, SearchSpace, Value
from countperf.workflow.tuning import load_space

_DIGITS = 9  # of a time in seconds
_REASON = 200  # characters of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurement of a variant."""

    choice: dict[str, Value]  # which one
    build_s: float  # time of building it and checking its numbers on the device, s
    samples_s: tuple[float, ...] = ()  # time of each run, s; empty if it failed
    warm_up_s: float = 0.0  # time of the runs before these, which were not kept, s
    stage: Stage | None = None  # where and why it failed; empty if it ran
    reason: str = ""  # where and why it failed; empty if it ran

    @property
    def time_s(self) -> float:
        """Shortest of the runs, s."""
        return min(self.samples_s)

    @property
    def cost_s(self) -> float:
        """Time that measuring it took, s."""
        return self.build_s + self.warm_up_s + sum(self.samples_s)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Variants of a space on a device, all measured."""

    space: SearchSpace  # what they are of
    sizes: Mapping[str, int]  # at which they ran
    device: DeviceIdentity  # where they ran
    variants: tuple[Measured, ...]  # all of them, those that failed included
    warm_up_s: float = 0.0  # until when runs were not kept, s; see `countperf.tuning.result.Plan`

    def __post_init__(self) -> None:
        if not any(each.samples_s for each in self.variants):
            reasons = [each.reason for each in self.variants]
            why = reasons[0] if reasons else "it is empty"
            raise TuningError(f"no variant that was recorded ran: {why}", refusals=reasons)

    @cached_property
    def by_choice(self) -> dict[Key, Measured]:
        """The variants by their choice."""
        return {as_key(each.choice): each for each in self.variants}

    @property
    def best_s(self) -> float:
        """Time of the fastest variant, s."""
        return min(each.time_s for each in self.variants if each.samples_s)

    @property
    def exhaustive_s(self) -> float:
        """Time of building, checking and running all, s."""
        return sum(each.cost_s for each in self.variants)

    @cached_property
    def part(self) -> SearchSpace:
        """The space, restricted to what was recorded."""
        parameters = {
            name: [value for value in values if any(value == v.choice[name] for v in self.variants)]
            for name, values in self.space.parameters.items()
        }
        return replace(self.space, parameters=parameters, constraints=(self._is_recorded,))

    def _is_recorded(self, choice: Choice) -> bool:
        return as_key(choice) in self.by_choice

    def quality(self, choice: Choice) -> float:
        """Return the time of the fastest variant as a fraction of a variant's time."""
        return self.best_s / self.by_choice[as_key(choice)].time_s


def record(
    space: SearchSpace | str,
    runner: CaseRunner,
    path: Path | str,
    *,
    points: int,
    sizes: Mapping[str, int] | None = None,
    plan: Plan | None = None,
    progress: Callable[[str], None] | None = None,
) -> Record:
    """Measure all variants of a part of a space, or go on with that.

    Loopy generates their code, whether its cache has it or not; let the driver's begin empty where
    building is to take the time that it takes at first.
    """
    plan = plan or Plan()
    space = load_space(space) if isinstance(space, str) else space
    sizes = {**space.sizes, **(sizes or {})}
    header = {
        "content": "record",
        "space": space.name,
        "parameters": list(space.parameters),
        "sizes": sizes,
        "device": runner.identity.to_object(),
        "plan": {
            "runs": plan.runs,
            "max_case_s": plan.max_case_s,
            "warm_up_s": plan.warm_up_s,
        },
    }
    choices = sorted(part_of(space, points).choices(), key=space.index)
    target = Path(path)
    if not target.exists():
        target.write_text(json.dumps({"format": "countperf-tuning", "version": 1, **header}) + "\n")
    there, *entries = map(json.loads, target.read_text(encoding="utf-8").splitlines())
    if any(there.get(name) != value for name, value in header.items()):
        raise ValueError(f"{target} is of another record; name another file")
    with (
        target.open("a", encoding="utf-8") as file,
        Bench(space, sizes, runner, plan) as bench,
        without_disk_caches(),  # as where nobody built these variants before
    ):
        known = {as_key(each.choice): each for each in _read(entries, space, target)}
        for number, choice in enumerate(choices):
            if as_key(choice) not in known:
                found = _measured(runner, bench, choice)
                file.write(json.dumps(_line(found)) + "\n")
                file.flush()
                known[as_key(choice)] = found
                if progress is not None:
                    progress(f"{space.name}: {number + 1} of {len(choices)} variants")
    variants = tuple(known[as_key(choice)] for choice in choices)
    return Record(
        space=space,
        sizes=sizes,
        device=runner.identity,
        variants=variants,
        warm_up_s=plan.warm_up_s,
    )


def read_record(
    path: Path | str, *, points: int | None = None, space: SearchSpace | None = None
) -> Record:
    """Read a record; no device is needed."""
    target = Path(path)
    header, *entries = map(json.loads, target.read_text(encoding="utf-8").splitlines())
    if header.get("content") != "record":
        raise DocumentError(f"{target} is no record of a space", path=str(target), field="$[0]")
    space = space or load_space(str(header["space"]))
    if list(space.parameters) != header["parameters"]:
        raise DocumentError(
            f"{target} is of parameters {', '.join(header['parameters'])}, and the space"
            f" '{space.name}' has {', '.join(space.parameters)}: measure it anew",
            path=str(target),
            field="$[0].parameters",
        )
    variants = _read(entries, space, target)
    if points is not None:
        known = {as_key(each.choice): each for each in variants}
        wanted = sorted(part_of(space, points).choices(), key=space.index)
        missing = [choice for choice in wanted if as_key(choice) not in known]
        if missing:
            raise DocumentError(
                f"{target} lacks {len(missing)} of {len(wanted)} variants, such as"
                f" {space.label(missing[0])}: measure the rest on the device",
                path=str(target),
                field="$",
            )
        variants = [known[as_key(choice)] for choice in wanted]
    return Record(
        space=space,
        sizes={name: int(value) for name, value in header["sizes"].items()},
        device=DeviceIdentity.from_object(header["device"]),
        variants=tuple(variants),
        warm_up_s=float(header.get("plan", {}).get("warm_up_s", 0.0)),
    )


def part_of(space: SearchSpace, points: int) -> SearchSpace:
    """Return a space with fewer values of its parameters, so that it has at most so many points.

    Values are left out one by one, each the middle one of the parameter that has the most, of equal
    ones the last; what is left is as dense as the whole, with the neighbors that local searches go
    through.

    Examples
    --------
    >>> space = SearchSpace(name="s", parameters={"x": [1, 2], "y": range(9)}, build=dict)
    >>> part_of(space, 8).cardinality
    8
    """
    parameters = {name: list(values) for name, values in space.parameters.items()}
    while True:
        part = replace(space, parameters=parameters)
        longest = max(reversed(parameters), key=lambda name: len(parameters[name]))
        if sum(1 for _ in part.choices()) <= points or len(parameters[longest]) == 1:
            return part
        del parameters[longest][len(parameters[longest]) // 2]


def _measured(runner: CaseRunner, bench: Bench, choice: dict[str, Value]) -> Measured:
    """Measure a variant, whether a model predicts it or not."""
    began_s = runner.clock.now()
    try:
        samples, _ = bench.time(choice, None)
    except MeasurementError as error:
        return Measured(
            choice=choice,
            build_s=runner.clock.now() - began_s,
            stage=stage_of(error),
            reason=one_line(str(error), _REASON),
        )
    build_s = max(0.0, runner.clock.now() - began_s - sum(samples) - bench.warm_up_s)
    return Measured(choice=choice, build_s=build_s, samples_s=samples, warm_up_s=bench.warm_up_s)


# --- lines of the file


def _line(measured: Measured) -> dict[str, Any]:
    line: dict[str, Any] = {
        "choice": list(measured.choice.values()),
        "build_s": round(measured.build_s, _DIGITS),
        "samples_s": [round(sample, _DIGITS) for sample in measured.samples_s],
        "warm_up_s": round(measured.warm_up_s, _DIGITS),
    }
    if measured.stage is not None:
        line.update(stage=measured.stage, reason=measured.reason)
    return line


def _read(entries: list[dict[str, Any]], space: SearchSpace, path: Path) -> list[Measured]:
    """Make variants of lines that have been validated."""
    found: dict[Key, Measured] = {}
    for number, entry in enumerate(entries, start=2):
        root = f"line {number}: $.choice"
        choice = dict(zip(space.parameters, entry["choice"], strict=False))
        if len(entry["choice"]) != len(choice) or not space.has_values(choice):
            message = f"{path}: {root}: {entry['choice']} is no choice of the space '{space.name}'"
            raise DocumentError(message, path=str(path), field=root, line=number)
        if as_key(choice) in found:
            message = f"{path}: {root}: the variant is there twice; delete one of the lines"
            raise DocumentError(message, path=str(path), field=root, line=number)
        found[as_key(choice)] = Measured(
            choice=choice,
            build_s=float(entry["build_s"]),
            samples_s=tuple(float(sample) for sample in entry["samples_s"]),
            warm_up_s=float(entry.get("warm_up_s", 0.0)),
            stage=entry.get("stage"),
            reason=entry.get("reason", ""),
        )
    return list(found.values())
