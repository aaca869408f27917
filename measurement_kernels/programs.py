"""Kernels written as formulas, and shapes that say how a device runs them.

A `Program` says what is computed, in loops over whole arrays; NumPy evaluates the same formulas, so
that every program has its reference. A `Shape` says which work items compute it: how loops are
divided, blocked and unrolled, and what is fetched into local memory. Results do not depend on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from typing import Any

import loopy as lp
import numpy as np
from loopy import TranslationUnit
from numpy.typing import NDArray
from pymbolic import parse
from pymbolic.mapper.evaluator import EvaluationMapper
from pymbolic.primitives import If

from countperf.measuring import Purpose
from measurement_kernels.arguments import (
    ELEMENT_TYPES,
    Argument,
    ArrayArgument,
    SizeParameter,
    Sizes,
)
from measurement_kernels.entry import INDEX_LIMIT, CatalogEntry, Collection, StatisticBySize
from measurement_kernels.groups import GroupShape, round_up
from measurement_kernels.units import in_order, make_unit, prefetch, split_to_items, tag_blocks

_MOST_EXPONENTS = 8


@dataclass(frozen=True, slots=True)
class Formula:
    """An array assigned throughout: ``target = result``, with sums over loops in it."""

    target: str  # array with its indices, ``c[i, j]``
    # terms that are summed over the loops `summed`, each in an accumulator of its own
    terms: tuple[str, ...]
    result: str = "{0}"  # the value, in which ``{0}``, ``{1}`` are the sums
    summed: tuple[str, ...] = ()  # loops of the sums

    def instructions(self, loops: tuple[str, ...], element_type: str) -> str:
        """Return the formula as Loopy instructions."""
        del loops, element_type
        over = f"({', '.join(self.summed)})" if len(self.summed) > 1 else "".join(self.summed)
        terms = [f"sum({over}, {term})" if over else f"({term})" for term in self.terms]
        return f"{self.target} = {self.result.format(*terms)}"

    def evaluate(self, loops: tuple[str, ...], values: Mapping[str, Any]) -> Any:
        """Compute the value on the grid of all loops; summed loops keep one point."""
        extents = np.broadcast_shapes(*(values[loop].shape for loop in loops))
        axes = tuple(loops.index(loop) for loop in self.summed)
        totals: dict[str, Any] = {}
        for position, term in enumerate(self.terms):
            grid = _evaluated(term, values)
            if axes:
                grid = np.broadcast_to(grid, extents).sum(axis=axes, keepdims=True)
            totals[f"total{position}"] = grid
        return _evaluated(self.result.format(*totals), {**values, **totals})


@dataclass(frozen=True, slots=True)
class Recurrence:
    """An array assigned from states that a loop updates; states do not depend on each other."""

    target: str  # array with its indices
    states: tuple[tuple[str, str], ...]
    loop: str  # the loop
    result: str  # the value, in terms of the states
    _: KW_ONLY
    state_type: str = ""  # type of the states as Loopy calls it, ``int32``
    parts: tuple[tuple[str, str], ...] = ()

    def instructions(self, loops: tuple[str, ...], element_type: str) -> str:
        """Return the recurrence as Loopy instructions."""
        dtype = self.state_type or ELEMENT_TYPES[element_type]
        around = ", ".join(loop for loop in loops if loop != self.loop)
        begin = [
            f"<{dtype}> s{q} = {start} {{id=begin{q}}}" for q, (start, _) in enumerate(self.states)
        ]
        stored = [
            f"<{dtype}> {name} = {text} {{id=part{q}, dep={_numbered_ids('part', q)}}}"
            for q, (name, text) in enumerate(self.parts)
        ]
        used = f":{_numbered_ids('part', len(self.parts))}" if self.parts else ""
        steps = [
            f"s{q} = {update} {{id=step{q}, dep=begin{q}{used}}}"
            for q, (_, update) in enumerate(self.states)
        ]
        done = _numbered_ids("step", len(self.states))
        inner = [f"for {self.loop}", *stored, *steps, "end"]
        last = f"{self.target} = {self.result} {{dep={done}}}"
        return "\n".join([f"for {around}", *begin, *inner, last, "end"])

    def evaluate(self, loops: tuple[str, ...], values: Mapping[str, Any]) -> Any:
        """Compute the value on the grid of all loops but the recurrence's own."""
        del loops
        known = dict(values)
        known.update({f"s{q}": _evaluated(start, known) for q, (start, _) in self._numbered()})
        for step in range(values[self.loop].size):
            known[self.loop] = step
            for name, text in self.parts:
                known[name] = _evaluated(text, known)
            for q, (_, update) in self._numbered():
                known[f"s{q}"] = _evaluated(update, known)
        return _evaluated(self.result, known)

    def _numbered(self) -> list[tuple[int, tuple[str, str]]]:
        return list(enumerate(self.states))


