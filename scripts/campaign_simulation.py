"""Simulation of the campaign on a rented GPU: its stages and budget, on a clock of its own.

The stages, shares, budget, sizes and rounds are the campaign's own code. Simulated is what takes
time: a GPU whose runs take the time of a roofline (data sheet), and a host that builds, checks and
draws inputs at given rates. A stage is cut off when its time is over, as the campaign does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countperf.api.catalogue import profile_entries
from countperf.counting.count_properties import count_kernel
from countperf.devices.device import DeviceLimits, RunTime
from countperf.devices.identity import DeviceIdentity
from countperf.devices.parameters import load_device
from countperf.errors import CountingError
from countperf.measuring.campaign import measure
from countperf.measuring.runner import CaseRunner
from countperf.measuring.size_choice import SizeLimits, calibrate
from measurement_kernels.catalog import entries, entry
from measurement_kernels.variants.sets import variant_entries, variant_sets
from rental import stages as gpu_stages
from rental.campaign import run_campaign
from rental.stages import RENTAL, Options, Stage, plan

if TYPE_CHECKING:
    from countperf.counting.vector import PropertyVector
    from countperf.measuring import KernelCase, Purpose
    from countperf.measuring.runner import Run
    from measurement_kernels.entry import CatalogEntry
    from rental.summary import Progress

RUN_OVERHEAD_S = 1e-5
_MEMORY_BYTES = 16 * 2**30


class CutOffError(Exception):
    """The time of a stage is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Times that a host takes beside the GPU."""

    # for a stage: a process, its imports, CUDA's context, trying the device, s
    start_s: float = 6.0
    generate_s: float = 0.25  # to generate the code of a kernel, s
    compile_s: float = 0.15  # to compile it, s; later processes find it in CuPy's cache
    check_s: float = 0.02  # to compare a kernel with its reference, s
    input_byte_per_s: float = 4e8  # at which inputs are drawn and copied to the GPU, byte/s
    processors: int = 8  # that generate code
    # for a fit with its evaluation, for ranking the variants, for the microbenchmarks, s
    fit_s: float = 25.0
    # for a fit with its evaluation, for ranking the variants, for the microbenchmarks, s
    rank_s: float = 12.0
    # for a fit with its evaluation, for ranking the variants, for the microbenchmarks, s
    characterize_s: float = 45.0


class SimulatedClock:
    """Clock that goes on by what is simulated, up to a deadline."""

    def __init__(self) -> None:
        self.time = 0.0
        self.deadline = float("inf")

    def now(self) -> float:
        """Return the simulated time, s."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass, s; CutOffError at the deadline."""
        if self.time + seconds > self.deadline:
            self.time = self.deadline
            raise CutOffError
        self.time += seconds

    def time_run(self, launch: Callable[[], Any]) -> RunTime:
        """Run what returns its own time."""
        seconds = float(launch())
        self.sleep(seconds + RUN_OVERHEAD_S)
        return RunTime(time_s=seconds, host_s=seconds + RUN_OVERHEAD_S)


@cache
def _counted(kernel: str) -> PropertyVector | None:
    try:
        return count_kernel(entry(kernel).build(), view="structure")
    except CountingError:
        return None


