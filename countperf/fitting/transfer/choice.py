"""The kernels that a calibration measures, in their order, as a document that ships."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat

from countperf.documents import Document, Part

_SHIPPED = Path(__file__).parent / "kernels.json"


class ChosenSize(Part):
    """One launch size of a kernel."""

    parameters: dict[str, NonNegativeInt]  # its sizes
    run_s: PositiveFloat  # typical time of a run, s, over known devices


class ChosenKernel(Part):
    """A kernel of the catalogue."""

    name: str  # of the kernel
    family: str
    sizes: tuple[ChosenSize, ...]  # one that fits the caches, and one beyond where there is one


class KernelChoice(Document):
    """Kernels in the order in which a calibration measures them."""

    format: Literal["countperf-calibration-kernels"] = "countperf-calibration-kernels"
    version: Literal[1] = 1
    kernels: tuple[ChosenKernel, ...]  # the most telling for its cost first


@cache
def shipped_choice() -> KernelChoice:
    """Return the choice that ships."""
    return KernelChoice.read_file(_SHIPPED)