@dataclass(frozen=True, slots=True)
class Program:
    """A computation as formulas in loops over arrays."""

    name: str  # a C identifier
    # loops from zero, each with its extent: a size parameter or a number
    loops: tuple[tuple[str, str | int], ...]
    formulas: tuple[Formula | Recurrence, ...]  # assignments
    sizes: tuple[SizeParameter, ...]  # the kernel's parameters
    arguments: tuple[Argument, ...]  # the kernel's other arguments
    element_type: str = "f32"  # type of the arrays

    @property
    def loop_names(self) -> tuple[str, ...]:
        """Names of the loops in order."""
        return tuple(name for name, _ in self.loops)

    def unit(self) -> TranslationUnit:
        """Return the kernel before it has a shape."""
        bounds = " and ".join(f"0 <= {name} < {extent}" for name, extent in self.loops)
        return make_unit(
            self.name,
            domain=f"{{ [{', '.join(self.loop_names)}]: {bounds} }}",
            instructions="\n".join(
                formula.instructions(self.loop_names, self.element_type)
                for formula in self.formulas
            ),
            sizes=self.sizes,
            arguments=self.arguments,
            element_type=self.element_type,
        )

    def expected(self, arguments: Mapping[str, Any], parameters: Sizes) -> dict[str, NDArray[Any]]:
        """Evaluate the formulas with NumPy, in f64."""
        extents = [
            extent if isinstance(extent, int) else parameters[extent] for _, extent in self.loops
        ]
        grid = np.ogrid[*(slice(0, extent) for extent in extents)]
        values: dict[str, Any] = {
            **dict(zip(self.loop_names, grid, strict=True)),
            **{name: _in_f64(given) for name, given in arguments.items()},
            **parameters,
            **_FUNCTIONS,
        }
        results: dict[str, NDArray[Any]] = {}
        for formula in self.formulas:
            array, _, indices = formula.target.partition("[")
            place = _evaluated(f"({indices.removesuffix(']')},)", values)
            if array not in results:
                results[array] = np.array(self._before(array, arguments, parameters))
            results[array][place] = formula.evaluate(self.loop_names, values)
        return results

    def _before(self, array: str, arguments: Mapping[str, Any], parameters: Sizes) -> NDArray[Any]:
        if array in arguments:
            return np.asarray(arguments[array], "float64")
        arrays = {a.name: a for a in self.arguments if isinstance(a, ArrayArgument)}
        return np.zeros(arrays[array].shape_at(parameters))


@dataclass(frozen=True, slots=True)
class Divided:
    """A loop divided among work groups and their items along an axis of the NDRange."""

    loop: str  # the loop
    axis: int  # axis of the NDRange
    items: int  # items per group, and iterations per item, which are `items` iterations apart
    each: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A loop of each item split into pieces: ``<loop>_step`` around ``<loop>_in``."""

    loop: str
    length: int
    unrolled: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """A tile that a group fetches into local memory."""

    array: str  # the array
    sweep: tuple[str, ...]  # loops whose footprint is fetched
    within: tuple[str, ...]  # loops around the fetch
    # for each axis of the array the local axis along which it is fetched
    axes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A mapping of a program's loops to work items, with tiles, blocks and unrolling."""

    divided: tuple[Divided, ...]  # loops over groups and items
    _: KW_ONLY
    # tag of the loops over an item's own iterations: ``for``, ``unr``, ``ilp``, ``ilp.seq``
    block: str = "for"
    # loops over groups alone, along the axes behind those of `divided`
    groups: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()  # loops split into pieces
    unrolled: tuple[str, ...] = ()  # loops of constant length that are unrolled
    fetches: tuple[Fetch, ...] = ()  # tiles in local memory
    priority: str = ""  # order of loops, outermost first

    @property
    def group_shape(self) -> GroupShape:
        """Work items per group along axes 0 and 1."""
        items = {each.axis: each.items for each in self.divided}
        return items.get(0, 1), items.get(1, 1)


def along(
    loops: str,
    items: tuple[int, ...],
    each: tuple[int, ...] = (1, 1),
    *,
    first_axis: int | None = None,
) -> tuple[Divided, ...]:
    """Divide one or two loops among work items."""
    first = len(loops) - 1 if first_axis is None else first_axis
    return tuple(
        Divided(loop, axis, number, own)
        for loop, axis, number, own in zip(loops, (first, 1 - first), items, each, strict=False)
    )


