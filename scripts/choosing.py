r"""Choice of the most informative kernels for a device: a greedy Bayesian optimal design.

Linearised about the prior's mean, a case with the shares :math:`s` of its time (derivatives of its
logarithm by the logarithms of the weights) tells :math:`s^T u` up to the model's own error
:math:`\sigma`. With the covariance :math:`C` of what is known so far, measuring it lowers the mean
variance of the predictions of a population of kernels :math:`s_p` with shares :math:`w_p` by

.. math:: \frac{\sum_p w_p (s_p^T C s)^2}{\sigma^2 + s^T C s}

(I-optimality; Chaloner and Verdinelli (1995), "Bayesian Experimental Design: A Review"). The kernel
with the largest reduction for each second that it costs is taken next, and :math:`C` is updated.
Reductions in several populations are relative to what each still has, and are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from countperf.models.fitting.solve import Matrix, Vector

_TINY = 1e-12
_SHARED = 1.0
"""Share of the model's squared error that kernels of a family have in common: further kernels of a
family tell less."""


@dataclass(slots=True, kw_only=True, eq=False)
class Population:
    """Kernels whose predictions a campaign is to make better, and what is known of them so far."""

    shares: Matrix  # derivatives of the logarithms of their times
    importance: Vector  # what each counts for
    covariance: Matrix  # of the logarithms of the unknowns
    error: float  # size of the model's own errors, relative

    @property
    def moment(self) -> Matrix:
        """Second moment of the shares."""
        return self.shares.T @ (self.shares * self.importance[:, np.newaxis])

    def reductions(self, errors: Vector, moment: Matrix) -> Vector:
        """Return by how much measuring each case with an error lowers the mean variance."""
        through = self.shares @ self.covariance
        lowered = np.einsum("ij,ij->i", through @ moment, through)
        return lowered / (errors**2 + np.einsum("ij,ij->i", through, self.shares))

    def measure(self, row: int, error: float) -> None:
        """Take a case as measured."""
        through = self.covariance @ self.shares[row]
        size = error**2 + self.shares[row] @ through
        self.covariance = self.covariance - np.outer(through, through) / size


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A kernel that may be measured."""

    name: str  # of the kernel
    family: str
    rows: tuple[tuple[int, ...], ...]  # for each population, the rows of its cases there
    cost_s: float  # time that building and measuring takes, s


def choose_kernels(
    populations: Sequence[Population], offers: Sequence[Offer], *, budget_s: float
) -> Iterator[Offer]:
    """Choose kernels one after another until a budget is used up."""
    moments = [each.moment for each in populations]
    measured, left = Counter[str](), list(offers)
    while left := [offer for offer in left if offer.cost_s <= budget_s]:
        gains = np.zeros(len(left))
        scale = {name: (1.0 + _SHARED * measured[name]) ** 0.5 for name in {o.family for o in left}}
        for place, (each, moment) in enumerate(zip(populations, moments, strict=True)):
            errors = np.full(len(each.shares), each.error)
            for offer in left:
                errors[list(offer.rows[place])] = each.error * scale[offer.family]
            lowered = each.reductions(errors, moment)
            variance = max(float(np.sum(moment * each.covariance)), _TINY)
            gains += [lowered[list(offer.rows[place])].sum() / variance for offer in left]
        best = int(np.argmax(gains / [offer.cost_s for offer in left]))
        if gains[best] <= 0:
            return
        offer = left.pop(best)
        budget_s -= offer.cost_s
        for place, each in enumerate(populations):
            for row in offer.rows[place]:
                each.measure(row, each.error * scale[offer.family])
        measured[offer.family] += 1
        yield offer
