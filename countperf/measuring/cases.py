"""Cases to measure: a kernel at given sizes, with inputs and reference results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from countperf.errors import KernelSpecificationError
from countperf.sizes import given_sizes
from countperf.text import ShortRepr

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AS_TIMED: Mapping[str, int] = {}
"""Stands for sizes that are checked as they are timed."""


def _find_unit(given: Any) -> tuple[Any | None, dict[str, Any]]:
    """Return the translation unit of a kernel, None for functions, and arguments that come with it.

    For functions, Loopy is not imported.
    """
    if given is None or isinstance(given, FunctionType | MethodType | partial):
        return None, {}
    from countperf.counting.frontend.producers import bound_arguments, known_unit

    return known_unit(given), bound_arguments(given)


Purpose = Literal["measurement", "test", "application", "variant"]
"""Fits use kernels for measurement only; the others judge them."""

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
"""All purposes, in the order in which reports have them."""

Statistic: TypeAlias = int | float | Fraction | str
"""Mean trip count, probability, or access pattern."""

InstructionCounts: TypeAlias = Mapping[str, Mapping[str, int | float | Fraction]]
"""Counts of one execution of an instruction by property name, by the id of the instruction."""


MakeArguments: TypeAlias = "Callable[[np.random.Generator, Mapping[str, int]], dict[str, Any]]"
Reference: TypeAlias = "Callable[[Mapping[str, Any], Mapping[str, int]], dict[str, NDArray[Any]]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase(ShortRepr):
    """One kernel at one set of sizes, with all that it takes to run and check it.

    A name and a kernel are enough; the rest has defaults.

    Attributes
    ----------
    name : str
        Unique: name of the kernel and its parameters, ``matmul-naive/16x16/f32/n=512``.
    kernel : str or loopy.TranslationUnit
        Name in the catalogue; by default that of the case. A kernel itself is taken for `build`.
    build : callable or loopy.TranslationUnit
        Returns the ``loopy.TranslationUnit``, symbolic in the parameters; it must be the same
        object for all cases of a kernel. Or the unit itself.
    family, variant : str
        Class of kernels, and which one of the class; by default that of the name, and ``""``.
    group_shape : tuple of int
        Work items per group along the two local axes; (0, 0), the default, where nobody said.
    element_type : str
        Type of the kernel's numbers, ``f32``.
    parameters : Mapping from str to int
        Sizes at which it is timed.
    make_arguments : callable
        From a random generator and parameters to the kernel's inputs by name: arrays of the exact
        type and the declared shape, and scalars. The runner allocates what is only written. By
        default, `countperf.devices.binding.default_inputs` makes them.
    reference : callable
        From inputs and parameters to the expected outputs by name. Without one, numbers are not
        checked.
    tolerance : float
        Largest ``|got - want|`` that is right, relative to ``max(1, max|want|)``; by default 1e-2,
        1e-4 and 1e-10 for numbers of 16, 32 and 64 bits, and none for integers.
    purpose : {"measurement", "test", "application", "variant"}
        Fits may use only ``measurement``; evaluations the others.
    global_memory_bytes : int
        All arguments together, byte, at ``parameters``.
    check_parameters : Mapping from str to int
        Small sizes at which numbers are checked before it is timed; by default ``parameters``.
    statistics : Mapping from str to number or str
        What counting has to know of the data at ``parameters``.
    inputs : str
        Cases that name the same here, and have the same ``make_arguments`` and parameters, get the
        same inputs; by default each kernel has its own.
    bound_arguments : Mapping from str to ndarray or number
        Inputs that come with the kernel, such as the data in a program of pytato, from which they
        are taken by default; those of `make_arguments` go before them.
    unused_local_bytes : int
        Local memory that a group gets at launch beside its own, byte: fewer groups are resident.
        At 0 too a GPU that divides memory between local memory and cache gives most to the former.
    unchecked : bool
        Whether it is launched although a subscript that data decide may leave its array.

    Raises
    ------
    KernelSpecificationError
        There is no kernel.

    Examples
    --------
    >>> import loopy as lp
    >>> double = lp.make_kernel("{[i]: 0<=i<8}", "z[i] = 2*x[i]", lang_version=(2018, 2))
    >>> case = KernelCase(name="double", kernel=double)
    >>> case.kernel, case.build() is double, case.check_parameters
    ('double', True, {})
    """

    name: str
    kernel: Any = ""
    family: str = ""
    variant: str = ""
    group_shape: tuple[int, int] = (0, 0)
    element_type: str = ""
    build: Any = None
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])
    make_arguments: MakeArguments | None = None
    reference: Reference | None = None
    tolerance: float | None = None
    purpose: Purpose = "measurement"
    global_memory_bytes: int = 0
    check_parameters: Mapping[str, int] = field(default_factory=lambda: _AS_TIMED)
    statistics: Mapping[str, Statistic] = field(default_factory=dict[str, Statistic])
    inputs: str = ""
    bound_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    unused_local_bytes: int | None = None
    unchecked: bool = False

    def __post_init__(self) -> None:
        given, kernel = self.build, self.kernel
        if not isinstance(kernel, str):
            given, kernel = kernel, ""
        unit, bound = _find_unit(given)
        if unit is not None:
            given = lambda: unit  # noqa: E731  pickled by value
        if not callable(given):
            raise KernelSpecificationError(
                f"case {self.name!r} has no kernel; pass kernel= a loopy.TranslationUnit, or build="
                " a function that returns one"
            )
        parameters = given_sizes(self.parameters, {})
        changes = {
            "parameters": parameters,
            "build": given,
            "kernel": kernel or self.name,
            "family": self.family or kernel or self.name,
            "check_parameters": parameters
            if self.check_parameters is _AS_TIMED
            else given_sizes(self.check_parameters, {}),
            "bound_arguments": {**bound, **self.bound_arguments},
        }
        for name, value in changes.items():
            object.__setattr__(self, name, value)
