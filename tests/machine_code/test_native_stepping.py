"""Following compiled groups, against the processor that executes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import loopy as lp
import numpy as np
import pytest

from countperf.errors import DeviceError
from countperf.harness.devices import find_device
from countperf.machine_code.machine_state import KernelLaunch
from countperf.machine_code.object_file import find_objdump
from measurement_kernels import catalog
from tests.harness.loopy_cases import GROUP, two_launches
from tests.oracles.native_stepping import (
    Steppable,
    SteppingError,
    compiled_for_stepping,
    stepped,
    stepper,
)

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(find_objdump() is None, reason="objdump is not installed"),
]

NAMES = (
    "finite-differences/16x16/f32",
    "guards/scattered/32x8/f32",
    "integer/div-1/128x1/f32",
    "jacobi-2d/32x8/f32",
    "local-access/stride-8/128x1/f32",
    "matmul-tiled/square/16x16/f32",
    "precision/divide/128x1/f64",
    "rows-in-loops/one-of-500/128x1/f64",
    "short-launches/sums/32x1/f32",
    "shared-lines/copied-4x4-1952/4x4/f32",
    "transpose/tiled/16x16/f32",
    "trmm/32x8/f32",
)
"""Of several launches, with guards, remainders, barriers, divisions and triangular loops."""


def one_group() -> Any:
    """Multiply rows by a matrix, untransformed: one group of one item, which PoCL calls."""
    return lp.make_kernel(
        "{[e,i,j]: 0<=e<n and 0<=i,j<9}",
        "z[e,i] = sum(j, M[i,j]*u[e,j])",
        [
            lp.GlobalArg("z,u", np.float64, shape="n,9"),
            lp.GlobalArg("M", np.float64, shape="9,9"),
            lp.ValueArg("n", np.int32),
        ],
        lang_version=(2018, 2),
    )


def stencil() -> Any:
    """Average neighbors in three dimensions: compilers guard the loop against overflow."""
    unit = lp.make_kernel(
        "{[i,j,k]: 0<=i,j,k<n}",
        "r[i,j,k] = u[i+1,j+1,k+1] - u[i,j+1,k+1] - u[i+2,j+1,k+1] - u[i+1,j+1,k+2]",
        [
            lp.GlobalArg("u", np.float32, shape="n+2,n+2,n+2"),
            lp.GlobalArg("r", np.float32, shape="n,n,n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n mod 16 = 0 and n >= 16",
        lang_version=(2018, 2),
    )
    unit = lp.split_iname(unit, "k", 16, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(unit, "j", 2, outer_tag="g.1", inner_tag="l.1")


def upper_rows() -> Any:
    """Sum the upper triangle of a matrix; the last group is not full."""
    unit = lp.make_kernel(
        "{[i,j]: 0<=i<n and i<=j<n}",
        "y[i] = sum(j, a[i,j]*x[j])",
        [
            lp.GlobalArg("a", np.float64, shape="n,n"),
            lp.GlobalArg("x,y", np.float64, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        assumptions="n >= 1",
        lang_version=(2018, 2),
    )
    return lp.split_iname(unit, "i", 32, outer_tag="g.0", inner_tag="l.0")


OTHERS = {
    "one-group": (one_group, {"n": 7}),
    "stencil": (stencil, {"n": 32}),
    "two-launches": (two_launches, {"n": 4 * GROUP}),
    "upper-rows": (upper_rows, {"n": 50}),
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
    units = [
        (OTHERS[name][0]() if name in OTHERS else catalog.entry(name).build(), sizes_of(name))
        for name in names
    ]
    found = compiled_for_stepping(units, device, tmp_path_factory.mktemp("objects"))
    return {
        name: each for name, each in zip(names, found, strict=True) if isinstance(each, Steppable)
    }


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


FUNCTION = """
typedef unsigned long word;
struct context { word groups[3], offset[3], shape[3]; };
void _pocl_kernel_sum_workgroup(void **arguments, struct context *context, word x, word y, word z)
{
    int *array = *(int **)arguments[0], steps = *(int *)arguments[1];
    for (int k = 0; k < steps; k++)
        __asm__ volatile("incl %0" : "+m"(array[k]));
    __asm__ volatile("rep stosb" : "+D"(array) : "a"(0), "c"(100) : "memory");
}
"""


def test_the_counts_of_a_function_of_ours(tmp_path: Path) -> None:
    import subprocess

    try:
        stepper()
    except SteppingError as error:
        pytest.skip(str(error))
    source, library = tmp_path / "sum.c", tmp_path / "sum.so"
    source.write_text(FUNCTION)
    command = ["cc", "-O1", "-fno-unroll-loops", "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True)
    launch = KernelLaunch(
        kernel="sum",
        arguments=(None, (17).to_bytes(4, "little")),
        groups=(1, 1, 1),
        group_shape=(1, 1, 1),
    )
    try:
        counts, outside = stepped(library, launch, (0, 0, 0))
    except SteppingError as error:
        if "ptrace" not in str(error):
            raise
        pytest.skip(str(error))
    assert outside == 0
    assert sorted(set(counts.values())) == [1, 17]  # what is repeated by a prefix counts once
    with pytest.raises(SteppingError, match="gave up"):
        stepped(library, launch, (0, 0, 0), most_steps=20)
