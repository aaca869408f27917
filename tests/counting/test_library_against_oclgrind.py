"""Measurement and test kernels of the library, at two sizes, against executed instructions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from countperf.properties.count_properties import count_kernel
from measurement_kernels.catalog import entries
from measurement_kernels.entry import CatalogEntry
from tests.nightly import one_of
from tests.oracles import oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
]


def _units() -> dict[str, list[CatalogEntry]]:
    """Group the library by kernel, under the first name: some entries differ in sizes alone.

    Of the shapes of work groups of each variant and element type the two smallest stand for the
    others. Applications are left out: they have a test of their own.
    """
    shapes: dict[tuple[str, str, str], list[CatalogEntry]] = {}
    for purpose in ("measurement", "test"):
        for each in entries(element_type=None, purpose=purpose):
            shapes.setdefault((each.family, each.variant, each.element_type), []).append(each)
    entries_of: dict[Any, list[CatalogEntry]] = {}
    for some in shapes.values():
        for each in sorted(some, key=lambda each: math.prod(each.group_shape))[:2]:
            entries_of.setdefault(id(each.build()), []).append(each)
    return {some[0].name: some for some in entries_of.values()}


UNITS = _units()


def _smaller(found: CatalogEntry) -> dict[str, int]:
    """Return a second set of sizes: those that scale shrink to one group, others to a third."""
    smaller: dict[str, int] = {}
    for size in found.sizes:
        value = found.check_parameters[size.name]
        smaller[size.name] = size.multiple if size.multiple > 1 else max(1, value // 3)
    return smaller


@pytest.mark.parametrize("name", one_of(5, UNITS))
def test_counts_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    t_unit = UNITS[name][0].build()
    vector = count_kernel(t_unit)
    assert vector.is_exact
    tried: list[dict[str, int]] = []
    for each in UNITS[name]:
        assert each.build() is t_unit
        for parameters in (dict(each.check_parameters), _smaller(each)):
            if parameters in tried:
                continue
            tried.append(parameters)
            dynamic = oclgrind.run(t_unit, parameters, tmp_path)
            assert oclgrind.disagreements(vector.evaluate(parameters), dynamic) == {}, parameters
