"""The winner of a search beside the default variant, part by part of the predicted time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.predictions import Prediction
from countperf.tuning.points import Predicted
from countperf.tuning.space import Choice, SearchSpace

OTHERS = "parts below a hundredth each"
"""Name of what shares of a predicted time leave out."""

WINNER, DEFAULT = "winner", "default"

_ROUNDED = 1e-4  # by which a share may be off


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(ShortRepr):
    """The winner and the default variant, as predicted and as measured.

    The default is the variant whose values come first in the lists of the space's parameters, of
    those that have a prediction.
    """

    winner: Predicted  # both as predicted
    default: Predicted
    winner_s: float  # measured time of the winner, s
    default_s: float | None  # measured time of the default, s
    model: str  # name of the model that predicted
    device: str  # slug of its device
    sizes: Mapping[str, int]  # sizes of the kernel

    @property
    def pair(self) -> Any:
        """Both predictions side by side; its ``cause`` is a sentence on what makes the difference.

        The parts are shares of the predicted time, so that they include its correction.
        """
        default = self._prediction(DEFAULT, self.default)
        return self._prediction(WINNER, self.winner).against(default)

    def _prediction(self, name: str, point: Predicted) -> Prediction:
        whole = sum(point.parts.values())
        rest = 1 - whole
        if abs(rest) < _ROUNDED * len(point.parts):  # shares are rounded
            rest, scale = 0.0, point.time_s / whole if whole else 0.0
        else:
            scale = point.time_s
        parts: dict[str, float | NDArray[np.float64]] = {
            part: share * scale for part, share in point.parts.items()
        }
        if rest:
            parts[OTHERS] = rest * scale
        return Prediction(
            kernel=name,
            device=self.device,
            model=self.model,
            parameters=self.sizes,
            time_s=point.time_s,
            interval_s=point.interval_s,
            interval_level=point.interval_level,
            breakdown=parts,
            missing=point.missing,
        )


def first_listed(points: Sequence[Predicted], space: SearchSpace) -> Predicted | None:
    """Return the point whose values come first in the lists of the parameters; None if none is."""
    return min(points, key=lambda point: space.index(point.choice), default=None)


def contrast_of(
    points: Sequence[Predicted],
    winner: Choice,
    default: Choice,
    *,
    time_of: Callable[[Choice], float | None],
    model: str,
    device: str,
    sizes: Mapping[str, int],
) -> Contrast | None:
    """Hold a winner against a default variant; None if equal, or if one is not predicted."""
    found = [next((p for p in points if p.choice == each), None) for each in (winner, default)]
    fastest, first = found
    winner_s = time_of(winner)
    if fastest is None or first is None or winner_s is None or fastest is first:
        return None
    return Contrast(
        winner=fastest,
        default=first,
        winner_s=winner_s,
        default_s=time_of(default),
        model=model,
        device=device,
        sizes=sizes,
    )
