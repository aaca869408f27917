"""Memory accesses: addresses, layouts of arrays, utilization.

The *utilization ratio* of an access is the number of cells that the kernel accesses in that
direction, over the number of those cells each widened by the stride - 1 cells after it (Stevens &
Klöckner 2016, section 2.1: the gaps along axis 0 filled in).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import loopy as lp
from loopy.kernel.array import (
    ArrayBase,
    FixedStrideArrayDimTag,
    SeparateArrayArrayDimTag,
    VectorArrayDimTag,
)
from loopy.symbolic import WalkMapper, get_dependencies
from pymbolic import parse
from pymbolic.primitives import Variable
from pytools.tag import Tag

from countperf.counting.expression_types import text_of
from countperf.counting.keys import MemoryAccess
from countperf.errors import CountingError, UnsupportedExpressionError
from countperf.symbolic import isl_sets, sets
from countperf.symbolic.affine import NotAffineError, exact_quotient, try_affine
from countperf.symbolic.cardinality import Counter
from countperf.symbolic.piecewise import PiecewiseQuasiPolynomial
from countperf.symbolic.quasipolynomial import ONE, ZERO, Atom, QuasiPolynomial
from countperf.text import ShortRepr

_SEPARATE_ELEMENTS = 2**40  # assumed distance of separate arrays: beyond the end of any of them


@dataclass(frozen=True, slots=True)
class Layout(ShortRepr):
    """Layout of an array in memory."""

    strides: tuple[QuasiPolynomial, ...]  # distance in elements between neighbors along each axis
    shape: tuple[QuasiPolynomial | None, ...]  # extent of each axis, None where it is not known
    # axes along which each index has an array of its own; their strides only keep these apart
    separate: tuple[int, ...] = ()
    assumed: str = ""  # what is assumed of the strides; empty if they are known

    @property
    def is_numeric(self) -> bool:
        """True if all strides are numbers, so that flattened addresses are affine."""
        return all(s.is_constant for s in self.strides)

    def compact_order(self) -> tuple[int, ...] | None:
        """Return the axes, slowest first, if each stride is the product of faster extents."""
        remaining = [k for k in range(len(self.strides)) if k not in self.separate]
        order: list[int] = []
        expected: QuasiPolynomial | None = ONE
        while remaining:
            axis = next((k for k in remaining if self.strides[k] == expected), None)
            if axis is None or expected is None:
                return None
            remaining.remove(axis)
            order.insert(0, axis)
            extent = self.shape[axis]
            expected = None if extent is None else expected * extent
        return tuple(order)

    def nest_axes(self) -> tuple[tuple[int, ...], tuple[QuasiPolynomial | None, ...]] | None:
        """Return the axes, slowest first, and how many elements with padding each counts up to."""
        order = self.compact_order()
        if order is not None:
            return order, tuple(self.shape[axis] for axis in order)
        remaining = [k for k in range(len(self.strides)) if k not in self.separate]
        axes: list[int] = []
        extents: list[QuasiPolynomial | None] = []
        below = ONE
        while remaining:
            ratios = {axis: exact_quotient(self.strides[axis], below) for axis in remaining}
            # the axis whose stride divides those of all others
            shares = {
                k: [exact_quotient(self.strides[j], self.strides[k]) for j in remaining]
                for k in remaining
            }
            axis = next((k for k, quotients in shares.items() if None not in quotients), None)
            if None in ratios.values() or axis is None or (not axes and self.strides[axis] != ONE):
                return None
            if axes:
                extents.insert(0, ratios[axis])
            axes.insert(0, axis)
            remaining.remove(axis)
            below = self.strides[axis]
        return tuple(axes), (self.shape[axes[0]] if axes else None, *extents)


def layout_of(
    kernel: Any, array: Any, to_polynomial: Callable[[Any], QuasiPolynomial], component_of: int = 0
) -> Layout:
    """Return the layout of an array of a kernel."""
    if not array.dim_tags:  # scalars, and arrays of unknown shape, which have one axis
        is_scalar = array.shape == ()
        return Layout(strides=(), shape=()) if is_scalar else Layout(strides=(ONE,), shape=(None,))
    name = f"kernel '{kernel.name}', array '{array.name}'"
    strides: list[QuasiPolynomial] = []
    vectors: list[int] = []
    separate: list[int] = []
    for axis, tag in enumerate(array.dim_tags):
        if isinstance(tag, VectorArrayDimTag):
            vectors.append(axis)
            strides.append(ONE)
        elif isinstance(tag, SeparateArrayArrayDimTag):
            separate.append(axis)
            strides.append(QuasiPolynomial.constant(_SEPARATE_ELEMENTS))
        elif isinstance(tag, FixedStrideArrayDimTag):
            try:
                strides.append(to_polynomial(tag.stride))
            except NotAffineError as error:
                raise UnsupportedExpressionError(
                    f"{name}: the stride {tag.stride} of axis {axis} is no polynomial of the sizes;"
                    " declare the array's shape or order"
                ) from error
        else:
            raise UnsupportedExpressionError(
                f"{name}: axis {axis} is tagged {tag}; only strided axes, separate arrays and "
                "vectors have a counting rule"
            )
    extents = array.shape if isinstance(array.shape, tuple) else (None,) * len(strides)
    shape: list[QuasiPolynomial | None] = [
        None if extent is None else try_affine(to_polynomial, extent) for extent in extents
    ]
    number = 1
    for axis in reversed(separate):
        strides[axis] = strides[axis] * number
        number *= int(array.shape[axis])
    if vectors and separate:
        raise UnsupportedExpressionError(
            f"{name}: no counting rule for separate arrays of vectors; give it separate axes or a "
            "vector axis, not both"
        )
    if vectors and not component_of:
        width = components_in_memory(int(array.shape[vectors[0]]))
        strides = [s.floor_divide(width) for k, s in enumerate(strides) if k not in vectors]
        shape = [extent for k, extent in enumerate(shape) if k not in vectors]
    elif component_of and not vectors:
        strides = [stride * component_of for stride in strides] + [ONE]
        shape.append(QuasiPolynomial.constant(component_of))
    return Layout(tuple(strides), tuple(shape), tuple(separate), describe_assumed_order(array))


def components_in_memory(width: int) -> int:
    """Return how many components an element of vectors takes: OpenCL's of three take four."""
    return 4 if width == 3 else width


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(ShortRepr):
    """The subscript of an access as quasi-polynomials."""

    index: tuple[QuasiPolynomial, ...]  # one for each axis; a single one for a flattened subscript
    strides: tuple[QuasiPolynomial, ...]  # one for each index, elements
    is_flattened: bool = False  # whether `index` is the flattened subscript

    @property
    def flat(self) -> QuasiPolynomial:
        """Offset from the start of the array in elements."""
        return self.flatten_subscript(self.index)

    def flatten_subscript(self, index: Sequence[QuasiPolynomial]) -> QuasiPolynomial:
        """Return the offset of a subscript, or of a difference of two, in elements."""
        return sum((part * s for part, s in zip(index, self.strides, strict=True) if part), ZERO)

    @property
    def has_quotients(self) -> bool:
        """True if an index has floors of quotients by size parameters."""
        return any(not floor.denominator for part in self.index for floor in part.floors())

    @property
    def has_products(self) -> bool:
        """True if an index is not affine, floors of quotients aside."""
        quotients: dict[Atom, QuasiPolynomial] = {
            floor: ZERO for p in self.index for floor in p.floors() if not floor.denominator
        }
        return any(
            not part.map_atoms(quotients.get).is_affine for part in self.index if not part.is_affine
        )

    def as_flat(self) -> Address:
        """Return the flattened address."""
        return Address(index=(self.flat,), strides=(ONE,), is_flattened=True)

    def simplify(self) -> Address:
        """Return the flattened address instead if floors of quotients cancel in it."""
        if not self.has_quotients:
            return self
        flat = self.as_flat()
        return self if flat.has_quotients else flat

    def with_values(self, values: Mapping[str, QuasiPolynomial]) -> Address:
        """Return the same address with loop variables replaced by what they equal."""
        if not values:
            return self
        return replace(self, index=tuple(part.substitute(values) for part in self.index))


