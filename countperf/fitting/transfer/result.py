"""Results of calibrations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from countperf import front_door
from countperf.display import ShortRepr, Table, shortened
from countperf.fitting.transfer.calibrated import TransferFit
from countperf.fitting.transfer.prior import ExpectedErrors
from countperf.hardware.identity import DeviceIdentity
from countperf.models.function import column_keys
from countperf.models.library import short_name

_HARDLY_LEARNT = 0.2
"""Share of the prior's variance below which a weight counts as not learnt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedModel(ShortRepr):
    """A model that was calibrated.

    Attributes
    ----------
    kind : {"structural", "compiled"}
        What it reads.
    fit : TransferFit
        The fit.
    path : Path
        Where its weights are.
    old : str
        Name of the fit of the same device with which the new weights were compared; empty if there
        was none.
    old_factor, new_factor : float
        Factors by which the measured kernels are off with the old weights, and with the new ones
        where families of kernels are left out; the old one is infinite if there is none.
    is_kept : bool
        Whether the old weights were kept, since they are no worse.
    expected, later : ExpectedErrors or None
        Errors of other devices after as many kernels, and after those of five more minutes; None
        where no known device is of the platform, or old weights were kept.
    unlearnt : tuple of (str, float)
        Features whose weights stay about where other devices have them, and the factor by which
        each may be off, those that matter most first.
    """

    kind: str
    fit: TransferFit
    path: Path
    old: str
    old_factor: float
    new_factor: float
    is_kept: bool
    expected: ExpectedErrors | None
    later: ExpectedErrors | None
    unlearnt: tuple[tuple[str, float], ...]

    @property
    def model(self) -> str:
        """Name by which `load_weights` finds the weights."""
        return short_name(self.kind if self.is_kept else self.fit.definition.name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationResult(Table):
    """Result of a calibration.

    Attributes
    ----------
    name : str
        Under which its weights are found.
    device : DeviceIdentity
        The device.
    known : tuple of str
        Slugs of devices whose fits the prior is from, those of the platform first.
    is_kin : bool
        Whether one of them has the platform.
    store : Path
        The measurements.
    kernels, cases, unsettled : int
        What was fitted to, and cases whose times did not repeat.
    busy : bool
        Whether these were used as well.
    spent_s : float
        Time that this call took, s.
    models : tuple of CalibratedModel
        Without compiled code, and with it where the runtime keeps it.
    without_code : str
        Why there is no model that reads compiled code; empty if there is.
    is_complete : bool
        Whether no kernel of the choice is left.
    """

    name: str
    device: DeviceIdentity
    known: tuple[str, ...]
    is_kin: bool
    store: Path
    kernels: int
    cases: int
    unsettled: int
    busy: bool
    spent_s: float
    models: tuple[CalibratedModel, ...]
    without_code: str
    is_complete: bool

    def __repr__(self) -> str:
        return shortened(front_door.function("calibration_text")(self))


def unlearnt_features(
    fit: TransferFit, shares: Mapping[tuple[str, str], float], *, most: int = 5
) -> tuple[tuple[str, float], ...]:
    """Return features whose weights the cases hardly determine, and by which factor each is unsure.

    Parameters
    ----------
    fit : TransferFit
        The fit.
    shares : Mapping from (str, str) to float
        Share of the time that each column takes in usual kernels.
    most : int, optional
        How many at most: those that make the time of usual kernels most unsure.
    """
    columns = fit.design.function.columns
    spread = np.sqrt(np.diag(fit.fitted.covariance))
    matter = [
        (shares.get(column, 0.0) * spread[i], name, float(np.exp(spread[i])))
        for i, (column, name) in enumerate(zip(columns, column_keys(columns), strict=True))
        if fit.fitted.learnt[i] < _HARDLY_LEARNT and shares.get(column, 0.0) > 0
    ]
    return tuple((name, factor) for _, name, factor in sorted(matter, reverse=True)[:most])
