"""Counts and the structure of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from countperf.counting.access_analysis import bank_conflicts, transactions
from countperf.counting.taxonomy import property_unit
from countperf.errors import CountingError
from countperf.report.rows import Column, Printed, plain, point_text, table_of

if TYPE_CHECKING:
    from countperf.counting.access_analysis import AccessAnalysis
    from countperf.counting.analysis import KernelAnalysis
    from countperf.counting.scopes import Known
    from countperf.counting.vector import PropertyVector


def counts(
    vector: PropertyVector,
    values: Mapping[str, Any] | None = None,
    points: Sequence[Mapping[str, int]] = (),
) -> Printed:
    """Give a kernel's counts: values where parameters were given, and symbolic ones."""
    titles = [point_text(point) for point in points] if len(points) > 1 else ["value"]
    columns = {
        **{"property": Column("property"), **{title: Column(title) for title in titles}},
        **{"formula": Column("count"), "": Column()},
    }
    view = {} if vector.view == "source" else {"view": vector.view}
    rows = [
        {"property": name, "unit": property_unit(name), "count": str(count), "exact": count.exact}
        for name, count in vector.items()
    ]
    shown = [
        {
            "property": name,
            **({} if values is None else _count_values(values[name], titles)),
            "formula": str(count),
            "": f"not exact: {caveat}" if (caveat := vector.caveat(name)) else "",
        }
        for name, count in vector.items()
    ]
    return Printed(
        head=[f"kernel {vector.kernel}, per launch{f', {vector.view} view' if view else ''}"],
        rows=rows,
        shown=table_of(shown, columns),
        facts={
            "kernel": vector.kernel,
            **view,
            "properties": {
                name: {
                    "symbolic": str(count),
                    "exact": not vector.caveat(name),
                    **({} if values is None else {"value": values[name]}),
                }
                for name, count in vector.items()
            },
        },
    )


def _count_values(value: Any, titles: Sequence[str]) -> dict[str, Any]:
    """Give a value for each column; a count that is the same at all points, in each."""
    array = np.asarray(value, object)
    if len(titles) > 1:
        return dict(zip(titles, np.broadcast_to(array, (len(titles),)), strict=True))
    entries = [*array.ravel()]
    several = [*map(str, entries[:4]), *(["..."] if len(entries) > 4 else [])]
    return {titles[0]: entries[0] if len(entries) == 1 else ", ".join(several)}


SUB_GROUP_SIZE, LINE_BYTES = 32, 32
"""Work items that access memory together, and bytes of what moves together."""


def analysis(of: KernelAnalysis, parameters: Mapping[str, Any] | None = None) -> Printed:
    """Give the structure of a kernel, with values where parameters are given."""
    values = None if parameters is None else of.sizes.checked(parameters)
    facts = {
        "kernel": of.kernel,
        "assumptions": of.sizes.assumptions,
        "parameters": values,
        "is_estimate": of.is_estimate,
    }
    head = [f"kernel {of.kernel}, assumes {of.sizes.assumptions}"]
    head += [f"estimate: statistics of {of.is_estimate} enter"] if of.is_estimate else []
    number = "count" if values is None else "value"
    columns = {
        **{"kind": Column(), "name": Column(), number: Column("times", right=True)},
        "detail": Column(),
    }
    rows = [
        {"kind": kind, "name": name, **_count(count, values), "detail": detail}
        for kind, name, count, detail in _parts(of, values)
    ]
    return Printed(head=head, rows=rows, columns=columns, facts=facts, name="rows")


def _count(count: Known, values: Mapping[str, int] | None) -> dict[str, Any]:
    if values is None or count is None or not count.names() <= values.keys():
        return {"count": _text(count)}
    return {"count": str(count), "value": plain(count.evaluate(values))}


def _text(count: Known) -> str:
    return "unknown" if count is None else str(count)


def _parts(
    of: KernelAnalysis, values: Mapping[str, int] | None
) -> Iterator[tuple[str, str, Known, str]]:
    for program in of.programs:
        groups = ", ".join(map(str, program.groups))
        shape = "x".join(map(str, program.shape)) or "1"
        yield "program", program.name, program.launches, f"groups {groups}; work items {shape}"
        for region in program.regions:
            around = ", ".join(region.barrier_loops)
            yield "region", str(region.index), region.passes, f"in {around}" if around else ""
            for loop in region.loops:
                yield "loop", loop.iname, loop.iterations, f"entered {_text(loop.entries)}"
            for instruction in region.instructions:
                yield "instruction", instruction.id, instruction.executions, ""
            for chain in region.chains:
                steps = ", ".join(f"{times} {kind}" for kind, times in chain.operations)
                detail = f"{steps or 'no operation'} in {', '.join(chain.loops)}"
                detail += f"; {chain.side_by_side} side by side"
                yield "chain", ", ".join(chain.variables), chain.steps, detail
    for access in of.accesses:
        strides = "; ".join(map(str, access.strides))
        moved = "" if values is None else f"; {_moved(access, values)}"
        yield "access", access.text, access.executions, strides + moved


def _moved(access: AccessAnalysis, values: Mapping[str, int]) -> str:
    """Say what sub-groups move of memory, or their passes over the banks of local memory."""
    size = SUB_GROUP_SIZE
    try:
        if access.access.address_space == "local":
            conflicts = bank_conflicts(access, values, sub_group_size=size)
            return f"{conflicts.total} passes of {conflicts.instructions} over 32 banks"
        moved = transactions(access, values, line_bytes=LINE_BYTES, sub_group_size=size)
    except CountingError as error:
        return f"transactions unknown ({error})"
    return f"{moved.total} transactions of {LINE_BYTES} bytes"
