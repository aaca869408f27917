"""Nests loops over copies (``ilp``), and lays out what they keep, in a fixed order.

Loopy goes through the names of such loops as a set has them, so that each process may nest them in
another order, whatever priorities they have, and put the axes of their private arrays in another:
what is counted here is not what runs there. Here, and wherever we generate code, the order is that
of their priorities, then of their names, outermost first. What Loopy's caches remember of other
processes is not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import loopy as lp
import loopy.preprocess
import loopy.schedule
from loopy.diagnostic import LoopyError
from loopy.kernel.data import IlpBaseTag, VectorizeTag
from loopy.kernel.function_interface import CallableKernel

from countperf.counting.element_types import with_half
from countperf.counting.unattended import shared_by_threads, unattended, without_disk_caches

_NOTHING = re.compile(r"(\s|;|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""C code without an effect: spaces, semicolons and comments."""


def generated(t_unit: Any) -> Any:
    """Return the code that Loopy generates for a translation unit, without asking at a terminal."""
    with unattended():
        try:
            return lp.generate_code_v2(with_half(in_fixed_order(without_empty_code(t_unit))))
        except (AttributeError, AssertionError, KeyError, NotImplementedError, TypeError) as error:
            said = f"{type(error).__name__}: {error}"
            raise LoopyError(f"Loopy generates no code for this kernel: {said}") from error


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
    with _ordering(t_unit.default_entrypoint):
        return lp.preprocess_program(t_unit)


def linearized(t_unit: Any) -> Any:
    """Return the only entry point of a preprocessed translation unit, scheduled by Loopy."""
    kernel = t_unit.default_entrypoint
    with _ordering(kernel):
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
    places = {n: place for priority in kernel.loop_priority for place, n in enumerate(priority)}
    return sorted(names, key=lambda name: (places.get(name, len(places)), name))


class _Ordered(set[str]):
    """A set that is gone through in order."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(names)
        self._names = names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


@shared_by_threads
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
