"""The interpreter against a case counted by hand, and against executed instructions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import loopy as lp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles import oclgrind
from tests.oracles.interpreter import Interpreter, NotInterpretedError, utilization_classes
from tests.strategies import LOOPY_REFUSALS, KernelCase, generated, kernels, staged_tiles


def test_a_small_kernel_tallies_what_is_counted_by_hand() -> None:
    kernel = lp.make_kernel(
        "{ [i, j] : 0 <= i < 5 and 0 <= j <= i }",
        "b[i] = sum(j, a[2*i + j]*a[j] if j < 2 else 1.5)",
        [lp.GlobalArg("a", np.float32, shape=20), lp.GlobalArg("b", np.float32, shape=5)],
        lang_version=(2018, 2),
    )
    kernel = lp.split_iname(kernel, "i", 2, outer_tag="g.0", inner_tag="l.0")
    run = Interpreter(kernel).run({}, with_cells=True)
    # 15 points of the triangle, 9 of them with j < 2, three groups
    assert run.properties() == {
        "flop.add.f32": 15,
        "flop.mul.f32": 9,
        "flop.select.f32": 15,
        "gmem.load.32": 18,
        "gmem.store.32": 5,
        "groups": 3,
        "launches": 1,
    }
    assert run.cells["a", "load"] == {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
    assert run.cells["b", "store"] == {0, 1, 2, 3, 4}
    (classes,) = utilization_classes([run]) or [{}]
    found = {(a.array, str(a.index[0])): name for a, name in classes.items()}
    assert sorted(found.values()) == ["2of2", "stride1", "uniform"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # code generation on newer islpy
@pytest.mark.oclgrind
@pytest.mark.skipif(oclgrind.PROGRAM is None, reason="oclgrind-kernel is not installed")
def test_generated_kernels_tally_executed_instructions() -> None:
    compared: set[KernelCase] = set()

    @generated(20)
    @given(st.one_of(kernels(), staged_tiles()))
    def check(case: KernelCase) -> None:
        with lp.CacheMode(False), tempfile.TemporaryDirectory() as folder:
            try:
                t_unit = lp.add_inames_for_unused_hw_axes(case.build())
                t_unit = lp.set_options(t_unit, enforce_array_accesses_within_bounds=False)
                interpreter = Interpreter(t_unit)
                lp.generate_code_v2(t_unit)
            except LOOPY_REFUSALS:
                return
            parameters = case.parameters(t_unit)[0]
            try:
                executed = interpreter.run(parameters).properties()
            except NotInterpretedError:
                return
            if "groups" not in executed:
                return
            dynamic = oclgrind.run(t_unit, parameters, Path(folder))
            assert oclgrind.disagreements(executed, dynamic) == {}, parameters
            compared.add(case)

    check()
    assert len(compared) >= 8
