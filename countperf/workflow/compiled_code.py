"""Machine code of kernels, and of the measured kernels of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.errors import (
    CountingError,
    DeviceMismatchError,
    KernelBuildError,
)
from countperf.execution.memory_hierarchy import CacheSize
from countperf.harness.campaign import Rewriting
from countperf.harness.compile.compiled_kernel import CompiledKernel, counts_of_many, read_compiled
from countperf.harness.compile.ptx import GpuCounts, GpuKernel
from countperf.harness.devices import find_device
from countperf.machine_code.classify_x86 import CYCLES
from countperf.properties.counts import caches_of
from countperf.steps import stepped
from countperf.tuning.pools import process_pool
from countperf.workflow.kernels import kernel_itself
from measurement_kernels.catalog import entry

if TYPE_CHECKING:
    from countperf.measurements import Measurement, MeasurementSet


_BATCH = 40  # kernels that a process compiles
_BETWEEN_FILES = 400  # after so many the file is written


def executed_on_gpu(
    kernel: Any,
    parameters: Mapping[str, int] | None = None,
    *,
    capability: str = "9.0",
    every_group: bool = False,
) -> GpuCounts:
    """Count the instructions that a kernel executes on an NVIDIA GPU; no GPU is needed."""
    executed = GpuKernel(kernel_itself(kernel, "code to compile"), capability)
    return executed.counts(parameters or {}, every_group=every_group)


def read_code(
    measurements: Path | str,
    *,
    device: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> MeasurementSet:
    """Compile the measured kernels of the catalogue, and note what their code executes, in place.

    Nothing is measured. Misses are those of the first-level cache that the counts of a case state
    (`countperf.workflow.fitting.recount` makes it that of the device). Cases that have their
    instructions already are left as they are, unless what older versions noted says nothing of
    cycles. The file is written now and then, so that a run that is cut off goes on where it was.
    """
    with Rewriting(measurements) as file:
        return _read_code(file, device, progress or (lambda _: None))


def _read_code(file: Rewriting, device: str | None, say: Callable[[str], None]) -> MeasurementSet:
    """Note what the code of measured kernels executes, in an open file."""
    measured = file.read()
    chosen = find_device(device or measured.device.slug)
    if not measured.device.matches(chosen.identity):
        raise DeviceMismatchError(
            f"{chosen.label} is not what was measured, {measured.device.slug}: code is compiled for"
            " each processor; read it there",
            expected=measured.device.slug,
            actual=chosen.identity.slug,
        )
    waiting: dict[str, list[Measurement]] = {}
    for measurement in measured:
        if measurement.code is None or CYCLES not in measurement.code:
            waiting.setdefault(measurement.kernel, []).append(measurement)
    cases = [
        # with the first-level cache that the counts of a case say code is read for
        (name, tuple((m.case, m.parameters, caches_of(m.properties or {}).code) for m in some))
        for name, some in waiting.items()
    ]
    batches = [cases[first : first + _BATCH] for first in range(0, len(cases), _BATCH)]
    code: dict[str, dict[str, int]] = {}

    def renewed() -> MeasurementSet:
        noted = tuple(
            m.model_copy(update={"code": code[m.case]}) if m.case in code else m for m in measured
        )
        return replace(measured, measurements=noted)

    with process_pool() as pool:
        done = 0
        read = pool.map(partial(_code_of, chosen.label), batches)
        pairs = zip(batches, read, strict=True)
        for batch, outcomes in stepped(pairs, "reading code", total=len(batches)):
            for case, outcome in outcomes:
                if isinstance(outcome, str):
                    say(f"{case}: {outcome}")
                else:
                    code[case] = outcome
            done += len(batch)
            say(f"{done} of {len(cases)} kernels")
            if done % _BETWEEN_FILES < _BATCH:
                file.write(renewed())
    noted = renewed()
    file.write(noted)
    return noted


def _code_of(
    label: str, cases: Sequence[tuple[str, Sequence[tuple[str, Mapping[str, int], CacheSize]]]]
) -> list[tuple[str, dict[str, int] | str]]:
    """Return what the code of kernels of the catalogue executes by case, or why that is unknown."""
    entries = [entry(name) for name, _ in cases]
    units = [(e.build(), some[0][1]) for e, (_, some) in zip(entries, cases, strict=True)]
    code: list[tuple[str, dict[str, int] | str]] = []
    names: list[str] = []
    requests: list[tuple[CompiledKernel, Mapping[str, int], Mapping[str, Any], CacheSize]] = []
    read = read_compiled(units, find_device(label))
    for known, (_, some), compiled in zip(entries, cases, read, strict=True):
        for case, parameters, cache in some:
            if isinstance(compiled, KernelBuildError):
                code.append((case, str(compiled)))
                continue
            names.append(case)
            requests.append((compiled, parameters, known.statistics_at(parameters), cache))
    for case, counts in zip(names, counts_of_many(requests), strict=True):
        code.append((case, str(counts) if isinstance(counts, CountingError) else counts))
    return code
