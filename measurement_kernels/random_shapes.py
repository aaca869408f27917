"""Families of random shapes, to which models that predict unseen kernels are fitted.

Their members were drawn at random, once: work groups, loops along lanes, blocks, unrolling, tiles,
layouts, numbers of arrays and terms, coefficients, sizes. The first members of each family have any
lengths, the next ones powers of two, and a few are in ``f64``. ``random_shapes.jsonl.gz`` has a
line for each: the arguments of `measurement_kernels.programs`. Blocked families show the code that
compilers generate for many copies side by side.
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
