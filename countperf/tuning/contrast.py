"""The winner of a search beside the default variant, part by part of the predicted time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.display import ShortRepr
from countperf.predictions import Prediction, PredictionPair
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

    Attributes
    ----------
    winner, default : Predicted
        Both as predicted.
    winner_s : float
        Measured time of the winner, s.
    default_s : float or None
        Measured time of the default, s; None if it was not run.
    model : str
        Name of the model that predicted.
    device : str
        Slug of its device.
    sizes : Mapping from str to int
        Sizes of the kernel.
    """

    winner: Predicted
    default: Predicted
    winner_s: float
    default_s: float | None
    model: str
    device: str
    sizes: Mapping[str, int]

    @property
    def pair(self) -> PredictionPair:
        """Both predictions side by side; its ``cause`` is a sentence on what makes the difference.

        The parts are shares of the predicted time, so that they include its correction.
        """
        return PredictionPair(
            first=self._prediction(WINNER, self.winner),
            second=self._prediction(DEFAULT, self.default),
        )

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
    """Return the point whose values come first in the lists of the parameters; None if none is.

    Examples
    --------
    >>> space = SearchSpace(name="s", parameters={"tile": [16, 8], "pad": [0, 1]}, build=dict)
    >>> points = [Predicted(choice={"tile": t, "pad": 1}, time_s=1.0) for t in (8, 16)]
    >>> first_listed(points, space).choice
    {'tile': 16, 'pad': 1}
    """
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
    """Hold a winner against a default variant; None if they are the same, or one is not predicted.

    Parameters
    ----------
    points : sequence of Predicted
        What was predicted.
    winner, default : Mapping from str to value
        Both variants.
    time_of : callable
        From a variant to its measured time, s; None if it was not run.
    model, device, sizes
        As for `Contrast`.
    """
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
