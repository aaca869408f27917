"""Configurations that others measured, read from files of tuners."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.measurements.recorded import read_records
from countperf.tuning.space import Choice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedSpace(ShortRepr):
    """Configurations of a kernel with the times that somebody measured."""

    name: str  # kernel and device, as the file names them
    device: str
    configurations: tuple[Choice, ...]  # each with a value for each parameter
    times_s: NDArray[np.float64]  # run time of each, s; nan of those that failed

    @classmethod
    def read_file(cls, path: Path | str) -> RecordedSpace:
        """Read the file of a tuner (`countperf.measurements.recorded`)."""
        file = read_records(path)
        return cls(
            name=file.name,
            device=file.device,
            configurations=file.configurations,
            times_s=np.array(file.times_s),
        )

    @property
    def best_s(self) -> float:
        """Shortest time, s."""
        return float(np.nanmin(self.times_s))
