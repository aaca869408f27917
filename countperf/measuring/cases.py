r"""Cases to measure: a kernel at given sizes, with inputs and reference results; and their times.

The time of a case is the smallest sample that counts, :math:`\min_r m_r` over the minima
:math:`m_r` of the :math:`R` rounds. Its noise, how well it would repeat, is
:math:`\sqrt{((R - 1) b^2 + w^2) / R}`, a standard deviation of the time's logarithm, where

- :math:`b = (\mathrm{median}_r \log m_r - \min_r \log m_r) / e_R` is between rounds;
  :math:`e_R` is how far the smallest of :math:`R` normal values lies below the mean on average, in
  standard deviations (Harter (1961), "Expected Values of Normal Order Statistics",
  doi:10.1093/biomet/48.1-2.151). Slow rounds, if fewer than half, do not move it;
- :math:`w` is within rounds, and stands for one more round's worth of knowledge: the median over
  rounds of the logarithm of lower quartile over minimum.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import median
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    ValidationError,
    field_validator,
    model_validator,
)

from countperf.counting.taxonomy import validate_name
from countperf.devices.identity import DeviceIdentity
from countperf.documents import Document, Part, parse_json, validate
from countperf.errors import (
    CountingError,
    KernelSpecificationError,
    ParameterError,
    PropertyNameError,
)
from countperf.sizes import merge_sizes
from countperf.store import make_file_error
from countperf.text import ShortRepr

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from countperf.counting.vector import PropertyVector

Purpose = Literal["measurement", "test", "application", "variant"]
"""Fits use kernels for measurement only; the others judge them."""

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)  # in the order in which reports have them
Statistic: TypeAlias = int | float | Fraction | str  # mean trip count, probability, or pattern
InstructionCounts: TypeAlias = Mapping[str, Mapping[str, int | float | Fraction]]
"""Counts of one execution of an instruction by property name, by the id of the instruction."""

MakeArguments: TypeAlias = "Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]"
Reference: TypeAlias = "Callable[[Mapping[str, Any], Mapping[str, int]], dict[str, NDArray[Any]]]"

_AS_TIMED: Mapping[str, int] = {}  # stands for sizes that are checked as they are timed


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase(ShortRepr):
    """One kernel at one set of sizes, with all that it takes to run and check it.

    A name and a kernel are enough; `KernelSpecificationError` refuses a case without a kernel.

    Examples
    --------
    >>> import loopy as lp
    >>> double = lp.make_kernel("{[i]: 0<=i<8}", "z[i] = 2*x[i]", lang_version=(2018, 2))
    >>> case = KernelCase(name="double", kernel=double)
    >>> case.kernel, case.build() is double, case.check_parameters
    ('double', True, {})
    """

    # unique: name of the kernel and its parameters, ``matmul-naive/16x16/f32/n=512``
    name: str
    # name in the catalogue, by default that of the case; a kernel itself is taken for `build`
    kernel: Any = ""
    family: str = ""  # class of kernels, by default that of the name
    variant: str = ""  # which one of the class
    group_shape: tuple[int, int] = (0, 0)  # work items along the local axes; 0 where nobody said
    element_type: str = ""  # of the kernel's numbers, ``f32``
    # the ``loopy.TranslationUnit``, symbolic in the parameters, or a function that returns it: the
    # same object for all cases of a kernel
    build: Any = None
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])  # sizes of its runs
    # from a random generator and parameters to inputs by name: arrays of the exact type and the
    # declared shape, and scalars; by default `countperf.devices.binding.default_inputs`
    make_arguments: MakeArguments | None = None
    # from inputs and parameters to expected outputs by name; without one, none are checked
    reference: Reference | None = None
    # largest ``|got - want|`` that is right, relative to ``max(1, max|want|)``; by default 1e-2,
    # 1e-4 and 1e-10 for numbers of 16, 32 and 64 bits, and none for integers
    tolerance: float | None = None
    purpose: Purpose = "measurement"
    global_memory_bytes: int = 0  # all arguments together, byte, at ``parameters``
    # small sizes at which numbers are checked before it is timed; by default ``parameters``
    check_parameters: Mapping[str, int] = field(default_factory=lambda: _AS_TIMED)
    # what counting has to know of the data at ``parameters``
    statistics: Mapping[str, Statistic] = field(default_factory=dict[str, Statistic])
    inputs: str = ""  # cases that name the same share their inputs; by default each has its own
    # inputs that come with the kernel, such as data of a program of pytato: by default, its own
    bound_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    # local memory of a group beside its own, byte; at 0 too, GPUs take what they can from caches
    unused_local_bytes: int | None = None
    unchecked: bool = False  # launch although a subscript that data decide may leave its array

    def __post_init__(self) -> None:
        given, kernel = self.build, self.kernel
        if not isinstance(kernel, str):
            given, kernel = kernel, ""
        bound: dict[str, Any] = {}
        # for functions, Loopy is not imported
        if given is not None and not isinstance(given, FunctionType | MethodType | partial):
            from countperf.counting.frontend import producers

            bound = producers.find_bound_arguments(given)
            if (unit := producers.take_unit(given)) is not None:
                given = lambda: unit  # noqa: E731  pickled by value
        if not callable(given):
            raise KernelSpecificationError(
                f"case {self.name!r} has no kernel; pass kernel= a loopy.TranslationUnit, or build="
                " a function that returns one"
            )
        parameters = merge_sizes(self.parameters, {})
        is_checked_as_timed = self.check_parameters is _AS_TIMED
        check_parameters = parameters if is_checked_as_timed else self.check_parameters
        changes = {
            "parameters": parameters,
            "build": given,
            "kernel": kernel or self.name,
            "family": self.family or kernel or self.name,
            "check_parameters": merge_sizes(check_parameters, {}),
            "bound_arguments": {**bound, **self.bound_arguments},
        }
        for name, value in changes.items():
            object.__setattr__(self, name, value)


NOISE_DEVIATIONS = 2.0  # errors below that many standard deviations may be the measurement's
Settling = Literal["settled", "unsettled", "bimodal"]
"""Whether a case's rounds agree; ``bimodal``, on two levels, only in files of before."""

