"""Code of Loopy: loops over copies (``ilp``) in a fixed order, and names of element types.

Loopy goes through the names of such loops as a set has them, so that each process may nest them in
another order, whatever priorities they have, and put the axes of their private arrays in another:
what is counted here is not what runs there. Here, and wherever we generate code, the order is that
of their priorities, then of their names, outermost first. What Loopy's caches remember of other
processes is not asked for.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import loopy as lp
import loopy.preprocess
import loopy.schedule
import numpy as np
from loopy.check import pre_schedule_checks
from loopy.diagnostic import CannotBranchDomainTree
from loopy.kernel.data import IlpBaseTag, VectorizeTag
from loopy.kernel.function_interface import CallableKernel
from loopy.types import NumpyType

from countperf.counting.expression_types import text_of
from countperf.counting.frontend.loopy_patches import (
    share_by_threads,
    unattended,
    without_disk_caches,
)
from countperf.counting.frontend.unsigned import generate_without_wraps, has_unsigned
from countperf.errors import CountingError, CountperfError, KernelBuildError

_NOTHING = re.compile(r"(\s|;|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""C code without an effect: spaces, semicolons and comments."""

HALF = np.dtype(np.float16)
_ENABLED = ("00_enable_half", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable")
_NO_NUMBERS = "OSUMm"
"""Kinds of NumPy's types that are Python objects, texts and dates."""


def generate_code(t_unit: Any, refusal: type[CountperfError] = KernelBuildError) -> Any:
    """Return the code that Loopy generates for a translation unit, without asking at a terminal."""
    with unattended(), loopy_reasons(t_unit, refusal):
        unit = with_half(in_fixed_order(without_empty_code(t_unit)))
        return generate_without_wraps(unit) if has_unsigned(unit) else lp.generate_code_v2(unit)


@contextmanager
def loopy_reasons(t_unit: Any, refusal: type[CountperfError] = CountingError) -> Generator[None]:
    """Refuse a translation unit on which Loopy fails, which it does in many ways; say why."""
    try:
        yield
    except refusal:
        raise
    except CountperfError as error:
        raise refusal(str(error)) from error
    except Exception as error:
        (name,) = t_unit.entrypoints
        reason = _reason_of(t_unit, error)
        raise refusal(f"kernel '{name}': Loopy generates no code for it: {reason}") from error


def _reason_of(t_unit: Any, error: Exception) -> str:
    """Return why Loopy fails on a translation unit, with the way out where it is known."""
    missing = error.args[0] if isinstance(error, KeyError) else None
    for kernel in [callable_.subkernel for callable_ in _kernels(t_unit)]:
        if missing == kernel.name:
            return (
                f"it takes the name {missing!r} for that of its function; give the kernel another:"
                f" lp.rename_callable(kernel, {missing!r}, '{missing}_')"
            )
        for instruction in kernel.instructions:
            for condition in map(text_of, instruction.predicates):
                if f"{missing}(" in condition:
                    return (
                        f"the condition {condition} of instruction '{instruction.id}' calls a"
                        f" function, which Loopy takes in no condition; assign what {missing}"
                        " returns to a variable first, and test that"
                    )
    said = " ".join(str(error).split())
    if isinstance(error, CannotBranchDomainTree):
        said += (
            "; have the domain of an inner loop name the loops around it, and what else it reads,"
            " '[a, n] -> { [b] : ... }'"
        )
    at = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {said or f'{at.line} (in its {at.name})'}"
    if any(i.tags_of_type(VectorizeTag) for i in t_unit.default_entrypoint.inames.values()):
        said += "; leave the tag 'vec' out of the kernel's axes and arrays"
    return said


def without_empty_code(t_unit: Any) -> Any:
    """Return a translation unit in which instructions of C code without any are no operations.

    Form compilers end kernels with one, to hang dependencies on; where there are hardware axes,
    Loopy generates no code for instructions outside of them, but for those that do nothing.
    """
    for kernel in [callable_.subkernel for callable_ in _kernels(t_unit)]:
        instructions = [_without_code(instruction) for instruction in kernel.instructions]
        if any(a is not b for a, b in zip(instructions, kernel.instructions, strict=True)):
            t_unit = t_unit.with_kernel(kernel.copy(instructions=instructions))
    return t_unit


def _kernels(t_unit: Any) -> list[Any]:
    callables: Iterable[Any] = t_unit.callables_table.values()
    return [callable_ for callable_ in callables if isinstance(callable_, CallableKernel)]


def _without_code(instruction: Any) -> Any:
    if not isinstance(instruction, lp.CInstruction) or instruction.assignees:
        return instruction
    if _NOTHING.fullmatch(instruction.code) is None:
        return instruction
    return lp.NoOpInstruction(
        id=instruction.id,
        happens_after=instruction.happens_after,
        depends_on_is_final=instruction.depends_on_is_final,
        groups=instruction.groups,
        conflicts_with_groups=instruction.conflicts_with_groups,
        no_sync_with=instruction.no_sync_with,
        within_inames=instruction.within_inames,
        within_inames_is_final=instruction.within_inames_is_final,
        priority=instruction.priority,
        tags=instruction.tags,
    )


def in_fixed_order(t_unit: Any) -> Any:
    """Preprocess and schedule a translation unit if Loopy would leave an order in it to chance."""
    kernel = t_unit.default_entrypoint
    if kernel.state >= lp.KernelState.LINEARIZED or len(_copies(kernel)) < 2:
        return t_unit
    t_unit = preprocessed(t_unit)
    return t_unit.with_kernel(linearized(t_unit))


def preprocessed(t_unit: Any) -> Any:
    """Return a translation unit, preprocessed by Loopy."""
    with loopy_reasons(t_unit), _ordering(t_unit.default_entrypoint):
        return lp.preprocess_program(t_unit)


def linearized(t_unit: Any) -> Any:
    """Return the only entry point of a preprocessed translation unit, scheduled by Loopy."""
    kernel = t_unit.default_entrypoint
    silent = kernel.copy(silenced_warnings=["*"])  # checks warn again where code is generated
    with loopy_reasons(t_unit), _ordering(kernel):
        pre_schedule_checks(t_unit.with_kernel(silent))
        return lp.get_one_linearized_kernel(kernel, t_unit.callables_table)


@contextmanager
def _ordering(kernel: Any) -> Generator[None]:
    if len(_copies(kernel)) < 2:
        yield
        return
    with without_disk_caches(), _copies_in_order():
        yield


def _copies(kernel: Any) -> list[str]:
    tags = (IlpBaseTag, VectorizeTag)
    names = (name for name, iname in kernel.inames.items() if iname.tags_of_type(tags))
    return _in_order(names, kernel)


def _in_order(names: Iterable[str], kernel: Any) -> list[str]:
    ranks = {
        n: position for priority in kernel.loop_priority for position, n in enumerate(priority)
    }
    return sorted(names, key=lambda name: (ranks.get(name, len(ranks)), name))


class _Ordered(set[str]):
    """A set that is gone through in order."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(names)
        self._names = names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


@share_by_threads
@contextmanager
def _copies_in_order() -> Generator[None]:
    scheduling: Any = loopy.schedule
    preprocessing: Any = loopy.preprocess
    usual_state, usual_axes = scheduling.SchedulerState, preprocessing.realize_ilp

    def state(**fields: Any) -> Any:
        names = _Ordered(_in_order(fields["ilp_inames"], fields["kernel"]))
        return usual_state(**{**fields, "ilp_inames": names})

    def with_axes(kernel: Any) -> Any:
        for name in _copies(kernel):
            kernel = lp.privatize_temporaries_with_inames(kernel, frozenset([name]))
        return kernel

    scheduling.SchedulerState, preprocessing.realize_ilp = state, with_axes
    try:
        yield
    finally:
        scheduling.SchedulerState, preprocessing.realize_ilp = usual_state, usual_axes


# --- Element types that Loopy has no name for in the code that it generates
# Loopy's target knows the C name of each type. Of half precision, pyopencl's registry lacks it,
# though OpenCL has it: here it is registered, and enabled in the code.


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
            f" ({listed}); {_mend(dtype)}"
        )


def _is_named(loopy_type: Any, dtype: np.dtype[Any], target: Any) -> bool:
    """Return whether the target of a kernel, or OpenCL, has a name for a type."""
    if dtype == HALF:
        return True
    for known in (target, lp.PyOpenCLTarget()):
        try:
            known.get_dtype_registry().dtype_to_ctype(loopy_type)
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
        for callable_ in _kernels(t_unit)
        for kernel in [callable_.subkernel]
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
