"""Kernels of the library, at two sizes, against executed instructions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from countperf.counting.count_properties import count_kernel
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry
from tests.counting.applications import APPLICATIONS
from tests.nightly import one_of
from tests.oracles import oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
]


def _entries() -> list[CatalogEntry]:
    """Return the two smallest shapes of work groups of each variant and element type."""
    shapes: dict[tuple[str, str, str], list[CatalogEntry]] = {}
    for purpose in ("measurement", "test"):
        for each in entries(element_type=None, purpose=purpose):
            shapes.setdefault((each.family, each.variant, each.element_type), []).append(each)
    by_size = (sorted(some, key=lambda e: math.prod(e.group_shape)) for some in shapes.values())
    return [each for some in by_size for each in some[:2]]


def _smaller(found: CatalogEntry) -> dict[str, int]:
    """Return a second set of sizes: those that scale shrink to one group, others to a third."""
    known = found.check_parameters
    thirds = {size.name: max(1, known[size.name] // 3) for size in found.sizes}
    return thirds | {size.name: size.multiple for size in found.sizes if size.multiple > 1}


@pytest.mark.parametrize("each", one_of(9, _entries()))
def test_counts_equal_executed_instructions(each: CatalogEntry, tmp_path: Path) -> None:
    t_unit = each.build()
    vector = count_kernel(t_unit)
    assert vector.is_exact
    for parameters in (dict(each.check_parameters), _smaller(each)):
        dynamic = oclgrind.run(t_unit, parameters, tmp_path)
        assert oclgrind.disagreements(vector.evaluate(parameters), dynamic) == {}, parameters


@pytest.mark.parametrize("name", one_of(3, APPLICATIONS))
def test_counts_of_applications_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    application = APPLICATIONS[name]
    t_unit = application.build()
    for parameters in application.sizes:
        statistics = application.statistics(parameters)
        vector = count_kernel(t_unit, statistics=statistics)
        assert vector.is_exact is not bool(statistics)
        contents = application.contents(parameters)
        dynamic = oclgrind.run(t_unit, parameters, tmp_path, contents=contents)
        assert oclgrind.disagreements(vector.evaluate(parameters), dynamic) == {}, parameters
