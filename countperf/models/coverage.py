"""Coverage of a kernel's features by the measurements of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from countperf.display import ShortRepr, Table
from countperf.models.exercise import Exercise
from countperf.models.records import Range
from countperf.models.validity import EXTRAPOLATION_FACTOR, NOTABLE_SHARE
from countperf.predictions import Verdict

Status = Literal["covered", "extrapolated", "substituted", "inseparable", "unmeasured"]
"""Status of a feature, from best to worst: *substituted* is charged by a feature
of which only other properties were measured (an ``exp`` by the weight of ``rsqrt``), or borrows its
weight (`countperf.models.loans`); *inseparable* what the kernel has in another proportion than all
measurements, which nothing tells apart."""

Grade = Literal["covered", "extrapolates", "not covered"]

Part = Literal["", "launch", "work group"]

_Named = TypeVar("_Named", bound=str | tuple[str, str])

_ELEMENT_TYPES = ("f32", "f64")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCoverage(ShortRepr):
    """Coverage of one feature of a kernel."""

    name: str  # the feature, as breakdowns name it
    status: Status  # the worst that can be said
    unit: str = ""  # of the value
    value: float | None = None  # the kernel's, of the launch and for each work group
    per_group: float | None = None
    share: float | None = None  # of the predicted time, the parts of which are taken as positive
    measured: Range | None = None  # what the measurements had
    measured_per_group: Range | None = None
    # how many times the largest measured value the kernel's is, the worse of the two
    beyond: float = 1.0
    beyond_in: Part = ""  # in which of the two
    # how many times the kernel's the smallest measured value is, the worse of the two
    below: float = 1.0
    below_in: Part = ""  # in which of the two
    relative_error: float | None = None  # standard error of the weight over its value
    idle: bool = False  # whether the weight is zero: what it costs is hidden in others
    exercise: Exercise | None = None  # the measurements that exercise it
    together_with: tuple[str, ...] = ()  # features that the measurements cannot tell it apart from
    # properties of the kernel that no measured kernel has, and that the feature charges
    substituted: tuple[str, ...] = ()
    exercising_kernels: tuple[str, ...] = ()  # measurement kernels that would help

    @property
    def matters(self) -> bool:
        """Whether enough of the time goes to it to matter, or that is not known."""
        return self.share is None or abs(self.share) >= NOTABLE_SHARE

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing, and the kernel has at least 5 % of the most measured."""
        pairs = ((self.value, self.measured), (self.per_group, self.measured_per_group))
        return self.idle and any(
            value is not None and found is not None and value >= NOTABLE_SHARE * found.largest
            for value, found in pairs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(Table, ShortRepr):
    """Coverage of the features of a kernel."""

    kernel: str  # name of the kernel, slug of the device of the weights, name of the model
    device: str
    model: str
    parameters: Mapping[str, int]  # sizes
    # whether the kernel has sizes and none were given, so that ranges could not be looked at
    needs_sizes: bool
    # predicted time, as `WeightSet.predict` gives it, without what was not measured
    time_s: float | None
    correction: Verdict | None  # by what and after which measured kernels it is corrected, if it is
    # relative standard error of the uncorrected time from the weights alone
    weights_error: float | None
    # those of the kernel, what was never measured first, then by share of the time
    features: tuple[FeatureCoverage, ...]
    # properties that the kernel has and the model leaves out by its definition
    ignored: tuple[str, ...]
    recorded: bool  # whether it is known which measurements exercise what
    grade: Grade  # the verdict in a word
    verdict: Verdict  # why, and what to measure


def verdict_of(features: Sequence[FeatureCoverage], *, needs_sizes: bool) -> tuple[Grade, Verdict]:
    """Sum up what is known of the features of a kernel, and what to measure."""

    def named(status: Status) -> list[FeatureCoverage]:
        return [row for row in features if row.status == status]

    unmeasured, apart = named("unmeasured"), named("inseparable")
    substituted = [row for row in named("substituted") if row.matters]
    beyond = [row for row in features if row.beyond > EXTRAPOLATION_FACTOR and row.matters]
    found: list[str] = []
    mends: list[str] = []
    if unmeasured:
        found.append(f"never measured: {_names(unmeasured)}")
        mends.append(_measuring(unmeasured, "write and measure kernels that have"))
    if apart:
        found.append(f"not told apart, and in another proportion here: {_names(apart)}")
        mends.append(_measuring(apart, "write and measure kernels that set apart"))
    if substituted:
        charged = (f"{', '.join(row.substituted)} as {row.name}" for row in substituted)
        found.append(f"charged at what other properties cost: {'; '.join(charged)}")
        mends.append(_measuring(substituted, "write and measure kernels that have more of"))
    if beyond:
        far = (f"{row.beyond:.3g} in {row.name} (per {row.beyond_in})" for row in beyond)
        found.append(f"by factors beyond the largest measured: {', '.join(far)}")
        families = {row.name: set(row.exercise.families) for row in beyond if row.exercise}
        like = f" (or kernels like {', '.join(_fewest(families))})" if families else ""
        mends.append(
            f"measure this kernel once, for countperf predict --anchor{like}, at such sizes"
        )
    grade: Grade = "not covered" if unmeasured or apart else "extrapolates" if found else "covered"
    if not found:
        found.append(
            "every feature was measured; with sizes, ranges can be looked at"
            if needs_sizes
            else "no feature that matters is more than"
            f" {EXTRAPOLATION_FACTOR:g} times the largest measured"
        )
    found += _said_of_small(features)
    if free := [row for row in features if row.is_free]:
        found.append(
            "at no cost in this fit, hidden in what others cost, though the kernel has much:"
            f" {_names(free)}"
        )
    return grade, Verdict(
        name="coverage",
        passed=grade == "covered",
        message="; ".join(found),
        remedy="; ".join(dict.fromkeys(mends)),
    )


def _said_of_small(features: Sequence[FeatureCoverage]) -> list[str]:
    """Say how far below the smallest measured value features lie, and how much of the time."""
    below = [r for r in features if r.below > EXTRAPOLATION_FACTOR and not r.idle]
    if not below:
        return []
    notable = [f"{r.name} {r.below:.3g} times (per {r.below_in})" for r in below if r.matters]
    others = [row for row in below if not row.matters]
    if others:
        share = 100 * sum(abs(row.share or 0.0) for row in others)
        which = f"{len(others)} {'other' if notable else 'feature'}{'s'[: len(others) != 1]}"
        notable.append(f"{which} with {share:.2g} % of the time")
    return [f"below the smallest measured: {', '.join(notable)}"]


def _names(rows: Sequence[FeatureCoverage]) -> str:
    return ", ".join(row.name for row in rows)


def _measuring(rows: Sequence[FeatureCoverage], otherwise: str) -> str:
    """Say which families to measure, as few as supply all, and what none supplies."""
    supplied = {row.name: {_family(kernel) for kernel in row.exercising_kernels} for row in rows}
    chosen = _fewest(supplied)
    lacking = [name for name, families in supplied.items() if not families]
    said = [_command(chosen)] if chosen else []
    said += [f"{otherwise} {', '.join(lacking)}"] if lacking else []
    return "; ".join(said)


def _fewest(supplied: Mapping[str, set[_Named]]) -> list[_Named]:
    """Choose few kernels that together exercise all that can be, the most useful first."""
    left = {name for name, offers in supplied.items() if offers}
    chosen: list[_Named] = []
    while left:
        offers = sorted({offer for name in left for offer in supplied[name]}, key=str)
        best = max(offers, key=lambda offer: sum(offer in supplied[name] for name in left))
        chosen.append(best)
        left = {name for name in left if best not in supplied[name]}
    return chosen


def _family(kernel: str) -> tuple[str, str]:
    """Return family and element type of a kernel of the catalogue, from its name."""
    parts = kernel.split("/")
    return parts[0], parts[-1] if len(parts) > 1 else ""


def _command(chosen: Sequence[tuple[str, str]]) -> str:
    families = " ".join(f"--family {family}" for family in dict.fromkeys(f for f, _ in chosen))
    types = [t for t in dict.fromkeys(t for _, t in chosen) if t in _ELEMENT_TYPES]
    if types in ([], ["f32"]):
        return f"countperf measure {families}"
    return f"countperf measure {families}" + "".join(f" --element-type {t}" for t in types)
