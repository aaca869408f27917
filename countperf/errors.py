"""All errors and warnings that countperf raises on purpose.

Every error holds its facts as attributes, so that programs need not parse messages, and every
message says what happened, where, and how to mend it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class CountperfError(Exception):
    """Root of every error that countperf raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made again in another process as it is, whatever its class is made of."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[CountperfError], args: tuple[Any, ...], state: dict[str, Any]
) -> CountperfError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class CountingError(CountperfError):
    """A kernel, or a part of it, cannot be counted exactly."""

    def __init__(
        self, message: str, *, kernel: str | None = None, where: str | None = None
    ) -> None:
        super().__init__(message)
        self.kernel = kernel
        self.where = where


class UncountableSetError(CountingError):
    """A set whose points cannot be counted exactly."""


class UnsupportedExpressionError(CountingError):
    """An expression or instruction for which no counting rule is decided."""


class DataDependentControlFlowError(CountingError):
    """A condition, trip count or index depends on data, and no statistics were passed."""

    def __init__(
        self,
        message: str,
        *,
        kernel: str | None = None,
        where: str | None = None,
        statistics: Mapping[str, float | str] | None = None,
    ) -> None:
        super().__init__(message, kernel=kernel, where=where)
        self.statistics = dict(statistics or {})


class GranularityError(CountingError):
    """Counts of different granularities were combined."""


class ParameterError(CountperfError, ValueError):
    """A parameter is missing, unknown, or outside the assumptions of the kernel."""

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class ModelNotApplicableError(ParameterError):
    """A model does not apply to the kernel or the parameters given."""


class ExpressionError(CountperfError, ValueError):
    """A formula of a model cannot be read, or names something that is not there."""

    def __init__(
        self, message: str, *, text: str, position: int | None = None, names: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.text = text
        self.position = position
        self.names = tuple(names)


class PropertyNameError(CountperfError, ValueError):
    """A name is not a property name of the taxonomy."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class DeviceParameterError(CountperfError, ValueError):
    """A device parameter is missing or has an impossible value."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PredictionError(CountperfError):
    """A prediction cannot be made."""


class UnmeasuredPropertyError(PredictionError):
    """A kernel needs properties for which the fit has no weight."""

    def __init__(
        self,
        message: str,
        *,
        properties: Sequence[str],
        exercising_kernels: dict[str, tuple[str, ...]],
    ) -> None:
        super().__init__(message)
        self.properties = tuple(properties)
        self.exercising_kernels = exercising_kernels


class _MismatchError(PredictionError):
    def __init__(self, message: str, *, expected: str, found: str) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class DeviceMismatchError(_MismatchError):
    """Weights are to be used for a device that they were not fitted on."""


class ViewMismatchError(_MismatchError):
    """Counts of one view of a kernel are to be used with weights for the other."""


class CacheMismatchError(_MismatchError):
    """Counts for some caches are to be used with weights for others."""


class DeviceError(CountperfError):
    """No such device, or none that works."""

    def __init__(self, message: str, *, device: str | None = None) -> None:
        super().__init__(message)
        self.device = device


class DeviceLostError(DeviceError):
    """A kernel left the device unusable for this process; a new process can go on."""


class KernelSpecificationError(CountperfError, ValueError):
    """Kernel specification that names no kernel."""

    def __init__(self, message: str, *, specification: str) -> None:
        super().__init__(message)
        self.specification = specification


class MeasurementError(CountperfError):
    """A measurement failed."""

    def __init__(self, message: str, *, case: str | None = None) -> None:
        super().__init__(message)
        self.case = case


class KernelBuildError(MeasurementError):
    """A kernel does not build or run on the device."""


class WrongResultError(MeasurementError):
    """A kernel's results on the device differ from its reference."""


class UnstableMeasurementError(MeasurementError):
    """The samples of a measurement spread too far."""


class IncompatibleMeasurementsError(MeasurementError):
    """Measurements of different devices or versions are to be combined."""


class SearchSpaceError(CountperfError, ValueError):
    """A search space is ill-defined, or a text names none."""


class TuningError(CountperfError):
    """A search cannot be made, or has nothing to answer."""

    def __init__(self, message: str, *, refusals: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.refusals = tuple(refusals)


class FitError(CountperfError):
    """A fit cannot be made from these measurements."""

    def __init__(self, message: str, *, result: object | None = None) -> None:
        super().__init__(message)
        self.result = result


class RankDeficientFitError(FitError):
    """The measurements cannot tell some properties apart, and that was asked to be an error."""


class FitNotConvergedError(FitError):
    """The solver stopped before the fit converged."""


class MissingExtraError(CountperfError):
    """Something needs a package that only an extra of countperf installs."""

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


class IncompatibleVersionError(CountperfError, ImportError):
    """A package that countperf needs is missing, or of a version that it does not work with."""

    def __init__(self, message: str, *, package: str, found: str = "") -> None:
        super().__init__(message)
        self.package = package
        self.found = found


class DocumentError(CountperfError):
    """A document is damaged, foreign, or of a version that cannot be read."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        field: str | None = None,
        line: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.field = field
        self.line = line
        self.offset = offset


class TableError(CountperfError, ValueError):
    """A table of times that were measured elsewhere cannot be read."""

    def __init__(self, message: str, *, row: int | None = None, column: str = "") -> None:
        super().__init__(message)
        self.row = row
        self.column = column


class OutputError(CountperfError):
    """A file cannot be written."""

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class InternalError(CountperfError):
    """Something that must hold of every result does not: a fault of countperf, not of the input."""


class CountperfWarning(UserWarning):
    """Root of every warning that countperf issues: the result is usable, with a caveat."""


class CacheWarning(CountperfWarning):
    """A cache cannot be used: what it would keep is made again."""
