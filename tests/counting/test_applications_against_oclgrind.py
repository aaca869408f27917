"""Application kernels at two sizes against executed instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from countperf.counting.count_properties import count_kernel
from tests.counting.applications import APPLICATIONS
from tests.nightly import one_of
from tests.oracles import oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed"),
]


@pytest.mark.parametrize("name", one_of(3, APPLICATIONS))
def test_counts_equal_executed_instructions(name: str, tmp_path: Path) -> None:
    application = APPLICATIONS[name]
    t_unit = application.build()
    for parameters in application.sizes:
        statistics = application.statistics(parameters)
        vector = count_kernel(t_unit, statistics=statistics)
        assert vector.is_exact is not bool(statistics)
        dynamic = oclgrind.run(
            t_unit, parameters, tmp_path, contents=application.contents(parameters)
        )
        assert oclgrind.disagreements(vector.evaluate(parameters), dynamic) == {}, parameters
