"""The instructions that a statement of a kernel is executed as, and what each waits for.

The counting rules are those of `countperf.counting.operations`; here their operations are strung
together:

1. Sums, products, minima and the like associate from left to right; every other operation waits for
   all its operands.
2. A load waits for what its subscript reads from data, a store for its value and subscript.
3. Negations are free and pass on what they negate; so do private variables and constants.
4. With contraction, an addition and a multiplication of one real type, whose product nothing else
   in the statement uses, are one ``fma`` (what OpenCL and CUDA compilers do by default).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pymbolic.primitives as p

from countperf.counting.domains import Domains
from countperf.counting.expression_types import DType, is_constant
from countperf.counting.keys import Case, MemoryAccess, Operation, type_name
from countperf.counting.operations.access_counter import Key
from countperf.counting.operations.scalars import InstructionCounter
from countperf.symbolic.affine import ALWAYS, NotAffineError
from countperf.symbolic.quasipolynomial import Number, QuasiPolynomial
from countperf.text import ShortRepr

Index: TypeAlias = tuple[QuasiPolynomial, ...] | None
"""Subscript of a private array; None: read from data."""

_CHAINS = (p.Sum, p.Product, p.Min, p.Max, p.BitwiseAnd, p.BitwiseOr, p.BitwiseXor)


@dataclass(frozen=True, slots=True)
class Read(ShortRepr):
    """A private variable, or an element of a private array, whose value is used."""

    name: str
    index: Index


@dataclass(eq=False, slots=True)
class Node(ShortRepr):
    """One instruction of a statement."""

    key: Operation | MemoryAccess  # what it does; a fused operation has the kind ``fma``
    cases: tuple[Case, ...]  # conditions on the loop variables under which it is executed
    share: Number  # probability of what data decides, else 1
    operands: list[Source]  # what it waits for


Source: TypeAlias = Node | Read
"""Source of a value that an instruction waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(ShortRepr):
    """An instruction of the kernel as what it is executed as."""

    name: str  # its id in the kernel
    within: frozenset[str]  # loop variables around it
    cases: tuple[Case, ...]  # conditions on them under which it is executed
    nodes: tuple[Node, ...]  # its instructions in order
    writes: tuple[Read, ...]  # private variables that it writes
    value: tuple[Source, ...]  # what the written values wait for


@dataclass(slots=True)
class _Frame:
    """An expression that is being read, and what its parts wait for."""

    expr: Any
    parts: list[list[Source]] = field(default_factory=list[list["Source"]])
    types: list[DType | None] = field(default_factory=list["DType | None"])
    constants: int = 0  # leading ones
    used: int = 0  # parts that operations have taken in
    running: list[Source] = field(default_factory=list["Source"])
    own: list[Source] = field(default_factory=list["Source"])

    def attach(self, sources: list[Source], dtype: DType | None, *, is_constant: bool) -> None:
        """Add a part."""
        if is_constant and self.constants == len(self.parts):
            self.constants += 1
        self.parts.append(sources)
        self.types.append(dtype)

    def take(self) -> list[Source]:
        """Return what the next operation waits for: the result so far and the next part or all."""
        taken = list(self.running)
        if isinstance(self.expr, _CHAINS):
            if not self.used:
                self.used = min(max(self.constants, 1), len(self.parts))
                taken += [source for part in self.parts[: self.used] for source in part]
            end = self.used + 1
        else:
            end = len(self.parts)
        taken += [source for part in self.parts[self.used : end] for source in part]
        self.used = min(end, len(self.parts))
        return _unique(taken)

    def result(self) -> list[Source]:
        """Return what the value of the expression waits for."""
        rest = [source for part in self.parts[self.used :] for source in part]
        return _unique([*self.running, *rest, *self.own])


