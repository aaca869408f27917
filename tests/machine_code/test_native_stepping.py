"""Following compiled groups, against the processor that executes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from countperf.errors import DeviceError
from countperf.harness.devices import find_device
from countperf.machine_code.launch import KernelLaunch
from countperf.machine_code.objdump import find_objdump
from measurement_kernels import catalog
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
    "atax/128x1/f32",
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


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Steppable]:
    try:
        device = find_device("pocl:0")
        stepper()
    except (DeviceError, SteppingError) as error:
        pytest.skip(str(error))
    entries = [catalog.entry(name) for name in NAMES]
    units = [(each.build(), each.check_parameters) for each in entries]
    found = compiled_for_stepping(units, device, tmp_path_factory.mktemp("objects"))
    return {
        name: each for name, each in zip(NAMES, found, strict=True) if isinstance(each, Steppable)
    }


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_is_executed_as_often(
    kernels: Mapping[str, Steppable], name: str, factor: int
) -> None:
    sizes = {n: factor * size for n, size in catalog.entry(name).check_parameters.items()}
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
