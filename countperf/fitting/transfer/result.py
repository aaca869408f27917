"""Results of calibrations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from countperf.display import ShortRepr, Table, printed
from countperf.fitting.transfer.calibrated import TransferFit
from countperf.fitting.transfer.prior import ExpectedErrors
from countperf.hardware.identity import DeviceIdentity
from countperf.models.library import short_name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedModel(ShortRepr):
    """A model that was calibrated."""

    kind: str  # what it reads
    fit: TransferFit  # the fit
    path: Path  # where its weights are
    old: str  # name of the fit of the same device with which the new weights were compared
    old_factor: float
    new_factor: float
    is_kept: bool  # whether the old weights were kept, since they are no worse
    expected: ExpectedErrors | None  # errors of other devices after as many kernels

    @property
    def model(self) -> str:
        """Name by which `load_weights` finds the weights."""
        return short_name(self.kind if self.is_kept else self.fit.definition.name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationResult(Table):
    """Result of a calibration."""

    name: str  # under which its weights are found
    device: DeviceIdentity  # the device
    # slugs of devices whose fits the prior is from, those of the platform first
    known: tuple[str, ...]
    is_kin: bool  # whether one of them has the platform
    store: Path  # the measurements
    kernels: int  # what was fitted to, and cases whose times did not repeat
    cases: int
    unsettled: int
    busy: bool  # whether these were used as well
    spent_s: float  # time that this call took, s
    # without compiled code, and with it where the runtime keeps it
    models: tuple[CalibratedModel, ...]
    without_code: str  # why there is no model that reads compiled code
    is_complete: bool  # whether no kernel of the choice is left

    __repr__ = printed
