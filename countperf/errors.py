"""All errors and warnings that countperf raises on purpose, with their facts as attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

FLAGS: dict[str, str] = {}
"""Options of the command that runs, by the parameters of functions; empty where none runs."""


def option(parameter: str, value: str = "") -> str:
    """Name a parameter that mends what a message says, as Python or the command line takes it."""
    flag = FLAGS.get(parameter)
    if flag is None:
        return f"{parameter}={value}"
    return flag if value in ("", "True") else f"{flag} {value.strip(chr(39))}"


def nearest(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Ask in a message whether a similar name is meant; nothing where none is."""
    near = get_close_matches(name, [*known], n=most)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class CountperfError(Exception):
    """Root of every error that countperf raises on purpose; what is known besides is attributes."""

    def __init__(self, message: str = "", **known: Any) -> None:
        super().__init__(message)
        for name, value in known.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no attribute {name}")
            setattr(self, name, tuple(value) if isinstance(value, list) else value)


class CountingError(CountperfError):
    """A kernel, or a part of it, cannot be counted exactly."""


class UncountableSetError(CountingError):
    """A set whose points cannot be counted exactly."""


class UnsupportedExpressionError(CountingError):
    """An expression or instruction for which no counting rule is decided."""


class DataDependentControlFlowError(CountingError):
    """A condition, trip count or index depends on data, and no statistics were passed."""

    statistics: Mapping[str, float | str] | None = None


class ParameterError(CountperfError, ValueError):
    """A parameter is missing, unknown, or outside the assumptions of the kernel."""

    parameter: str | None = None


class UnknownSizeError(ParameterError):
    """A size is given that the kernel does not have."""


class ModelNotApplicableError(ParameterError):
    """A model does not apply to the kernel or the parameters given."""


class ExpressionError(CountperfError, ValueError):
    """A formula of a model cannot be read, or names something that is not there."""

    text: str = ""
    names: tuple[str, ...] = ()


class PropertyNameError(CountperfError, ValueError):
    """A name is not a property name of the taxonomy."""

    name: str = ""


class DeviceParameterError(CountperfError, ValueError):
    """A device parameter is missing or has an impossible value."""

    field: str | None = None


class PredictionError(CountperfError):
    """A prediction cannot be made."""


class UnmeasuredPropertyError(PredictionError):
    """A kernel needs properties for which the fit has no weight."""

    properties: tuple[str, ...] = ()


class MismatchError(PredictionError):
    """Counts, weights and a device do not belong together."""


class DeviceMismatchError(MismatchError):
    """Weights are to be used for a device that they were not fitted on."""


class DeviceError(CountperfError):
    """No such device, or none that works."""

    device: str | None = None


class DeviceLostError(DeviceError):
    """A kernel left the device unusable for this process; a new process can go on."""


class KernelSpecificationError(CountperfError, ValueError):
    """Kernel specification that names no kernel."""


class MeasurementError(CountperfError):
    """A measurement failed."""

    case: str | None = None
    stage: Literal["build", "check", "run"] = "run"


class KernelBuildError(MeasurementError):
    """A kernel does not build or run on the device."""

    stage = "build"


class WrongResultError(MeasurementError):
    """A kernel's results on the device differ from its reference."""

    stage = "check"


class SearchSpaceError(CountperfError, ValueError):
    """A search space is ill-defined, or a text names none."""


class TuningError(CountperfError):
    """A search cannot be made, or has nothing to answer."""

    refusals: tuple[str, ...] = ()
    statistics: Mapping[str, float | str] | None = None


class FitError(CountperfError):
    """A fit cannot be made from these measurements."""

    result: object | None = None


class FitNotConvergedError(FitError):
    """The solver stopped before the fit converged."""


class MissingExtraError(CountperfError):
    """Something needs a package that only an extra of countperf installs."""

    extra: str = ""


class IncompatibleVersionError(CountperfError, ImportError):
    """A package that countperf needs is missing, or of a version that it does not work with."""

    package: str = ""
    actual: str = ""


class DocumentError(CountperfError):
    """A document is damaged, foreign, or of a version that cannot be read."""

    path: str | None = None
    field: str | None = None
    line: int | None = None


class TableError(CountperfError, ValueError):
    """A table of times that were measured elsewhere cannot be read."""

    row: int | None = None
    column: str = ""


class OutputError(CountperfError):
    """A file cannot be written."""

    path: str | None = None


class InternalError(CountperfError):
    """Something that must hold of every result does not: a fault of countperf, not of the input."""


class CacheWarning(UserWarning):
    """A cache cannot be used: what it would keep is made again."""
