"""Every measurement and test kernel of the library, at two sizes, against executed instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.properties.count_properties import count_kernel
from measurement_kernels.catalog import entries, entry
from tests.oracles import oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
]


LIBRARY = [
    each.name
    for purpose in ("measurement", "test")
    for each in entries(element_type=None, purpose=purpose)
]
"""All but the applications, which have a test of their own."""


def _smaller(name: str) -> dict[str, int]:
    """Return a second set of sizes: those that scale shrink to one group, others to a third."""
    found = entry(name)
    smaller: dict[str, int] = {}
    for size in found.sizes:
        value = found.check_parameters[size.name]
        smaller[size.name] = size.multiple if size.multiple > 1 else max(1, value // 3)
    return smaller


@pytest.mark.parametrize("name", LIBRARY)
def test_counts_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    t_unit = entry(name).build()
    vector = count_kernel(t_unit)
    assert vector.is_exact
    sizes = dict(entry(name).check_parameters)
    for parameters in (sizes, _smaller(name)):
        dynamic = oclgrind.run(t_unit, parameters, tmp_path)
        assert oclgrind.disagreements(vector.evaluate(parameters), dynamic) == {}, parameters