def address_of(
    access: MemoryAccess, layout: Layout, to_polynomial: Callable[[Any], QuasiPolynomial]
) -> Address | None:
    """Return the address of an access; None if it is none that can be written."""
    try:
        if len(access.index) == 1 and type(access.index[0]).__name__ == "LinearSubscript":
            flat = to_polynomial(access.index[0].index)
            return Address(index=(flat,), strides=(ONE,), is_flattened=True)
        index = tuple(to_polynomial(part) for part in access.index)
    except NotAffineError:
        return None
    return Address(index=index, strides=layout.strides)


def step_along(
    expression: QuasiPolynomial, name: str, bounds: isl_sets.Bounds
) -> QuasiPolynomial | None:
    """Return the change of an expression from one value of a name to the next."""
    is_linear = expression.is_linear
    resolved = expression if is_linear else sets.resolve_floors(expression, bounds)
    if is_linear or resolved.is_linear:
        return QuasiPolynomial.constant(resolved.terms.get(((name, 1),), 0))
    step = resolved.substitute({name: QuasiPolynomial.name(name) + 1}) - resolved
    return None if any(other in bounds for other in step.names()) else step


@dataclass(frozen=True, slots=True)
class UtilizationClass:
    """A class of accesses to global memory and where it applies."""

    name: str  # ``uniform``, ``stride1``, ``2of3``, ``4ofn``, ``indirect``
    # guards on the parameters under which the class applies
    nonnegative: frozenset[QuasiPolynomial] = frozenset()
    zero: frozenset[QuasiPolynomial] = frozenset()
    approximations: frozenset[str] = frozenset()  # why the class is not exact; empty if it is


