"""The kernels that a calibration measures, in their order, as a document that ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from countperf.documents import Document, Part
from countperf.fitting.solve import LogPrior, Matrix, Vector
from countperf.fitting.transfer.choosing import Offer, Population, choose_kernels

_SHIPPED = Path(__file__).parent / "kernels.json"


class ChosenSize(Part):
    """One launch size of a kernel."""

    parameters: dict[str, NonNegativeInt]  # its sizes
    run_s: PositiveFloat  # typical time of a run, s, over known devices
    # share of its time by number of the column of the structural model
    shares: dict[str, NonNegativeFloat]


class ChosenKernel(Part):
    """A kernel of the catalogue."""

    name: str  # of the kernel
    family: str
    sizes: tuple[ChosenSize, ...]  # one that fits the caches, and one beyond where there is one


class KernelChoice(Document):
    """Kernels in the order in which a calibration measures them."""

    format: Literal["countperf-calibration-kernels"] = "countperf-calibration-kernels"
    version: Literal[1] = 1
    population: str  # what is to be predicted well, in words
    error: PositiveFloat  # size of the model's own errors that the choice assumed
    columns: tuple[tuple[str, str], ...]  # term and feature of each column that shares are of
    kernels: tuple[ChosenKernel, ...]  # the most telling for its cost first

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
        """Return the kernels in the order that serves other kernels best; the others follow."""
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
