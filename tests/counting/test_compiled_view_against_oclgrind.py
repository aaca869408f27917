"""The compiler's view against what LLVM's optimizations leave, executed by a simulator.

Three comparisons. All accesses, additions, multiplications, fused operations, divisions, barriers
and functions with LLVM at -O3 and contraction on: the rules as they are stated. The same without
contraction under Oclgrind's own -Oz, for applications: none has a load to hoist, and additions and
multiplications are compared, fused ones as both. And kernels of which LLVM leaves less: the counts
are bounds from above. Integer operations are not compared: compilers rewrite index arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from countperf.counting.count_properties import count_kernel
from tests.counting.applications import APPLICATIONS
from tests.counting.compiled_kernels import BOUNDS, KERNELS, LOWER_BOUNDS
from tests.nightly import one_of
from tests.oracles import llvm_ir, oclgrind

pytestmark = [
    pytest.mark.oclgrind,
    pytest.mark.skipif(
        not llvm_ir.is_available(), reason="oclgrind-kernel and opt of LLVM 14 are not installed"
    ),
]


def _disagreements(
    t_unit: Any,
    vector: Any,
    parameters: Mapping[str, int],
    folder: Path,
    **more: Any,
) -> dict[str, tuple[int, int]]:
    dynamic = oclgrind.run(t_unit, parameters, folder, contraction=True, **more)
    return oclgrind.disagreements(vector.evaluate(parameters), dynamic, optimized=True)


def _parameters(vector: Any, n: int) -> dict[str, int]:
    return {name: {"n": n, "m": 5}[name] for name in vector.parameters}


@pytest.mark.parametrize("name", one_of(3, APPLICATIONS))
def test_applications_are_as_llvm_leaves_them(name: str, tmp_path: Path) -> None:
    application = APPLICATIONS[name]
    t_unit = application.build()
    for parameters in application.sizes:
        statistics = application.statistics(parameters)
        vector = count_kernel(t_unit, statistics=statistics, view="compiled")
        found = _disagreements(
            t_unit,
            vector,
            parameters,
            tmp_path,
            contents=application.contents(parameters),
            passes=llvm_ir.O3,
        )
        assert found == {}, parameters


@pytest.mark.parametrize("name", one_of(7, APPLICATIONS))
def test_applications_are_as_oclgrind_leaves_them(name: str, tmp_path: Path) -> None:
    application = APPLICATIONS[name]
    t_unit = application.build()
    parameters = application.sizes[0]
    statistics = application.statistics(parameters)
    vector = count_kernel(t_unit, statistics=statistics, view="compiled")
    counted = _with_fused_taken_apart(vector.evaluate(parameters))
    dynamic = oclgrind.run(
        t_unit, parameters, tmp_path, options="", contents=application.contents(parameters)
    )
    # three fused operations share the factors 2 and a[i, j, k]; without fusion, their product
    expected = {"multiplications": (6 * 125, 4 * 125)} if name == "heat-3d" else {}
    assert oclgrind.disagreements(counted, dynamic, optimized=True) == expected


def _with_fused_taken_apart(counted: Mapping[str, int]) -> dict[str, int]:
    result = {name: n for name, n in counted.items() if not name.startswith("flop.fma.")}
    for name, number in counted.items():
        if name.startswith("flop.fma."):
            for kind in ("add", "mul"):
                other = f"flop.{kind}.{name.removeprefix('flop.fma.')}"
                result[other] = result.get(other, 0) + number
    return result


@pytest.mark.parametrize("name", KERNELS)
def test_rules_are_what_llvm_does(name: str, tmp_path: Path) -> None:
    t_unit = KERNELS[name]()
    vector = count_kernel(t_unit, view="compiled")
    passes = llvm_ir.O3_WITH_UNROLLING if "powers" in name else llvm_ir.O3
    parameters = _parameters(vector, 8 if "local" in name or "barrier" in name else 9)
    assert _disagreements(t_unit, vector, parameters, tmp_path, passes=passes) == {}


@pytest.mark.parametrize("name", BOUNDS)
def test_limits_are_bounds_from_above(name: str, tmp_path: Path) -> None:
    t_unit = BOUNDS[name]()
    vector = count_kernel(t_unit, view="compiled")
    parameters = _parameters(vector, 9)
    found = _disagreements(t_unit, vector, parameters, tmp_path, passes=llvm_ir.O3)
    assert found
    assert all(counted > executed for counted, executed in found.values())


@pytest.mark.filterwarnings("ignore:Aff.is_equal:DeprecationWarning")  # in Loopy's bounds
@pytest.mark.parametrize("name", LOWER_BOUNDS)
def test_what_a_compiler_does_not_see_is_a_bound_from_below(name: str, tmp_path: Path) -> None:
    t_unit = LOWER_BOUNDS[name]()
    vector = count_kernel(t_unit, view="compiled")
    parameters = _parameters(vector, 10)
    found = _disagreements(t_unit, vector, parameters, tmp_path, passes=llvm_ir.O3)
    assert set(found) == {"global loads", "bytes of global loads"}
    assert all(counted < executed for counted, executed in found.values())