class SimulatedRunner(CaseRunner):
    """Runs cases in simulated time, as `countperf.measuring.runner.CaseRunner`."""

    def __init__(self, gpu: str, host: Host, clock: SimulatedClock) -> None:
        device = load_device(gpu)
        self._peak = device.require("peak_flops")
        self._bandwidth = device.require("bandwidth_byte_per_s")
        self._host = host
        self._built: set[str] = set()
        self.clock = self._simulated = clock
        self.identity = DeviceIdentity(
            slug=gpu,
            platform="CUDA",
            vendor="NVIDIA Corporation",
            name=device.name,
            driver_version="simulated",
            device_type="gpu",
            compute_units=int(device.require("num_compute_units")),
        )
        self.limits = DeviceLimits(
            max_group_size=1024,
            max_group_shape=(1024, 1024, 64),
            local_memory_bytes=48 * 1024,
            global_memory_bytes=_MEMORY_BYTES,
            max_allocation_bytes=_MEMORY_BYTES,
            timer_resolution_s=5e-7,
        )

    def check(self, case: KernelCase) -> None:
        """Take the time of building, counting and checking a kernel, once in a stage."""
        if case.kernel not in self._built:
            self._built.add(case.kernel)
            host = self._host
            self.clock.sleep(2 * host.generate_s + host.compile_s + host.check_s)

    @contextmanager
    def loaded(self, case: KernelCase) -> Generator[Run]:
        """Take the time of the inputs, and give a run of the time of the roofline."""
        self.clock.sleep(case.global_memory_bytes / self._host.input_byte_per_s)
        seconds = self.run_s(case)
        yield lambda: self._simulated.time_run(lambda: seconds)

    def run_s(self, case: KernelCase) -> float:
        """Return the time of a run, s: a launch, and the longer one of arithmetic and memory."""
        traffic = case.global_memory_bytes / self._bandwidth
        operations = 0.0
        vector = _counted(case.kernel)
        if vector is not None:
            counted = vector.evaluate(dict(case.parameters))
            for name, number in counted.items():
                if name.startswith("flop."):
                    operations += float(number) / self._peak
                elif name.startswith(("gmem.", "lmem.")):  # through caches, ten times as fast
                    operations += 4 * float(number) / (10 * self._bandwidth)
        return 3e-6 + max(traffic, operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The campaign on a GPU and a host."""

    gpu: str  # A device of the catalogue
    host: Host  # the machine around it
    folder: Path  # for the files of the campaign
    families: tuple[str, ...] = ()  # only these families are measured; all if empty

    def run(self, budget_s: float = 460.0) -> tuple[Progress, float]:
        """Return what the campaign finishes, and the simulated time that it takes, s."""
        clock = SimulatedClock()
        options = Options(
            device=None, folder=self.folder, budget_s=budget_s, families=self.families
        )

        def execute(stage: Stage, options: Options, allowed_s: float) -> tuple[str, str]:
            clock.deadline = clock.time + allowed_s
            try:
                clock.sleep(self.host.start_s)
                said = self._work(stage, options, SimulatedRunner(self.gpu, self.host, clock))
            except CutOffError:
                return "cut off", ""
            return "done", said

        progress = run_campaign(options, plan(), execute, clock.now)
        return progress, clock.time

    def _work(self, stage: Stage, options: Options, runner: SimulatedRunner) -> str:
        host, clock = self.host, runner.clock
        quick: dict[object, float] = {
            gpu_stages.find_devices: 2.0,
            gpu_stages.characterize_device: host.characterize_s,
            gpu_stages.fit_and_evaluate: host.fit_s,
            gpu_stages.rank_variants: host.rank_s,
        }
        if stage.work in quick:
            clock.sleep(quick[stage.work])
            return ""
        if stage.work is gpu_stages.check_kernels:
            kernels = entries(element_type=None, purpose=None)
            each = host.generate_s / host.processors + host.compile_s + host.check_s
            clock.sleep(each * len(kernels))
            return f"{len(kernels)} kernels"
        measured: dict[object, tuple[Sequence[Purpose], int, Sequence[str]]] = {
            gpu_stages.measure_tests: (("test",), 1, ("f32",)),
            gpu_stages.measure_applications: (("application",), 1, ("f32",)),
            gpu_stages.measure_first: (("measurement", "test"), 1, ("f32",)),
            gpu_stages.measure_more: (("measurement", "test"), 3, ("f32",)),
            gpu_stages.measure_double: (("measurement", "test"), 1, ("f32", "f64")),
        }
        if stage.work in measured:
            purposes, shapes, types = measured[stage.work]
            return self._measure(options, runner, self._listed(purposes, shapes, types))
        count = 8 if stage.work is gpu_stages.measure_some_variants else None
        chosen = [
            each
            for family in variant_sets()
            if not self.families or family in self.families
            for each in variant_entries(family)[:count]
        ]
        clock.sleep(host.generate_s / host.processors * len(chosen))
        return self._measure(options, runner, chosen) if chosen else ""

    def _listed(
        self, purposes: Sequence[Purpose], shapes: int, types: Sequence[str]
    ) -> Sequence[CatalogEntry]:
        profile = replace(RENTAL, shapes_per_kernel=shapes)
        listed = profile_entries(
            profile, "large", purposes=purposes, element_types=types, max_group_size=1024
        )
        return [each for each in listed if not self.families or each.family in self.families]

    def _measure(
        self, options: Options, runner: SimulatedRunner, wanted: Sequence[CatalogEntry]
    ) -> str:
        profile = RENTAL
        limits = SizeLimits(
            launch_overhead_s=RUN_OVERHEAD_S,
            memory_bytes=_MEMORY_BYTES // 4,
            overhead_factor=profile.overhead_factor,
            max_run_s=profile.max_run_s,
            max_setup_s=profile.max_setup_s,
        )
        sizes = calibrate(wanted, runner, limits, store=options.store.with_suffix(".sizes.json"))
        found = measure(
            sizes.cases(wanted),
            store=options.store,
            protocol=profile.protocol,
            runner=runner,
        )
        return f"{len(list(found))} cases"


def stages_text(progress: Progress) -> str:
    """Return a line for each stage: when it ended, how, and what it said."""
    lines: list[str] = []
    total = 0.0
    for attempt in progress.log:
        seconds: float = attempt.get("seconds", 0.0)
        total += seconds
        stage, outcome, said = attempt["stage"], attempt["outcome"], attempt.get("said", "")
        lines.append(f"  {total:5.0f} s  {stage:24} {outcome:18} {seconds:6.1f} s  {said}")
    return "\n".join(lines)
