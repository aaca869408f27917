r"""Choice of the most informative kernels for a device: a greedy Bayesian optimal design.

Linearised about the prior's mean, a case with the shares :math:`s` of its time (derivatives of its
logarithm by the logarithms of the weights) tells :math:`s^T u` up to the model's own error
:math:`\sigma`. With the covariance :math:`C` of what is known so far, measuring it lowers the mean
variance of the predictions of a population of kernels :math:`s_p` with shares :math:`w_p` by

.. math:: \frac{\sum_p w_p (s_p^T C s)^2}{\sigma^2 + s^T C s}

(I-optimality; Chaloner and Verdinelli (1995), "Bayesian Experimental Design: A Review"). The kernel
with the largest reduction for each second that it costs is taken next, and :math:`C` is updated.
Where there are several populations, such as those of several known devices, reductions are relative
to what each still has, and are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countperf.models.fitting.solve import Matrix, Vector

_TINY = 1e-12
_AT_ONCE = 64

_SHARED = 1.0
"""Share of the model's squared error that kernels of a family have in common: further kernels of a
family tell less."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Kernels whose predictions a campaign is to make better."""

    shares: Matrix  # derivatives of the logarithms of their times
    importance: Vector  # what each counts for
    covariance: Matrix  # of the logarithms of the unknowns, before anything is measured
    error: float  # size of the model's own errors, relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A kernel that may be measured."""

    name: str  # of the kernel
    family: str
    rows: tuple[tuple[int, ...], ...]  # for each population, the rows of its cases there
    cost_s: float  # time that building and measuring takes, s


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A kernel that was chosen."""

    name: str  # of the kernel
    cost_s: float  # as offered
    expected_error: float


class Knowledge:
    """Knowledge of the unknowns in the course of a campaign."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self.error = population.error
        self.covariance = population.covariance.copy()
        weighted = population.shares * population.importance[:, np.newaxis]
        self._moment = population.shares.T @ weighted

    @property
    def variance(self) -> float:
        """Mean variance of the population's predictions, by what the weights leave open."""
        return float(np.sum(self._moment * self.covariance))

    @property
    def expected_error(self) -> float:
        """Standard deviation of log(predicted / measured) in the population."""
        return float(np.sqrt(self.variance + self._population.error**2))

    def reductions(self, rows: NDArray[np.intp], errors: Vector) -> Vector:
        """Return by how much each case with an error of its own would lower `variance`."""
        shares = self._population.shares[rows]
        through = shares @ self.covariance
        lowered = np.einsum("ij,ij->i", through @ self._moment, through)
        return lowered / (errors**2 + np.einsum("ij,ij->i", through, shares))

    def measure(self, row: int, error: float) -> None:
        """Take a case as measured."""
        share = self._population.shares[row]
        through = self.covariance @ share
        size = error**2 + share @ through
        self.covariance -= np.outer(through, through) / size


def choose_kernels(
    populations: Sequence[Population], offers: Sequence[Offer], *, budget_s: float
) -> Iterator[Chosen]:
    """Choose kernels one after another until a budget is used up.

    Reductions become smaller the more is known, so that those of earlier steps bound them from
    above: only the kernels with the best bounds are looked at anew (lazy greedy).
    """
    known = [Knowledge(population) for population in populations]
    costs = np.array([offer.cost_s for offer in offers])
    families = np.unique([offer.family for offer in offers], return_inverse=True)[1]
    taken = np.zeros(families.max(initial=0) + 1)
    bounds = np.full((len(populations), len(offers)), np.inf)
    is_open = np.ones(len(offers), bool)
    spent = 0.0
    while np.any(is_open := is_open & (spent + costs <= budget_s)):
        shared = np.sqrt(1.0 + _SHARED * taken[families])
        variances = np.array([max(each.variance, _TINY) for each in known])
        is_fresh = np.zeros(len(offers), bool)
        while True:
            rates = np.where(is_open, (bounds / variances[:, np.newaxis]).sum(axis=0) / costs, -1.0)
            best = int(np.argmax(rates))
            if is_fresh[best]:
                break
            again = np.argsort(-np.where(is_fresh, -1.0, rates), kind="stable")[:_AT_ONCE]
            for place, each in enumerate(known):
                bounds[place, again] = _reductions(each, offers, again, place, shared)
            is_fresh[again] = True
        if rates[best] <= 0:
            return
        is_open[best] = False
        offer = offers[best]
        spent += offer.cost_s
        for place, each in enumerate(known):
            for row in offer.rows[place]:
                each.measure(row, populations[place].error * float(shared[best]))
        taken[families[best]] += 1
        error = float(np.mean([each.expected_error for each in known]))
        yield Chosen(name=offer.name, cost_s=offer.cost_s, expected_error=error)


def _reductions(
    known: Knowledge,
    offers: Sequence[Offer],
    chosen: NDArray[np.intp],
    place: int,
    shared: Vector,
) -> Vector:
    """Return by how much each chosen offer would lower the variance of a population."""
    pairs = [
        (row, number, shared[offer])
        for number, offer in enumerate(chosen.tolist())
        for row in offers[offer].rows[place]
    ]
    found = np.zeros(chosen.size)
    if pairs:
        rows, owners, factors = (np.array(each) for each in zip(*pairs, strict=True))
        np.add.at(found, owners, known.reductions(rows, known.error * factors))
    return found
