"""Arrays that decide how often loops run, and contents for them with given mean trip counts.

A loop runs from or to what is read from an array of integers: lengths, or where rows begin. Where
the caller states how often it runs on average (``statistics={"j": 12.5}``), the compiled code is
followed with contents of the array that have this mean, so that remainders of unrolled loops and
vectors are executed as often as rows of such lengths have them:

1. one element decides: the array holds lengths that differ by one at most;
2. two elements of an array do, one of them some places behind the other: it holds sums of these;
3. an element of each of two arrays: these are where rows begin, and where they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pymbolic.primitives as p
from loopy.symbolic import TypeCast, get_dependencies
from pymbolic.mapper.distributor import distribute

from countperf.errors import CountingError
from countperf.machine_code.machine_state import ArrayData
from countperf.symbolic.isl_sets import names_of
from countperf.symbolic.kernel_sets import as_expression, bounds_of, domain_of


@dataclass(frozen=True, slots=True)
class _Term:
    """An element that enters a trip count: of which array, at which place, with which sign."""

    array: str
    index: Any
    factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoop:
    """A loop whose trip count is data."""

    iname: str  # its name in the kernel
    bounds: str  # what bounds it, as text
    arrays: Mapping[str, tuple[str, int]]
    itemsize: int  # bytes of an element
    constant: int  # what is added to what the arrays say

    def contents(self, mean: Fraction) -> dict[str, ArrayData]:
        """Return what arrays hold so that the loop runs so often on average."""
        rows = mean - self.constant

        def sums(place: int, apart: int) -> int:
            return int(place * rows // apart)

        contents: dict[str, ArrayData] = {}
        for name, (kind, apart) in self.arrays.items():
            if kind == "length":
                contents[name] = ArrayData(self.itemsize, lambda k: sums(k + 1, 1) - sums(k, 1))
            elif kind == "begin":
                contents[name] = ArrayData(self.itemsize, lambda k, apart=apart: sums(k, apart))
            else:
                contents[name] = ArrayData(self.itemsize, lambda k: sums(k + 1, 1))
        return contents


def data_loops_of(kernel: Any) -> tuple[DataLoop, ...]:
    """Return the loops of a kernel whose trip counts are read from arrays."""
    temporaries = set(kernel.temporary_variables)
    data_loops: list[DataLoop] = []
    for iname in sorted(kernel.all_inames()):
        domain = domain_of(kernel, [iname])
        names = {*names_of(domain, parameters=True)} & temporaries
        if names and (loop := _data_loop(kernel, iname, names)) is not None:
            data_loops.append(loop)
    return tuple(data_loops)


def _data_loop(kernel: Any, iname: str, names: set[str]) -> DataLoop | None:
    _, extent = bounds_of(kernel, iname)[2].get_pieces()[-1]
    trips = as_expression(extent.to_pw_aff())
    deciding = names & set(get_dependencies(trips))
    if not deciding:
        return None
    constant, itemsize = 0, 4
    arrays: dict[str, tuple[str, int]] = {}
    try:
        terms = list(_terms(kernel, trips, 1))
        constant = sum(term.factor for term in terms if not term.array)
        arrays = _kinds([term for term in terms if term.array])
        itemsize = kernel.arg_dict[next(iter(arrays))].dtype.numpy_dtype.itemsize
    except _NotToldError:
        arrays = {}
    return DataLoop(
        iname=iname,
        bounds=", ".join(sorted(deciding)),
        arrays=arrays,
        itemsize=itemsize,
        constant=constant,
    )


class _NotToldError(Exception):
    """Error for a loop whose bound no array contents can decide."""


def _definition(kernel: Any, name: str) -> Any:
    writers = [kernel.id_to_insn[each] for each in kernel.writer_map().get(name, ())]
    if len(writers) != 1 or not hasattr(writers[0], "expression"):
        raise _NotToldError
    return writers[0].expression


def _terms(kernel: Any, expression: Any, factor: int) -> Iterator[_Term]:
    """Yield the elements that a sum consists of; numbers are of no array."""
    match expression:
        case int():
            yield _Term("", None, factor * expression)
        case p.Sum():
            for child in expression.children:
                yield from _terms(kernel, child, factor)
        case p.Product():
            numbers = [child for child in expression.children if isinstance(child, int)]
            others = [child for child in expression.children if not isinstance(child, int)]
            if len(others) != 1:
                raise _NotToldError
            for child in numbers:
                factor *= child
            yield from _terms(kernel, others[0], factor)
        case TypeCast():
            yield from _terms(kernel, expression.child, factor)
        case p.Subscript(aggregate=p.Variable(name=name)) if name in kernel.arg_dict:
            index = expression.index_tuple
            if len(index) != 1:
                raise _NotToldError
            yield _Term(name, index[0], factor)
        case p.Variable(name=name) if name in kernel.temporary_variables:
            yield from _terms(kernel, _definition(kernel, name), factor)
        case _:
            raise _NotToldError


def _kinds(terms: list[_Term]) -> dict[str, tuple[str, int]]:
    """Say what arrays hold whose elements make up a trip count."""
    match sorted(terms, key=lambda term: -term.factor):
        case [only] if only.factor == 1:
            return {only.array: ("length", 1)}
        case [end, begin] if (end.factor, begin.factor) == (1, -1):
            if end.array != begin.array:
                return {begin.array: ("begin", 1), end.array: ("end", 1)}
            apart = distribute(end.index - begin.index)
            if isinstance(apart, int) and apart > 0:
                return {end.array: ("begin", apart)}
            raise _NotToldError
        case _:
            raise _NotToldError


def contents_for(
    loops: tuple[DataLoop, ...], statistics: Mapping[str, Any]
) -> dict[str, ArrayData]:
    """Return what arrays hold so that loops run as often as is stated."""
    contents: dict[str, ArrayData] = {}
    for loop in loops:
        mean = statistics.get(loop.iname)
        if not isinstance(mean, int | float | Fraction):
            raise CountingError(
                f"how often the loop {loop.iname!r} runs, bounded by {loop.bounds}, is data: state"
                f" it on average, statistics={{{loop.iname!r}: 12.5}}"
            )
        if not loop.arrays:
            raise CountingError(
                f"what bounds the loop {loop.iname!r}, {loop.bounds}, is neither an element of an"
                " array nor the difference of two, as compiled code is followed with: predict with"
                " a model that does not read it"
            )
        contents |= loop.contents(Fraction(mean))
    return contents
