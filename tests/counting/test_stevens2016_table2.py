"""The library's test kernels through the counter, times the paper's printed weights.

Stevens & Klöckner (2016), Table 2 (weights of the R9 Fury) and Table 1 (predicted times). The paper
counts powers as written, and its counts of prefetches differ in two ways from what a device
executes; both are redone here, and only here:

- a fetch was counted over the loops of its own subscript, not once per work group repeating it;
- a fetched tile was counted as its bounding box in whole work groups (18 x 18 as 32 x 32).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopy.symbolic import get_dependencies

from countperf.counting.count_properties import Counts, count_loopy_kernel
from countperf.counting.frontend.schedule import prepare_unit
from countperf.counting.operations.scalars import InstructionCounter
from countperf.counting.vector import PropertyVector
from measurement_kernels.catalog import entry
from tests.oracles.enumeration import extents
from write_paper_weights import PROPERTIES

GOLDEN = Path(__file__).parent.parent / "golden"

PAPER_NAMES = {**PROPERTIES, "rsqrt f32": "flop.special.f32.rsqrt"}

# kernel of the paper: catalogue name, sizes from the paper's n
KERNELS: dict[str, tuple[str, Any]] = {
    "finite_difference": ("finite-differences/16x16/f32", lambda n: {"n": n}),
    "skinny_mm": ("matmul-skinny/16x16/f32", lambda m: {"n": m // 8, "m": m, "l": m // 8}),
    "n_body": ("n-body/256x1/f32", lambda n: {"n": n}),
    # the paper's loop over three images has an off-by-one bound: it was counted as four
    "convolution": ("convolution/16x16/f32", lambda n: {"n": n, "images": 4}),
}


def count_powers_as_written(t_unit: Any) -> Counts:
    """Count a kernel with one ``pow`` for each power, as the paper does."""

    def map_power(counter: Any, expr: Any) -> Any:
        dtype = counter._operands((expr.base, expr.exponent))[-1]
        counter._operation("pow", dtype)
        return dtype

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InstructionCounter, "map_power", map_power)
        return count_loopy_kernel(t_unit)


def printed_rows(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table that the paper printed."""
    lines = (GOLDEN / name).read_text().splitlines()
    return csv.DictReader(line for line in lines if not line.startswith("#"))


def _weights() -> dict[str, tuple[float, float]]:
    """Return weight and half a unit in its last printed place, by property name."""
    weights: dict[str, tuple[float, float]] = {}
    for row in printed_rows("stevens2016_table2_r9fury.csv"):
        mantissa, exponent = row["weight_s"].split("e")
        decimals = len(mantissa.split(".")[1])
        half_unit = 0.5 * 10.0 ** (int(exponent) - decimals)
        weights[PAPER_NAMES[row["property"]]] = (float(row["weight_s"]), half_unit)
    return weights


def _fetches(t_unit: Any, parameters: dict[str, int]) -> dict[tuple[Any, ...], int]:
    """Count each prefetch as the paper did: the box of the loops of its own subscript."""
    kernel, _ = prepare_unit(t_unit)
    found: dict[tuple[Any, ...], int] = {}
    for instruction in kernel.instructions:
        if "fetch" not in instruction.id:
            continue
        index = instruction.expression.index_tuple
        loops = kernel.all_inames() & get_dependencies(index)
        box = 1
        for extent in extents(kernel.get_inames_domain(loops), loops, parameters).values():
            box *= extent
        found[index] = box
    return found


def paper_counts(counts: Counts, t_unit: Any, parameters: dict[str, int]) -> dict[str, float]:
    """Return the counts of a kernel by the paper's conventions, by property name."""
    known = {name: parameters[name] for name in counts.parameters}
    vector = PropertyVector(counts.by_property(), kernel=counts.kernel)
    values: dict[str, float] = dict(vector.evaluate({n: known[n] for n in vector.parameters}))
    fetches = _fetches(t_unit, parameters)
    for item in counts.accesses:
        if item.access.address_space == "global" and item.access.index in fetches:
            (utilization,) = item.classes
            name = f"gmem.load.{item.access.bits}.{utilization.name}"
            values[name] += fetches[item.access.index] - int(item.executions.evaluate(known))
    values["gmem.min.32.stride1"] = min(
        values.get("gmem.load.32.stride1", 0), values.get("gmem.store.32.stride1", 0)
    )
    return values


@pytest.mark.parametrize(
    ("kernel", "n", "predicted_ms"),
    [
        (row["kernel"], int(row["n"]), float(row["predicted_ms"]))
        for row in printed_rows("stevens2016_table1_r9fury.csv")
    ],
)
def test_printed_weights_times_counts_give_the_printed_prediction(
    kernel: str, n: int, predicted_ms: float
) -> None:
    name, sizes = KERNELS[kernel]
    t_unit = entry(name).build()
    counts = count_powers_as_written(t_unit)
    values = paper_counts(counts, t_unit, sizes(n))
    weights = _weights()
    charged = {name: values[name] for name in weights if name in values}
    time_s = sum(weights[name][0] * value for name, value in charged.items())
    rounding_s = sum(weights[name][1] * value for name, value in charged.items())
    assert time_s * 1e3 == pytest.approx(predicted_ms, abs=0.005 + rounding_s * 1e3)
