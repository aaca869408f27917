"""Code of Loopy: loops over copies (``ilp``) in a fixed order, and names of element types.

Loopy goes through the names of such loops as a set has them, so that each process may nest them in
another order, whatever priorities they have, and put the axes of their private arrays in another:
what is counted here is not what runs there. Here, and wherever we generate code, the order is that
of their priorities, then of their names, outermost first.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
from loopy.check import pre_schedule_checks
from loopy.diagnostic import CannotBranchDomainTree
from loopy.kernel.data import IlpBaseTag, VectorizeTag
from loopy.symbolic import get_dependencies
from loopy.types import NumpyType
from pymbolic.primitives import is_zero

from countperf.counting.expression_types import list_nodes, text_of, type_of
from countperf.counting.frontend.callees import kernels_of
from countperf.counting.frontend.loopy_patches import nest_copies, unattended, watch_comparisons
from countperf.errors import CountingError, CountperfError, KernelBuildError
from countperf.symbolic.kernel_sets import never_negative

_NOTHING = re.compile(r"(\s|;|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""C code without an effect: spaces, semicolons and comments."""

HALF = np.dtype(np.float16)
_ENABLED = ("00_enable_half", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable")
_NO_NUMBERS = "OSUMm"
"""Kinds of NumPy's types that are Python objects, texts and dates."""


def generate_code(t_unit: Any, refusal: type[CountperfError] = KernelBuildError) -> Any:
    """Return the code that Loopy generates for a translation unit, without asking at a terminal."""
    with unattended(), loopy_reasons(t_unit, refusal):
        unit = _enable_half(in_fixed_order(without_empty_code(t_unit)))
        if not has_unsigned(unit):
            return lp.generate_code_v2(unit)
        with watch_comparisons(_check_comparison):
            return lp.generate_code_v2(unit)


@contextmanager
def loopy_reasons(t_unit: Any, refusal: type[CountperfError] = CountingError) -> Generator[None]:
    """Refuse a translation unit on which Loopy fails, which it does in many ways; say why."""
    try:
        yield
    except refusal:
        raise
    except Exception as error:
        if isinstance(error, CountperfError):
            raise refusal(str(error)) from error
        (name,) = t_unit.entrypoints
        reason = _reason_of(t_unit, error)
        raise refusal(f"kernel '{name}': Loopy generates no code for it: {reason}") from error


def _reason_of(t_unit: Any, error: Exception) -> str:
    """Return why Loopy fails on a translation unit, with the way out where it is known."""
    missing = error.args[0] if isinstance(error, KeyError) else None
    for kernel in kernels_of(t_unit).values():
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
    for kernel in kernels_of(t_unit).values():
        instructions = [_without_code(instruction) for instruction in kernel.instructions]
        if any(a is not b for a, b in zip(instructions, kernel.instructions, strict=True)):
            t_unit = t_unit.with_kernel(kernel.copy(instructions=instructions))
    return t_unit


def _without_code(instruction: Any) -> Any:
    if not isinstance(instruction, lp.CInstruction) or instruction.assignees:
        return instruction
    if _NOTHING.fullmatch(instruction.code) is None:
        return instruction
    kept = (lp.InstructionBase.fields | {"happens_after", "tags"}) - {"predicates"}
    return lp.NoOpInstruction(**{name: getattr(instruction, name) for name in kept})


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


def _ordering(kernel: Any) -> AbstractContextManager[None]:
    return nest_copies(_copies) if len(_copies(kernel)) > 1 else nullcontext()


def _copies(kernel: Any) -> list[str]:
    """Return the loops over copies in order: by priority, then by name."""
    ranks = {name: rank for some in kernel.loop_priority for rank, name in enumerate(some)}
    names = [n for n in kernel.inames if kernel.iname_tags_of_type(n, (IlpBaseTag, VectorizeTag))]
    return sorted(names, key=lambda name: (ranks.get(name, len(ranks)), name))


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
        known = {"f": "np.float64", "c": "np.complex128"}.get(dtype.kind, "np.int64")
        mend = f"declare them as {known}"
        if dtype.fields:
            mend = "keep the members of the structure in arrays of their own"
        elif dtype.kind in _NO_NUMBERS:
            mend = "pass numbers, such as np.int64"
        raise CountingError(
            f"kernel '{kernel.name}': Loopy generates no code for elements of type {dtype}"
            f" ({listed}); {mend}"
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


def uses_half(t_unit: Any) -> bool:
    """Return whether a translation unit has variables of half precision."""
    return any(
        variable.dtype is not None and getattr(variable.dtype, "dtype", None) == HALF
        for kernel in kernels_of(t_unit).values()
        for variable in (*kernel.args, *kernel.temporary_variables.values())
    )


def _enable_half(t_unit: Any) -> Any:
    """Return a translation unit for which Loopy generates OpenCL C with half precision."""
    if not isinstance(t_unit.target, lp.OpenCLTarget) or not uses_half(t_unit):
        return t_unit
    t_unit.target.get_dtype_registry().get_or_register_dtype(["half"], NumpyType(HALF))
    kernel = t_unit.default_entrypoint
    if _ENABLED in kernel.preambles:
        return t_unit
    return t_unit.with_kernel(kernel.copy(preambles=(*kernel.preambles, _ENABLED)))


# --- Comparisons that unsigned arithmetic makes wrong
# C computes with unsigned integers modulo a power of two, so that ``n - 5 >= 0`` always holds for
# unsigned ``n`` (C11, sections 6.2.5 and 6.3.1.8); Loopy writes its conditions and the ends of its
# loops as if integers were signed. So where a comparison reads unsigned numbers, its sides must not
# be negative, nor, where types differ, what is added up on the way to them.
#


def _stays_unsigned(dtype: np.dtype[Any]) -> bool:
    """Return whether C leaves a type unsigned; it computes with ``int`` for narrower ones."""
    return dtype.kind == "u" and dtype.itemsize >= np.dtype(np.int32).itemsize


def has_unsigned(t_unit: Any) -> bool:
    """Return whether the kernels of a translation unit have integers that C leaves unsigned."""
    return any(
        _stays_unsigned(type_of(kernel, name))
        for kernel in kernels_of(t_unit).values()
        for name in (*kernel.arg_dict, *kernel.temporary_variables)
    )


def _check_comparison(mapper: Any, comparison: Any) -> None:
    """Refuse a comparison where something may be negative that C takes for unsigned.

    Loopy's own conditions are of the form ``expression >= 0``, and are counted among what holds at
    their place: there the expression has to be at least zero for any loop variables.
    """
    kernel, state = mapper.kernel, mapper.codegen_state
    names = sorted(get_dependencies(comparison))
    unsigned = [name for name in names if _stays_unsigned(type_of(kernel, name))]
    if not unsigned:
        return
    is_own = comparison.operator == ">=" and is_zero(comparison.right)
    points = None if is_own else state.implemented_domain
    parts = [comparison.left, comparison.right]
    if len({max(4, type_of(kernel, name).itemsize) for name in names}) > 1:
        for whole in list_nodes(comparison, p.Sum):  # a wider type takes in what has wrapped
            parts += (p.Sum(whole.children[:n]) for n in range(2, len(whole.children)))
    for expr in parts:
        if not _is_nonnegative(mapper, points, expr):
            way = "declare np.int32, or np.int64,"
            sizes = kernel.outer_params() if state.is_entrypoint else frozenset()
            if isinstance(expr, p.Sum) and get_dependencies(expr) <= sizes:
                condition = text_of(expr).replace("(-1)*", "-1*")  # as isl reads it
                way = f"state lp.assume(kernel, '{condition} >= 0') if that holds, or {way}"
            read = ", ".join(f"{name} ({type_of(kernel, name)})" for name in unsigned)
            raise CountingError(
                f"kernel '{kernel.name}': Loopy generates the condition {text_of(comparison)}, in"
                f" which {text_of(expr)} may be negative, and which unsigned numbers make wrong:"
                f" {read}; {way} instead"
            )


def _is_nonnegative(mapper: Any, points: Any, expr: Any) -> bool:
    kernel = mapper.kernel
    names = get_dependencies(expr)
    unsigned = [name for name in names if type_of(kernel, name).kind == "u"]
    if never_negative(kernel, points, expr, unsigned):
        return True
    parts: Any
    match expr:
        case p.Variable():
            return bool(unsigned) or expr.name in kernel.all_inames()
        case p.Sum() | p.Product() | p.Min() | p.BitwiseAnd() | p.BitwiseOr() | p.BitwiseXor():
            parts = expr.children
        case p.FloorDiv() | p.Quotient() | p.Remainder():
            parts = (expr.numerator, expr.denominator)
        case p.If():
            parts = (expr.then, expr.else_)
        case int() | float() | np.number():
            return bool(expr >= 0)
        case _:
            return np.dtype(mapper.infer_type(expr).numpy_dtype).kind in "bu"
    return all(_is_nonnegative(mapper, points, part) for part in parts)
