"""Header of a measurement file: device, protocol and environment."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, ValidationError, model_validator

from countperf.documents import Document, Part
from countperf.errors import ParameterError
from countperf.hardware.identity import DeviceIdentity
from countperf.measurements.summary import Summary


class Environment(Part):
    """Environment of a measurement besides the device's identity.

    Attributes
    ----------
    recorded_at : str
        When, UTC, ISO 8601.
    operating_system, processor : str
        The machine.
    cores : int
        Processor cores that the process may use; 0 where nobody noted them.
    load_average : tuple of float
        Over 1, 5 and 15 minutes, where known.
    clocks_mhz : dict from str to float
        Clock frequencies that were readable, MHz, by where they were read.
    versions : dict from str to str
        Of Python and of the packages that make and run kernels.
    device_limits : dict from str to int
        The device's memory sizes (byte) and largest work group.
    device_state : dict from str to float
        Clocks, power, temperature and memory in use as the driver gave them, each name with its
        unit; empty where the driver gives none, and then not in the file.
    """

    recorded_at: str
    operating_system: str
    processor: str
    cores: int = Field(ge=0)
    load_average: tuple[NonNegativeFloat, ...] = ()
    clocks_mhz: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    device_limits: dict[str, NonNegativeInt] = Field(default_factory=dict)
    device_state: dict[str, float] = Field(default_factory=dict)


class Protocol(Part):
    """Timing protocol of cases.

    Attributes
    ----------
    name : str
        Of the protocol. Its other fields may change from one version to the next; a file has them.
    rounds : int
        How many rounds each case has at least; they are separated in time.
    runs : int
        Runs per round.
    drops : int
        Runs at the start of each round that do not count; fewer than `runs`.
    spread_limit, noise_limit : float
        Largest spread and noise floor (see `summarize`) of a stable measurement, relative.
    extra_rounds : int
        How many more rounds an unstable measurement gets, later.
    separation_s : float
        Time between two rounds of a case, s. The first `rounds` may come earlier when no other case
        is waiting; the extra ones do not.
    max_seconds : float or None
        A round ends early once it took that long, s, but not before two of its runs count.
    warm_up_s : float
        How long a case runs before each of its rounds begins, s; these runs are not kept.
    """

    name: str
    rounds: int = Field(gt=0)
    runs: int = Field(gt=0)
    drops: int = Field(ge=0)
    spread_limit: float = Field(gt=0)
    noise_limit: float = Field(gt=0)
    extra_rounds: int = Field(default=2, ge=0)
    separation_s: float = Field(default=20.0, ge=0)
    max_seconds: float | None = Field(default=None, gt=0)
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
    """First line of a measurement file.

    Attributes
    ----------
    device : DeviceIdentity
        What was measured on.
    protocol : Protocol
        How it was measured.
    environment : Environment
        Of the session that began the file.
    timer : {"event", "host"}
        Which clock the samples come from.
    """

    format: Literal["countperf-measurements"] = "countperf-measurements"
    version: Literal[1] = 1
    device: DeviceIdentity
    protocol: Protocol
    environment: Environment
    timer: Literal["event", "host"] = "event"
