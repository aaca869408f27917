"""Formulas of executed instructions, against following the code at other sizes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from countperf.errors import DeviceError, ParameterError
from countperf.harness.compile.code_formulas import code_formulas
from countperf.harness.compile.compiled_kernel import CompiledKernel, read_compiled
from countperf.harness.compile.object_cache import VARIABLE
from countperf.harness.device import Device
from countperf.harness.devices import find_device
from countperf.machine_code.objdump import find_objdump
from countperf.machine_code.throughput import find_analyzer
from countperf.properties.count_properties import count_kernel
from measurement_kernels import catalog

needs_programs = pytest.mark.skipif(
    find_objdump() is None or find_analyzer() is None, reason="needs objdump and llvm-mca"
)
CASES = {
    "matmul-tiled/square/16x16/f32": ({"n": 64, "m": 96, "l": 32}, {"n": 208, "m": 48, "l": 176}),
    "vector-scale-add/stride1/256x1/f32": ({"n": 4096}, {"n": 7936}),
    "atax/128x1/f32": ({"n": 256, "m": 128}, {"n": 640, "m": 1152}),
}


@pytest.fixture(scope="module", params=["pocl:0", "intel:0"])
def device(request: pytest.FixtureRequest) -> Device:
    try:
        return find_device(request.param)
    except DeviceError as error:
        pytest.skip(str(error))


def read(cases: Mapping[str, dict[str, int]], device: Device) -> list[CompiledKernel]:
    """Read the code of kernels at one size each, in one process."""
    units = [(catalog.entry(name).build(), sizes) for name, sizes in cases.items()]
    compiled = [each for each in read_compiled(units, device) if isinstance(each, CompiledKernel)]
    assert len(compiled) == len(units)
    return compiled


@needs_programs
@pytest.mark.parametrize("name", CASES)
def test_formulas_are_what_is_followed(name: str, device: Device) -> None:
    example, other = CASES[name]
    (compiled,) = read({name: example}, device)
    vector = count_kernel(catalog.entry(name).build(), view="structure")
    found = code_formulas(compiled, vector, example)
    assert found.formulas.covers(example)
    assert found.formulas.covers(other)
    for sizes in (example, other):
        said, followed = found.vector.evaluate(sizes), compiled.counts(sizes)
        # what is followed is rounded to whole cycles for each block of a group, formulas are not
        rounding = sum(
            0.5 * len(each.blocks) * each.launch.number_of_groups for each in compiled.follow(sizes)
        )
        for known in {*said, *followed}:
            if known.startswith("code.cycles"):
                assert float(said[known]) == pytest.approx(followed[known], rel=2e-2, abs=rounding)
            elif known.startswith("code."):
                assert said.get(known, 0) == followed.get(known, 0), known
    with pytest.raises(ParameterError, match="formulas of its compiled code hold for"):
        found.vector.evaluate(dict.fromkeys(example, 1_000_000_007))


@needs_programs
def test_the_code_is_the_same_at_all_sizes(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    first, second = (
        read({name: sizes[place] for name, sizes in CASES.items()}, device) for place in (0, 1)
    )
    for one, other in zip(first, second, strict=True):
        assert one.programs.keys() == other.programs.keys() != set()
        for kernel, program in one.programs.items():
            for line, same in zip(program.lines, other.programs[kernel].lines, strict=True):
                assert (line.mnemonic, line.operands) == (same.mnemonic, same.operands)
