"""Translation units of the objects in which Loopy, pytato and arraycontext hand out kernels.

None of these packages is imported: an object is known by the attributes that its package documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import loopy as lp
from loopy.translation_unit import make_program

from countperf.errors import CountingError

_AROUND = ("pytato_program", "program", "t_unit")  # the last of Loopy's executors


def translation_unit(kernel: Any) -> Any:
    """Return the translation unit of a kernel, whichever package handed it out."""
    unit = take_unit(kernel)
    if unit is None:
        raise CountingError(
            f"a loopy.TranslationUnit was expected, not {type(kernel).__name__}; pass the one that"
            " the object has, or make one with loopy.make_kernel"
        )
    return unit


def take_unit(kernel: Any) -> Any | None:
    """Return the translation unit of a kernel; None if the object is none that is known."""
    *_, inside = _unpack(kernel)
    if isinstance(inside, lp.LoopKernel):
        return make_program(inside).with_entrypoints(inside.name)
    return inside if isinstance(inside, lp.TranslationUnit) else None


def find_bound_arguments(kernel: Any) -> dict[str, Any]:
    """Return the arguments that come with a kernel, such as the data in a program of pytato."""
    bound: dict[str, Any] = {}
    for inside in _unpack(kernel):
        given = getattr(inside, "bound_arguments", None)
        if isinstance(given, Mapping):
            bound = {**given, **bound}
    return {
        name: value.get() if callable(getattr(value, "get", None)) else value
        for name, value in bound.items()
    }


def _unpack(kernel: Any) -> Iterator[Any]:
    """Yield an object, and what it lies around, the innermost last."""
    yield kernel
    is_inside = isinstance(kernel, lp.TranslationUnit | lp.LoopKernel | type)
    around = () if is_inside else (getattr(kernel, name, None) for name in _AROUND)
    for inner in [one for one in around if one is not None][:1]:
        yield from _unpack(inner)
