"""Element types that Loopy has no name for in the code that it generates.

Loopy's target knows the C name of each type. Of half precision, pyopencl's registry lacks it,
though OpenCL has it: here it is registered, and enabled in the code.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.kernel.function_interface import CallableKernel
from loopy.types import NumpyType

from countperf.errors import CountingError

HALF = np.dtype(np.float16)
_ENABLED = ("00_enable_half", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable")
_NO_NUMBERS = "OSUMm"
"""Kinds of NumPy's types that are Python objects, texts and dates."""


def check_element_types(kernel: Any) -> None:
    """Refuse a kernel with a variable for whose type Loopy generates no code."""
    wrong: dict[np.dtype[Any], list[str]] = {}
    for variable in (*kernel.args, *kernel.temporary_variables.values()):
        dtype = getattr(variable.dtype, "dtype", None)
        if isinstance(dtype, np.dtype) and not _is_named(variable.dtype, dtype, kernel.target):
            wrong.setdefault(dtype, []).append(variable.name)
    for dtype, names in wrong.items():
        listed = ", ".join(map(repr, names))
        raise CountingError(
            f"kernel '{kernel.name}': Loopy generates no code for elements of type {dtype}"
            f" ({listed}); {_mend(dtype)}",
            kernel=kernel.name,
            where=names[0],
        )


def _is_named(loopy_type: Any, dtype: np.dtype[Any], target: Any) -> bool:
    """Return whether the target of a kernel, or OpenCL, has a name for a type."""
    if dtype == HALF:
        return True
    for each in (target, lp.PyOpenCLTarget()):
        try:
            each.get_dtype_registry().dtype_to_ctype(loopy_type)
        except (AttributeError, NotImplementedError, TypeError, ValueError, lp.LoopyError):
            continue
        return True
    return False


def _mend(dtype: np.dtype[Any]) -> str:
    if dtype.fields:
        return "keep the members of the structure in arrays of their own"
    if dtype.kind in _NO_NUMBERS:
        return "pass numbers, such as np.int64"
    known = {"f": "np.float64", "c": "np.complex128"}.get(dtype.kind, "np.int64")
    return f"declare them as {known}"


def uses_half(t_unit: Any) -> bool:
    """Return whether a translation unit has variables of half precision."""
    return any(
        variable.dtype is not None and getattr(variable.dtype, "dtype", None) == HALF
        for kernel in _kernels(t_unit)
        for variable in (*kernel.args, *kernel.temporary_variables.values())
    )


def with_half(t_unit: Any) -> Any:
    """Return a translation unit for which Loopy generates OpenCL C with half precision.

    The type gets its name in pyopencl's registry; other units are returned as they are.
    """
    if not isinstance(t_unit.target, lp.OpenCLTarget) or not uses_half(t_unit):
        return t_unit
    t_unit.target.get_dtype_registry().get_or_register_dtype(["half"], NumpyType(HALF))
    kernel = t_unit.default_entrypoint
    if _ENABLED in kernel.preambles:
        return t_unit
    return t_unit.with_kernel(kernel.copy(preambles=(*kernel.preambles, _ENABLED)))


def _kernels(t_unit: Any) -> list[Any]:
    callables = t_unit.callables_table.values()
    return [each.subkernel for each in callables if isinstance(each, CallableKernel)]
