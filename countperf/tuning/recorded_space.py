"""Configurations that others measured, read from files of tuners, and a search replayed on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import DocumentError, ParameterError
from countperf.measurements.recorded import number_or_text, read_records
from countperf.tuning.posterior import Chooser
from countperf.tuning.space import Choice, Value


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

    def where(self, /, **values: Value) -> RecordedSpace:
        """Return the configurations that have these values."""
        kept = [
            position
            for position, configuration in enumerate(self.configurations)
            if all(configuration.get(name) == value for name, value in values.items())
        ]
        if not np.isfinite(self.times_s[kept]).any():
            raise DocumentError(
                f"no configuration of '{self.name}' with {values} ran; one of it is"
                f" {self.configurations[0]}",
                path=None,
            )
        return RecordedSpace(
            name=self.name,
            device=self.device,
            configurations=tuple(self.configurations[position] for position in kept),
            times_s=self.times_s[kept],
        )

    def times_of(self, configurations: Sequence[Choice]) -> NDArray[np.float64]:
        """Return the times of configurations of another file, s; nan where this one has none."""
        known = {
            frozenset(configuration.items()): time_s
            for configuration, time_s in zip(self.configurations, self.times_s, strict=True)
        }
        times = np.array(
            [
                known.get(frozenset(configuration.items()), np.nan)
                for configuration in configurations
            ]
        )
        if not np.isfinite(times).any():
            raise DocumentError(
                f"no configuration that ran in '{self.name}', such as {self.configurations[0]}, is"
                f" common with those asked for, such as {configurations[0]}: the names and values"
                " of their parameters have to agree",
                path=None,
            )
        return times


def read_value(text: str) -> tuple[str, Value]:
    """Read ``name=value``: a number, ``true`` or ``false``, else a text."""
    name, _, written = text.partition("=")
    if not name or not written:
        raise ParameterError(
            f"{text!r} is no name=value, such as block_size_x=32", parameter="where"
        )
    return name, number_or_text(written)


def replay(
    recorded: RecordedSpace,
    measurements: int | None = None,
    predicted_s: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Search a recorded space, each measurement a look at its time; return what was found."""
    times_s = recorded.times_s
    chooser = Chooser(recorded.configurations, predicted_s)
    looked_at: list[int] = []
    most = min(len(times_s), measurements or max(24, len(times_s) // 100))
    while len(looked_at) < most and (index := chooser.ask()) is not None:
        looked_at.append(index)
        chooser.tell(index, None if np.isnan(times_s[index]) else float(times_s[index]))
    if np.isnan(times_s[looked_at]).all():
        raise ParameterError(
            f"none of {len(looked_at)} configurations ran; allow more of them",
            parameter="measurements",
        )
    best_s = float(times_s[chooser.best])
    return {
        "space": recorded.name,
        "device": recorded.device,
        "configurations": len(times_s),
        "measured": len(looked_at),
        "failed": int(np.isnan(times_s[looked_at]).sum()),
        "best": {
            "configuration": dict(recorded.configurations[chooser.best]),
            "time_s": best_s,
        },
        "optimum_s": recorded.best_s,
        "over_optimum": best_s / recorded.best_s,
    }
