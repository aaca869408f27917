"""Search spaces whose configurations were measured by others, read from files of other tuners.

What measuring a configuration took is its cost, so that a search can be judged by what it would
have spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.errors import DocumentError, ParameterError
from countperf.measurements.recorded import number_or_text, read_records
from countperf.tuning.space import Choice, Value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedSpace(ShortRepr):
    """Configurations of a kernel with the times that somebody measured."""

    name: str  # kernel and device, as the file names them
    device: str
    configurations: tuple[Choice, ...]  # each with a value for each parameter
    times_s: NDArray[np.float64]  # run time of each configuration, s
    costs_s: NDArray[np.float64]  # what measuring each took, s

    @classmethod
    def read_file(cls, path: Path | str) -> RecordedSpace:
        """Read the file of a tuner (`countperf.measurements.recorded`)."""
        found = read_records(path)
        return cls(
            name=found.name,
            device=found.device,
            configurations=tuple(each.configuration for each in found.records),
            times_s=np.array([each.time_s for each in found.records]),
            costs_s=np.array([each.cost_s for each in found.records]),
        )

    @property
    def parameters(self) -> dict[str, tuple[Value, ...]]:
        """Values of each parameter, in the order in which they come."""
        return {
            name: tuple(dict.fromkeys(each[name] for each in self.configurations))
            for name in self.configurations[0]
        }

    @property
    def best_s(self) -> float:
        """Shortest time, s."""
        return float(np.nanmin(self.times_s))

    def where(self, /, **values: Value) -> RecordedSpace:
        """Return the configurations that have these values."""
        kept = [
            place
            for place, each in enumerate(self.configurations)
            if all(each.get(name) == value for name, value in values.items())
        ]
        if not np.isfinite(self.times_s[kept]).any():
            raise DocumentError(
                f"no configuration of '{self.name}' with {values} ran; values: {self.parameters}",
                path=None,
            )
        return RecordedSpace(
            name=self.name,
            device=self.device,
            configurations=tuple(self.configurations[place] for place in kept),
            times_s=self.times_s[kept],
            costs_s=self.costs_s[kept],
        )

    def times_of(self, configurations: Sequence[Choice]) -> NDArray[np.float64]:
        """Return the times of configurations of another file, s; nan where this one has none."""
        names = tuple(self.configurations[0])
        known = dict(zip(map(_key(names), self.configurations), self.times_s, strict=True))
        times = np.array([known.get(_key(names)(each), np.nan) for each in configurations])
        if not np.isfinite(times).any():
            raise DocumentError(
                f"no configuration that ran in '{self.name}', such as {self.configurations[0]}, is"
                f" common with those asked for, such as {configurations[0]}: the names and values"
                " of their parameters have to agree",
                path=None,
            )
        return times


def _key(names: Iterable[str]) -> Callable[[Choice], tuple[Value | None, ...]]:
    return lambda choice: tuple(choice.get(name) for name in names)


def read_value(text: str) -> tuple[str, Value]:
    """Read ``name=value``: a number, ``true`` or ``false``, else a text."""
    name, _, written = text.partition("=")
    if not name or not written:
        raise ParameterError(
            f"{text!r} is no name=value, such as block_size_x=32", parameter="where"
        )
    return name, number_or_text(written)
