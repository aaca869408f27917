"""Measurements of one device in files of lines, and of one kernel beside its predictions."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from countperf import store, text
from countperf.counting.structure.memory_hierarchy import DEFAULT_CACHES
from countperf.counting.taxonomy import COUNTING_RULES_VERSION, CountingRules
from countperf.devices.identity import DeviceIdentity, choose_caches
from countperf.documents import Document, IntervalOfTimes, Part
from countperf.errors import DocumentError, PredictionError, option
from countperf.measuring.cases import (
    NOISE_DEVIATIONS,
    Environment,
    FailedCase,
    Header,
    Measurement,
    Protocol,
    Resumption,
    format_line,
    parse_line,
)

if TYPE_CHECKING:
    import pandas as pd

    from countperf.counting.vector import PropertyVector


_FILE = "measurements.jsonl"


def measurements_in(folder: Path) -> Path:
    """Return the measurement file of a folder, plain or compressed; the plain one if neither is."""
    plain, compressed = folder / _FILE, folder / f"{_FILE}{store.COMPRESSED}"
    return compressed if compressed.is_file() and not plain.is_file() else plain


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementSet(text.Result, text.ShortRepr):
    """Measurements of one device by one protocol; iterates over them."""

    header: Header  # device, protocol, environment
    measurements: tuple[Measurement, ...] = ()  # in the order in which they finished
    failures: tuple[FailedCase, ...] = ()  # cases that have not been measured since
    resumptions: tuple[Resumption, ...] = ()  # later sessions

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
    def from_table(
        cls,
        table: pd.DataFrame,
        kernels: Mapping[str, Any],
        *,
        device: DeviceIdentity,
        source: str = "",
        ignore: Sequence[str] = (),
    ) -> MeasurementSet:
        """Make measurements of a table of times that were taken elsewhere.

        Every line gets a remark that says so. A kernel that cannot be counted keeps its times, with
        the reason among the remarks. A `TableError` names row and column of what is wrong.

        Parameters
        ----------
        table : DataFrame
            A row per case. Columns: ``kernel``, a key of `kernels`; the time, under the name of its
            unit (``seconds``, ``milliseconds``, ``microseconds`` or ``nanoseconds``); the kernels'
            sizes, by name (missing where a kernel lacks one). Optional: ``case`` (a name of its
            own), ``family``, ``variant``, ``purpose`` (``measurement`` unless a row says another).
        kernels : mapping from str to loopy.TranslationUnit or callable
            The kernels; or functions that build one from choices, whose arguments name columns.
        device : DeviceIdentity
            What was measured; `countperf.measuring.tables.identity_elsewhere` makes one.
        source : str, optional
            Where the times come from; part of the protocol's name.
        ignore : sequence of str, optional
            Columns that are neither sizes nor choices.

        Examples
        --------
        >>> import loopy as lp, pandas as pd
        >>> from countperf.measuring.tables import identity_elsewhere
        >>> double = lp.make_kernel("{[i]: 0<=i<n}", "z[i] = 2*x[i]", lang_version=(2018, 2))
        >>> double = lp.split_iname(double, "i", 64, outer_tag="g.0", inner_tag="l.0")
        >>> double = lp.add_and_infer_dtypes(double, {"x": "float32"})
        >>> table = pd.DataFrame({"kernel": "double", "n": [64, 128], "microseconds": [3.0, 4.0]})
        >>> found = MeasurementSet.from_table(
        ...     table, {"double": double}, device=identity_elsewhere("nvidia-k40c", "K40c", 15)
        ... )
        >>> [(each.case, each.time_s) for each in found]
        [('double/n=64', 3e-06), ('double/n=128', 4e-06)]
        """
        from countperf.measuring.tables import lines_of_table, table_header

        lines = lines_of_table(table, kernels, ignore=ignore, caches=choose_caches(device))
        return cls(header=table_header(device, source), measurements=lines)

    @classmethod
    def read_file(cls, path: Path | str) -> MeasurementSet:
        """Read a measurement file, plain or compressed by gzip; a cut last line is left out."""
        return _parse_content(store.read_content(path), str(path))

    @classmethod
    def read_lines(cls, lines: Sequence[str], *, path: Path | str | None = None) -> MeasurementSet:
        """Parse the lines of a measurement file, without line feeds; errors as in `read_file`."""
        if not lines or lines[0].strip() in ("", "{"):
            field = "line 1: $"
            what = "a document of another kind" if lines and lines[0].strip() else "empty"
            message = f"{field}: {what}; a countperf-measurements file is wanted"
            raise store.make_file_error(message, path, field=field)
        measured: dict[str, Measurement] = {}
        failed: dict[str, FailedCase] = {}
        resumed: list[Resumption] = []
        header, entries = store.parse_lines(
            lines,
            lambda line: Header.read_text(line, path=path),
            lambda line, number: parse_line(line, number, path=path),
            path=path,
        )
        for number, entry in enumerate(entries, start=2):
            if isinstance(entry, Resumption):
                resumed.append(entry)
            elif entry.case in measured:
                field = f"line {number}: $.case"
                said = f"{field}: {entry.case} is measured in an earlier line; one has to hold"
                raise store.make_line_error(said, number, path=path, field=field)
            elif isinstance(entry, FailedCase):
                failed[entry.case] = entry
            else:
                failed.pop(entry.case, None)
                measured[entry.case] = entry
        return cls(
            header=header,
            measurements=tuple(measured.values()),
            failures=tuple(failed.values()),
            resumptions=tuple(resumed),
        )

    def write_file(self, path: Path | str) -> None:
        """Write the set as one file at once; compressed, if its name ends in ``.gz``."""
        content = self.to_text().encode(errors="backslashreplace")
        if str(path).endswith(store.COMPRESSED):
            content = gzip.compress(content, mtime=0)
        store.write_atomically(path, content)

    def to_text(self) -> str:
        """Return the text of the set's file."""
        entries = (self.header, *self.resumptions, *self.measurements, *self.failures)
        return "".join(map(format_line, entries))

    def lay_out(self) -> text.Printed:
        """Give a row for each measured case."""
        return text.Printed(
            head=[f"{len(self)} measurements of {self.device.slug}"],
            rows=[
                {
                    **text.extract(case, *_MEASURED),
                    "group_x": case.group_shape[0],
                    "group_y": case.group_shape[1],
                    "runs": sum(map(len, case.samples_s)),
                    "parameters": case.parameters,
                }
                for case in self
            ],
            columns={
                **text.columns_of("case kernel family variant element_type purpose"),
                **text.columns_of("time_s", text.format_seconds),
                **text.columns_of("spread noise_floor noise", text.format_percent),
                **text.columns_of("stable settling group_x group_y runs"),
                "parameters": text.EACH,
            },
        )


