"""Campaigns: which kernels of the library are measured, measuring them, and reading their code."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from countperf import errors
from countperf.counting.count_properties import count_kernel
from countperf.counting.structure.memory_hierarchy import CacheSize
from countperf.counting.vector import caches_of
from countperf.devices.compile.compiled_kernel import CompiledKernel, counts_of_many, read_compiled
from countperf.devices.discovery import find_device
from countperf.devices.identity import choose_caches
from countperf.devices.workers import Pool
from countperf.measuring import PURPOSES, MeasurementSet, Protocol
from countperf.measuring.campaign import measure, open_store, rewrite_file
from countperf.measuring.runner import BROAD, PROTOCOLS, QUICK, KernelRunner
from countperf.measuring.size_choice import calibrate, measure_limits
from countperf.models.definition import OVERLAPPED
from countperf.sizes import checks_keywords
from countperf.steps import step_through
from countperf.text import ShortRepr, extract
from measurement_kernels.catalog import APART, entries, entry
from measurement_kernels.catalog import families as all_families
from measurement_kernels.entry import COLLECTIONS
from measurement_kernels.groups import GROUP_SHAPES, SizeClass
from measurement_kernels.variants.sets import variant_entries, variant_sets

if TYPE_CHECKING:
    from countperf.devices.device import Device
    from countperf.measuring import Purpose
    from measurement_kernels.entry import CatalogEntry
    from measurement_kernels.entry import Collection as KernelCollection


ProfileName = Literal["quick", "broad", "trial"]
_TRIED_VARIANTS = 5  # of a set, to find its sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(ShortRepr):
    """Extent of a campaign."""

    protocol: Protocol  # how often each case runs
    shapes_per_kernel: int  # group shapes of the device's set that are measured, at most three
    max_run_s: float  # longest time of one run, s
    overhead_factor: float  # how many times the launch overhead the smallest size has to take
    max_setup_s: float = 2.0  # longest time to make inputs and put them into the device's memory, s
    collections: tuple[KernelCollection, ...] = ("paper",)  # which kernels of the catalogue
    # which share of the measurement kernels of each family is measured (`evenly_spaced`)
    share: float = 1.0


LEAST_KERNELS = 12  # families with so many are measured in full, whatever the share

_QUICK = Profile(protocol=QUICK, shapes_per_kernel=2, max_run_s=0.06, overhead_factor=30.0)
_TRIAL = QUICK.with_values(
    **{"name": "trial", "rounds": 1, "runs": 4, "drops": 1, "noise_limit": 0.5},
    **{"extra_rounds": 0, "separation_s": 0.0, "max_seconds": 0.05, "warm_up_s": 0.0},
)
PROFILES: Mapping[str, Profile] = {
    "quick": _QUICK,
    "broad": Profile(
        protocol=BROAD,
        shapes_per_kernel=2,
        max_run_s=0.06,
        overhead_factor=10.0,
        max_setup_s=0.6,
        collections=("paper", "extended", "random"),
        share=0.4,  # costs at most 1.3 % on left-out families
    ),
    # to see that all works, as tests do: the times are too few to be relied on
    "trial": replace(
        _QUICK,
        protocol=_TRIAL,
        shapes_per_kernel=1,
        max_run_s=0.004,
        overhead_factor=5.0,
        max_setup_s=0.2,
    ),
}


def profile_entries(
    profile: Profile,
    group_class: SizeClass,
    *,
    families: Sequence[str] = (),
    element_types: Sequence[str] = ("f32",),
    purposes: Sequence[Purpose] = (),
    collections: Sequence[KernelCollection] = (),
    max_group_size: int | None = None,
) -> tuple[CatalogEntry, ...]:
    """List the catalogue's kernels that a profile measures, those that judge fits last."""
    # the shapes of the test kernels first: every set has them
    shapes = sorted(GROUP_SHAPES[group_class], key=lambda shape: shape not in _TEST_SHAPES)
    linear, planar = ([s for s in shapes if (s[1] > 1) is wide] for wide in (False, True))
    wanted = {*linear[: profile.shapes_per_kernel], *planar[: profile.shapes_per_kernel]}
    known = (
        *all_families(purpose=None, collection=None),
        *(name for apart in APART for name in all_families(purpose=None, collection=apart)),
        *all_families(purpose="variant"),
    )
    if unknown := [family for family in families if family not in known]:
        raise errors.KernelSpecificationError(
            f"no family of kernels is called {unknown[0]!r}; there are {', '.join(known)}"
            f"{errors.nearest(unknown[0], known)}"
        )
    purposes = purposes or (PURPOSES if families else ("measurement", "test"))
    collections = collections or (COLLECTIONS if families else profile.collections)

    def is_wanted(e: CatalogEntry) -> bool:
        if e.collection not in collections or (families and e.family not in families):
            return False
        if e.collection != "paper":
            return max_group_size is None or e.group_shape[0] * e.group_shape[1] <= max_group_size
        if e.purpose == "measurement" and e.group_shape not in wanted:
            return False
        return e.purpose == "application" or e.element_type in element_types

    listed: tuple[KernelCollection | None, ...] = (None, *(c for c in collections if c in APART))
    chosen = tuple(
        e
        for purpose in PURPOSES
        if purpose in purposes
        for collection in listed
        for e in entries(element_type=None, purpose=purpose, collection=collection)
        if is_wanted(e)
    )
    if not chosen:
        raise errors.KernelSpecificationError(
            f"no {' or '.join(purposes)} kernel of {', '.join(families) or 'any family'} "
            f"({' or '.join(collections)}) has element type {' or '.join(element_types)}"
        )
    return chosen if families else _share_of(chosen, profile.share)


