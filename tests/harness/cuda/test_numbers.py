"""CUDA code of all kernels of the catalogue, run on the host, against their references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from countperf.errors import WrongResultError
from countperf.harness.backend import Session, open_session
from countperf.harness.cuda.backend import CudaBackend
from countperf.harness.devices import Device
from countperf.harness.launch import read_output
from countperf.harness.runner import KernelRunner
from measurement_kernels.catalog import entries
from tests.counting.applications import APPLICATIONS
from tests.harness.cuda.emulator import COMPILER, EmulatedModule
from tests.harness.cuda.fake_cupy import FakeCupy
from tests.harness.cuda.sources import all_code, application

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> KernelRunner:
    """Return a runner of the CUDA backend for which all kernels are compiled already."""
    folder: Path = tmp_path_factory.mktemp("numbers")
    sources = {name: code.source for name, code in all_code().items()}
    module = EmulatedModule(sources, folder)
    cupy = FakeCupy(folder, ready={source: (module, name) for name, source in sources.items()})
    (device,) = CudaBackend(cupy.driver).discover().devices
    return KernelRunner.open(device)


def test_every_kernel_computes_what_its_reference_says(runner: KernelRunner) -> None:
    everything = entries(element_type=None, purpose=None)
    assert len(everything) == 302

    for entry in everything:
        exponent = entry.exponents[0] + entry.exponent_steps[0]
        runner.check(entry.case(exponent))


def test_a_wrong_number_would_be_seen(runner: KernelRunner) -> None:
    entry = entries(family="transpose")[0]
    case = entry.case(entry.exponents[0] + entry.exponent_steps[0])

    def wrong(inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
        outputs = {name: np.array(right) for name, right in case.reference(inputs, sizes).items()}
        next(iter(outputs.values())).flat[-1] += 1
        return outputs

    fresh = KernelRunner(runner.session)
    with pytest.raises(WrongResultError, match="1 of"):
        fresh.check(replace(case, reference=wrong))


def _run(session: Session, name: str, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Run an application with the same inputs on any device."""
    random = np.random.default_rng(4)
    kernel = session.build_kernel(application(name))
    scalars: dict[str, Any] = {**sizes}
    scalars.update({each: 0.75 for each in sorted(kernel.scalars) if each not in sizes})
    contents = APPLICATIONS[name].contents(sizes)
    inputs: dict[str, NDArray[Any]] = {}
    for array in kernel.arrays:
        shape, _ = array.layout(scalars)
        values = contents.get(array.name, random.uniform(-1, 1, shape))
        inputs[array.name] = np.array(values, array.dtype)
    memory = {each: session.upload(values) for each, values in inputs.items()}
    kernel.launch({**{each: scalars[each] for each in kernel.scalars}, **memory})
    session.finish()
    return {a.name: read_output(session, a, memory[a.name], scalars) for a in kernel.arrays}


@pytest.mark.device
@pytest.mark.parametrize("name", APPLICATIONS)
def test_applications_compute_the_same_as_on_opencl(
    name: str, runner: KernelRunner, device: Device
) -> None:
    opencl = open_session(device)
    for sizes in APPLICATIONS[name].sizes:
        wanted = _run(opencl, name, sizes)
        found = _run(runner.session, name, sizes)

        for array, values in wanted.items():
            np.testing.assert_allclose(found[array], values, rtol=1e-4, atol=1e-5, err_msg=array)
