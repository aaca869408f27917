"""Results of calibrations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from countperf.display import ShortRepr, Table, printed
from countperf.fitting.transfer.calibrated import TransferFit
from countperf.fitting.transfer.prior import ExpectedErrors
from countperf.hardware.identity import DeviceIdentity
from countperf.models.function import column_keys
from countperf.models.library import short_name

_HARDLY_LEARNT = 0.2
"""Share of the prior's variance below which a weight counts as not learnt."""


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
    # errors of other devices after as many kernels, and after those of five more minutes
    expected: ExpectedErrors | None
    later: ExpectedErrors | None
    unlearnt: tuple[tuple[str, float], ...]

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


def unlearnt_features(
    fit: TransferFit, shares: Mapping[tuple[str, str], float], *, most: int = 5
) -> tuple[tuple[str, float], ...]:
    """Return features whose weights the cases hardly determine, and how unsure each is."""
    columns, spread, learnt = fit.estimate.function.columns, fit.spread, fit.learnt
    matter = [
        (shares.get(column, 0.0) * spread[i], name, float(np.exp(spread[i])))
        for i, (column, name) in enumerate(zip(columns, column_keys(columns), strict=True))
        if learnt[i] < _HARDLY_LEARNT and shares.get(column, 0.0) > 0
    ]
    return tuple((name, factor) for _, name, factor in sorted(matter, reverse=True)[:most])