@lru_cache(2)  # the same content need not be validated again
def _parse_content(content: bytes, path: str) -> MeasurementSet:
    return MeasurementSet.read_lines(store.split_lines(content, path=path), path=path)


TimingVerdict = Literal["inside", "outside", "noise", "no interval", "no prediction"]


class TimedSize(Part):
    """A measured time at one point, and the predicted one."""

    measurement: Measurement  # every sample, and what they come to
    # by view of the kernel, the digest of its counts (`counts_digest`)
    counts: dict[str, str] = Field(default_factory=dict)
    predicted_s: PositiveFloat | None = None  # the predicted time, s
    interval_s: IntervalOfTimes | None = None  # the interval of the prediction, s
    reason: str = ""  # why there is no prediction, or what it is without

    @model_validator(mode="after")
    def _interval_holds_the_prediction(self) -> Self:
        if self.interval_s is None:
            return self
        low, high = self.interval_s
        if self.predicted_s is None or not low <= self.predicted_s <= high:
            raise ValueError("the interval does not hold the predicted time")
        return self

    @property
    def verdict(self) -> TimingVerdict:
        """Verdict of the measured time on the prediction.

        ``noise``: it is outside of the interval, or differs where there is none, but its noise
        (`NOISE_DEVIATIONS` standard deviations) exceeds the distance.
        """
        if self.predicted_s is None:
            return "no prediction"
        time_s = self.measurement.time_s
        low, high = self.interval_s or (self.predicted_s, self.predicted_s)
        if self.interval_s is not None and low <= time_s <= high:
            return "inside"
        factor = math.exp(NOISE_DEVIATIONS * self.measurement.noise)
        if low <= time_s * factor and time_s / factor <= high:
            return "noise"
        return "no interval" if self.interval_s is None else "outside"