def utilization_classes(
    stride: int | None,
    accessed: PiecewiseQuasiPolynomial,
    widened: PiecewiseQuasiPolynomial,
    counter: Counter,
) -> tuple[UtilizationClass, ...]:
    """Quantize a utilization ratio upward, where it depends on parameters piece by piece."""
    parts, suffix = _parts_of(stride)
    approximations = accessed.approximations | widened.approximations
    classes: list[UtilizationClass] = []
    for guards, zeros, (a, b) in counter.regions([accessed, widened]):
        undecided = guards
        for used in range(1, parts + 1):
            fits = b * used - a * parts  # ratio a/b <= used/parts
            is_decided = used == parts or counter.is_nonnegative(fits, undecided)
            if not is_decided and counter.is_nonnegative(-fits - 1, undecided):
                continue
            where = undecided if is_decided else undecided | {fits}
            if not counter.is_empty(where, zeros):
                classes.append(UtilizationClass(f"{used}of{suffix}", where, zeros, approximations))
            if is_decided:
                break
            undecided = undecided | {-fits - 1}
    names = {c.name for c in classes}
    if len(names) == 1:  # outside the parts nothing is accessed, and nothing counts
        return (UtilizationClass(name=names.pop(), approximations=approximations),)
    return tuple(classes)


def class_without_neighbors(stride: int | None, reason: str) -> UtilizationClass:
    """Return the class of an access as if no other touched the array: one element per stride."""
    _, suffix = _parts_of(stride)
    return UtilizationClass(name=f"1of{suffix}", approximations=frozenset([reason]))


def _parts_of(stride: int | None) -> tuple[int, str]:
    """Return into how many parts a stride's classes divide, and how their names end."""
    if stride is not None and stride <= 4:
        return stride, str(stride)
    return 4, "n"


# --- Accesses as they are written in instructions

Conditions = tuple[tuple[Any, bool], ...]  # expressions that must hold, or must not


