"""The kernels that a calibration measures, in their order, as a document that ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from countperf.documents import Document, Part
from countperf.fitting.solve import Matrix, Vector
from countperf.fitting.transfer.choosing import Offer, Population, choose_kernels
from countperf.fitting.transfer.penalised import LogPrior

_SHIPPED = Path(__file__).parent / "kernels.json"


class ChosenSize(Part):
    """One launch size of a kernel.

    Attributes
    ----------
    parameters : dict from str to int
        Its sizes.
    run_s : float
        Typical time of a run, s, over known devices.
    shares : dict from str to float
        Share of its time by number of the column of the structural model; small ones left out.
    """

    parameters: dict[str, NonNegativeInt]
    run_s: PositiveFloat
    shares: dict[str, NonNegativeFloat]


class ChosenKernel(Part):
    """A kernel of the catalogue.

    Attributes
    ----------
    name, family : str
        Of the kernel.
    sizes : tuple of ChosenSize
        One that fits the caches, and one beyond where there is one.
    """

    name: str
    family: str
    sizes: tuple[ChosenSize, ...]


class KernelChoice(Document):
    """Kernels in the order in which a calibration measures them.

    Attributes
    ----------
    population : str
        What is to be predicted well, in words.
    error : float
        Size of the model's own errors that the choice assumed.
    columns : tuple of (str, str)
        Term and feature of each column that shares are of.
    kernels : tuple of ChosenKernel
        The most telling for its cost first.
    """

    format: Literal["countperf-calibration-kernels"] = "countperf-calibration-kernels"
    version: Literal[1] = 1
    population: str
    error: PositiveFloat
    columns: tuple[tuple[str, str], ...]
    kernels: tuple[ChosenKernel, ...]

    def rows(self, kernels: Sequence[ChosenKernel]) -> Matrix:
        """Return the shares of all sizes of kernels, shape (n_sizes, n_columns)."""
        sizes = [size for kernel in kernels for size in kernel.sizes]
        found = np.zeros((len(sizes), len(self.columns)))
        for number, size in enumerate(sizes):
            for column, share in size.shares.items():
                found[number, int(column)] = share
        return found

    def serving(
        self, wanted: Matrix, prior: LogPrior, costs: Mapping[str, float], *, budget_s: float
    ) -> tuple[ChosenKernel, ...]:
        """Return the kernels in the order that serves other kernels best; the others follow.

        Parameters
        ----------
        wanted : ndarray, shape (n_cases, n_columns)
            Shares of the time of the kernels to be served.
        prior : LogPrior
            Over the columns.
        costs : Mapping from str to float
            Seconds that each kernel takes.
        budget_s : float
            Time for all, s.
        """
        rows = np.vstack([wanted, self.rows(self.kernels)])
        importance = np.zeros(len(rows))
        importance[: len(wanted)] = 1.0 / len(wanted)
        place = len(wanted)
        offers: list[Offer] = []
        for kernel in self.kernels:
            own = tuple(range(place, place + len(kernel.sizes)))
            place += len(kernel.sizes)
            offers.append(
                Offer(
                    name=kernel.name, family=kernel.family, rows=(own,), cost_s=costs[kernel.name]
                )
            )
        population = Population(
            shares=rows, importance=importance, covariance=prior.covariance, error=self.error
        )
        chosen = [each.name for each in choose_kernels([population], offers, budget_s=budget_s)]
        by_name = {kernel.name: kernel for kernel in self.kernels}
        rest = [name for name in by_name if name not in set(chosen)]
        return tuple(by_name[name] for name in (*chosen, *rest))


@cache
def shipped_choice() -> KernelChoice:
    """Return the choice that ships."""
    return KernelChoice.read_file(_SHIPPED)


def sparse(shares: Vector, *, least: float = 0.01) -> dict[str, float]:
    """Return the shares that are not small, by number of the column."""
    return {str(i): round(float(s), 3) for i, s in enumerate(shares) if s >= least}
