"""Stages of a campaign on a rented GPU, in the order in which they are wanted."""

from __future__ import annotations

import ctypes
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from countperf.api.catalogue import Profile, measure_catalogue
from countperf.api.catalogue import measure_variants as measure
from countperf.api.evaluation import evaluate_ranking
from countperf.devices.discovery import doctor, find_device, open_session
from countperf.devices.identity import available_cores
from countperf.devices.opencl import retarget
from countperf.devices.targets import generate_cuda, generate_for_target
from countperf.devices.workers import Pool
from countperf.documents import parse_json
from countperf.errors import CountperfError, DeviceLostError, FitError
from countperf.measuring import MeasurementSet, Purpose
from countperf.measuring.characterization import FULL, characterize
from countperf.measuring.characterization import QUICK as QUICK_EFFORT
from countperf.measuring.runner import QUICK as QUICKLY
from countperf.measuring.runner import KernelRunner
from countperf.store import read_file_text, write_atomically
from countperf.text import ShortRepr
from measurement_kernels.catalog import entries, entry, families
from measurement_kernels.variants.sets import variant_entries
from rental.publishing import publish

LOST = 3  # exit status of a stage whose device is lost

RENTAL = Profile(
    protocol=QUICKLY.with_values(
        name="rental", runs=14, drops=4, noise_limit=0.1, max_seconds=0.25, warm_up_s=0.0
    ),
    shapes_per_kernel=3,
    max_run_s=0.02,
    overhead_factor=15.0,
    max_setup_s=0.6,
)
"""For a GPU that is paid by the minute and that nobody else uses; the dropped runs warm it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(ShortRepr):
    """Part of a campaign."""

    name: str  # of the stage
    # from the campaign's options to nothing; writes into its folder
    work: Callable[[Options], None]
    share: float  # share of the budget that it may take at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ShortRepr):
    """Options of the campaign."""

    device: str | None  # the device's label, or part of its name
    folder: Path  # where everything goes
    budget_s: float  # time for all of it, s
    deadline: float = float("inf")  # when the stage in hand has to be done, by `time.time`, s
    families: tuple[str, ...] = ()  # only these families of kernels are measured; all if empty

    @property
    def store(self) -> Path:
        """File of the measurements."""
        return self.folder / "measurements.jsonl"

    @property
    def left_s(self) -> float:
        """Time left for the stage in hand, s."""
        return self.deadline - time.time()


def find_devices(options: Options) -> None:
    """Try every device, and write down what works."""
    report = doctor()
    library = ""
    with suppress(OSError):
        library = ctypes.CDLL("libnvidia-opencl.so.1")._name  # of NVIDIA's driver, if it loads
    found = {**report.to_object(), "nvidia_opencl_library": library}
    write_json(options.folder / "devices.json", found)
    if library and not any(each.platform == "NVIDIA CUDA" for each in report.devices):
        print(
            f"NVIDIA's driver has an OpenCL library, {library}, that no .icd file names: to use it,"
            " write its name into a file nvidia.icd and set OCL_ICD_VENDORS to that folder"
        )
    for device in report.devices:
        print(f"{device.label}: {device.name}: {'works' if device.works else device.reason}")


def characterize_device(options: Options) -> None:
    """Run the microbenchmarks."""
    found = characterize(
        open_session(find_device(options.device)),
        effort=QUICK_EFFORT if options.budget_s < 300 else FULL,
        max_seconds=max(1.0, options.left_s - 15.0),
    )
    found.write_file(options.folder / "characterization.json")
    found.parameters.write_file(options.folder / "parameters.json")
    print(f"{len(found.findings)} numbers, left out: {', '.join(found.left_out) or 'nothing'}")


def check_kernels(options: Options) -> None:
    """Compare every kernel of the catalogue with its reference; what is checked stays checked."""
    path = options.folder / "checks.json"
    checks = read_checks(path)
    device = find_device(options.device)
    runner = KernelRunner.open(device)
    every = entries(element_type=None, purpose=None)
    everything = [e for e in every if not options.families or e.family in options.families]
    everything.sort(key=lambda each: (each.purpose == "measurement", each.element_type != "f32"))
    waiting = [each for each in everything if each.name not in checks]
    with _processes() as pool:
        codes = [pool.submit(_generate, device.backend, each.name) for each in waiting]
        try:
            for each, code in zip(waiting, codes, strict=True):
                if options.left_s < 3.0:
                    break
                code.exception()  # the code lies in Loopy's cache now, or the check says why not
                checks[each.name] = "not finished: the device was lost"
                try:
                    runner.check(each.case(each.exponents[0] + each.exponent_steps[0]))
                    checks[each.name] = "right"
                except DeviceLostError:
                    write_json(path, checks)
                    raise
                except CountperfError as error:
                    checks[each.name] = str(error)
                    print(f"{each.name}: {error}")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            write_json(path, checks)
    right = sum(verdict == "right" for verdict in checks.values())
    print(f"{right} of {len(everything)} kernels are right, {len(everything) - len(checks)} to go")
    if len(checks) < len(everything):
        raise TimeoutError(f"{len(everything) - len(checks)} kernels are still to be checked")


def read_checks(path: Path) -> dict[str, str]:
    """Return the verdicts on kernels that an earlier call wrote, by name."""
    content: Any = parse_json(read_file_text(path), path=path) if path.exists() else {}
    return content


def _processes() -> Pool:
    """Return a pool of fresh processes, which do not share our device, and one processor fewer."""
    return Pool(max(1, available_cores() - 1))


def _generate(backend: str, name: str) -> None:
    unit = entry(name).build()
    _ = generate_cuda(unit) if backend == "cuda" else generate_for_target(retarget(unit))


def _choose_families(options: Options, *purposes: Purpose) -> list[str]:
    """Return the families for some purposes that are asked for."""
    there = [family for purpose in purposes for family in families(purpose=purpose)]
    return [family for family in there if not options.families or family in options.families]


def measure_kernels(
    options: Options,
    *,
    purposes: Sequence[Purpose] = ("measurement", "test"),
    shapes: int = 1,
    element_types: Sequence[str] = ("f32",),
) -> None:
    """Measure the kernels for some purposes, in some shapes of work groups."""
    if not (families := _choose_families(options, *purposes)):
        print("nothing of the kind is asked for")
        return
    found = measure_catalogue(
        store=options.store,
        device=options.device,
        profile=replace(RENTAL, shapes_per_kernel=shapes),
        families=families,
        element_types=element_types,
        purposes=purposes,
    )
    _print_measured(found)


def _print_measured(found: MeasurementSet) -> None:
    numbers = Counter(each.purpose for each in found)
    cases = ", ".join(f"{number} of purpose {name}" for name, number in numbers.items())
    print(f"cases: {cases or 'none'}; {len(found.failures)} failed")


def measure_variants(options: Options, *, count: int | None = None) -> None:
    """Measure the first variants of each set, which are spread as the whole one is; or all."""
    if not (families := _choose_families(options, "variant")):
        print("nothing of the kind is asked for")
        return
    backend = find_device(options.device).backend
    names = [each.name for family in families for each in variant_entries(family)[:count]]
    with _processes() as pool:  # before anything is timed: the device may be the processor
        for code in [pool.submit(_generate, backend, name) for name in names]:
            code.exception()  # measuring says what is wrong
    found = measure(
        store=options.store, device=options.device, profile=RENTAL, families=families, count=count
    )
    _print_measured(found)


def rank_variants(options: Options) -> None:
    """Evaluate how well the fit ranks the variants that were measured."""
    fits = sorted((options.folder / "fits").glob("*/linear.json"))
    if not fits:
        raise FitError("there is no fit that could rank the variants")
    for weights in fits:
        ranking = evaluate_ranking(options.store, weights=weights)
        if ranking.sets:
            ranking.write_file(weights.with_name("ranking.json"))
        print(f"{len(ranking.sets)} sets of variants ranked by {weights}")


def fit_and_evaluate(options: Options) -> None:
    """Fit the model, evaluate it on the test kernels, and lay out the device's folder."""
    print(publish(options.store, options.folder / "fits"))


