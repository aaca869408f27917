"""Kernels as Loopy prepares them: callees inlined, preprocessed, scheduled, and their code.

Loopy goes through the names of loops over copies (``ilp``) as a set has them, so that each process
may nest them, and put the axes of their private arrays, in another order, whatever priorities they
have. Here, and wherever we generate code, the order is that of their priorities, then of names.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as p
from loopy import AddressSpace
from loopy.check import pre_codegen_checks, pre_schedule_checks
from loopy.diagnostic import CannotBranchDomainTree
from loopy.kernel.array import SeparateArrayArrayDimTag
from loopy.kernel.data import GroupInameTag, IlpBaseTag, VectorizeTag
from loopy.kernel.function_interface import CallableKernel
from loopy.symbolic import get_dependencies
from loopy.types import LoopyType, NumpyType
from pytools import UniqueNameGenerator

from countperf.counting.accesses import with_strides
from countperf.counting.expression_types import list_nodes, text_of, type_of
from countperf.counting.frontend.loopy_patches import (
    forbid_questions,
    nest_copies,
    replace_domain_substitution,
)
from countperf.counting.frontend.producers import translation_unit
from countperf.errors import CountingError, CountperfError, KernelBuildError
from countperf.symbolic.kernel_sets import (
    bounds_of,
    replace_parameter,
    with_assumptions_on_arguments,
    with_sets_in_fixed_order,
)

_MOST_RECENT = 4
_recent: dict[int, tuple[Any, tuple[Any, Any]]] = {}
"""Translation units by their identity, which no other has as long as they are kept."""


def prepare_unit(t_unit: Any) -> tuple[Any, Any]:
    """Return the only entry point of a translation unit, scheduled, and the table of callables.

    What the caller has scheduled is taken as it is. What was prepared lately is not prepared again.
    """
    t_unit = translation_unit(t_unit)
    known = _recent.get(id(t_unit))
    if known is None:
        known = _recent[id(t_unit)] = t_unit, _prepare_anew(t_unit)
        for old in list(_recent)[:-_MOST_RECENT]:
            _recent.pop(old, None)
    return known[1]


def _prepare_anew(t_unit: Any) -> tuple[Any, Any]:
    names = sorted(t_unit.entrypoints)
    if len(names) != 1:
        raise CountingError(
            f"the translation unit has {len(names)} entry points ({', '.join(names) or 'none'});"
            " choose one with t_unit.with_entrypoints(name)"
        )
    whole = without_empty_code(t_unit)
    t_unit = inline_callees(whole)
    check_unsigned(whole)  # also where inlining leaves nothing of it
    kernel = with_strides(t_unit.default_entrypoint)
    if kernel is not t_unit.default_entrypoint:
        t_unit = t_unit.with_kernel(kernel)
    if kernel.state < lp.KernelState.LINEARIZED:
        with forbid_questions():
            t_unit = preprocess_unit(t_unit)
            temporaries = t_unit.default_entrypoint.temporary_variables.values()
            if not all(isinstance(v.dtype, LoopyType) for v in temporaries):
                with loopy_reasons(t_unit):  # which preprocessing made, as those of arg-extrema
                    t_unit = lp.infer_unknown_types(t_unit, expect_completion=True)
            kernel = linearize_kernel(t_unit)
            t_unit = t_unit.with_kernel(kernel)
    untyped = [variable.name for variable in _variables_of(kernel) if not variable.dtype]
    if untyped:
        raise CountingError(
            f"kernel '{kernel.name}': the types of {', '.join(sorted(untyped))} are not known; "
            "declare them, or apply loopy.infer_unknown_types"
        )
    check_element_types(kernel)
    check_unsigned(t_unit)
    _check_for_code(kernel, t_unit)
    return with_sets_in_fixed_order(kernel), t_unit.callables_table


def _check_for_code(kernel: Any, t_unit: Any) -> None:
    """Refuse what Loopy schedules, but generates no code for; its checks do not say all."""
    with forbid_questions(), loopy_reasons(t_unit):
        pre_codegen_checks(t_unit)
    has_separate_arrays = any(
        isinstance(tag, SeparateArrayArrayDimTag)
        for variable in _variables_of(kernel)
        for tag in getattr(variable, "dim_tags", None) or ()
    )
    lengths = {
        (tag.axis, str(bounds_of(kernel, name)[2]))
        for name in kernel.all_inames()
        for tag in kernel.iname_tags_of_type(name, GroupInameTag)
    }
    shares_group_axes = len(lengths) > len({axis for axis, _ in lengths})
    if has_separate_arrays or _has_vectors(kernel) or shares_group_axes:
        generate_code(t_unit, CountingError)


def _has_vectors(kernel: Any) -> bool:
    return any(iname.tags_of_type(VectorizeTag) for iname in kernel.inames.values())


def _variables_of(kernel: Any) -> tuple[Any, ...]:
    return (*kernel.args, *kernel.temporary_variables.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResources:
    """Resources of a launch."""

    # work items per group along the local axes; None along an axis where it depends on sizes
    group_shape: tuple[int | None, ...]
    local_memory_bytes: int | None  # of a group, as declared, byte; None if it depends on sizes

    @property
    def group_items(self) -> int | None:
        """Work items per group; None where a size decides."""
        known = [extent for extent in self.group_shape if extent is not None]
        return math.prod(known) if len(known) == len(self.group_shape) else None


def schedule_unit(t_unit: Any) -> tuple[Any, LaunchResources]:
    """Preprocess and schedule a translation unit, once for counting and resources."""
    kernel, callables = prepare_unit(t_unit)
    _, group = kernel.get_grid_size_upper_bounds_as_exprs(callables)
    resources = LaunchResources(
        group_shape=tuple(int(e) if isinstance(e, int) else None for e in group),
        local_memory_bytes=_local_memory(kernel),
    )
    ready = t_unit.copy(callables_table=callables).with_kernel(kernel)
    _recent[id(ready)] = ready, (kernel, callables)  # for counting, which asks for it again
    return ready, resources


def _local_memory(kernel: Any) -> int | None:
    """Return the bytes of local arrays that have memory of their own; None where sizes decide."""
    variables = kernel.temporary_variables.values()
    local = [v for v in variables if v.address_space == AddressSpace.LOCAL and not v.base_storage]
    if not all(isinstance(extent, int) for v in local for extent in v.shape):
        return None
    return sum(math.prod(v.shape) * v.dtype.itemsize for v in local)


# --- Callees: kernels that a kernel calls, inlined so that they count per call


def inline_callees(t_unit: Any) -> Any:
    """Inline the callees of the only entry point, with the arguments of each call."""
    (entry,) = t_unit.entrypoints
    kernels = kernels_of(t_unit)
    _check_calls(kernels)
    taken = {name for kernel in kernels.values() for name in kernel.all_variable_names()}
    for name, kernel in sorted(kernels.items()):
        if name != entry:
            t_unit = t_unit.with_kernel(_with_own_names(kernel, taken))
        elif len(kernels) > 1:  # Loopy finds who writes what once more when callees are in
            silenced = {*kernel.silenced_warnings, "single_writer_after_creation"}
            t_unit = t_unit.with_kernel(kernel.copy(silenced_warnings=frozenset(silenced)))
    while callees := sorted(kernels_of(t_unit).keys() - {entry}):
        try:  # which may leave copies of other callees, specialized to their arguments
            with replace_domain_substitution(replace_parameter):
                t_unit = lp.inline_callable_kernel(t_unit, callees[0])
        except CountingError:
            raise
        except Exception as error:  # inlining fails in many ways
            raise CountingError(
                f"kernel '{entry}': the callee '{callees[0]}' cannot be inlined by Loopy: "
                f"{type(error).__name__}: {error}"
            ) from error
        for kernel in kernels_of(t_unit).values():
            t_unit = t_unit.with_kernel(with_assumptions_on_arguments(kernel))
    return t_unit


def kernels_of(t_unit: Any) -> dict[str, Any]:
    """Return the kernels of a translation unit by name, callees too."""
    return {
        str(name): callable_.subkernel
        for name, callable_ in t_unit.callables_table.items()
        if isinstance(callable_, CallableKernel)
    }


def _with_own_names(kernel: Any, taken: set[str]) -> Any:
    """Return a callee without substitution rules, with sizes of its own, as inlining needs it."""
    kernel = lp.expand_subst(kernel)
    unique = UniqueNameGenerator(taken)
    for argument in kernel.args:
        if isinstance(argument, lp.ValueArg):
            name = unique(f"{argument.name}_of_{kernel.name}")
            kernel = lp.rename_argument(kernel, argument.name, name)
            taken.add(name)
    return kernel


# --- Calls that Loopy does not inline


def _check_calls(kernels: dict[str, Any]) -> None:
    """Refuse calls within expressions, and recursive ones."""
    called: dict[str, set[str]] = {name: set() for name in kernels}
    for name, kernel in kernels.items():
        for place, expression, is_instruction in _expressions(kernel):
            calls = list_nodes(expression, p.Call)
            for call in (c for c in calls if getattr(c.function, "name", None) in kernels):
                if not is_instruction or call is not expression:
                    text = text_of(call)
                    raise CountingError(
                        f"kernel '{name}', {place}: Loopy inlines no call within an expression,"
                        f' such as {text}; give it an instruction of its own, "[]: t[0] = {text}",'
                        ' with lp.TemporaryVariable("t", shape=(1,)), and use t[0] in its place'
                        " (for a reduction, fill an element of t for each iteration in a loop"
                        " before it)"
                    )
                called[name].add(call.function.name)
    try:
        TopologicalSorter(called).prepare()
    except CycleError as error:
        name, *others = error.args[1]
        raise CountingError(
            f"kernel '{name}' calls itself, by {', '.join(others[:-1]) or name}; recursive calls"
            " cannot be counted"
        ) from error


def _expressions(kernel: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield the expressions of a kernel, where they are, and whether they can be a call."""
    for rule in kernel.substitutions.values():
        yield f"rule '{rule.name}'", rule.expression, False
    for instruction in kernel.instructions:
        place = f"instruction '{instruction.id}'"
        for predicate in instruction.predicates:
            yield place, predicate, False
        if isinstance(instruction, lp.MultiAssignmentBase):
            yield place, instruction.expression, isinstance(instruction, lp.CallInstruction)
            for assignee in instruction.assignees:
                yield place, assignee, False