_NORMAL_MINIMUM = (0.5641896, 0.8462844, 1.0293754, 1.1629645, 1.2672064, 1.3521784, 1.4236003)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of the samples of a case."""

    time_s: float  # the statistic: the minimum of all runs that were not dropped, s
    spread: float  # how far the median of the fastest round lies above its minimum, relative
    # how far the median of the rounds' minima lies above the smallest of them, relative
    noise_floor: float
    # how well the time repeats: standard deviation of its logarithm, by the module's formula
    noise: float


def summarize(
    samples_s: Sequence[Sequence[float]],
    dropped: int,
    *,
    resolution_s: float = 0.0,
    slowness: float = 1.0,
) -> Summary:
    """Reduce the samples of a case to its time and how far to trust it.

    Where memory was slower in all of its rounds, the noise is at least the factor's logarithm.
    """
    kept = [sorted(runs[dropped:]) for runs in samples_s]
    minima = sorted(runs[0] for runs in kept)
    fastest = min(kept, key=lambda runs: runs[0])
    time_s = minima[0]
    if time_s <= 0:
        return Summary(time_s=time_s, spread=0.0, noise_floor=0.0, noise=0.0)
    spread = median(fastest) / time_s - 1
    repeats = median(minima) / time_s - 1 if len(minima) > 1 else spread
    return Summary(
        time_s=time_s,
        spread=spread,
        noise_floor=max(repeats, resolution_s / time_s),
        noise=max(_find_noise(kept, minima), resolution_s / time_s, math.log(slowness)),
    )


def _find_noise(kept: Sequence[Sequence[float]], minima: Sequence[float]) -> float:
    within = median(math.log(runs[(len(runs) - 1) // 4] / runs[0]) for runs in kept)
    rounds = len(minima)
    if rounds == 1:
        return within
    expected = _NORMAL_MINIMUM[min(rounds - 2, len(_NORMAL_MINIMUM) - 1)]
    between = (median(map(math.log, minima)) - math.log(minima[0])) / expected
    return math.sqrt(((rounds - 1) * between**2 + within**2) / rounds)


class Environment(Part):
    """Environment of a measurement besides the device's identity."""

    recorded_at: str  # when, UTC, ISO 8601
    operating_system: str  # the machine
    processor: str
    cores: int = Field(ge=0)  # processor cores that the process may use
    load_average: tuple[NonNegativeFloat, ...] = ()  # of files of version 0.2.0
    # clock frequencies that were readable, MHz, by where they were read
    clocks_mhz: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    # of Python and of the packages that make and run kernels
    versions: dict[str, str] = Field(default_factory=dict)
    # the device's memory sizes (byte) and largest work group
    device_limits: dict[str, NonNegativeInt] = Field(default_factory=dict)
    # shortest times of copies of 2 MiB in the last cache and in memory, s
    memory_s: tuple[PositiveFloat, ...] = ()