QUICK = (fit_and_evaluate, rank_variants)  # what the reserve is for


def plan() -> tuple[Stage, ...]:
    """Return the stages in order; those that improve on an earlier result come later."""
    tests = partial(measure_kernels, purposes=("test",))
    applications = partial(measure_kernels, purposes=("application",))
    double = partial(measure_kernels, element_types=("f32", "f64"))
    works: dict[str, tuple[Callable[[Options], None], float]] = {
        "devices": (find_devices, 0.1),
        "check": (check_kernels, 0.2),
        "characterize": (characterize_device, 0.25),
        "measure tests": (tests, 0.2),
        "measure": (measure_kernels, 0.4),
        "fit": (fit_and_evaluate, 0.2),
        "measure applications": (applications, 0.15),
        "measure some variants": (partial(measure_variants, count=8), 0.2),
        "rank": (rank_variants, 0.1),
        "measure more": (partial(measure_kernels, shapes=3), 0.5),
        "fit again": (fit_and_evaluate, 0.2),
        "measure variants": (measure_variants, 1.0),
        "rank again": (rank_variants, 0.1),
        "check the rest": (check_kernels, 1.0),
        "measure double precision": (double, 1.0),
    }
    return tuple(Stage(name=name, work=work, share=share) for name, (work, share) in works.items())


def write_json(path: Path, content: Any) -> None:
    """Write an object as JSON; a reader sees the old file or the new one."""
    write_atomically(path, json.dumps(content, indent=1))
