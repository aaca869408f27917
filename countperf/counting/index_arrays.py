"""Elements of index arrays that are not given: limits with which no subscript leaves its array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from loopy.symbolic import get_dependencies, simplify_via_aff
from numpy.typing import NDArray
from pymbolic import evaluate
from pymbolic.primitives import Subscript, Variable

from countperf.counting import extents
from countperf.counting.automatic import offset_of
from countperf.counting.expression_types import type_of
from countperf.errors import CountingError
from countperf.symbolic import sets
from countperf.symbolic.quasipolynomial import QuasiPolynomial
from countperf.symbolic.sets import extremes

_ROUNDS = 200
_SOME_ROW = (3, 10)  # the elements around a row, by which it is told from other loops


def ranges_of(contents: Mapping[str, NDArray[Any]]) -> dict[str, extents.Interval]:
    """Return the smallest and largest element of each integer array; of an empty one, 0 and -1."""
    return {
        name: (int(array.min()), int(array.max())) if array.size else (0, -1)
        for name, array in contents.items()
        if array.dtype.kind in "iu"
    }


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Range of the elements of an integer array."""

    # smallest and largest value
    low: int
    high: int
    bounds_loops: bool  # whether elements bound loops: they should not fall, then
    rows: str = ""  # loop from an element to the one behind it, as over rows of CSR; else empty


def index_limits(
    kernel: Any,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    contents: Mapping[str, NDArray[Any]],
) -> dict[str, IndexLimits]:
    """Find limits of the elements of arrays that are not given, with which no subscript leaves.

    They are lowered until the ends of each subscript fit.
    """
    all_shapes = {**shapes_of_temporaries(kernel, sizes), **shapes}
    missing = {arg.name for arg in kernel.args if hasattr(arg, "dim_tags")} - {*contents}
    integers = (name for name in missing if type_of(kernel, name).kind in "iu")
    ranges = {**dict.fromkeys(integers, (0, 0)), **ranges_of(contents)}
    data = extents.Subscripts(kernel, sizes, ranges)
    waiting: list[tuple[extents.ArrayAccess, Any, int, set[str]]] = []
    loop_arrays: set[str] = set()
    for access in extents.accesses_of(kernel):
        shape = all_shapes.get(access.array, ())
        if access.is_flat or len(access.index) != len(shape):
            continue
        for index, extent in zip(access.index, shape, strict=True):
            try:
                _, region = data.follow(access, [index])
            except extents.REFUSALS as error:
                if names_behind(kernel, [index]) & missing:
                    raise CountingError(
                        f"{access.text} has a subscript that is computed"
                    ) from error
                continue  # nothing that is made up decides it
            loop_arrays |= region.loop_arrays
            if sources := region.deciding & missing:
                waiting.append((access, index, extent, sources))
    for _, _, extent, sources in waiting:
        ranges |= {name: (0, max(extent, ranges[name][1])) for name in sources}
    for _ in range(_ROUNDS):
        if not [subscript for subscript in waiting if _adapt(data, ranges, *subscript)]:
            break
    else:
        raise CountingError(f"{waiting[0][0].text}: no elements keep its subscript in the array")
    rows = _find_rows(data)
    return {
        name: IndexLimits(*ranges[name], name in loop_arrays, rows.get(name, ""))
        for name in {name: None for *_, sources in waiting for name in sorted(sources)}
    }


def _adapt(
    data: extents.Subscripts,
    ranges: dict[str, extents.Interval],
    access: extents.ArrayAccess,
    index: Any,
    extent: int,
    sources: set[str],
) -> bool:
    """Change ranges of elements if a subscript may lie outside; return whether it may."""
    ends, _ = data.follow(access, [index])
    if extents.is_inside(ends, extent):
        return False
    ((low, high),) = ends
    for name in sorted(sources):
        first, last = ranges[name]
        if low < 0:
            first += 1
        if high >= extent:
            last = min(last - 1, max(first, (last * extent) // (high + 1)))
        if first > last:
            raise CountingError(
                f"{access.text}: its subscript goes from {low} to {high}, and its axis up to"
                f" {extent - 1}, whatever the elements of {name!r} are"
            )
        ranges[name] = first, last
    return True


def _find_rows(subscripts: extents.Subscripts) -> dict[str, str]:
    """Return the loops that go from an element of an array to the next one, by the array."""
    rows: dict[str, str] = {}
    kernel = subscripts.kernel
    data = extents.Subscripts(
        kernel, subscripts.sizes, dict.fromkeys(subscripts.ranges or (), _SOME_ROW)
    )
    inames = kernel.all_inames()
    for iname in sorted(inames, reverse=True):
        with suppress(*extents.REFUSALS):
            region = extents.Region(data, frozenset([iname]), "", around=frozenset(inames))
            for first, last in permutations(region.elements, 2):
                row = zip((first, last), _SOME_ROW, strict=True)
                places = [region.elements[element] - place for element, place in row]
                points = sets.restrict(region.points, zero=places)
                ends = extremes(points, [QuasiPolynomial.name(iname)])
                length = 0 if ends is None else ends[0][1] - ends[0][0] + 1
                if _follows(first, last) and length == _SOME_ROW[1] - _SOME_ROW[0]:
                    rows[first.aggregate.name] = iname
    return rows


def _follows(element: Subscript, other: Subscript) -> bool:
    """Return whether another element is the next one of the same array of one axis."""
    if element.aggregate != other.aggregate or len(element.index_tuple) != 1:
        return False
    one: Any = element.index_tuple[0]
    following: Any = other.index_tuple[0]
    return simplify_via_aff(following - one) == 1


def shapes_of_temporaries(kernel: Any, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that a kernel allocates itself, at some sizes."""
    return {
        name: tuple(int(evaluate(extent, dict(sizes))) for extent in variable.shape)
        for name, variable in kernel.temporary_variables.items()
        if isinstance(variable.shape, tuple)
    }


def size_arguments(kernel: Any) -> frozenset[str]:
    """Return the scalar arguments that decide loops, shapes, conditions or subscripts."""
    deciding: list[Any] = [Variable(name) for name in kernel.all_params()]
    for variable in [*kernel.args, *kernel.temporary_variables.values()]:
        deciding += [extent or 0 for extent in getattr(variable, "shape", None) or ()]
        deciding += [getattr(tag, "stride", 0) for tag in getattr(variable, "dim_tags", None) or ()]
        deciding.append(offset_of(variable))
    for access in extents.accesses_of(kernel):
        deciding += [*access.index, *(condition for condition, _ in access.conditions)]
    return frozenset(names_behind(kernel, deciding) & {*kernel.arg_dict})


def names_behind(kernel: Any, expressions: Iterable[Any]) -> set[str]:
    """Return the names in expressions, and in what is written to the kernel's own variables."""
    waiting = {name for expression in expressions for name in get_dependencies(expression)}
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        names.add(name)
        if name in kernel.temporary_variables:
            for writer in kernel.writer_map().get(name, ()):
                written = getattr(kernel.id_to_insn[writer], "expression", 0)
                waiting |= get_dependencies(written) - names
    return names