class Protocol(Part):
    """Timing protocol of cases."""

    name: str  # of the protocol
    rounds: int = Field(gt=0)  # how many rounds each case has at least
    runs: int = Field(gt=0)  # runs per round
    drops: int = Field(ge=0)  # runs at the start of each round that do not count
    # largest spread and noise floor (see `summarize`) of a stable measurement, relative
    spread_limit: float = Field(gt=0)
    noise_limit: float = Field(gt=0)
    # how many more rounds an unstable measurement gets, later
    extra_rounds: int = Field(default=2, ge=0)
    separation_s: float = Field(default=20.0, ge=0)  # time between two rounds of a case, s
    # a round ends early once it took that long, s, but not before two of its runs count
    max_seconds: float | None = Field(default=None, gt=0)
    # how long a case runs before each of its rounds begins, s
    warm_up_s: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _some_runs_count(self) -> Self:
        if self.drops >= self.runs:
            raise ValueError(f"of {self.runs} runs, {self.drops} are dropped: none is left")
        return self

    def with_values(self, **changes: Any) -> Self:
        """Return a validated copy with other values of some fields; refuse such as none has."""
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            first = error.errors()[0]
            name, said = str((*first["loc"], *changes)[0]), first["msg"].partition("error, ")
            message = f"no protocol has {name}={changes.get(name)!r}: {said[2] or said[0]}"
            raise ParameterError(message, parameter=name) from error

    def is_stable(self, summary: Summary) -> bool:
        """Tell whether spread and noise floor are within the limits."""
        return summary.spread <= self.spread_limit and summary.noise_floor <= self.noise_limit


class Header(Document):
    """First line of a measurement file."""

    format: Literal["countperf-measurements"] = "countperf-measurements"
    version: Literal[1] = 1
    device: DeviceIdentity  # what was measured on
    protocol: Protocol  # how it was measured
    environment: Environment  # of the session that began the file
    timer: Literal["event"] = "event"  # which clock the samples come from


class _Line(Part):
    case: str
    kernel: str
    family: str
    variant: str
    element_type: str
    group_shape: tuple[NonNegativeInt, NonNegativeInt]
    purpose: Purpose
    parameters: dict[str, int]
    recorded_at: str  # when it was finished, UTC, ISO 8601

    @model_validator(mode="after")
    def _sizes_are_those_of_the_name(self) -> Self:
        for part in self.case.rpartition("/")[2].split(","):
            name, _, value = part.partition("=")
            if name in self.parameters and value != str(self.parameters[name]):
                raise ValueError(f"{name} is {self.parameters[name]}, and {value} in {self.case!r}")
        return self