# --- Code of Loopy, with loops over copies in a fixed order

_NOTHING = re.compile(r"(\s|;|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""C code without an effect: spaces, semicolons and comments."""

HALF = np.dtype(np.float16)
_ENABLED = ("00_enable_half", "#pragma OPENCL EXTENSION cl_khr_fp16 : enable")


def generate_code(t_unit: Any, refusal: type[CountperfError] = KernelBuildError) -> Any:
    """Return the code that Loopy generates for a translation unit, without asking at a terminal."""
    with forbid_questions(), loopy_reasons(t_unit, refusal):
        unit = _enable_half(in_fixed_order(without_empty_code(t_unit)))
        if _has_unsigned(unit):
            check_unsigned(unit)
            check_unsigned(preprocess_unit(unit))  # which infers types
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
    if _has_vectors(t_unit.default_entrypoint):
        said += "; leave the tag 'vec' out of the kernel's axes and arrays"
    return said


def without_empty_code(t_unit: Any) -> Any:
    """Return a translation unit in which instructions of C code without any are no operations.

    Form compilers end kernels with one, to hang dependencies on; where there are hardware axes,
    Loopy generates no code for instructions outside of them, but for those that do nothing.
    """
    kept = (lp.InstructionBase.fields | {"happens_after", "tags"}) - {"predicates"}
    for kernel in kernels_of(t_unit).values():
        empty = {
            i.id: lp.NoOpInstruction(**{name: getattr(i, name) for name in kept})
            for i in kernel.instructions
            if isinstance(i, lp.CInstruction) and not i.assignees and _NOTHING.fullmatch(i.code)
        }
        if empty:
            instructions = [empty.get(i.id, i) for i in kernel.instructions]
            t_unit = t_unit.with_kernel(kernel.copy(instructions=instructions))
    return t_unit


def in_fixed_order(t_unit: Any) -> Any:
    """Preprocess and schedule a translation unit if Loopy would leave an order in it to chance."""
    kernel = t_unit.default_entrypoint
    if kernel.state >= lp.KernelState.LINEARIZED or len(_copies(kernel)) < 2:
        return t_unit
    t_unit = preprocess_unit(t_unit)
    return t_unit.with_kernel(linearize_kernel(t_unit))


def preprocess_unit(t_unit: Any) -> Any:
    """Return a translation unit, preprocessed by Loopy."""
    with loopy_reasons(t_unit), _ordering(t_unit.default_entrypoint):
        return lp.preprocess_program(t_unit)


def linearize_kernel(t_unit: Any) -> Any:
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
# pyopencl's registry lacks half precision, though OpenCL has it: it is registered and enabled here.


def check_element_types(kernel: Any) -> None:
    """Refuse a kernel with a variable for whose type Loopy generates no code."""
    wrong: dict[np.dtype[Any], list[str]] = {}
    for variable in _variables_of(kernel):
        dtype = getattr(variable.dtype, "dtype", None)
        if isinstance(dtype, np.dtype) and not _is_named(variable.dtype, dtype, kernel.target):
            wrong.setdefault(dtype, []).append(variable.name)
    for dtype, names in wrong.items():
        listed = ", ".join(map(repr, names))
        known = {"f": "np.float64", "c": "np.complex128"}.get(dtype.kind, "np.int64")
        mend = f"declare them as {known}"
        if dtype.fields:
            mend = "keep the members of the structure in arrays of their own"
        elif dtype.kind in "OSUMm":  # Python objects, texts and dates
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
        for variable in _variables_of(kernel)
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


# --- Unsigned numbers, with which C computes modulo a power of two (C11, 6.2.5 and 6.3.1.8)


def check_unsigned(t_unit: Any) -> None:
    """Refuse ends of loops and conditions that Loopy writes as if their numbers were signed."""
    for kernel in kernels_of(t_unit).values():
        read = {"the ends of loops": kernel.all_params()}
        for _, expression, _ in _expressions(kernel):
            for test in list_nodes(expression, p.Comparison):
                if not (_is_natural(kernel, test.left) and _is_natural(kernel, test.right)):
                    read[f"the condition {text_of(test)}"] = get_dependencies(test)
        for what, names in read.items():
            types = {name: type_of(kernel, name) for name in sorted(names)}
            wrong = [f"{name} ({of})" for name, of in types.items() if _stays_unsigned(of)]
            if wrong:
                raise CountingError(
                    f"kernel '{kernel.name}': Loopy generates {what} as if all numbers were signed,"
                    f" which unsigned numbers make wrong: {', '.join(wrong)}; declare np.int32, or"
                    " np.int64, instead"
                )


def _has_unsigned(t_unit: Any) -> bool:
    return any(
        _stays_unsigned(type_of(kernel, variable.name))
        for kernel in kernels_of(t_unit).values()
        for variable in _variables_of(kernel)
    )


def _stays_unsigned(dtype: np.dtype[Any]) -> bool:
    """Return whether C leaves a type unsigned; it computes with ``int`` for narrower ones."""
    return dtype.kind == "u" and dtype.itemsize >= np.dtype(np.int32).itemsize


def _is_natural(kernel: Any, expr: Any) -> bool:
    """Return whether an expression of unsigned numbers and sizes never goes below zero."""
    match expr:
        case p.Variable(name=name) | p.Subscript(aggregate=p.Variable(name=name)):
            return type_of(kernel, name).kind in "bu" or name in kernel.all_params()
        case p.Sum() | p.Product() | p.Min() | p.BitwiseAnd() | p.BitwiseOr() | p.BitwiseXor():
            return all(_is_natural(kernel, part) for part in expr.children)
        case p.FloorDiv() | p.Quotient() | p.Remainder():
            return all(_is_natural(kernel, part) for part in (expr.numerator, expr.denominator))
        case _:
            return isinstance(expr, int | float | np.number) and bool(expr >= 0)
