"""What is measured: a kernel at given sizes, with its inputs and the right results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from countperf.display import short_repr

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Purpose = Literal["measurement", "test", "application", "variant"]
"""Fits use kernels for measurement only; the others judge them."""

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
"""All purposes, in the order in which reports have them."""

Statistic: TypeAlias = int | float | Fraction | str
"""Mean trip count, probability, or access pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """One kernel at one set of sizes, with all that it takes to run and check it.

    Attributes
    ----------
    name : str
        Unique: name of the kernel and its parameters, ``matmul-naive/16x16/f32/n=512``.
    kernel, family, variant : str
        Name in the catalogue, class of kernels, and which one of the class.
    group_shape : tuple of int
        Work items per group along the two local axes.
    element_type : str
        Type of the kernel's numbers, ``f32``.
    build : callable
        Returns the ``loopy.TranslationUnit``, symbolic in the parameters; it must be the same
        object for all cases of a kernel.
    parameters : Mapping from str to int
        Sizes at which it is timed.
    make_arguments : callable
        From a random generator and parameters to the kernel's inputs by name: arrays with exact
        type and memory order, and scalars. The runner allocates what is only written.
    reference : callable
        From inputs and parameters to the expected outputs by name.
    tolerance : float
        Largest ``|got - want|`` that is right, relative to ``max(1, max|want|)``.
    purpose : {"measurement", "test", "application", "variant"}
        Fits may use only ``measurement``; evaluations the others.
    global_memory_bytes : int
        All arguments together, byte, at ``parameters``.
    check_parameters : Mapping from str to int
        Small sizes at which numbers are checked before it is timed.
    statistics : Mapping from str to number or str
        What counting has to know of the data at ``parameters``.
    inputs : str
        Cases that name the same here, and have the same ``make_arguments`` and parameters, get the
        same inputs; by default each kernel has its own.
    """

    name: str
    kernel: str
    family: str
    variant: str
    group_shape: tuple[int, int]
    element_type: str
    build: Callable[[], Any]
    parameters: Mapping[str, int]
    make_arguments: Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]
    reference: Callable[[Mapping[str, Any], Mapping[str, int]], dict[str, NDArray[Any]]]
    tolerance: float
    purpose: Purpose
    global_memory_bytes: int
    check_parameters: Mapping[str, int]
    statistics: Mapping[str, Statistic] = field(default_factory=dict[str, Statistic])
    inputs: str = ""

    def __repr__(self) -> str:
        return short_repr(self)
