r"""Length scales of the parameters for the errors of predictions: draws from the posterior.

Parameters that may have no effect at all have to be told from those that decide, from few
measurements; the most probable values alone are too sure of themselves. Each is drawn in turn from
a grid, given the others (griddy Gibbs sampling), with even odds before anything is measured; the
scale of the process is integrated out.

Sources: Ritter, Tanner (1992), "Facilitating the Gibbs sampler: the Gibbs stopper and the
griddy-Gibbs sampler", doi:10.1080/01621459.1992.10475289; Rasmussen, Williams (2006), "Gaussian
processes for machine learning", section 5.4.1 (the evidence), here of a Student process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

JITTER = 1e-9
MATTERS = np.array([0.01, 0.05, 0.15, 0.35, 0.65, 0.95])
"""Values of how much a parameter matters."""
OWN = np.array([0.02, 0.08, 0.25, 0.6])
"""Values of how much is each variant's own."""

_DRAWS = 8
_BURN_IN = 2  # draws before those
_MIDDLE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draw:
    """Draw of the length scales."""

    # of each parameter: 0 if variants that differ in it alone are off alike, 1 if it decides
    matters: Array
    own: float  # share of the variance that no other variant tells of


def draws(
    similar: Array,
    base: Array,
    ratios: Array,
    *,
    prior_square: float,
    prior_freedom: float,
    seed: int = 0,
) -> tuple[Draw, ...]:
    """Draw what matters how much, given measurements; the same ones from the same."""
    random = np.random.default_rng(seed)
    sampler = _Sampler(similar, base, ratios, prior_square, prior_freedom, random)
    found = [Draw(matters=np.full(similar.shape[2], _MIDDLE), own=_MIDDLE)]
    for _ in range(_BURN_IN + _DRAWS):
        found.append(sampler.sweep(found[-1]))
    return tuple(found[-_DRAWS:])


class _Sampler:
    """Draws given some measurements; see `draws`."""

    def __init__(
        self,
        similar: Array,
        base: Array,
        ratios: Array,
        prior_square: float,
        prior_freedom: float,
        random: np.random.Generator,
    ) -> None:
        self._similar = np.moveaxis(similar, 2, 0)
        self._base = base
        self._ratios = ratios
        self._prior_square = prior_square
        self._freedom = prior_freedom + len(ratios)
        self._random = random
        self._unit = np.eye(len(ratios))

    def sweep(self, draw: Draw) -> Draw:
        """Draw each value anew, given the others."""
        matters = draw.matters.copy()
        factors = _factor(self._similar, matters[:, None, None])
        after = np.ones((len(matters) + 1, *self._unit.shape))
        for place in reversed(range(len(matters))):
            after[place] = after[place + 1] * factors[place]
        before = np.ones(self._unit.shape)
        for place, similar in enumerate(self._similar):
            among = before * after[place + 1] * _factor(similar, MATTERS[:, None, None])
            matters[place] = self._pick(MATTERS, among, np.full(len(MATTERS), draw.own))
            before = before * _factor(similar, matters[place])
        own = self._pick(OWN, np.broadcast_to(before, (len(OWN), *before.shape)), OWN)
        return Draw(matters=matters, own=own)

    def _pick(self, grid: Array, among: Array, own: Array) -> float:
        """Draw one of some values, of which each has its covariance among the measured."""
        evidence = self.evidence(among, own)
        chances = np.cumsum(np.exp(evidence - evidence.max()))
        return float(grid[np.searchsorted(chances, self._random.random() * chances[-1])])

    def evidence(self, among: Array, own: Array) -> Array:
        """Return logarithms of evidence but for a constant, shape (g,), of ``among[g]``."""
        share = own[:, None, None]
        lower = np.linalg.cholesky(self._base + (1 - share) * among + (share + JITTER) * self._unit)
        ratios = np.broadcast_to(self._ratios[:, None], (len(own), len(self._ratios), 1))
        white = np.linalg.solve(lower, ratios)[..., 0]
        logarithms = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        squares = self._prior_square + (white**2).sum(axis=1)
        return -logarithms - self._freedom / 2 * np.log(squares)


def product(similar: Array, matters: Array) -> Array:
    """Return how alike variants are in all parameters, over the last axis of how alike in each."""
    return np.prod(_factor(similar, matters), axis=-1)


def _factor(similar: Array, matters: Array | np.float64) -> Array:
    return 1 - matters + matters * similar
