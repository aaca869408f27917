"""Callees: kernels that a kernel calls. They are inlined, so that they count per call."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

import loopy as lp
import pymbolic.primitives as p
from loopy.kernel.function_interface import CallableKernel
from pytools import UniqueNameGenerator

from countperf.counting.expression_types import list_nodes, text_of
from countperf.counting.frontend.loopy_patches import replace_domain_substitution
from countperf.errors import CountingError
from countperf.symbolic.kernel_sets import replace_parameter, with_assumptions_on_arguments


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
    """Return a callee without substitution rules, and with names of its own for its sizes.

    Inlining would lose the rules, and take sizes for the caller's of the same names.
    """
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