class Measurement(_Line):
    """A finished case: every sample, what they come to, and the kernel's property vector.

    Fields that are not explained are as in `KernelCase` (``case`` is its name) and `Summary`.
    """

    status: Literal["measured"] = "measured"
    # every run time in rounds, s, those that do not count included
    samples_s: tuple[tuple[NonNegativeFloat, ...], ...] = Field(min_length=1)
    dropped: int = Field(ge=0)  # runs at the start of each round that do not count
    statistic: str  # what ``time_s`` is, in words
    time_s: float = Field(gt=0)
    spread: float = Field(ge=0)
    noise_floor: float = Field(ge=0)
    noise: float = Field(ge=0)
    stable: bool  # whether the samples are within the protocol's limits
    settling: Settling  # what became of the case after all its rounds
    clocks_agree: bool = True  # whether the event timer and the host's clock are consistent
    remarks: tuple[str, ...] = ()  # caveats, in words
    host_overhead_s: float | None = None  # median of host clock minus event time, s
    load_average: NonNegativeFloat | None = None  # of files of version 0.2.0
    # in each round, times of copies of 2 MiB in the last cache and in memory, s; none on GPUs
    memory_s: tuple[tuple[PositiveFloat, ...], ...] = ()
    properties: dict[str, Any] | None = None  # the vector's document, if the kernel was counted
    # instructions that all groups execute, by property, where compiled code could be followed
    code: dict[str, NonNegativeInt] | None = None
    # those of sub-groups, by property (``transactions.32x128.load``), where a model needs them
    transactions: dict[str, NonNegativeInt] | None = None

    @property
    def known_at_sizes(self) -> dict[str, int]:
        """Values of properties that have no formula: of compiled code, and transactions."""
        return {**(self.code or {}), **(self.transactions or {})}

    @field_validator("code")
    @classmethod
    def _code_has_names_of_properties(cls, code: dict[str, int] | None) -> dict[str, int] | None:
        try:
            for name in code or ():
                validate_name(name)
        except PropertyNameError as error:
            raise ValueError(
                f"{error}; measure again (countperf measure) and fit what that writes (countperf"
                " fit FILE)"
            ) from None
        return code

    @model_validator(mode="after")
    def _statistic_fits_the_samples(self) -> Self:
        if any(len(runs) <= self.dropped for runs in self.samples_s):
            raise ValueError(f"a round has no sample left after dropping {self.dropped}")
        if min(min(runs[self.dropped :]) for runs in self.samples_s) != self.time_s:
            raise ValueError("time_s is not the smallest sample that counts")
        return self

    @classmethod
    def from_samples(
        cls,
        case: KernelCase,
        samples_s: Sequence[Sequence[float]],
        *,
        dropped: int,
        stable: bool = True,
        recorded_at: str = "",
        resolution_s: float = 0.0,
        slowness: float = 1.0,
        **more: Any,
    ) -> Self:
        """Make the measurement of a case from its samples: rounds of run times, s."""
        return cls(
            **case_fields(case),
            **asdict(summarize(samples_s, dropped, resolution_s=resolution_s, slowness=slowness)),
            recorded_at=recorded_at,
            samples_s=tuple(map(tuple, samples_s)),
            dropped=dropped,
            statistic=f"minimum of all runs but the first {dropped} of each round",
            stable=stable,
            settling="settled" if stable else "unsettled",
            **more,
        )

    def property_vector(self) -> PropertyVector | None:
        """Return the property vector, if the kernel could be counted; DocumentError if damaged."""
        from countperf.counting.vector import PropertyVector

        if self.properties is None:
            return None
        vector = PropertyVector.from_document(self.properties)
        if not self.known_at_sizes:
            return vector
        roots = {name.rpartition(".")[0] for name in self.transactions or {}}
        return vector.with_counts_at(
            self._at_own_sizes, *(["code"] if self.code else []), *sorted(roots)
        )

    def _at_own_sizes(self, parameters: Mapping[str, int]) -> dict[str, int]:
        if any(parameters[name] != n for name, n in self.parameters.items()):
            raise CountingError(
                f"case {self.case}: what the compiled code executes, and transactions, are known at"
                " these sizes only; for others pass the kernel itself"
            )
        return self.known_at_sizes


class FailedCase(_Line):
    """A case that gave no time."""

    status: Literal["failed"] = "failed"
    stage: Literal["build", "check", "run"]
    reason: str  # what happened


class Resumption(Part):
    """A later session went on with the campaign."""

    status: Literal["resumed"] = "resumed"
    environment: Environment  # in which it did
    again: dict[str, PositiveFloat] = Field(default_factory=dict)  # of files of version 0.2.0


Line = Measurement | FailedCase | Resumption
_LINE_TYPES = {"measured": Measurement, "failed": FailedCase, "resumed": Resumption}


def case_fields(case: KernelCase) -> dict[str, Any]:
    """Return the fields that every line shares with the case it is about."""
    names = ("kernel", "family", "variant", "element_type", "group_shape", "purpose", "parameters")
    return {"case": case.name, **{name: getattr(case, name) for name in names}}


def format_line(entry: Header | Line) -> str:
    """Write an entry as one line of ASCII, line feed included."""
    content = entry.model_dump(mode="json")
    if not content.get("transactions", True):
        del content["transactions"]
    return json.dumps(content, allow_nan=False) + "\n"


def parse_line(text: str, number: int, *, path: Path | str | None = None) -> Line:
    """Parse and validate one line below the header."""
    content = parse_json(text, path=path, first_line=number)
    status = str(content.get("status")) if isinstance(content, dict) else None
    if status not in _LINE_TYPES:
        field, wanted = f"line {number}: $.status", ", ".join(_LINE_TYPES)
        message = f"{field}: one of {wanted} is wanted, not {status!r}"
        raise make_file_error(message, path, field=field)
    return validate(_LINE_TYPES[status], content, path=path, root=f"line {number}: $")