class Timing(Document, text.Result):
    """Measured times of a kernel at several points, beside what was predicted."""

    format: Literal["countperf-timing"] = "countperf-timing"
    version: Literal[1] = 1
    kernel: str  # name of the kernel
    device: DeviceIdentity  # what it was measured on
    protocol: Protocol  # how it was measured
    environment: Environment  # when, and on which machine
    timer: Literal["event"] = "event"  # which clock the samples come from
    cold: Literal[False] = False  # times with flushed caches, as version 0.2.0 took, are refused
    # version of the counting rules that the digests of counts follow
    counting_rules: CountingRules = COUNTING_RULES_VERSION
    weights: str = ""  # name of the weights that predicted, and of their model
    model: str = ""
    model_choice: str = ""  # which model was chosen and why, where none was asked for
    # in which share of cases intervals are to hold the time
    interval_level: float = Field(default=0.95, gt=0, lt=1)
    made_up: str = ""  # which index arrays were made up, and how
    sizes: tuple[TimedSize, ...] = Field(min_length=1)  # one for each point that could be measured
    failures: tuple[FailedCase, ...] = ()  # one for each point that could not

    @model_validator(mode="after")
    def _points_go_together(self) -> Self:
        names = set(self.sizes[0].measurement.parameters)
        for measured in (*(size.measurement for size in self.sizes), *self.failures):
            if set(measured.parameters) != names:
                wanted = ", ".join(sorted(names)) or "none"
                raise ValueError(f"case {measured.case!r} has other parameters than {wanted}")
        for size in self.sizes:
            try:
                size.measurement.property_vector()
            except DocumentError as error:
                raise ValueError(f"case {size.measurement.case!r}: {error}") from error
        return self

    def __str__(self) -> str:
        return text.Result.__str__(self)

    __repr__ = __str__

    @property
    def runs(self) -> tuple[tuple[dict[str, int], float], ...]:
        """Parameters of each measured point, and its time, s."""
        measured = [size.measurement for size in self.sizes]
        return tuple((dict(each.parameters), each.time_s) for each in measured)

    def runs_of(self, vector: PropertyVector) -> list[Measurement]:
        """Return the measurements, if they are of a kernel with certain counts."""
        if self.counting_rules != COUNTING_RULES_VERSION:
            raise PredictionError(
                f"the timing of {self.kernel!r} knows its kernel by counts under counting rules"
                f" {self.counting_rules}, and kernels are now counted under"
                f" {COUNTING_RULES_VERSION}: time the kernel again"
            )
        wanted = {vector.view: counts_digest(vector)}
        if vector.view == "structure":
            wanted["source"] = counts_digest(vector.take_source_view())
            if vector.caches is not None and not vector.caches.counts_alike(DEFAULT_CACHES):
                del wanted["structure"]  # timings have those for the usual caches
        if not any(set(wanted) & set(size.counts) for size in self.sizes):
            raise PredictionError(
                f"the timing of {self.kernel!r} does not tell which kernel it is of, since that"
                f" could not be counted in the {vector.view} view: time it with the statistics"
                " that it needs to be counted"
            )
        runs = [
            size.measurement
            for size in self.sizes
            if (shared := set(wanted) & set(size.counts))
            and all(size.counts[view] == wanted[view] for view in shared)
        ]
        if not runs:
            raise PredictionError(
                f"the timing is of {self.kernel!r}, and kernel {vector.kernel!r} has other counts:"
                " time that kernel itself, with the statistics that its prediction gets"
            )
        return runs

    def lay_out(self) -> text.Printed:
        """Give measured and predicted times: sentences, a row for each size, and what to know."""
        kept = ("parameters", "spread", "noise", "stable", "remarks")
        sizes: list[dict[str, Any]] = [
            {
                **text.extract(size.measurement, *kept),
                "measured_s": size.measurement.time_s,
                **text.extract(size, "predicted_s", "interval_s", "verdict", "reason"),
            }
            for size in self.sizes
        ]
        failures = [text.extract(size, "parameters", "stage", "reason") for size in self.failures]
        shown = ("parameters", "measured_s", "spread", "noise", "predicted_s", "interval_s")
        return text.Printed(
            head=self._say_verdicts(),
            rows=[
                {
                    **{name: size.get(name) for name in shown},
                    "verdict": size.get("verdict", "failed"),
                    "remark": "; ".join(filter(None, (size["reason"], *size.get("remarks", ())))),
                }
                for size in (*sizes, *failures)
            ],
            columns={
                "parameters": text.EACH,
                "measured_s": text.Column("measured", text.format_seconds),
                "noise": text.Column("noise", text.format_percent),
                "predicted_s": text.Column("predicted", text.format_seconds),
                **text.make_interval_columns(f"to ({100 * self.interval_level:.0f} %)"),
                "verdict": text.Column(),
            },
            notes=self._list_notes(),
            facts={
                **text.extract(self, "kernel", "weights", "model", "interval_level", "made_up"),
                "device": self.device.slug,
                "protocol": self.protocol.name,
                "sizes": sizes,
                "failures": failures,
            },
        )

    def _say_verdicts(self) -> list[str]:
        """Say what measured times say of predicted ones, and how they came about."""
        first = self.sizes[0]
        ratios = [s.measurement.time_s / s.predicted_s for s in self.sizes if s.predicted_s]
        said = f"no prediction: {first.reason}"
        if ratios:
            verdicts = Counter(size.verdict for size in self.sizes)
            counted = ", ".join(f"{number} {_VERDICTS[word]}" for word, number in verdicts.items())
            factor = math.exp(fmean(abs(math.log(ratio)) for ratio in ratios))
            said = f"{counted}; off by a factor of {factor:.2f} on average"
        lines = [f"{self.kernel} on {self.device.slug}: {said}"]
        if self.made_up:
            at = f" at {text.point_text(first.measurement.parameters)}" if self.sizes[1:] else ""
            lines.append(
                f"index arrays are made up{at}, real ones take other times: {self.made_up} (pass"
                f" yours by a function, {option('make_arguments')})"
            )
        rounds = sorted({len(size.measurement.samples_s) for size in self.sizes})
        number = "-".join(map(str, dict.fromkeys((rounds[0], rounds[-1]))))
        runs = self.protocol.runs - self.protocol.drops
        how = f"warm caches, minimum of at most {runs} runs in each of {number} round"
        how += "" if rounds == [1] else "s"
        if ratios:
            weights = text.weights_text(self.weights, self.device.slug)
            how += f"; predicted by the {text.short_name(self.model)} model{weights}"
        return [*lines, how]

    def _list_notes(self) -> list[str]:
        """Say what to know of single sizes, each text once."""
        notes: dict[str, list[str]] = {}
        some = any(size.predicted_s is not None for size in self.sizes)
        for size in self.sizes:
            said = [*size.measurement.remarks]
            if size.measurement.settling == "unsettled":
                said.append("the rounds disagree; time again when the machine is quiet")
            if size.reason and some:  # if there are none, the first line says why
                said.append(size.reason)
            for note in said:
                notes.setdefault(note, []).append(text.point_text(size.measurement.parameters))
        for failed in self.failures:
            at = text.point_text(failed.parameters)
            notes.setdefault(f"failed: {failed.reason}", []).append(at)
        lines = [f"{at[0] if len(at) == 1 else f'{len(at)} sizes'}: {t}" for t, at in notes.items()]
        if (more := len(lines) - _MAX_NOTES) > 0:
            lines[_MAX_NOTES:] = [f"... {more} more remarks"]
        return lines


def counts_digest(vector: PropertyVector) -> str:
    """Return a digest of the counts of a kernel; equal counts of one view have equal ones."""
    content = json.dumps(vector.to_document()["counts"], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


_MEASURED = (
    *("case", "kernel", "family", "variant", "element_type", "purpose", "time_s", "spread"),
    *("noise_floor", "noise", "stable", "settling"),
)

_MAX_NOTES = 5

_VERDICTS = {
    "inside": "inside the predicted interval",
    "outside": "outside of it",
    "noise": "too noisy to tell",
    "no interval": "without an interval",
    "no prediction": "without a prediction",
}
