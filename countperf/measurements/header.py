"""Header of a measurement file: device, protocol and environment."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, ValidationError, model_validator

from countperf.documents import Document, Part
from countperf.errors import ParameterError
from countperf.hardware.identity import DeviceIdentity
from countperf.measurements.summary import Summary


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

    def changed(self, **changes: Any) -> Self:
        """Return a validated copy with other values of some fields; refuse such as none has."""
        try:
            return type(self).model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            first = error.errors()[0]
            name = str((*first["loc"], *changes)[0])
            said = first["msg"].removeprefix("Value error, ")
            message = f"no protocol has {name}={changes.get(name)!r}: {said}"
            raise ParameterError(message, parameter=name) from error

    def is_stable(self, summary: Summary) -> bool:
        """Tell whether spread and noise floor are within the limits, and there is but one level."""
        if summary.level_ratio is not None:
            return False
        return summary.spread <= self.spread_limit and summary.noise_floor <= self.noise_limit


class Header(Document):
    """First line of a measurement file."""

    format: Literal["countperf-measurements"] = "countperf-measurements"
    version: Literal[1] = 1
    device: DeviceIdentity  # what was measured on
    protocol: Protocol  # how it was measured
    environment: Environment  # of the session that began the file
    timer: Literal["event"] = "event"  # which clock the samples come from
