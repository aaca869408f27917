"""Strategies for Loopy kernels whose subscripts stay inside their arrays at the given sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from loopy.symbolic import parse
from pytools.graph import CycleError

from countperf.errors import CountingError

_SILENCED = (
    "write_race* inferred_iname iname-order unused_inames array_access_out_of_bounds"
    " variable_access_ordered empty_reduction* temp_to_write* read_no_write*"
    " single_writer_after_creation v1_scheduler_fallback"
)
_TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}

LOOPY_REFUSALS = (
    *(lp.LoopyError, isl.Error, CycleError, RuntimeError),
    *(AssertionError, ValueError, KeyError, CountingError),
)
"""Errors of building and scheduling a kernel with Loopy; the last says that Loopy failed."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array or a temporary: element type, extents, address space, memory order."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    space: str = "global"
    order: str = "C"


@dataclass(frozen=True, slots=True)
class Statement:
    """An assignment, the loops around it, and the conditions under which it runs."""

    target: str
    expression: str
    within: frozenset[str]
    conditions: tuple[str, ...] = ()
    after: frozenset[str] = frozenset()
    id: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """A loop cut into tiles of a width; tags of the loop over tiles and of that inside one."""

    iname: str
    width: int
    outer_tag: str | None = None
    inner_tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCase:
    """A kernel, and sizes to interpret it at; classes of `simple` footprints are compared, too."""

    domains: tuple[str, ...]
    statements: tuple[Statement, ...]
    arrays: tuple[Array, ...]
    splits: tuple[Split, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    prefetch: tuple[str, tuple[str, ...]] | None = None
    assumptions: str
    sizes: tuple[tuple[int, int], ...]
    is_simple: bool = True

    def parameters(self, t_unit: Any) -> list[dict[str, int]]:
        """Return the sizes as parameters of the kernel, without those that it does not have."""
        known = set(t_unit.default_entrypoint.arg_dict)
        return [{k: v for k, v in (("n", n), ("m", m)) if k in known} for n, m in self.sizes]

    def build(self) -> Any:
        """Return the kernel; Loopy may refuse it by an error of its own."""
        t_unit = lp.make_kernel(
            list(self.domains),
            [_assignment(f"s{number}", s) for number, s in enumerate(self.statements)],
            [*map(_declared, self.arrays), *self._sizes()],
            assumptions=self.assumptions,
            lang_version=(2018, 2),
            silenced_warnings=_SILENCED.split(),
        )
        for split in self.splits:
            tags: dict[str, Any] = {"outer_tag": split.outer_tag, "inner_tag": split.inner_tag}
            t_unit = lp.split_iname(t_unit, split.iname, split.width, **tags)
        t_unit = lp.tag_inames(t_unit, dict(self.tags))
        if self.prefetch is not None:
            array, inames = self.prefetch
            t_unit = lp.add_prefetch(
                t_unit, array, list(inames), fetch_bounding_box=True, default_tag="l.auto"
            )
        return t_unit

    def _sizes(self) -> list[Any]:
        texts = [*self.domains, self.assumptions, *(e for a in self.arrays for e in a.shape)]
        texts += [s.target + s.expression + "".join(s.conditions) for s in self.statements]
        used = [name for name in "nm" if any(re.search(rf"\b{name}\b", text) for text in texts)]
        return [lp.ValueArg(name, np.int32) for name in used]


def _assignment(name: str, statement: Statement) -> Any:
    return lp.Assignment(
        statement.target,
        statement.expression,
        id=statement.id or name,
        within_inames=statement.within,
        predicates=frozenset(map(parse, statement.conditions)),  # pyright: ignore[reportArgumentType]
        depends_on=statement.after,
    )


def _declared(array: Array) -> Any:
    if array.space == "global":
        return lp.GlobalArg(array.name, _TYPES[array.dtype], shape=array.shape, order=array.order)
    space = lp.AddressSpace.LOCAL if array.space == "local" else lp.AddressSpace.PRIVATE
    shape = tuple(map(int, array.shape))
    return lp.TemporaryVariable(array.name, _TYPES[array.dtype], shape=shape, address_space=space)


# --- loop nests

Reach = np.ndarray[Any, np.dtype[np.int64]]
"""An upper bound of something that is at least zero: multiples of n and of m, and a constant."""


def _reach(*multiples: int) -> Reach:
    return np.array(multiples)


def _text(reach: Reach) -> str:
    return f"{reach[0]}*n + {reach[1]}*m + {reach[2]}"


_SIZE_REACH = {"n": _reach(1, 0, 0), "m": _reach(0, 1, 0)}


def _pick(draw: st.DrawFn, choices: Sequence[Any]) -> Any:
    return draw(st.sampled_from(choices))


class _Nest:
    """Draws one loop nest with its statements."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.is_simple = self.pick([False, False, True])
        self.depth = self.pick([1, 2, 2, 3] if self.is_simple else [1, 2, 2, 3, 3, 4])
        self.inames = [f"i{k}" for k in range(self.depth)]
        self.reach: dict[str, Reach] = {}
        self.is_constant, self.conditions = dict[str, bool](), dict[str, str]()
        self.parents: dict[str, set[str]] = {}
        self.arrays: dict[str, tuple[str, list[Reach]]] = {}
        self.scalings = 0
        self.flavor = self.pick(["f32", "f32", "f64", "mixed", "i32", "i64"])

    def pick(self, choices: Sequence[Any]) -> Any:
        return _pick(self.draw, choices)

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def chance(self, one_in: int) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    # --- loops

    def loops(self) -> None:
        for k, name in enumerate(self.inames):
            outer = self.inames[:k]
            kinds = ["size", "size", "size", "constant"]
            if outer:
                kinds += ["upto"] if self.is_simple else ["upto", "upto", "from", "band", "scaled"]
            if len(outer) > 1 and not self.is_simple:
                kinds += ["sum"]
            kinds += ["part", "stride"] if not self.is_simple and self.chance(3) else []
            self._loop(name, outer, self.pick(kinds))

    def _loop(self, x: str, outer: list[str], kind: str) -> None:
        low = self.pick([0, 0, 0, 1, 2])
        size = self.pick("nnm")
        shift = self.pick([-1, 0, 0, 0, 1, 2])
        parent = self.pick(outer) if outer else ""
        beyond = _reach(0, 0, max(shift, 0))
        reach = _SIZE_REACH[size] + beyond
        parents = {parent} if parent else set[str]()
        self.is_constant[x] = kind == "constant"
        match kind:
            case "size":
                condition, parents = f"{low} <= {x} < {size} + {shift}", set[str]()
            case "constant":
                high = self.number(2, 6)
                condition, parents, reach = f"0 <= {x} < {high}", set[str](), _reach(0, 0, high)
            case "upto":
                condition = f"{min(low, 1)} <= {x} <= {parent} + {shift}"
                reach = self.reach[parent] + beyond
            case "from":
                condition = f"0 <= {x} and {parent} + {shift} <= {x} < {size} + {shift}"
            case "band":
                condition = f"0 <= {x} and {parent} - 1 <= {x} <= {parent} + {self.number(0, 2)}"
                reach = self.reach[parent] + _reach(0, 0, 2)
            case "scaled":
                a = self.number(1, 3)
                b = self.number(1, 3) if not self.scalings else 1
                self.scalings += b > 1
                condition = f"0 <= {x} and {a}*{x} <= {b}*{parent} + {shift}"
                reach = b * self.reach[parent] + beyond
            case "sum":
                other = self.pick(outer)
                parents.add(other)
                condition = f"0 <= {x} <= {parent} + {other}"
                reach = self.reach[parent] + self.reach[other]
            case "part":
                condition = f"0 <= {x} and {self.number(2, 3)}*{x} < {size} + {shift}"
                parents = set()
            case _:
                divided = f"{x} mod {self.number(2, 3)} = {self.pick([0, 1])}"
                condition, parents = f"0 <= {x} < {size} + {shift} and {divided}", set()
        self.conditions[x], self.reach[x], self.parents[x] = condition, reach, parents

    def domains(self) -> tuple[str, ...]:
        """Return one set for the whole nest, or one for each loop."""
        if self.draw(st.booleans()):
            rows = " and ".join(self.conditions[x] for x in self.inames)
            return (f"[n, m] -> {{ [{', '.join(self.inames)}] : {rows} }}",)
        names = {x: ", ".join(["n", "m", *sorted(self.parents[x])]) for x in self.inames}
        return tuple(f"[{names[x]}] -> {{ [{x}] : {self.conditions[x]} }}" for x in self.inames)

    # --- expressions

    def dtype(self) -> str:
        """Return an element type of the kernel's flavor."""
        return self.pick(["f32", "f64", "f32", "i32"]) if self.flavor == "mixed" else self.flavor

    @property
    def is_integer(self) -> bool:
        return self.flavor.startswith("i")

    def index(self, inames: Sequence[str]) -> tuple[str, Reach]:
        """Return a subscript that is at least zero, and its upper bound."""
        if not inames or self.chance(12):
            constant = self.number(0, 3)
            return str(constant), _reach(0, 0, constant)
        x = self.pick(inames)
        if self.chance(6):
            return f"{_text(self.reach[x])} - {x}", self.reach[x]
        if not self.is_simple and self.chance(20):
            width = self.number(2, 3)
            return self.pick([f"{x} // {width}", f"{x} % {width}"]), self.reach[x]
        factor = self.pick([1, 1, 1, 1, 2, 3, 5])
        constant = self.pick([0, 0, 0, 1, 2])
        text = f"{factor}*{x} + {constant}"
        reach = factor * self.reach[x] + _reach(0, 0, constant)
        if not self.is_simple and self.chance(5):
            other = self.pick(inames)
            return f"{text} + {other}", reach + self.reach[other]
        return text, reach

    def subscript(self, name: str, dtype: str, indices: Sequence[tuple[str, Reach]]) -> str:
        """Note how far an array must reach, and return the subscripted array."""
        _, extents = self.arrays.setdefault(name, (dtype, [_reach(0, 0, 0)] * len(indices)))
        for axis, (_, reach) in enumerate(indices):
            extents[axis] = np.maximum(extents[axis], reach)
        return f"{name}[{', '.join(text for text, _ in indices)}]"

    def load(self, inames: Sequence[str]) -> str:
        """Return an element of one of few arrays, so that some are read in several ways."""
        rank = self.pick([1, 1, 2] if self.is_simple else [1, 1, 2, 2, 3])
        name = self.pick([f"a{rank}", f"b{rank}"])
        dtype = self.arrays[name][0] if name in self.arrays else self.dtype()
        return self.subscript(name, dtype, [self.index(inames) for _ in range(rank)])

    def condition(self, inames: Sequence[str], depth: int = 0) -> str:
        """Return a condition on loop variables."""
        if depth < 2 and self.chance(3):
            left, right = (self.condition(inames, depth + 1) for _ in range(2))
            return self.pick([f"({left} and {right})", f"({left} or {right})", f"not ({left})"])
        x = self.pick(inames) if inames else "n"
        other = self.pick([*inames, "n", "m", "3"])
        operator = self.pick(["<", "<=", ">", ">=", "==", "!="])
        if self.chance(6):
            return f"{x} % {self.number(2, 3)} == {self.pick([0, 1])}"
        return f"{self.pick(['', '2*'])}{x} {operator} {other} + {self.number(-2, 2)}"

    def constant(self) -> str:
        if self.is_integer:
            return self.pick(["2", "3", "-1", "7"])
        return self.pick(["2", "1.5", "-1", "0.5", "3.25", "1"])

    def expression(self, inames: Sequence[str], depth: int = 0) -> str:
        """Return an arithmetic expression."""
        if depth > 2 or self.chance(3):
            kinds = ["load"] * 5 + ["constant"] + (["name"] if inames and depth else [])
            kind = self.pick(kinds)
            if kind == "name":
                return self.pick(inames)
            return self.constant() if kind == "constant" and depth else self.load(inames)

        def part() -> str:
            return self.expression(inames, depth + 1)

        kinds = ["+", "+", "-", "*", "*", "if", "negative"]
        kinds += ["//", "%"] if self.is_integer else ["/", "square", "call", "data", "extremum"]
        if self.flavor in ("f32", "f64"):
            kinds += ["cube", "root"]
        match self.pick(kinds):
            case "+" | "-" | "*" as operator:
                return f"({part()} {operator} {part()})"
            case "/":
                return f"({self.load(inames)} + 1.5) / ({part()} + 0.5)"
            case "//" | "%" as operator:
                return f"({self.load(inames)} {operator} {self.number(2, 5)})"
            case "if":
                return f"({part()} if {self.condition(inames)} else {part()})"
            case "data":
                return f"(1.0 if {self.load(inames)} > {self.load(inames)} else 2.0)"
            case "negative":
                return f"(-{part()})"
            case "square":
                return f"({part()})**2"
            case "cube":
                return f"({self.load(inames)})**{self.number(3, 6)}"
            case "root":
                return f"({self.load(inames)})**0.5"
            case "call":
                return f"{self.pick(['rsqrt', 'exp', 'sin'])}({self.load(inames)})"
            case _:
                return f"{self.pick(['fmin', 'fmax'])}({self.load(inames)}, {self.load(inames)})"

    # --- statements

    def statements(self, sequential: Sequence[str]) -> list[Statement]:
        """Return one to three statements; `sequential` loops may be reduced over."""
        result: list[Statement] = []
        scalar: tuple[str, frozenset[str]] | None = None
        for number in range(self.pick([1, 1, 2, 3])):
            count = self.pick([self.depth] * 3 + list(range(1, self.depth + 1)))
            within = self.inames[:count]
            if number == 0 and count < self.depth and self.draw(st.booleans()):
                scalar = ("t0", frozenset(within))
                expression = self.expression(within)
                result.append(Statement("t0", expression, scalar[1]))
                continue
            reduced = [x for x in within if x in sequential]
            reduced = reduced[: self.number(0, len(reduced))]
            expression = self.expression(within)
            if scalar is not None and scalar[1] <= set(within):
                expression = f"{expression} + t0"
            if reduced and self.draw(st.booleans()):
                operation = self.pick(["sum", "sum", "max", "product"])
                names = reduced[0] if len(reduced) == 1 else f"[{', '.join(reduced)}]"
                expression = f"{operation}({names}, {expression})"
                within = [x for x in within if x not in reduced]
                if self.chance(3):
                    expression = f"{expression} * 2"
            order = self.draw(st.permutations(within))
            indices = [self._own_index(x) for x in order] or [("0", _reach(0, 0, 0))]
            target = self.subscript(f"y{number}", self.dtype(), indices)
            some = self.pick([0, 0, 0, 1, 1, 2]) if within and not self.is_simple else 0
            conditions = tuple(self.condition(within) for _ in range(some))
            result.append(Statement(target, expression, frozenset(within), conditions))
        return result

    def _own_index(self, x: str) -> tuple[str, Reach]:
        factor, constant = self.pick([1, 1, 1, 1, 2, 3]), self.pick([0, 0, 1])
        reach = factor * self.reach[x] + _reach(0, 0, constant)
        return f"{factor}*{x} + {constant}", reach

    def declared_arrays(self) -> tuple[list[Array], bool]:
        """Return the arrays, and whether an extent of one is a number, enough for n, m <= 16."""
        result: list[Array] = []
        is_bounded = False
        for name, (dtype, extents) in sorted(self.arrays.items()):
            numeric = self.chance(4)
            is_bounded |= numeric
            shape = tuple(
                str(reach @ (16, 16, 1) + 1) if numeric else _text(reach + _reach(0, 0, 1))
                for reach in extents
            )
            result.append(Array(name, dtype, shape, order=self.pick(["C", "C", "C", "F"])))
        return result, is_bounded

    def mapping(self) -> tuple[list[Split], list[tuple[str, str]], list[str], int]:
        """Choose tiles and hardware axes; return them, the sequential loops, and a divisor of n."""
        splits: list[Split] = []
        tags: list[tuple[str, str]] = []
        free = list(self.draw(st.permutations(self.inames)))
        divisor = 1
        mode = self.pick(["split", "split", "split", "two", "two", "group", "items", "none"])
        if mode == "two" and len(free) < 2:
            mode = "split"
        if mode in ("split", "two"):
            for axis in range(1 + (mode == "two")):
                width = self.pick([2, 3, 4])
                divisor = max(divisor, width)
                x = free.pop()
                twice = not self.is_simple and self.chance(5)
                splits.append(Split(x, width, f"g.{axis}", None if twice else f"l.{axis}"))
                if twice:  # several points for each item, neighbors or far apart
                    tags_ = (f"l.{axis}", self.pick([None, "unr"]))
                    outer, inner = tags_ if self.draw(st.booleans()) else tags_[::-1]
                    splits.append(Split(f"{x}_inner", 2, outer, inner))
        elif mode == "group":
            tags.append((free.pop(), "g.0"))
        elif mode == "items":
            constant = [x for x in free if self.is_constant[x]]
            if constant:
                tags.append((constant[0], "l.0"))
                free.remove(constant[0])
                if free and self.draw(st.booleans()):
                    tags.append((free.pop(), "g.0"))
        sequential = list(free)
        if free and self.chance(5):
            inner = self.pick([None, None, "unr", "ilp"])
            splits.append(Split(free[0], self.pick([2, 3]), None, inner))
            sequential.remove(free[0])
        elif free and self.is_constant[free[0]] and self.chance(3):
            tags.append((free[0], self.pick(["unr", "unr", "ilp", "ilp.seq"])))
            sequential.remove(free[0])
        return splits, tags, sequential, divisor


@st.composite
def loop_nests(draw: st.DrawFn) -> KernelCase:
    """Nests to depth four with affine bounds, conditions, reductions, tiles and hardware axes."""
    nest = _Nest(draw)
    nest.loops()
    splits, tags, sequential, divisor = nest.mapping()
    statements = nest.statements(sequential)
    assumptions = f"n >= {nest.pick([1, 4])} and m >= {nest.pick([1, 4])}"
    sizes = [(5, 4), (8, 7), (9, 10)]
    if nest.depth > 2:
        sizes = [(5, 4), (9, 7)] if nest.depth == 3 else [(4, 5), (5, 4)]
    if divisor > 1 and nest.draw(st.booleans()):
        assumptions += f" and n mod {divisor} = 0"
        sizes = [(divisor * max(1, round(n / divisor)), m) for n, m in sizes]
    if "n >= 4" in assumptions:
        sizes = [(n if n >= 4 else 2 * n, m) for n, m in sizes]
    arrays, is_bounded = nest.declared_arrays()
    if is_bounded:
        assumptions += " and n <= 16 and m <= 16"
    if any(s.target == "t0" for s in statements):
        arrays.append(Array("t0", nest.dtype(), (), "private"))
    return KernelCase(
        domains=nest.domains(),
        statements=tuple(statements),
        arrays=tuple(arrays),
        splits=tuple(splits),
        tags=tuple(tags),
        assumptions=assumptions,
        sizes=tuple(sizes),
        is_simple=nest.is_simple,
    )


# --- local memory


@st.composite
def staged_tiles(draw: st.DrawFn) -> KernelCase:
    """Kernels that fill a local array, wait, and read what other items wrote, maybe in loops."""

    pick = partial(_pick, draw)
    width, two = pick([2, 3, 4]), pick([False, False, True])
    dtype = pick(["f32", "f64", "i32"])
    locals_ = ["l0", "l1"] if two else ["l0"]
    groups = ["g0", "g1"] if two or pick([False, False, True]) else ["g0"]
    rows = [f"0 <= {x} < {width}" for x in locals_]
    divides = pick([True, False])
    for axis, g in enumerate(groups):
        size = "nm"[axis]
        if axis < len(locals_):
            rows.append(f"0 <= {g} and {width}*{g} + l{axis} < {size}")
        else:
            rows.append(pick([f"0 <= {g} < m", f"0 <= {g} < 3", f"0 <= {g} <= g0"]))
    loops = [f"k{k}" for k in range(pick([0, 1, 1, 2]))]
    for k, x in enumerate(loops):
        choices = ["0 <= {} < m", "0 <= {} < 3", "0 <= {} <= g0", "g0 <= {} < m", "1 <= {} < n"]
        choices += ["0 <= {} <= l0", "0 <= {} and 2*{} < m"]
        choices += [f"0 <= {{}} <= {loops[0]}"] if k else []
        rows.append(pick(choices).replace("{}", x))
    outer, everything = frozenset([*groups, *locals_]), frozenset([*groups, *locals_, *loops])
    inames = [*groups, *locals_, *loops]
    own = [pick([f"{x}", f"{width - 1} - {x}"]) for x in locals_]
    source = [f"{width}*g{a} + {x}" + pick(["", " + 1"]) for a, x in enumerate(locals_)]
    if loops and pick([True, False]):
        source.append(loops[-1])
    other = [pick([f"{width - 1} - {x}", "0", x]) for x in locals_]
    use = f"tile[{', '.join(other)}]"
    operation = pick([f"total + {use}", f"total + 2*{use}", f"{use}*{use} + total"])
    condition = pick([(), (), (f"{locals_[0]} < {width - 1}",), ("g0 > 0",)])
    out = [f"{width}*g{a} + {x}" for a, x in enumerate(locals_)]
    out += [g for a, g in enumerate(groups) if a >= len(locals_)]
    shape = ("n + m + 12",) * len(source)
    filled = f"a[{', '.join(source)}]" + pick(["", " * 3"])
    guarded = condition if pick([True, False]) else ()
    tile, start, fill = f"tile[{', '.join(own)}]", frozenset(["start"]), frozenset(["fill"])
    statements = (
        Statement("total", "0", outer, id="start"),
        Statement(tile, filled, everything, guarded, start, id="fill"),
        Statement("total", operation, everything, condition, fill, id="use"),
        Statement(f"y[{', '.join(out)}]", "total", outer, (), frozenset(["use"]), id="end"),
    )
    sizes = [(2 * width, width), (width, 2 * width), (3 * width, width)]
    if not divides:
        sizes = [(n + 1, m + (width > 2)) for n, m in sizes]
    assumptions = "n >= 1 and m >= 1"
    if divides:
        assumptions += f" and n mod {width} = 0 and m mod {width} = 0"
    return KernelCase(
        domains=(f"[n, m] -> {{ [{', '.join(inames)}] : {' and '.join(rows)} }}",),
        statements=statements,
        arrays=(
            Array("a", dtype, shape),
            Array("y", dtype, ("n + m + 12",) * len(out)),
            Array("tile", dtype, (str(width),) * len(locals_), "local"),
            Array("total", dtype, (), "private"),
        ),
        tags=(
            *((g, f"g.{a}") for a, g in enumerate(groups)),
            *((x, f"l.{a}") for a, x in enumerate(locals_)),
        ),
        assumptions=assumptions,
        sizes=tuple(sizes),
        is_simple=False,
    )


@st.composite
def prefetched_stencils(draw: st.DrawFn) -> KernelCase:
    """Stencils on one or two axes whose tile and halo are fetched into local memory."""

    pick = partial(_pick, draw)
    rank, dtype = pick([1, 2]), pick(["f32", "f64"])
    inames = [f"i{k}" for k in range(rank)]
    widths = [pick([2, 4, 8] if rank == 1 else [2, 4]) for _ in inames]
    halo = pick([0, 1, 2])
    points = draw(
        st.lists(st.tuples(*[st.integers(0, halo)] * rank), min_size=1, max_size=5, unique=True)
    )
    indices = [
        ", ".join(f"{x} + {o}" for x, o in zip(inames, offsets, strict=True)) for offsets in points
    ]
    terms = [f"{pick(['', '4*', '-1*'])}a[{index}]" for index in indices]
    operators = [pick([" + ", " - ", " * "]) for _ in terms[1:]] + [""]
    expression = "".join(map("".join, zip(terms, operators, strict=True)))
    sizes, divides = "nm"[:rank], pick([True, True, False])
    divided = " and ".join(
        f"{s} >= {w}" + (f" and {s} mod {w} = 0" if divides else "")
        for s, w in zip(sizes, widths, strict=True)
    )
    second, rest = widths[1] if rank == 2 else 1, 0 if divides else 1
    rows = " and ".join(f"0 <= {x} < {s}" for x, s in zip(inames, sizes, strict=True))
    return KernelCase(
        domains=(f"[{', '.join(sizes)}] -> {{ [{', '.join(inames)}] : {rows} }}",),
        statements=(Statement(f"y[{', '.join(inames)}]", expression, frozenset(inames)),),
        arrays=(
            Array("a", dtype, tuple(f"{s} + {halo}" for s in sizes)),
            Array("y", dtype, tuple(sizes)),
        ),
        splits=tuple(
            Split(x, w, f"g.{rank - 1 - k}", f"l.{rank - 1 - k}")
            for k, (x, w) in enumerate(zip(inames, widths, strict=True))
        ),
        prefetch=("a", tuple(f"{x}_inner" for x in inames)),
        assumptions=divided,
        sizes=((widths[0] + rest, 2 * second), (3 * widths[0], second + rest)),
    )


def generated(number: int) -> settings:
    """Return settings of a test of generated kernels: the same in each run, for any time."""
    unchecked: list[Any] = list(HealthCheck)
    return settings(
        max_examples=number,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=unchecked,
    )


def kernels() -> st.SearchStrategy[KernelCase]:
    """All families; loop nests most often."""
    nests = (loop_nests() for _ in range(4))
    return st.one_of(*nests, staged_tiles(), prefetched_stencils())