class StatementReader(InstructionCounter):
    """Reads the instructions of a kernel as nodes and what they wait for."""

    def __init__(self, domains: Domains, *, contract: bool = True) -> None:
        super().__init__(domains)
        self.unrolled = frozenset[str]()
        self.contract = contract
        self._frames: list[_Frame] = []
        self._nodes: list[Node] = []
        self._stores: list[Node] = []
        self._writes: list[Read] = []
        self._guards: tuple[Case, ...] = ()
        self._share: Number = 1
        self._source: DType | None = None

    def read(self, instruction: Any) -> Statement:
        """Return an instruction of the kernel as what it is executed as."""
        self._guards, probability = self.domains.predicate_conditions(instruction)
        self._nodes, self._stores, self._writes = [], [], []
        top = _Frame(None)
        self._frames, self._share = [top], 1
        if instruction.predicates:
            self.tally_predicates(instruction)
        self._share = probability
        self.tally(instruction)
        value = top.result()
        for node in self._stores:
            node.operands = _unique([*node.operands, *value])
        nodes = [*self._nodes, *self._stores]
        if self.contract:
            nodes = _contract_products(nodes, value)
        return Statement(
            name=instruction.id,
            within=instruction.within_inames,
            cases=self._guards,
            nodes=tuple(nodes),
            writes=tuple(self._writes),
            value=tuple(value),
        )

    def rec(self, expr: Any, /, *_: Any, **__: Any) -> DType | None:
        """Read a part of an expression and return its type."""
        frame = _Frame(expr)
        self._frames.append(frame)
        dtype = super().rec(expr)
        self._frames.pop()
        self._frames[-1].attach(frame.result(), dtype, is_constant=is_constant(expr))
        return dtype

    def _node(self, key: Key, operands: list[Source]) -> Node:
        cases = tuple(case for case in self._cases if case.alternatives != ALWAYS)
        node = Node(key, (*self._guards, *cases), self._factor * self._share, operands)
        is_store = isinstance(key, MemoryAccess) and key.direction == "store"
        (self._stores if is_store else self._nodes).append(node)
        return node

    def _add(self, key: Key, number: Number = 1) -> None:
        super()._add(key, number)
        if isinstance(key, MemoryAccess):
            frame = self._frames[-1]
            frame.running = [self._node(key, frame.take())]

    def _operation(self, kind: str, dtype: DType | None, number: int = 1, name: str = "") -> None:
        super()._operation(kind, dtype, number, name)
        if dtype is None or self._in_index:
            return
        frame = self._frames[-1]
        is_free = kind == "neg" or dtype.kind == "b"
        for _ in range(number):
            if kind == "convert":
                self._place_conversion(frame, dtype)
            elif is_free:
                frame.running = frame.take()
            else:
                key = Operation(kind=kind, type_name=type_name(dtype), function=name)
                frame.running = [self._node(key, frame.take())]

    def _convert(self, source: DType | None, target: DType | None) -> None:
        self._source = source
        super()._convert(source, target)

    def _place_conversion(self, frame: _Frame, dtype: DType) -> None:
        """Convert the last part, or what those before it have come to."""
        key = Operation(kind="convert", type_name=type_name(dtype))
        if frame.running or not frame.parts:
            frame.running = [self._node(key, frame.take())]
        elif frame.types[-1] == self._source or len(frame.parts) == 1:
            frame.parts[-1] = [self._node(key, frame.parts[-1])]
        else:
            before = _unique([source for part in frame.parts[:-1] for source in part])
            frame.parts[:-1] = [[self._node(key, before)], *([] for _ in frame.parts[:-2])]

    def map_variable(self, expr: Any) -> DType | None:
        """As the base; a private variable is what its value waits for."""
        dtype = super().map_variable(expr)
        self._frames[-1].own += self._private(expr.name, ())
        return dtype

    def _private(self, name: str, index: tuple[Any, ...]) -> list[Read]:
        variable = self.kernel.temporary_variables.get(name)
        if variable is None or self._address_space(variable) is not None:
            return []
        try:
            return [Read(name, tuple(self.domains.to_polynomial(part) for part in index))]
        except NotAffineError:
            return [Read(name, None)]

    def _find_subscripted(self, direction: str, name: str, index: tuple[Any, ...]) -> DType | None:
        dtype = super()._find_subscripted(direction, name, index)
        if direction == "load":
            self._frames[-1].own += self._private(name, index)
        return dtype

    def _store(self, assignee: Any) -> DType | None:
        self._frames.append(_Frame(assignee))
        dtype = super()._store(assignee)
        self._frames.pop()
        if isinstance(assignee, p.Variable):
            self._writes += self._private(assignee.name, ())
        else:
            index = assignee.index_tuple if isinstance(assignee, p.Subscript) else (assignee.index,)
            aggregate: Any = assignee.aggregate
            self._writes += self._private(aggregate.name, index)
        return dtype


def _unique(sources: Sequence[Source]) -> list[Source]:
    return list(dict.fromkeys(sources))


def _contract_products(nodes: list[Node], value: Sequence[Source]) -> list[Node]:
    """Fuse multiplications into the additions that alone use their products."""
    uses = Counter(source for node in nodes for source in node.operands if isinstance(source, Node))
    uses.update(source for source in value if isinstance(source, Node))
    fused: set[Node] = set()
    for node in nodes:
        key = node.key
        if not isinstance(key, Operation) or key.kind != "add" or not key.type_name.startswith("f"):
            continue
        product = replace(key, kind="mul")
        for source in reversed(node.operands):
            if (
                isinstance(source, Node)
                and source.key == product
                and (source.cases, source.share) == (node.cases, node.share)
                and uses[source] == 1
            ):
                node.key = replace(key, kind="fma")
                others = [other for other in node.operands if other is not source]
                node.operands = _unique([*others, *source.operands])
                fused.add(source)
                break
    return [node for node in nodes if node not in fused]
