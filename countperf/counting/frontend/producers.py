"""Translation units of the objects that packages which generate Loopy kernels hand out.

None of these packages is imported: an object is known by the attributes that its package documents.

==================================================  ==============================================
object                                              where its kernel is
==================================================  ==============================================
pytato's bound program (`pytato.generate_loopy`)    ``program``, a unit or an executor of Loopy
arraycontext's compiled function                    ``pytato_program``
arraycontext's compiling caller (``actx.compile``)  ``program_cache``, one for each set of types
TSFC's kernel                                       ``ast``
PyOP2's local kernel                                ``code``
Firedrake's split kernel (`compile_form`)           ``kinfo.kernel``
PyOP2's global kernel                               ``local_kernel``, which it calls for each cell
Loopy's executor, kernel                            ``t_unit``; the kernel is made a unit
==================================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import get_dependencies
from loopy.translation_unit import make_program
from pymbolic import evaluate
from pymbolic.mapper.coefficient import CoefficientCollector

from countperf.errors import CountingError

_DEEPEST = 8
"""Objects that may lie around a translation unit."""

_AROUND = ("pytato_program", "program", "t_unit", "kinfo", "local_kernel", "kernel", "ast", "code")
"""Attributes that lead from an object to its kernel; the first that there is counts."""

_EXPECTED = (
    "a loopy.TranslationUnit, or what pytato, arraycontext, Firedrake, TSFC or PyOP2 make from one"
)


def translation_unit(kernel: Any) -> Any:
    """Return the translation unit of a kernel, whichever package handed it out."""
    unit = known_unit(kernel)
    if unit is None:
        raise CountingError(
            f"{_EXPECTED}, was expected, not {type(kernel).__name__}; make one with "
            "loopy.make_kernel"
        )
    return unit


def known_unit(kernel: Any) -> Any | None:
    """Return the translation unit of a kernel; None if the object is none that is known."""
    inside = kernel
    for _ in range(_DEEPEST):
        if isinstance(inside, lp.TranslationUnit):
            return inside
        if isinstance(inside, lp.LoopKernel):
            return _unit_of(inside)
        inner = _inside(inside)
        if inner is None:
            return None
        inside = inner
    return None


def bound_arguments(kernel: Any) -> dict[str, Any]:
    """Return the arguments that come with a kernel, such as the data in a program of pytato."""
    inside = kernel
    bound: dict[str, Any] = {}
    for _ in range(_DEEPEST):
        given = getattr(inside, "bound_arguments", None)
        if isinstance(given, Mapping):
            bound = {**given, **bound}
        if inside is None or isinstance(inside, lp.TranslationUnit | lp.LoopKernel):
            break
        inside = _inside(inside)
    return {name: _in_memory(value) for name, value in bound.items()}


def _in_memory(value: Any) -> Any:
    copy_from_device = getattr(value, "get", None)
    return copy_from_device() if callable(copy_from_device) else value


def _inside(kernel: Any) -> Any | None:
    """Return what an object of a known kind lies around; None if it is of no known kind."""
    if isinstance(kernel, type | str | bytes | Mapping):
        return None
    if isinstance(kernel, list | tuple) and not hasattr(kernel, "_fields"):
        if not kernel or not all(map(_is_known, kernel)):
            return None
        first, *others = kernel
        if others:
            raise CountingError(
                f"{len(kernel)} kernels were given; pass them one by one, kernels[0] first"
            )
        return first
    compiled = getattr(kernel, "program_cache", None)
    if isinstance(compiled, Mapping):
        return _only_compiled(kernel, compiled)
    for name in _AROUND:
        inner = getattr(kernel, name, None)
        if inner is None:
            continue
        if name == "code" and isinstance(inner, str):
            raise CountingError(
                f"kernel {getattr(kernel, 'name', '')!r} is C code, which has no counting rule;"
                " pass a kernel whose code is a loopy.TranslationUnit"
            )
        return inner
    return None


def _is_known(kernel: Any) -> bool:
    return isinstance(kernel, lp.TranslationUnit | lp.LoopKernel) or any(
        getattr(kernel, name, None) is not None for name in (*_AROUND, "program_cache")
    )


def _only_compiled(caller: Any, compiled: Mapping[Any, Any]) -> Any:
    function = getattr(getattr(caller, "f", None), "__name__", "the function")
    if not compiled:
        raise CountingError(
            f"{function} has not been compiled yet: arraycontext compiles it when it is called."
            " Call it once with arguments of the types and shapes that matter, then pass it again"
        )
    if len(compiled) > 1:
        raise CountingError(
            f"{function} was compiled for {len(compiled)} sets of argument types; pass one of"
            " list(function.program_cache.values())"
        )
    return next(iter(compiled.values()))


def _unit_of(kernel: Any) -> Any:
    return make_program(kernel).with_entrypoints(kernel.name)


# --- Sizes and types of launches, from the arguments that Loopy's executors were given


def launched_unit(unit: Any, entrypoint: str, types: Mapping[str, str]) -> Any:
    """Return a translation unit with one entry point, and the types that a launch gave it."""
    if unit.entrypoints != frozenset([entrypoint]):
        unit = unit.with_entrypoints(entrypoint)
    kernel = unit[entrypoint]
    missing = {
        argument.name: np.dtype(types[argument.name])
        for argument in kernel.args
        if argument.dtype is None and argument.name in types
    }
    if missing:
        unit = unit.with_kernel(lp.add_dtypes(kernel, missing))
    return unit


def launched_sizes(
    unit: Any, integers: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Return the values of the size parameters of a launch.

    Those that were not passed are found from the shapes of arrays, as Loopy's own wrapper does.
    """
    kernel = unit.default_entrypoint
    names = {arg.name for arg in kernel.args if isinstance(arg, lp.ValueArg)}
    sizes = {name: value for name, value in integers.items() if name in names}
    equations = [
        (extent, actual)
        for argument in kernel.args
        if isinstance(getattr(argument, "shape", None), tuple) and argument.name in shapes
        for extent, actual in zip(argument.shape, shapes[argument.name], strict=False)
        if extent is not None
    ]
    while True:
        before = len(sizes)
        for extent, actual in equations:
            unknown = get_dependencies(extent) - set(sizes)
            if len(unknown) == 1:
                (name,) = unknown
                value = _solved(extent, name, sizes, actual)
                if value is not None:
                    sizes[name] = value
        if len(sizes) == before:
            break
    return {name: value for name, value in sizes.items() if name in names}


def _solved(extent: Any, name: str, known: Mapping[str, int], actual: int) -> int | None:
    """Return the value of a name with which an extent is what it was; None if it is not linear."""
    try:
        parts = CoefficientCollector([name])(extent)
    except Exception:  # noqa: BLE001  pymbolic refuses what is not linear in several ways
        return None
    coefficients = {str(key): evaluate(value, dict(known)) for key, value in parts.items()}
    slope = coefficients.get(name, 0)
    rest = actual - coefficients.get("1", 0)
    if not slope:
        return None
    if rest % slope:
        raise CountingError(f"no value of {name} makes {extent} equal to {actual}")
    return int(rest // slope)
