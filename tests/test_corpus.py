"""A part of the corpus of kernels in the style of packages: outcomes, and counts of Oclgrind."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import countperf
from countperf.counting.count_properties import count_kernel
from countperf.counting.frontend.schedule import prepare_unit
from countperf.errors import DataDependentControlFlowError, ParameterError, UnmeasuredPropertyError
from countperf.models.library import load_weights
from tests.corpus import all_units
from tests.counting.test_source_view import counted_of, executed_of
from tests.nightly import one_of
from tests.oracles import oclgrind

pytestmark = pytest.mark.filterwarnings("ignore")  # Loopy and pymbolic warn of what is written

CORPUS = all_units()
ALL = {f"{source}/{name}": (build, sizes) for source, units in CORPUS.items()
       for name, build, sizes in units}  # fmt: skip

DATA_DECIDES = {
    "arraycontext": {"elementwise_where"},
    "sumpy": {"p2p_without_self", "boxes_sequential", "boxes_without_self"},
    "sumpy_expansions": {
        *(f"p2e_{each}" for each in ("3d_2", "2d_3_lists")),
        *(f"e2p_{each}" for each in ("2d_3", "3d_2_lists")),
        *("e2e_polynomial_2d", "e2e_complex", "m2l_classes_c128"),
    },
    "loopy_tests": {"data_conditional", "predicate", "any", "sparse_matvec"},
    "tsfc": {"extruded"},
}
"""Units whose loops or conditions data decides; all others count without advice."""


def _decided(name: str) -> bool:
    source, _, unit = name.partition("/")
    return unit in DATA_DECIDES.get(source, set())


SOURCES = ("arraycontext", "pytato", "sumpy", "sumpy_expansions")
# no weights know chains of sums of 64-bit integers
PRODUCERS = [n for n in ALL if n.partition("/")[0] in SOURCES and n != "pytato/sum_integers"]
DECIDED = [name for name in ALL if _decided(name)]


def test_the_names_of_the_corpus_are_different() -> None:
    assert sum(map(len, CORPUS.values())) == len(ALL)
    assert {f"{source}/{name}" for source, some in DATA_DECIDES.items() for name in some} <= {*ALL}


@pytest.mark.parametrize("name", one_of(4, dict.fromkeys(PRODUCERS + DECIDED)))
def test_units_count_and_are_predicted_by_themselves_or_with_the_advice_of_one_error(
    name: str,
) -> None:
    build, sizes = ALL[name]
    unit, given = build(), None
    if _decided(name):
        with pytest.raises(DataDependentControlFlowError) as refused:
            count_kernel(unit)
        given = ast.literal_eval(str(refused.value).split("statistics=")[1])
    vector = count_kernel(unit, statistics=given)
    assert all(value >= 0 for value in vector.evaluate(sizes).values())
    weights = load_weights("pocl-epyc-zen5", model="structural")
    try:
        found = countperf.predict(unit, sizes, statistics=given, weights=weights)
    except UnmeasuredPropertyError as error:  # functions that no measurement kernel calls
        if any(".special." not in name for name in error.properties):
            raise
        found = countperf.predict(
            unit, sizes, statistics=given, incomplete_ok=True, weights=weights
        )
    assert 0 < found.time_s < 10


REAL = (
    *(f"arraycontext/elementwise_{end}" for end in ("add", "divide", "f32", "columns", "flat")),
    *(f"arraycontext/einsum_{end}" for end in ("derivative", "faces", "strides")),
    *(f"arraycontext/{end}" for end in ("flux", "gas_2d", "limiter", "reduction_dot")),
    *(f"pytato/{end}" for end in ("axpy", "roll", "reshape", "reshape_three", "concatenate")),
    *(
        f"pytato/{end}"
        for end in ("stack", "pad", "kept", "matmul", "einsum_three", "sum_integers")
    ),
    *(f"pytato/{end}" for end in ("reversed", "cast", "power")),
    *(
        f"sumpy/p2p_{end}"
        for end in ("laplace2", "laplace3", "yukawa3", "groups", "stacked", "f32")
    ),
    *(f"sumpy/{end}" for end in ("matrix_yukawa3", "subset_biharmonic2", "subset_laplace3")),
    "arraycontext/resample_by_picking",
)
COMPLEX = (
    *(f"arraycontext/{end}" for end in ("elementwise_complex", "reduction_complex_norm")),
    *(f"pytato/{end}" for end in ("complex_product", "complex_parts")),
    "sumpy/p2p_helmholtz_complex",
    *(f"sumpy_expansions/{end}" for end in ("unfold", "transform")),
)
SIMULATED = [
    *(*REAL, *COMPLEX),  # which run on any data
    *(
        name
        for name in ALL
        if name.partition("/")[0] in ("loopy_tests", "grudge", "pystella", "tsfc")
        and not _decided(name)
    ),
]


def _smallest(vector: Any) -> dict[str, int]:
    """Return small sizes that the kernel allows."""
    for size in (5, 4, 8, 16, 32, 64, 256):
        sizes = {name: size for name in vector.parameters if name not in vector.defaults}
        with suppress(ParameterError):
            vector.evaluate(sizes)
            return sizes
    raise AssertionError("no size is allowed")


@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
@pytest.mark.parametrize("name", one_of(5, SIMULATED))
def test_counts_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    unit: Any = ALL[name][0]()
    vector = count_kernel(unit)
    sizes = _smallest(vector)
    arguments = prepare_unit(unit)[0].args
    offsets = {argument.name: 0 for argument in arguments if argument.name.endswith("_offset")}
    dynamic = oclgrind.run(unit, sizes | offsets, tmp_path)
    counts = vector.evaluate(sizes)
    widths = [a.dtype.itemsize for a in arguments if a.dtype.involves_complex()]
    if not widths:
        assert oclgrind.disagreements(counts, dynamic) == {}
        return
    executed, counted = executed_of(dynamic, np.dtype(f"c{widths[0]}")), counted_of(counts)
    for kind in ("load", "store", "additions", "multiplications", "divisions"):
        assert counted[kind] == executed[kind], kind


@pytest.mark.parametrize(
    "name", [name for name in DECIDED if name.partition("/")[0] not in SOURCES]
)
def test_counts_by_the_statistics_of_a_refusal_are_estimates_in_all_views(name: str) -> None:
    unit = ALL[name][0]()
    with pytest.raises(DataDependentControlFlowError) as caught:
        count_kernel(unit)
    statistics = caught.value.statistics
    assert statistics
    for view in ("source", "compiled", "structure"):
        vector = count_kernel(unit, statistics=statistics, view=view)
        assert not all(count.exact for count in vector.values())
