"""The corpus of kernels in the style of packages: outcomes, counts by hand, and by Oclgrind.

``scripts/survey_kernels.py`` goes through all of it; here is a part that takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.counting.automatic import offset_parameters, with_arguments
from countperf.errors import DataDependentControlFlowError, UnmeasuredPropertyError
from countperf.models.library import load_weights
from countperf.properties.count_properties import count_kernel
from survey_kernels import Try
from tests.corpus import all_units
from tests.counting.test_language_complex import counted_of, executed_of
from tests.oracles import oclgrind

pytestmark = pytest.mark.filterwarnings("ignore")  # Loopy and pymbolic warn of what is written

CORPUS = all_units()
ALL = {f"{source}/{name}": (build, sizes) for source, units in CORPUS.items()
       for name, build, sizes in units}  # fmt: skip

DATA_DECIDES = {
    "arraycontext": {"elementwise_where", "from_faces", "resample_by_picking_partial"},
    "pytato": {"advanced_index_wrapped", "where"},
    "sumpy": {
        "p2p_without_self",
        *(f"boxes_{each}" for each in ("laplace2", "laplace3", "sequential", "without_self")),
    },
    "sumpy_expansions": {
        "from_children",
        *(f"p2e_{each}" for each in ("2d_2", "3d_2", "2d_3_lists", "f32")),
        *(f"e2p_{each}" for each in ("2d_3", "3d_2", "3d_2_lists")),
        *(f"e2e_{each}" for each in ("polynomial_2d", "laplace_3d", "log_2d", "complex")),
        *(f"m2l_classes_{each}" for each in ("f64", "c128")),
    },
}
"""Units whose loops or conditions data decides; all others count without advice."""

SMALL = {"n": 33, "m": 5, "l": 4, "nt": 35, "ns": 6, "nresult": 9, "nodes": 6, "n_from": 7,
         "nodes_from": 10, "n_lists": 3, "n_to": 9, "nboxes": 5, "n_roots": 4}  # fmt: skip
"""Sizes at which kernels are simulated; groups of 16, 64 and 128 items are not full at them."""


def _decided(name: str) -> bool:
    source, _, unit = name.partition("/")
    return unit in DATA_DECIDES.get(source, set())


PRODUCERS = [name for name in ALL if name.partition("/")[0] in DATA_DECIDES]
SOME = PRODUCERS[::4] + [name for name in PRODUCERS if _decided(name)][::3]


def test_the_corpus_is_large_and_its_names_are_different() -> None:
    assert len(PRODUCERS) >= 100
    assert sum(map(len, CORPUS.values())) == len(ALL)
    assert {f"{source}/{name}" for source, some in DATA_DECIDES.items() for name in some} <= {*ALL}


@pytest.mark.parametrize("name", dict.fromkeys(SOME))
def test_units_count_and_are_predicted_by_themselves_or_with_the_advice_of_one_error(
    name: str,
) -> None:
    build, sizes = ALL[name]
    way = Try(build())

    if _decided(name):
        with pytest.raises(DataDependentControlFlowError) as refused:
            count_kernel(way.unit)
        assert way.follow(str(refused.value))
    vector = count_kernel(way.unit, statistics=way.statistics)

    assert all(value >= 0 for value in vector.evaluate(sizes).values())
    weights = load_weights("pocl-epyc-zen5", model="structural")
    given = way.statistics or None
    try:
        found = weights.predict(way.unit, sizes, statistics=given)
    except UnmeasuredPropertyError as error:  # functions that no measurement kernel calls
        if any(".special." not in name for name in error.properties):
            raise
        found = weights.predict(way.unit, sizes, statistics=given, incomplete_ok=True)
    assert 0 < found.time_s < 10


BY_HAND: Mapping[str, tuple[Mapping[str, int], Callable[[Mapping[str, int]], dict[str, int]]]] = {
    # a product and a sum for each element, with one load for each operand and a store
    "pytato/axpy": (
        {"n": 100},
        lambda s: {"loads": 2 * s["n"], "stores": s["n"]},
    ),
    # every element of a rotated array is read once
    "pytato/roll": ({"m": 7}, lambda s: {"loads": 40 * s["m"], "stores": 40 * s["m"]}),
    "pytato/reshape": ({"n": 9}, lambda s: {"loads": 12 * s["n"], "stores": 12 * s["n"]}),
    # of n + 10 elements, each comes from one of two arrays
    "pytato/concatenate": ({"n": 9}, lambda s: {"loads": s["n"] + 10, "stores": s["n"] + 10}),
    # elements of the frame are zero, and nothing is read for them
    "pytato/pad": (
        {"n": 9, "m": 5},
        lambda s: {"loads": s["n"] * s["m"], "stores": (s["n"] + 2) * (s["m"] + 2)},
    ),
    # two operands for each of n*m*l products
    "pytato/matmul": (
        {"n": 4, "m": 5, "l": 6},
        lambda s: {"loads": 2 * s["n"] * s["m"] * s["l"], "stores": s["n"] * s["m"]},
    ),
    # two coordinates of each point, and a strength, for each pair
    "sumpy/p2p_laplace2": (
        {"nt": 10, "ns": 7},
        lambda s: {"loads": 5 * s["nt"] * s["ns"], "stores": s["nt"]},
    ),
    # two index arrays for each result, and the coordinates of both points
    "sumpy/subset_laplace3": (
        {"nt": 10, "ns": 7, "nresult": 20},
        lambda s: {"loads": 8 * s["nresult"], "stores": s["nresult"]},
    ),
    # for each of 2*10 results of each element: ten nodes and ten entries of the matrix
    "arraycontext/einsum_derivative": (
        {"n": 50},
        lambda s: {"loads": 2 * 10 * 20 * s["n"], "stores": 20 * s["n"]},
    ),
    # the element, the list, the pick and the value for each node
    "arraycontext/resample_by_picking": (
        {"n": 50, "nodes": 6, "n_from": 40, "nodes_from": 10, "n_lists": 3},
        lambda s: {"loads": 4 * s["n"] * s["nodes"], "stores": s["n"] * s["nodes"]},
    ),
}
"""Loads from and stores to global memory of work items, found by hand."""


@pytest.mark.parametrize("name", BY_HAND)
def test_loads_and_stores_are_those_found_by_hand(name: str) -> None:
    sizes, expected = BY_HAND[name]
    counts = count_kernel(ALL[name][0]()).evaluate(sizes)

    found = {
        what: sum(value for key, value in counts.items() if key.startswith(prefix))
        for what, prefix in (("loads", "gmem.load."), ("stores", "gmem.store."))
    }
    wanted = expected(sizes)
    assert found == {what: wanted[what] for what in found}


SIMULATED = (
    *(f"arraycontext/elementwise_{each}" for each in ("add", "divide", "f32", "columns", "flat")),
    *(f"arraycontext/einsum_{each}" for each in ("derivative", "faces", "strides")),
    *(f"arraycontext/{each}" for each in ("flux", "gas_2d", "limiter", "reduction_dot")),
    "arraycontext/resample_by_picking",
    *(
        f"pytato/{each}"
        for each in ("roll", "reshape_three", "concatenate", "stack", "pad", "kept")
    ),
    *(f"pytato/{each}" for each in ("einsum_three", "sum_integers", "reversed", "cast", "power")),
    *(f"sumpy/p2p_{each}" for each in ("laplace3", "yukawa3", "groups", "stacked", "f32")),
    *(f"sumpy/{each}" for each in ("matrix_yukawa3", "subset_biharmonic2")),
)
"""Units of real numbers that run on any data."""

COMPLEX = (
    *(f"arraycontext/{each}" for each in ("elementwise_complex", "reduction_complex_norm")),
    *(f"pytato/{each}" for each in ("complex_product", "complex_parts")),
    "sumpy/p2p_helmholtz_complex",
    *(f"sumpy_expansions/{each}" for each in ("unfold", "transform")),
)
"""Units of complex numbers, which Oclgrind copies whole, that run on any data."""


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.parametrize("name", SIMULATED)
def test_counts_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    counts, dynamic = _counted_and_executed(name, tmp_path)

    assert oclgrind.disagreements(counts, dynamic) == {}


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.parametrize("name", COMPLEX)
def test_counts_of_complex_units_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    counts, dynamic = _counted_and_executed(name, tmp_path)

    counted, executed = counted_of(counts), executed_of(dynamic, np.complex128)
    assert {what: n for what, n in counted.items() if n} == {k: n for k, n in executed.items() if n}


def _counted_and_executed(name: str, folder: Path) -> tuple[dict[str, Any], oclgrind.DynamicCounts]:
    build, sizes = ALL[name]
    unit: Any = build()
    at = {size: SMALL[size] for size in sizes}
    offsets = dict.fromkeys(offset_parameters(with_arguments(unit.default_entrypoint)), 0)
    return count_kernel(unit).evaluate(at), oclgrind.run(unit, {**at, **offsets}, folder)
