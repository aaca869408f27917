"""Families of random shapes, to which models that predict unseen kernels are fitted.

Their members were drawn at random, once: work groups (wide, tall, linear, any number of items), the
loop along lanes, blocks of iterations per item, unrolling, tiles in local memory, layouts, numbers
of arrays and of terms, coefficients, sizes. In each family, the first members have any lengths of
work groups, blocks and pieces; these are followed by members with lengths that are powers of two,
as people often choose them, and by a few in ``f64``. All others are in ``f32``. The file
``random_shapes.jsonl.gz`` has a line for each: the arguments of `measurement_kernels.programs`.

=========================  =====================================================================
family                     members
=========================  =====================================================================
``random-matmul``          matrix products and their relatives: distances, weighted and batched
                           products, with other terms added
``random-stencil``         stencils of 3 to 12 points in one to three dimensions
``random-elementwise``     maps of one to five arrays in one and two dimensions
``random-item-loop``       loops of each item: sums over rows and columns, recurrences
``random-channel-filter``  filters over several channels, in one and two dimensions
``random-arithmetic``      chains of arithmetic, one or several of them
``random-transpose``       permutations of axes, reversals, interleaving
``random-small-operator``  small matrices applied to the nodes of many elements
``random-interaction``     sums over pairs of points: functions of distances, forces, cut-offs
``random-guarded``         kernels of any sizes, which work groups do not divide
``random-even-sizes``      kernels of the families above at sizes that are powers of two
``random-gather``          elements of tables at indices from an array, alone and summed along rows
``random-scatter``         elements stored at indices from an array
``random-integer``         chains of integer arithmetic with divisions by constants; ``f32`` only
``blocked-matmul``         as ``random-matmul``, with 4 to 16 results of each item
``blocked-stencil``        as ``random-stencil``, with 4 to 32 results of each item; so the others
``blocked-filter``         windows of one to three channels, all terms unrolled or none
``blocked-transpose``      permutations of axes
``blocked-even-sizes``     blocked kernels of the others at sizes that are powers of two
``blocked-operator``       small matrices applied to 4 to 16 elements by each item
=========================  =====================================================================

Blocked families are ``f32`` only. Only they show the code that compilers generate for many copies
side by side: vectors of copies, private arrays in memory, loops over items that stay scalar.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from measurement_kernels.arguments import ArrayArgument, Extent, SizeParameter, arrays
from measurement_kernels.entry import CatalogEntry
from measurement_kernels.index_arrays import anywhere, each_once, near
from measurement_kernels.programs import (
    Divided,
    Fetch,
    Formula,
    Program,
    Recurrence,
    Shape,
    Step,
    program_entry,
)

_FILE = Path(__file__).with_name("random_shapes.jsonl.gz")
_INDICES: Mapping[str, Callable[..., Any]] = {
    "anywhere": anywhere,
    "each_once": each_once,
    "near": near,
}
_PARTS: Mapping[str, Callable[..., Any]] = {"divided": Divided, "steps": Step, "fetches": Fetch}


def entries() -> Iterator[CatalogEntry]:
    """List the kernels of all families."""
    for line in gzip.decompress(_FILE.read_bytes()).decode().splitlines():
        yield _entry(json.loads(line))


def _entry(row: Mapping[str, Any]) -> CatalogEntry:
    program = Program(
        row["program"],
        _tuples(row["loops"]),
        tuple(
            (Recurrence if "states" in each else Formula)(
                **{name: _tuples(value) for name, value in each.items()}
            )
            for each in row["formulas"]
        ),
        tuple(SizeParameter(**each) for each in row["sizes"]),
        tuple(_with_indices(each, row.get("indices", {})) for each in arrays(row["arrays"])),
        row["element_type"],
    )
    parts: dict[str, Any] = {
        name: tuple(_PARTS[name](*_tuples(each)) for each in value)
        if name in _PARTS
        else _tuples(value)
        for name, value in row["shape"].items()
    }
    return program_entry(
        program,
        Shape(**parts),
        row["family"],
        row["variant"],
        row["description"],
        _tuples(row["steps"]),
        collection="random",
        statistics=row.get("statistics"),
    )


def _with_indices(array: ArrayArgument, indices: Mapping[str, Any]) -> ArrayArgument:
    """Return an array of indices where the file says what it holds, else the array."""
    if array.name not in indices:
        return array
    kind, layout, given = indices[array.name]
    number = Extent(given) if isinstance(given, str) else given
    return replace(array, indices=partial(_INDICES[kind], layout, number))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