_TEST_SHAPES = ((256, 1), (16, 16))


def _share_of(listed: Sequence[CatalogEntry], share: float) -> tuple[CatalogEntry, ...]:
    """Keep all that judges fits, and a share of each family of measurement kernels."""
    by_family: dict[str, dict[str, None]] = {}
    for kernel in listed:
        if kernel.purpose == "measurement":
            by_family.setdefault(kernel.family, {})[kernel.name] = None
    kept = {name for names in by_family.values() for name in evenly_spaced([*names], share)}
    return tuple(e for e in listed if e.purpose != "measurement" or e.name in kept)


def evenly_spaced(kernels: Sequence[str], share: float) -> list[str]:
    """Return a share of the kernels of a family in their order, at least `LEAST_KERNELS`."""
    number = min(len(kernels), max(LEAST_KERNELS, round(share * len(kernels))))
    return [kernels[i * len(kernels) // number] for i in range(number)]


@checks_keywords
def measure_catalogue(
    *,
    store: Path | str,
    device: str | None = None,
    profile: ProfileName | Profile = "broad",
    protocol: str | Protocol | None = None,
    families: Sequence[str] = (),
    element_types: Sequence[str] = ("f32",),
    purposes: Sequence[Purpose] = (),
    collections: Sequence[KernelCollection] = (),
) -> MeasurementSet:
    """Measure the library's kernels on a device; resumes where an earlier call stopped.

    Parameters
    ----------
    store : Path or str
        The campaign's file (``.jsonl``), all of which is returned; sizes are kept beside it.
    device : str, optional
        ``pocl:0``, or a part of a device's name; by default the first GPU that works, else
        the first device.
    profile : {"broad", "quick", "trial"} or Profile
        How much is measured, and by which protocol unless another is given.
    protocol : {"broad", "quick", "paper"} or Protocol, optional
        How each kernel is timed. That of the paper: 30 runs, of which the first 4 do not count.
    families, element_types, purposes, collections : sequence of str, optional
        Only these families of kernels; the paper's kernels of these types; kernels for these
        purposes, and of these collections.

    Raises
    ------
    DeviceError, MeasurementError, KernelSpecificationError
        As for `measure`; or no such family.
    ParameterError
        There is no such profile or protocol.
    """
    chosen = _profile(profile, protocol)
    target = find_device(device)
    wanted = profile_entries(
        chosen,
        target.limits.group_class,
        families=families,
        element_types=element_types,
        purposes=purposes,
        collections=collections,
        max_group_size=target.limits.max_group_size,
    )
    return _measure(target, chosen, wanted, Path(store))


def _profile(given: str | Profile, protocol: str | Protocol | None = None) -> Profile:
    if not isinstance(given, Profile):
        check_choice("profile", given, PROFILES)
        given = PROFILES[given]
    if protocol is None or isinstance(protocol, Protocol):
        return replace(given, protocol=protocol or given.protocol)
    check_choice("protocol", protocol, PROTOCOLS)
    return replace(given, protocol=PROTOCOLS[protocol])


def check_choice(what: str, given: str, known: Collection[str]) -> None:
    """Raise `ParameterError` for what is none of the choices that there are."""
    if given not in known:
        message = f"there is no {what} {given!r}; pass one of {', '.join(map(repr, known))}"
        raise errors.ParameterError(message, parameter=what)


def measure_variants(
    *,
    store: Path | str,
    device: str | None = None,
    profile: ProfileName | Profile = "broad",
    families: Sequence[str] = (),
    count: int | None = None,
) -> MeasurementSet:
    """Measure sets of variants, or parts of them, as `measure_catalogue` does."""
    wanted = [e for name in families or variant_sets() for e in variant_entries(name)[:count]]
    return _measure(find_device(device), _profile(profile), wanted, Path(store))


def _measure(
    device: Device, profile: Profile, wanted: Sequence[CatalogEntry], store: Path
) -> MeasurementSet:
    """Find out which sizes kernels take on a device, and measure them."""
    runner = KernelRunner.open(device)
    protocol = profile.protocol
    sets = dict.fromkeys(entry.family for entry in wanted if entry.purpose == "variant")
    tried = [entry for family in sets for entry in variant_entries(family)[:_TRIED_VARIANTS]]
    others = [entry for entry in wanted if entry.purpose != "variant"]
    with open_store(store, runner, protocol) as file:  # before anything is written or timed
        asked = extract(profile, "overhead_factor", "max_run_s", "max_setup_s")
        limits = measure_limits(runner.session, **asked)
        sizes = calibrate([*others, *tried], runner, limits, store=store.with_suffix(".sizes.json"))
        cases = sizes.cases(others)
        for family in sets:
            choices = (sizes.choice(entry) for entry in tried if entry.family == family)
            for exponent in max(c.exponents for c in choices if c is not None):
                cases += (e.case(exponent) for e in wanted if e.family == family)
        caches = choose_caches(device.identity, is_here=True)
        count = partial(count_kernel, view="structure", caches=caches)
        return measure(cases, store=file, protocol=protocol, count=count, runner=runner)


_BATCH = 8  # kernels that a process compiles
_BETWEEN_FILES_S = 60.0  # seconds after which the file is written again


def read_code(
    measurements: Path | str,
    *,
    device: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> MeasurementSet:
    """Compile the measured kernels of the catalogue, and note what their code executes, in place.

    Misses are those of the first-level cache that the counts of a case state
    (`countperf.api.evaluation.recount` makes it that of the device). Cases that have their
    instructions already are left as they are, unless these say nothing of cycles that overlap. A
    run that is cut off goes on where it was. `progress` is told of code that cannot be followed.
    """
    with rewrite_file(measurements) as write:
        measured = MeasurementSet.read_file(measurements)
        chosen = find_device(device or measured.device.slug)
        if not measured.device.matches(chosen.identity):
            raise errors.DeviceMismatchError(
                f"{chosen.label} is not what was measured, {measured.device.slug}: code is compiled"
                " for each processor; read it there"
            )
        noted = add_missing_code(measured, chosen.label, progress=progress, write=write)
        write(noted)
    return noted


def add_missing_code(
    measured: MeasurementSet,
    label: str,
    *,
    progress: Callable[[str], None] | None = None,
    write: Callable[[MeasurementSet], object] | None = None,
) -> MeasurementSet:
    """Compile the kernels whose code measurements lack, on the device that was measured."""
    waiting: dict[str, list[_CodeCase]] = {}
    for case in measured:
        if case.code is None or OVERLAPPED not in case.code:
            # with the first-level cache that the counts of a case say code is read for
            cache = caches_of(case.properties or {}).code
            waiting.setdefault(case.kernel, []).append((case.case, case.parameters, cache))
    kernels = [*waiting.items()]
    batches = [kernels[first : first + _BATCH] for first in range(0, len(kernels), _BATCH)]
    code: dict[str, dict[str, int]] = {}
    written = time.monotonic()
    with Pool() as pool:
        read = pool.map(partial(_code_of, label), batches)
        for outcomes in step_through(read, "reading code", total=len(batches)):
            for case, outcome in outcomes:
                if not isinstance(outcome, str):
                    code[case] = outcome
                elif progress is not None:
                    progress(f"{case}: {outcome}")
            if write is not None and time.monotonic() > written + _BETWEEN_FILES_S:
                write(with_field(measured, "code", code))
                written = time.monotonic()
    return with_field(measured, "code", code)


def with_field(
    measured: MeasurementSet, name: str, values: Mapping[str, Mapping[str, Any]]
) -> MeasurementSet:
    """Return measurements with another value of a field of the cases that have one."""
    renewed = (
        m.model_copy(update={name: values[m.case]}) if m.case in values else m for m in measured
    )
    return replace(measured, measurements=tuple(renewed))


_CodeCase = tuple[str, Mapping[str, int], CacheSize]
"""Name of a case, its parameters, and the cache that its code is read for."""


def _code_of(
    label: str, kernels: Sequence[tuple[str, Sequence[_CodeCase]]]
) -> list[tuple[str, dict[str, int] | str]]:
    """Return what the code of kernels of the catalogue executes by case, or why that is unknown."""
    code: list[tuple[str, dict[str, int] | str]] = []
    there: list[tuple[CatalogEntry, Sequence[_CodeCase]]] = []
    for name, cases in kernels:
        try:
            there.append((entry(name), cases))
        except errors.KernelSpecificationError as error:  # of an older catalogue
            code += [(case, str(error)) for case, *_ in cases]
    units = [(known.build(), some[0][1]) for known, some in there]
    requests: dict[str, tuple[CompiledKernel, Mapping[str, int], Mapping[str, Any], CacheSize]] = {}
    read = read_compiled(units, find_device(label))
    for (known, some), compiled in zip(there, read, strict=True):
        if isinstance(compiled, errors.KernelBuildError):
            code += [(case, str(compiled)) for case, *_ in some]
            continue
        for case, at, cache in some:
            requests[case] = (compiled, at, known.statistics_at(at), cache)
    for case, counts in zip(requests, counts_of_many([*requests.values()]), strict=True):
        code.append((case, str(counts) if isinstance(counts, errors.CountingError) else counts))
    return code
