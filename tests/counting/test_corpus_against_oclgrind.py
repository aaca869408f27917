"""Kernels re-created after downstream projects, against what Oclgrind executes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from countperf.counting.schedule import prepared
from countperf.errors import DataDependentControlFlowError, ParameterError
from countperf.properties.count_properties import count_kernel
from tests.corpus import grudge, loopy_tests, pystella, tsfc
from tests.counting.test_language_complex import counted_of, executed_of
from tests.nightly import one_of
from tests.oracles import oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
_SIZES = (4, 5, 8, 16, 32, 64, 256)
_ELSEWHERE = {"callee", "cells_calling"}
"""The simulator takes one kernel; other tests have calls."""
_DATA = {"data_conditional", "predicate", "any", "sparse_matvec", "extruded"}
UNITS = {
    f"{module.__name__.rpartition('.')[2]}-{name}": build
    for module in (loopy_tests, grudge, pystella, tsfc)
    for name, build, _ in module.UNITS
    if name not in _ELSEWHERE | _DATA and not name.startswith("vectors")
}


def _smallest(vector: Any) -> dict[str, int]:
    """Return small sizes that the kernel allows."""
    for size in _SIZES:
        sizes = {name: size for name in vector.parameters if name not in vector.defaults}
        try:
            vector.evaluate(sizes)
        except ParameterError:
            continue
        return sizes
    raise AssertionError(f"none of {_SIZES} is allowed")


@pytest.mark.parametrize("name", one_of(2, UNITS))
def test_counts_are_what_is_executed(name: str, tmp_path: Path) -> None:
    unit = UNITS[name]()
    vector = count_kernel(unit)
    sizes = _smallest(vector)
    arguments = prepared(unit)[0].args
    offsets = {each.name: 0 for each in arguments if each.name.endswith("_offset")}
    dynamic = oclgrind.run(unit, sizes | offsets, tmp_path)
    counts = vector.evaluate(sizes)
    if not any(each.dtype.involves_complex() for each in arguments):
        assert oclgrind.disagreements(counts, dynamic) == {}
        return
    widths = {each.dtype.itemsize for each in arguments if each.dtype.involves_complex()}
    expected = executed_of(dynamic, np.dtype(f"c{widths.pop()}"))
    compared = counted_of(counts)
    for kind in ("bytes loaded", "bytes stored", "additions", "multiplications", "divisions"):
        assert compared[kind] == expected[kind], kind


@pytest.mark.parametrize("name", sorted(_DATA))
def test_what_data_decides_is_refused_with_statistics_that_help(name: str) -> None:
    (build,) = (
        build for module in (loopy_tests, tsfc) for other, build, _ in module.UNITS if other == name
    )
    unit = build()
    with pytest.raises(DataDependentControlFlowError) as caught:
        count_kernel(unit)
    statistics = caught.value.statistics
    assert statistics
    for view in ("source", "compiled", "structure"):
        vector = count_kernel(unit, statistics=statistics, view=view)
        assert not all(count.exact for count in vector.values())