@cache
def build(program: Program, shape: Shape) -> TranslationUnit:
    """Build a program in a shape, or return the unit built before."""
    unit = program.unit()
    for each in shape.divided:
        unit = split_to_items(unit, each.loop, axis=each.axis, items=each.items, each=each.each)
    own = [f"{each.loop}_each" for each in shape.divided]
    unit = in_order(unit, own)
    unit = tag_blocks(unit, shape.block, own)
    free = 1 + max(each.axis for each in shape.divided)
    unit = lp.tag_inames(unit, {loop: f"g.{free + p}" for p, loop in enumerate(shape.groups)})
    for step in shape.steps:
        unit = lp.split_iname(
            unit,
            step.loop,
            step.length,
            outer_iname=f"{step.loop}_step",
            inner_iname=f"{step.loop}_in",
            inner_tag="unr" if step.unrolled else None,
        )
        unit = lp.prioritize_loops(unit, f"{step.loop}_step,{step.loop}_in")
    unit = lp.tag_inames(unit, dict.fromkeys(shape.unrolled, "unr"))
    for fetch in shape.fetches:
        axes = {f"{fetch.array}_{position}": axis for position, axis in enumerate(fetch.axes)}
        unit = prefetch(unit, fetch.array, fetch.sweep, fetch.within, axes, shape.group_shape)
    return lp.prioritize_loops(unit, shape.priority) if shape.priority else unit


def program_entry(
    program: Program,
    shape: Shape | GroupShape,
    family: str,
    variant: str,
    exponent_steps: tuple[int, ...],
    *,
    collection: Collection = "extended",
    purpose: Purpose = "measurement",
    builder: Callable[[], TranslationUnit] | None = None,
    statistics: Mapping[str, StatisticBySize] | None = None,
) -> CatalogEntry:
    """Return the entry of a program in a shape."""
    return CatalogEntry(
        family=family,
        variant=variant,
        group_shape=shape.group_shape if isinstance(shape, Shape) else shape,
        element_type=program.element_type,
        collection=collection,
        purpose=purpose,
        exponents=range(_exponents(program, exponent_steps[-1])),
        exponent_steps=exponent_steps,
        sizes=program.sizes,
        arguments=program.arguments,
        check_parameters=_check_sizes(program),
        builder=builder or partial(build, program, shape),
        expected=program.expected,
        statistics=statistics or {},
    )


def _exponents(program: Program, last_step: int) -> int:
    """Count the exponents up to which every array can be indexed."""
    arrays = [each for each in program.arguments if isinstance(each, ArrayArgument)]

    def is_beyond(exponent: int) -> bool:
        sizes = {size.name: size.at(exponent + last_step) for size in program.sizes}
        return any(array.elements(sizes) >= INDEX_LIMIT for array in arrays)

    return bisect_left(range(_MOST_EXPONENTS), True, key=is_beyond)


def _check_sizes(program: Program) -> dict[str, int]:
    """Return small sizes: two multiples along the first axis, three along the second, and so on."""
    sizes: dict[str, int] = {}
    for position, size in enumerate(program.sizes):
        wanted = max((2 + position) * size.multiple, 5 + position)
        rounded = round_up(wanted, size.multiple)
        sizes[size.name] = rounded if size.fixed is None else min(rounded, size.fixed)
    return sizes


def _numbered_ids(name: str, number: int) -> str:
    return ":".join(f"{name}{q}" for q in range(number))


def _in_f64(given: Any) -> Any:
    """Return numbers in f64, and indices as they are."""
    array = np.asarray(given)
    return array if array.dtype.kind == "i" else array.astype("float64")


class _OnArrays(EvaluationMapper[Any]):
    """Evaluator of expressions in which each element has its own condition."""

    def map_if(self, expr: If) -> Any:
        return np.where(self.rec(expr.condition), self.rec(expr.then), self.rec(expr.else_))


def _evaluated(text: str, values: Mapping[str, Any]) -> Any:
    return _OnArrays(dict(values))(_parsed(text))


@cache
def _parsed(text: str) -> Any:
    return parse(text)


_FUNCTIONS: dict[str, Any] = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "fabs": np.abs,
    "fmin": np.minimum,
    "fmax": np.maximum,
    "sin": np.sin,
    "cos": np.cos,
    "log": np.log,
    "tanh": np.tanh,
}
