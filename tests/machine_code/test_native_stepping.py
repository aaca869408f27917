"""Following compiled groups, against the processor that executes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from countperf.devices.discovery import find_device
from countperf.errors import DeviceError
from countperf.machine_code.tools import find_objdump
from measurement_kernels import catalog
from tests.devices.loopy_cases import GROUP, two_launches
from tests.kernels import made
from tests.oracles.native_stepping import Steppable, SteppingError, compiled_for_stepping, stepper

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed"),
]

NAMES = (
    *("finite-differences/16x16/f32", "guards/scattered/32x8/f32", "integer/div-1/128x1/f32"),
    *("jacobi-2d/32x8/f32", "local-access/stride-8/128x1/f32", "matmul-tiled/square/16x16/f32"),
    *("precision/divide/128x1/f64", "rows-in-loops/one-of-500/128x1/f64", "trmm/32x8/f32"),
    *("short-launches/sums/32x1/f32", "shared-lines/copied-4x4-1952/4x4/f32"),
    "transpose/tiled/16x16/f32",
)
"""Of several launches, with guards, remainders, barriers, divisions and triangular loops."""


def one_group() -> Any:
    """Multiply rows by a matrix, untransformed: one group of one item, which PoCL calls."""
    return made("e<n, i<9, j<9", "z[e,i] = sum(j, M[i,j]*u[e,j])", "z,u f64 n,9; M f64 9,9; n i32")


def stencil() -> Any:
    """Average neighbors in three dimensions: compilers guard the loop against overflow."""
    return made(
        "i<n, j<n, k<n",
        "r[i,j,k] = u[i+1,j+1,k+1] - u[i,j+1,k+1] - u[i+2,j+1,k+1] - u[i+1,j+1,k+2]",
        "u f32 n+2,n+2,n+2; r f32 n,n,n; n i32",
        assumptions="n mod 16 = 0 and n >= 16",
        split="k:16 j:2:1",
    )


def upper_rows() -> Any:
    """Sum the upper triangle of a matrix; the last group is not full."""
    arguments = "a f64 n,n; x,y f64 n; n i32"
    return made("i<n, i<=j<n", "y[i] = sum(j, a[i,j]*x[j])", arguments, split="i:32")


OTHERS = {
    **{"one-group": (one_group, {"n": 7}), "stencil": (stencil, {"n": 32})},
    **{"two-launches": (two_launches, {"n": 4 * GROUP}), "upper-rows": (upper_rows, {"n": 50})},
}
"""Kernels as other projects write them."""


def sizes_of(name: str) -> Mapping[str, int]:
    return OTHERS[name][1] if name in OTHERS else catalog.entry(name).check_parameters


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Steppable]:
    try:
        device = find_device("pocl:0")
        stepper()
    except (DeviceError, SteppingError) as error:
        pytest.skip(str(error))
    names = (*NAMES, *OTHERS)
    builders = {name: catalog.entry(name).build for name in NAMES}
    builders |= {name: build for name, (build, _) in OTHERS.items()}
    units = [(builders[name](), sizes_of(name)) for name in names]
    results = compiled_for_stepping(units, device, tmp_path_factory.mktemp("objects"))
    by_name = zip(names, results, strict=True)
    return {name: kernel for name, kernel in by_name if isinstance(kernel, Steppable)}


@pytest.mark.parametrize("factor", [1, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_every_instruction_is_executed_as_often(
    kernels: Mapping[str, Steppable], name: str, factor: int
) -> None:
    sizes = {n: factor * size for n, size in sizes_of(name).items()}
    kernel = kernels[name]
    for launch, number in kernel.groups(sizes):
        try:
            executed, differences = kernel.compare(launch, number)
        except SteppingError as error:
            if "ptrace" not in str(error):
                raise
            pytest.skip(str(error))
        assert executed > 10
        assert differences == []
