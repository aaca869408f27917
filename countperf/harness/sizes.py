"""The sizes chosen for a device's kernels, as a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from countperf.documents import Document, Part
from countperf.hardware.identity import DeviceIdentity
from countperf.measurements import KernelCase

_CLEAR_FACTOR = 10.0


class Sizable(Protocol):
    """Protocol of a catalogue kernel whose sizes can be selected."""

    @property
    def name(self) -> str:
        """Unique name."""
        ...

    @property
    def family(self) -> str:
        """Class of kernels."""
        ...

    @property
    def variant(self) -> str:
        """Variant within the family."""
        ...

    @property
    def element_type(self) -> str:
        """Type of its numbers."""
        ...

    @property
    def exponents(self) -> Sequence[int]:
        """Values of p that may be chosen, smallest first."""
        ...

    @property
    def exponent_steps(self) -> Sequence[int]:
        """Sizes of a kernel: the case of ``p + step`` for each step."""
        ...

    def case(self, exponent: int) -> KernelCase:
        """Make the case of an exponent; ParameterError if there is none."""
        ...


class SizeLimits(Part):
    """Limits of the sizes."""

    launch_overhead_s: float = Field(gt=0)  # time of an empty launch by the host's clock, s
    memory_bytes: int = Field(gt=0)  # largest size of all arguments together, byte
    # how many times the overhead the smallest size has to take
    overhead_factor: float = Field(default=10.0, ge=1)
    max_run_s: float = Field(default=0.25, gt=0)  # longest time of a run, s
    # longest time to make inputs and put them into the device's memory, s
    max_setup_s: float = Field(default=2.0, gt=0)

    @property
    def shortest_run_s(self) -> float:
        """Time that the smallest size has to take at least, s."""
        return self.overhead_factor * self.launch_overhead_s

    @property
    def clear_run_s(self) -> float:
        """Time below which a run is not clearly longer than an empty launch, s."""
        return min(_CLEAR_FACTOR, self.overhead_factor) * self.launch_overhead_s


class SizeChoice(Part):
    """The sizes chosen for kernels that differ in their work groups only."""

    family: str  # which kernels
    variant: str
    element_type: str
    exponents: tuple[NonNegativeInt, ...]  # ``p + step`` of each size
    run_s: tuple[NonNegativeFloat, ...]  # time of a run of each, s
    reason: str = ""  # why there are fewer sizes than the kernel has steps

    @model_validator(mode="after")
    def _each_size_has_a_time(self) -> Self:
        if len(self.exponents) != len(self.run_s):
            raise ValueError(f"{len(self.exponents)} exponents, but {len(self.run_s)} times")
        return self


class Calibration(Document):
    """The sizes chosen for a device; keep it beside the measurements, which resume with it."""

    format: Literal["countperf-calibration"] = "countperf-calibration"
    version: Literal[1] = 1
    device: DeviceIdentity  # the device
    timer: Literal["event"] = "event"  # where times come from
    limits: SizeLimits  # what the choice rests on
    choices: tuple[SizeChoice, ...] = ()  # one for each kernel, work groups apart

    def choice(self, entry: Sizable) -> SizeChoice | None:
        """Return the choice for a kernel, if there is one."""
        return next(
            (choice for choice in self.choices if size_key(choice) == size_key(entry)), None
        )

    def cases(self, entries: Iterable[Sizable]) -> list[KernelCase]:
        """Make the cases of kernels at the chosen sizes."""
        cases: dict[str, KernelCase] = {}
        for entry in entries:
            choice = self.choice(entry)
            if choice is None:
                continue
            for exponent in choice.exponents:
                case = entry.case(exponent)  # small sizes may be rounded up to the same
                cases.setdefault(case.name, case)
        return list(cases.values())


def size_key(kernel: Sizable | SizeChoice) -> tuple[str, str, str]:
    """Return what kernels share that differ in their work groups only."""
    return kernel.family, kernel.variant, kernel.element_type
