"""A plain interpreter of Loopy kernels: runs every loop at fixed sizes and tallies what executes.

Slow on purpose, and without any code of the counting engine: points of loops are enumerated one by
one, expressions are walked again at each of them, as the generated C code would evaluate them.
What depends on comparisons of data must tally nothing. Loops around local barriers run from the
smallest to the largest value that any work item of the group needs.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
import pymbolic.primitives as p
from loopy.check import pre_codegen_checks
from loopy.kernel.data import GroupInameTag, LocalInameTag, UnrolledIlpTag, UnrollTag
from loopy.schedule import (
    Barrier,
    CallKernel,
    EnterLoop,
    LeaveLoop,
    ReturnFromKernel,
    RunInstruction,
)
from loopy.symbolic import TypeCast
from loopy.type_inference import TypeReader
from pymbolic import evaluate

from countperf.counting.frontend.loopy_patches import forbid_questions
from countperf.counting.frontend.schedule import linearize_kernel, preprocess_unit
from tests.oracles import enumeration

DType = np.dtype[Any]
Point = Mapping[str, int]

_INT32 = np.dtype(np.int32)
_BOOL = np.dtype(np.bool_)
_CONTEXT_TYPES = {"f": np.dtype(np.float32), "d": np.dtype(np.float64)}


class NotInterpretedError(Exception):
    """The kernel has something that this interpreter does not know, or that data decides."""


@dataclass(frozen=True, slots=True)
class Access:
    """A subscript in an instruction: which array, how, and between which loops it stands."""

    array: str
    space: str
    direction: str
    bits: int
    index: tuple[Any, ...]
    within: frozenset[str]

    @property
    def kind(self) -> str:
        prefix = {"global": "gmem", "local": "lmem"}[self.space]
        return f"{prefix}.{self.direction}.{self.bits}"


class Executed:
    """Tallies of one execution of a kernel, all work items together."""

    def __init__(self) -> None:
        self.operations = Counter[str]()  # by names such as ``flop.special.f32.rsqrt``
        self.accesses = Counter[Access]()  # executions of each access
        # addresses in elements that were touched
        self.cells: dict[tuple[str, str], set[int]] = defaultdict(set)
        # increments of the address from one item to the next along local axis 0, over the whole
        # domain of the instruction; empty where there are no two neighbors
        self.strides: dict[Access, set[int]] = defaultdict(set)
        self.indirect = set[Access]()  # accesses whose address is read from data
        # barriers times the work items that wait at them
        self.local_barriers = self.global_barriers = 0
        self.work_groups = self.launches = 0

    def properties(self, classes: Mapping[Access, str] | None = None) -> dict[str, int]:
        """Return nonzero tallies, accesses by kind, and to global memory by class if given."""
        result = Counter(self.operations)
        for access, number in self.accesses.items():
            named = "" if classes is None or access.space != "global" else f".{classes[access]}"
            result[access.kind + named] += number
        for name, number in list(result.items()):
            if name.startswith("gmem.load."):
                suffix = name.removeprefix("gmem.load.")
                smaller = min(number, result[f"gmem.store.{suffix}"])
                result[f"gmem.min.{suffix}"] = smaller if classes is not None else 0
        result["barrier.local"] += self.local_barriers
        result["barrier.global"] += self.global_barriers
        result["groups"] += self.work_groups
        result["launches"] += self.launches
        return {name: number for name, number in result.items() if number}


def utilization_classes(runs: Sequence[Executed]) -> list[dict[Access, str]] | None:
    """Class each access to global memory by the definition, at each of several sizes.

    The stride of an access is symbolic if it is not the same at all sizes. None if some stride is
    not the same everywhere, or no two neighboring items show it.
    """
    result: list[dict[Access, str]] = [{} for _ in runs]
    for access in set().union(*(run.accesses for run in runs)):
        if access.space != "global":
            continue
        seen = [run.strides[access] for run in runs]
        for run, classes, strides in zip(runs, result, seen, strict=True):
            if access in run.indirect:
                classes[access] = "indirect"
                continue
            if len(strides) != 1 or not all(len(s) == 1 for s in seen):
                return None
            numeric = len(set().union(*seen)) == 1
            (stride,) = strides
            cells = run.cells[access.array, access.direction]
            classes[access] = _utilization_class(abs(stride), cells, numeric=numeric)
    return result


def _utilization_class(stride: int, cells: set[int], *, numeric: bool) -> str:
    if numeric and stride in (0, 1):
        return ("uniform", "stride1")[stride]
    small = numeric and stride <= 4
    parts = stride if small else 4
    if not cells:
        return f"{parts}of{parts if small else 'n'}"
    widened = {cell + k for cell in cells for k in range(max(stride, 1))}
    used = math.ceil(parts * len(cells) / len(widened))
    return f"{used}of{stride if small else 'n'}"


@dataclass(frozen=True, slots=True)
class _Value:
    """Value that generated code computes: None if of data, its C type, a literal or not."""

    value: Any
    dtype: DType
    is_constant: bool = False
    is_unrolled: bool = False

    @property
    def is_known(self) -> bool:
        return self.value is not None


def _type_name(dtype: DType) -> str:
    return f"{dtype.kind}{dtype.itemsize * 8}"


def _join_needs(left: DType, right: DType) -> DType:
    """C11, section 6.3.1.8."""
    if left == right:
        return left
    floats = [t for t in (left, right) if t.kind == "f"]
    if floats:
        return max(floats, key=lambda t: t.itemsize)
    integers = [t if t.kind in "iu" else _INT32 for t in (left, right)]
    return max(integers, key=lambda t: t.itemsize)


def _context_of(dtype: DType) -> str | None:
    if dtype.kind == "f":
        return {4: "f", 8: "d"}[dtype.itemsize]
    return "i" if dtype.kind in "iub" else None


_BINARY = {
    **{"add": operator.add, "mul": operator.mul, "div": operator.truediv},
    **{"floor": operator.floordiv, "mod": operator.mod},
}
_COMPARISONS = {
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt},
    **{">=": operator.ge, "==": operator.eq, "!=": operator.ne},
}

_LIMITS = frozenset({"INFINITY", "HUGE_VAL", "INT_MIN", "INT_MAX", "LONG_MIN", "LONG_MAX"})


class Interpreter:
    """Interprets a kernel with one entry point, at any sizes."""

    def __init__(self, t_unit: Any) -> None:
        t_unit = preprocess_unit(t_unit)
        self.callables = t_unit.callables_table
        with forbid_questions():
            self.kernel: Any = linearize_kernel(t_unit)
            pre_codegen_checks(t_unit.with_kernel(self.kernel))
        self.inames: frozenset[str] = self.kernel.all_inames()
        self.unrolled = {
            name
            for name, iname in self.kernel.inames.items()
            if iname.tags_of_type((UnrollTag, UnrolledIlpTag))
        }
        self.local_axes = self._axes(LocalInameTag)
        self.group_axes = self._axes(GroupInameTag)
        self.type_reader = TypeReader(self.kernel, self.callables)
        self.parameters: dict[str, int] = {}
        self.executed = Executed()
        self.point: Point = {}
        self.within: frozenset[str] = frozenset()
        self.factor = 1
        self.known_points: dict[frozenset[str], list[dict[str, int]]] = {}
        self.with_cells = False
        self.is_silent = False
        self.is_index = False

    def _axes(self, tag_class: type) -> dict[str, int]:
        return {
            name: tag.axis
            for name, iname in self.kernel.inames.items()
            for tag in iname.tags
            if isinstance(tag, tag_class)
        }

    def run(self, parameters: Mapping[str, int], *, with_cells: bool = False) -> Executed:
        """Execute the kernel at given sizes."""
        self.parameters = dict(parameters)
        self.known_points = {}
        self.with_cells = with_cells
        self.executed = Executed()
        items = list(self.kernel.linearization)
        begin: int | None = None
        work_items = 0
        for position, item in enumerate(items):
            if isinstance(item, CallKernel):
                begin = position
            elif isinstance(item, ReturnFromKernel):
                assert begin is not None
                work_items = self._run_program(items[begin + 1 : position])
                begin = None
            elif begin is None and isinstance(item, EnterLoop):
                raise NotInterpretedError("loops around launches")
        barriers = sum(isinstance(i, Barrier) and i.synchronization_kind == "global" for i in items)
        self.executed.global_barriers = barriers * work_items
        return self.executed

    def _run_program(self, items: Sequence[Any]) -> int:
        ids = [item.insn_id for item in items if isinstance(item, RunInstruction)]
        groups, shape = (
            {axis: max(0, int(evaluate(size, self.parameters))) for axis, size in sizes.items()}
            for sizes in self.kernel.get_grid_sizes_for_insn_ids_as_exprs(
                frozenset(ids), self.callables, return_dict=True
            )
        )
        self.executed.launches += 1
        self.executed.work_groups += math.prod(groups.values())
        for instruction_id in ids:
            self._run_instruction(self.kernel.id_to_insn[instruction_id], groups, shape)
        passes = self._barrier_passes(items, groups)
        self.executed.local_barriers += passes * math.prod(shape.values())
        return math.prod(groups.values()) * math.prod(shape.values())

    def points(self, names: Iterable[str]) -> list[dict[str, int]]:
        """Return all values of some loop variables together."""
        kept = frozenset(names)
        if kept and kept not in self.known_points:
            domain: Any = self.kernel.get_inames_domain(kept)
            domain = domain.project_out_except(sorted(kept), [isl.dim_type.set])
            sizes = domain.get_var_names(isl.dim_type.param)
            if unknown := [name for name in sizes if name not in self.parameters]:
                raise NotInterpretedError(f"loop bounds read from {unknown[0]}")
            order = domain.get_var_names(isl.dim_type.set)
            found = enumeration.points(str(domain), self.parameters)
            self.known_points[kept] = [dict(zip(order, point, strict=True)) for point in found]
        return self.known_points[kept] if kept else [{}]

    def _run_instruction(
        self, instruction: Any, groups: Mapping[int, int], shape: Mapping[int, int]
    ) -> None:
        if isinstance(instruction, lp.BarrierInstruction | lp.NoOpInstruction):
            return
        if not isinstance(instruction, lp.Assignment) or instruction.atomicity:
            raise NotInterpretedError(f"instruction {instruction}")
        self.within = instruction.within_inames
        used_local = {self.local_axes[n] for n in self.within if n in self.local_axes}
        used_group = {self.group_axes[n] for n in self.within if n in self.group_axes}
        self.factor = math.prod(s for axis, s in shape.items() if axis not in used_local)
        self.factor *= math.prod(s for axis, s in groups.items() if axis not in used_group)
        points = self.points(self.within)
        for point in points:
            self.point = point
            if self._predicates_hold(instruction):
                self._assign(instruction)
        if self.with_cells:
            self._find_strides(points)

    def _predicates_hold(self, instruction: Any) -> bool:
        outcomes = [self.value(predicate, None) for predicate in instruction.predicates]
        if not all(outcome.is_known for outcome in outcomes):
            raise NotInterpretedError(f"predicates of {instruction.id} depend on data")
        return all(outcome.value for outcome in outcomes)

    def _assign(self, instruction: Any) -> None:
        assignee = instruction.assignee
        dtype = self._variable(instruction.assignee_name).dtype.numpy_dtype
        source = self.value(instruction.expression, _context_of(dtype))
        self._convert(source, dtype)
        index = assignee.index_tuple if isinstance(assignee, p.Subscript) else ()
        self._access("store", instruction.assignee_name, index)

    def _find_strides(self, points: Sequence[Point]) -> None:
        """Compare the addresses of neighbors along local axis 0, for accesses of this nest."""
        accesses = [a for a in self.executed.accesses if a.within == self.within]
        lanes = [name for name in self.within if self.local_axes.get(name) == 0]
        for access in accesses:
            if access in self.executed.indirect or access.space != "global":
                continue
            if not lanes:
                self.executed.strides[access] = {0}
                continue
            (lane,) = lanes
            addresses: dict[frozenset[tuple[str, int]], int] = {}
            for point in points:
                self.point = point
                address = self._address(access.array, access.index)
                assert address is not None
                addresses[frozenset(point.items())] = address
            for point in points:
                following = addresses.get(frozenset({**point, lane: point[lane] + 1}.items()))
                if following is not None:
                    step = following - addresses[frozenset(point.items())]
                    self.executed.strides[access].add(step)

    def _barrier_passes(self, items: Sequence[Any], groups: Mapping[int, int]) -> int:
        """Count the local barriers that one item of each group passes, over all groups."""
        axes = sorted(groups)
        used = frozenset[str]().union(*(i.within_inames for i in self.kernel.instructions))
        lowest = {
            name: min((point[name] for point in self.points([name])), default=0)
            for name in sorted(used & set(self.group_axes))
        }
        total = 0
        for indices in itertools.product(*(range(groups[axis]) for axis in axes)):
            index_of = dict(zip(axes, indices, strict=True))
            values = {
                name: index_of[self.group_axes[name]] + first
                for name, first in lowest.items()
                if self.group_axes[name] in index_of
            }
            total += self._passes(items, {}, values)
        return total

    def _passes(self, items: Sequence[Any], loops: Point, group: Point) -> int:
        """Count the barriers in a block of the schedule, passed at given values."""
        total = 0
        position = 0
        while position < len(items):
            item = items[position]
            position += 1
            if isinstance(item, Barrier):
                total += item.synchronization_kind == "local"
            if not isinstance(item, EnterLoop):
                continue
            end = position
            depth = 1
            while depth:
                depth += isinstance(items[end], EnterLoop) - isinstance(items[end], LeaveLoop)
                end += 1
            body = items[position : end - 1]
            position = end
            if any(isinstance(i, Barrier) for i in body):
                total += self._passes_of_loop(item.iname, body, loops, group)
        return total

    def _passes_of_loop(self, iname: str, body: Sequence[Any], loops: Point, group: Point) -> int:
        used: set[str] = set()
        for item in body:
            if isinstance(item, RunInstruction):
                used |= self.kernel.id_to_insn[item.insn_id].within_inames
        known = {**loops, **{name: value for name, value in group.items() if name in used}}
        if not self._matching(known, known):
            return 0
        parents = self._names_with(iname)
        values = [point[iname] for point in self._matching({*parents, iname}, known)]
        return sum(
            self._passes(body, {**loops, iname: value}, group)
            for value in range(min(values, default=1), max(values, default=0) + 1)
        )

    def _names_with(self, iname: str) -> set[str]:
        """Return the loop variables that stand in the domain of another."""
        domain: Any = self.kernel.get_inames_domain(frozenset([iname]))
        kind = isl.dim_type.set
        return {domain.get_dim_name(kind, k) for k in range(domain.dim(kind))}

    def _matching(self, names: Iterable[str], known: Point) -> list[dict[str, int]]:
        """Return the values of loop variables that agree with known values."""
        return [
            point
            for point in self.points(names)
            if all(known.get(name, value) == value for name, value in point.items())
        ]

    def _count(self, name: str) -> None:
        if not self.is_silent and not self.is_index:
            self.executed.operations[name] += self.factor

    def _operation(self, kind: str, dtype: DType, function: str = "") -> None:
        if dtype.kind == "b":
            return
        family = "flop" if dtype.kind == "f" else "iop"
        suffix = f".{function}" if function else ""
        self._count(f"{family}.{kind}.{_type_name(dtype)}{suffix}")

    def _convert(self, source: _Value, dtype: DType) -> None:
        kinds = source.dtype.kind + dtype.kind
        if source.is_constant or source.dtype == dtype or "f" not in kinds or "b" in kinds:
            return
        self._operation("convert", dtype if dtype.kind == "f" else source.dtype)

    def _variable(self, name: str) -> Any:
        return self.kernel.get_var_descriptor(name)

    def _address(self, array: str, index: Sequence[Any]) -> int | None:
        variable = self._variable(array)
        silent, self.is_silent = self.is_silent, True
        values = [self.value(part, "i").value for part in index]
        self.is_silent = silent
        if any(value is None for value in values):
            return None
        strides = [evaluate(tag.stride, self.parameters) for tag in variable.dim_tags or ()]
        return int(sum(v * s for v, s in zip(values, strides, strict=True)))

    def _access(self, direction: str, array: str, index: tuple[Any, ...]) -> None:
        inside, self.is_index = self.is_index, True
        for part in index:
            self.value(part, "i")
        self.is_index = inside
        access = self._find_access(direction, array, index)
        if access is None:
            return
        self.executed.accesses[access] += self.factor
        if not self.with_cells:
            return
        address = self._address(array, index)
        if address is None:
            self.executed.indirect.add(access)
        else:
            self.executed.cells[array, direction].add(address)

    def _find_access(self, direction: str, array: str, index: tuple[Any, ...]) -> Access | None:
        """Return an access that is tallied; None for sizes and private variables."""
        variable = self._variable(array)
        space = getattr(variable, "address_space", lp.AddressSpace.GLOBAL)
        if self.is_silent or isinstance(variable, lp.ValueArg) or space == lp.AddressSpace.PRIVATE:
            return None
        name = "local" if space == lp.AddressSpace.LOCAL else "global"
        bits = variable.dtype.numpy_dtype.itemsize * 8
        return Access(array, name, direction, bits, index, self.within)

    def value(self, expr: Any, context: str | None) -> _Value:
        """Evaluate an expression at the current point and tally what that takes."""
        match expr:  # what there is most of first
            case p.Sum() | p.Product():
                return self._chain("add" if isinstance(expr, p.Sum) else "mul", expr, context)
            case p.Subscript():
                self._access("load", str(expr.aggregate), expr.index_tuple)
                return _Value(None, self._variable(str(expr.aggregate)).dtype.numpy_dtype)
            case bool() | np.bool_():
                return _Value(bool(expr), _BOOL, True)
            case np.generic():
                return _Value(expr.item(), expr.dtype, True)
            case int() | float():
                dtype = _CONTEXT_TYPES.get(context or "", _INT32)
                return _Value(expr if dtype.kind == "f" else int(expr), dtype, True)
            case p.Variable() if expr.name in _LIMITS:
                dtype = np.dtype(np.int64 if "LONG" in str(expr) else np.int32)
                return _Value(math.inf, _CONTEXT_TYPES.get(context or "", dtype), True)
            case p.Variable() if expr.name in self.unrolled:
                dtype = _CONTEXT_TYPES.get(context or "", _INT32)
                return _Value(self.point[expr.name], dtype, True, True)
            case p.Variable():
                return self._name(expr.name)
            case p.Quotient() | p.FloorDiv() | p.Remainder():
                kind = {p.Quotient: "div", p.FloorDiv: "floor", p.Remainder: "mod"}[type(expr)]
                of_sides = context if kind == "div" else "i"
                sides = (expr.numerator, expr.denominator)
                return self._binary(kind, *(self.value(side, of_sides) for side in sides))
            case p.Power():
                return self._power(expr, context)
            case p.Min() | p.Max():
                return self._extremum([self.value(child, context) for child in expr.children])
            case p.If():
                return self._if(expr, context)
            case p.Comparison():
                return self._comparison(expr)
            case p.LogicalAnd() | p.LogicalOr():
                return self._logical(expr, context, decisive=isinstance(expr, p.LogicalOr))
            case p.LogicalNot():
                inner = self.value(expr.child, context)
                return _Value(None if inner.value is None else not inner.value, _BOOL)
            case TypeCast():
                inner = self.value(expr.child, context)
                self._convert(inner, expr.type.numpy_dtype)
                return _Value(inner.value, expr.type.numpy_dtype, inner.is_constant)
            case p.Call():
                return self._call(expr)
            case _:
                raise NotInterpretedError(f"{type(expr).__name__} {expr}")

    def _name(self, name: str) -> _Value:
        if name in self.inames:
            return _Value(self.point[name], self.kernel.index_dtype.numpy_dtype)
        variable = self._variable(name)
        self._access("load", name, ())
        return _Value(self.parameters.get(name), variable.dtype.numpy_dtype)

    def _binary(self, kind: str, left: _Value, right: _Value) -> _Value:
        dtype = _join_needs(left.dtype, right.dtype)
        value = None
        if left.is_known and right.is_known:
            value = _BINARY[kind](left.value, right.value)
        if left.is_constant and right.is_constant:
            return _Value(value, dtype, True, left.is_unrolled or right.is_unrolled)
        self._convert(left, dtype)
        self._convert(right, dtype)
        is_negation = any(
            side.is_constant and side.value == -1 and not side.is_unrolled for side in (left, right)
        )
        name = "neg" if kind == "mul" and is_negation else kind
        self._operation({"floor": "div"}.get(name, name), dtype)
        return _Value(value, dtype)

    def _chain(self, kind: str, expr: Any, context: str | None) -> _Value:
        """Sums in sums and products in products are emitted without parentheses."""
        result: _Value | None = None
        for child in _unparenthesized(expr):
            operand = self.value(child, context)
            result = operand if result is None else self._binary(kind, result, operand)
        assert result is not None
        return result

    def _power(self, expr: Any, context: str | None) -> _Value:
        exponent = expr.exponent
        if isinstance(exponent, int) and exponent == 2:
            return self._chain("mul", p.Product((expr.base, expr.base)), context)
        base = self.value(expr.base, context)
        if isinstance(exponent, int) and exponent > 2:
            # the helper that is generated squares while it halves the exponent, and multiplies
            for _ in range(exponent.bit_length() - 1 + exponent.bit_count()):
                self._operation("mul", base.dtype)
            return _Value(None, base.dtype)
        if isinstance(exponent, float) and base.dtype.kind == "f":
            self._operation("pow", base.dtype)
            return _Value(None, base.dtype)
        raise NotInterpretedError(f"power {expr}")

    def _extremum(self, operands: Sequence[_Value]) -> _Value:
        """As emitted: the last two first, then each one before."""
        result = operands[-1]
        for operand in reversed(operands[:-1]):
            dtype = _join_needs(operand.dtype, result.dtype)
            self._operation("minmax", dtype)
            result = _Value(None, dtype)
        return result

    def _if(self, expr: Any, context: str | None) -> _Value:
        condition = self.value(expr.condition, context)
        dtype = self.type_reader(expr).numpy_dtype
        self._operation("select", dtype)
        if condition.is_known:
            taken = self.value(expr.then if condition.value else expr.else_, context)
            self._convert(taken, dtype)
            return _Value(taken.value, dtype)
        for branch in (expr.then, expr.else_):
            self._convert(self._uncounted(branch, context), dtype)
        return _Value(None, dtype)

    def _uncounted(self, expr: Any, context: str | None) -> _Value:
        """Evaluate what runs or not as data decides: it must tally nothing."""
        before = Counter(self.executed.operations), Counter(self.executed.accesses)
        result = self.value(expr, context)
        if before != (self.executed.operations, self.executed.accesses):
            raise NotInterpretedError(f"{expr} runs or not as data decides")
        return result

    def _comparison(self, expr: Any) -> _Value:
        context = _context_of(self.type_reader(expr.left - expr.right).numpy_dtype)
        silent, self.is_silent = self.is_silent, True
        left, right = self.value(expr.left, context), self.value(expr.right, context)
        self.is_silent = silent
        if left.is_known and right.is_known:
            return _Value(_COMPARISONS[expr.operator](left.value, right.value), _BOOL)
        left, right = self.value(expr.left, context), self.value(expr.right, context)
        dtype = _join_needs(left.dtype, right.dtype)
        self._convert(left, dtype)
        self._convert(right, dtype)
        self._operation("compare", dtype)
        return _Value(None, _BOOL)

    def _logical(self, expr: Any, context: str | None, *, decisive: bool) -> _Value:
        """Evaluate operands until one has the decisive value."""
        is_open = False
        for child in expr.children:
            outcome = (self._uncounted if is_open else self.value)(child, context)
            if outcome.is_known and bool(outcome.value) is decisive:
                return _Value(decisive, _BOOL)
            is_open = is_open or not outcome.is_known
        return _Value(None if is_open else not decisive, _BOOL)

    def _call(self, expr: Any) -> _Value:
        callable_ = self.callables[expr.function.name]
        types = {k: t.numpy_dtype for k, t in callable_.arg_id_to_dtype.items()}
        for position, parameter in enumerate(expr.parameters):
            self._convert(self.value(parameter, _context_of(types[position])), types[position])
        name = str(callable_.name)
        if name in ("min", "max", "fmin", "fmax"):
            self._operation("minmax", types[-1])
        else:
            self._operation("special", types[-1], name)
        return _Value(None, types[-1])


def _unparenthesized(expr: Any) -> list[Any]:
    result: list[Any] = []
    for child in expr.children:
        result += _unparenthesized(child) if type(child) is type(expr) else [child]
    return result