@dataclass(frozen=True, slots=True)
class ArrayAccess:
    """An access to an array, as it is written in a preprocessed kernel."""

    array: str
    direction: str  # ``load`` or ``store``
    index: tuple[Any, ...]  # one for each axis
    is_flat: bool  # whether `index` is one subscript of the memory instead, without the offset
    instruction: str  # its id
    within: frozenset[str]  # loop variables around it
    conditions: Conditions  # what must hold where it is executed, or must not

    @property
    def text(self) -> str:
        """The access in words: ``store b[i]``."""
        return f"{self.direction} {self.array}[{', '.join(map(text_of, self.index))}]"

    def has_axes_of(self, shape: Sequence[int]) -> bool:
        """Return whether it has a subscript for each axis of a shape."""
        return not self.is_flat and len(self.index) == len(shape)


def accesses_of(kernel: Any, opaque: set[str] | None = None) -> list[ArrayAccess]:
    """Return the accesses of a preprocessed kernel, those of equal text once."""
    accesses: dict[ArrayAccess, None] = {}
    for instruction in kernel.instructions:
        try:
            _Accesses(instruction, accesses).collect()
        except CountingError:
            if opaque is not None:
                opaque |= set(instruction.dependency_names())
    return list(accesses)


class SideWalker(WalkMapper[[]]):
    """Walks through expressions, and knows the conditions under which each part is evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.conditions: Conditions = ()

    def map_if(self, expr: Any) -> None:
        """Go through both sides with the condition, or its opposite."""
        self.rec(expr.condition)
        outer = self.conditions
        for side, holds in ((expr.then, True), (expr.else_, False)):
            self.conditions = (*outer, (expr.condition, holds))
            self.rec(side)
        self.conditions = outer


class _Accesses(SideWalker):
    """Collects the accesses of an instruction, each with the conditions around it."""

    def __init__(self, instruction: Any, accesses: dict[ArrayAccess, None]) -> None:
        super().__init__()
        self._instruction = instruction
        self._accesses = accesses
        self._targets: tuple[Any, ...] = ()

    def collect(self) -> None:
        """Walk through predicates, subscripts, the right-hand side and the stores."""
        instruction = self._instruction
        predicates = sorted(instruction.predicates, key=str)
        self.rec(tuple(predicates))
        if isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction):
            return
        if not isinstance(instruction, lp.MultiAssignmentBase):
            raise CountingError(f"instruction {instruction.id!r} is not written in expressions")
        self.conditions = tuple((test, True) for test in predicates)
        self.rec(instruction.expression)
        self._targets = instruction.assignees
        self.rec(self._targets)

    def _note(self, expr: Any, array: str, index: tuple[Any, ...], *, is_flat: bool) -> None:
        direction = "store" if any(expr is target for target in self._targets) else "load"
        place = (self._instruction.id, self._instruction.within_inames, self.conditions)
        self._accesses[ArrayAccess(array, direction, index, is_flat, *place)] = None
        self.rec(index)

    def map_subscript(self, expr: Any) -> None:
        self._note(expr, expr.aggregate.name, expr.index_tuple, is_flat=False)

    def map_linear_subscript(self, expr: Any) -> None:
        self._note(expr, expr.aggregate.name, (expr.index,), is_flat=True)

    def map_variable(self, expr: Any) -> None:
        self._note(expr, expr.name, (), is_flat=False)

    def map_sub_array_ref(self, expr: Any) -> None:
        """Refuse: what is passed to a function that is not inlined cannot be followed."""
        raise CountingError(f"{expr} is passed to a function")


# --- Arguments that Loopy adds for automatic offsets and strides, 0 and C order by default


def offset_of(array: Any) -> Any:
    """Return the offset of an array as an expression; an automatic one without argument is 0."""
    offset = getattr(array, "offset", None)
    if offset is None or isinstance(offset, type):
        return 0
    return parse(offset) if isinstance(offset, str) else offset


def offset_parameters(kernel: Any) -> frozenset[str]:
    """Return the arguments of a kernel that occur in offsets of arrays and nowhere else."""
    arrays = [arg for arg in kernel.args if isinstance(arg, ArrayBase)]
    names = _names(offset_of(array) for array in arrays)
    if not names:
        return frozenset()
    names &= {arg.name for arg in kernel.args if not isinstance(arg, ArrayBase)}
    used = names_in_layouts([*arrays, *kernel.temporary_variables.values()])
    used |= _names(rule.expression for rule in kernel.substitutions.values())
    used |= kernel.all_params().union(*(i.dependency_names() for i in kernel.instructions))
    return frozenset(names - used)


def names_in_layouts(arrays: Iterable[Any]) -> set[str]:
    """Return the names in shapes and strides of arrays."""
    names: set[str] = set()
    for array in arrays:
        names |= _names(array.shape if isinstance(array.shape, tuple) else ())
        names |= _names(getattr(tag, "stride", None) for tag in array.dim_tags or ())
    return names


def _names(expressions: Iterable[Any]) -> set[str]:
    known = (e for e in expressions if e is not None and not isinstance(e, type))
    return set[str]().union(*map(get_dependencies, known))


def automatic_strides(array: Any) -> dict[str, int]:
    """Return the arguments that Loopy added for strides of an array: name, and axis."""
    strides = [getattr(tag, "stride", None) for tag in array.dim_tags or ()]
    return {
        stride.name: axis
        for axis, stride in enumerate(strides)
        if isinstance(stride, Variable)
        and re.fullmatch(rf"{re.escape(array.name)}_stride{axis}(?:_\d+)?", stride.name)
    }


def default_values(
    kernel: Any, to_polynomial: Callable[[Any], QuasiPolynomial]
) -> Mapping[str, QuasiPolynomial]:
    """Return what arguments are unless the caller says otherwise, in terms of the others."""
    defaults = dict.fromkeys(sorted(offset_parameters(kernel)), ZERO)
    for array in kernel.args:
        if not isinstance(array, ArrayBase):
            continue
        names = automatic_strides(array)
        if not names or not isinstance(array.shape, tuple) or len(names) < len(array.shape):
            continue
        step = ONE
        strides: dict[str, QuasiPolynomial] = {}
        with suppress(NotAffineError):
            for name, axis in sorted(names.items(), key=lambda item: -item[1]):
                strides[name] = step
                if axis:
                    step = step * to_polynomial(array.shape[axis])
            defaults |= strides
    return defaults


@dataclass(frozen=True)
class AssumedOrder(Tag):
    """Marks an array whose automatic strides were replaced by those of C order."""

    module: str = __name__  # for the keys of Loopy's cache on disk, which keeps it pickled


def with_strides(kernel: Any) -> Any:
    """Return a kernel whose arrays have no automatic strides left where the shape is known."""
    arguments = [_set_strides(argument) for argument in kernel.args]
    if all(new is old for new, old in zip(arguments, kernel.args, strict=True)):
        return kernel
    return kernel.copy(args=arguments)


def _set_strides(array: Any) -> Any:
    if not isinstance(array, ArrayBase) or not array.dim_tags or not isinstance(array.shape, tuple):
        return array
    shape: Any = array.shape
    if any(extent is None or extent is lp.auto for extent in shape):
        return array
    strided = [n for n, tag in enumerate(array.dim_tags) if hasattr(tag, "stride")]
    open_axes = [axis for axis in strided if array.dim_tags[axis].stride is lp.auto]
    if not open_axes or len(open_axes) < len(strided):
        return array
    tags = list(array.dim_tags)
    stride: Any = 1
    for axis in reversed(open_axes):
        tags[axis] = tags[axis].copy(stride=stride)
        stride = stride * shape[axis]
    return array.copy(dim_tags=tuple(tags)).tagged(AssumedOrder())


def describe_assumed_order(array: Any) -> str:
    """Return what is assumed of the strides of an array, in words; empty if they are its own."""
    if not getattr(array, "tags_of_type", None) or not array.tags_of_type(AssumedOrder):
        return ""
    are_apart = (isinstance(tag, SeparateArrayArrayDimTag) for tag in array.dim_tags)
    tags = ",".join("sep" if is_apart else "C" for is_apart in are_apart)
    return (
        f"C order is assumed of '{array.name}', whose strides are automatic; loopy.tag_array_axes("
        f"t_unit, '{array.name}', '{tags}') states it"
    )
