"""Campaigns: which kernels of the library are measured, and measuring them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from countperf.display import ShortRepr
from countperf.errors import (
    KernelSpecificationError,
    ParameterError,
)
from countperf.hardware.identity import counted_caches_of
from countperf.harness.campaign import measure, open_store
from countperf.harness.devices import find_device
from countperf.harness.runner import BROAD, QUICK, KernelRunner
from countperf.harness.sizes import calibrate, measure_limits
from countperf.measurements import PURPOSES, Protocol
from countperf.properties.count_properties import count_kernel
from measurement_kernels.catalog import APART, entries
from measurement_kernels.catalog import families as all_families
from measurement_kernels.entry import COLLECTIONS
from measurement_kernels.groups import GROUP_SHAPES, SizeClass
from measurement_kernels.variants.sets import variant_entries, variant_sets

if TYPE_CHECKING:
    from countperf.harness.device import Device
    from countperf.measurements import MeasurementSet, Purpose
    from measurement_kernels.entry import CatalogEntry, Collection


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
    collections: tuple[Collection, ...] = ("paper",)  # which kernels of the catalogue
    # which share of the measurement kernels of each family is measured (`evenly_spaced`)
    share: float = 1.0


LEAST_KERNELS = 12
"""Families with so many kernels are measured in full, whatever the share."""


_QUICK = Profile(protocol=QUICK, shapes_per_kernel=2, max_run_s=0.06, overhead_factor=30.0)
_TRIAL = QUICK.changed(
    name="trial",
    rounds=1,
    runs=4,
    drops=1,
    noise_limit=0.5,
    extra_rounds=0,
    separation_s=0.0,
    max_seconds=0.05,
    warm_up_s=0.0,
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
    collections: Sequence[Collection] = (),
    max_group_size: int | None = None,
) -> tuple[CatalogEntry, ...]:
    """List the catalogue's kernels that a profile measures, those that judge fits last."""
    shapes = GROUP_SHAPES[group_class]
    linear = [s for s in shapes if s[1] == 1]
    planar = [s for s in shapes if s[1] > 1]
    # the shapes of the test kernels first: every set has them
    linear.sort(key=lambda shape: shape != (256, 1))
    planar.sort(key=lambda shape: shape != (16, 16))
    wanted = {*linear[: profile.shapes_per_kernel], *planar[: profile.shapes_per_kernel]}
    _check_families(families)
    if not purposes:
        purposes = PURPOSES if families else ("measurement", "test")
    if not collections:
        collections = COLLECTIONS if families else profile.collections

    listed: tuple[Collection | None, ...] = (None, *(c for c in collections if c in APART))

    def fits(e: CatalogEntry) -> bool:
        if e.collection == "paper":
            return e.purpose != "measurement" or e.group_shape in wanted
        return max_group_size is None or e.group_shape[0] * e.group_shape[1] <= max_group_size

    listed_entries = tuple(
        e
        for purpose in PURPOSES
        if purpose in purposes
        for collection in listed
        for e in entries(element_type=None, purpose=purpose, collection=collection)
        if e.collection in collections
        and fits(e)
        and (purpose == "application" or e.collection != "paper" or e.element_type in element_types)
        and (not families or e.family in families)
    )
    if not listed_entries:
        raise KernelSpecificationError(
            f"no {' or '.join(purposes)} kernel of {', '.join(families) or 'any family'} "
            f"({' or '.join(collections)}) has "
            f"element type {' or '.join(element_types)}",
            specification=",".join(element_types),
        )
    return listed_entries if families else _share_of(listed_entries, profile.share)


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


def measure_catalogue(
    *,
    store: Path | str,
    device: str | None = None,
    profile: ProfileName | Profile = "broad",
    families: Sequence[str] = (),
    element_types: Sequence[str] = ("f32",),
    purposes: Sequence[Purpose] = (),
    collections: Sequence[Collection] = (),
) -> MeasurementSet:
    """Measure the library's kernels on a device; resumes where an earlier call stopped.

    Parameters
    ----------
    store : Path or str
        The campaign's file (``.jsonl``); the chosen sizes are kept beside it.
    device : str, optional
        ``pocl:0``, or a part of a device's name; by default the first GPU that works, else
        the first device.
    profile : {"broad", "quick", "trial"} or Profile
        How much is measured, and by which protocol.
    families, element_types, purposes, collections : sequence of str, optional
        Only these families of kernels; the paper's kernels of these types, by default f32; kernels
        for these purposes, and of these collections, as for `profile_entries`.

    Returns
    -------
    MeasurementSet
        All that is in the file, of whatever purpose.

    Raises
    ------
    DeviceError, MeasurementError, KernelSpecificationError
        As for `measure`; or no such family.
    """
    chosen = _profile(profile)
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


def _profile(given: str | Profile) -> Profile:
    if isinstance(given, Profile):
        return given
    if given not in PROFILES:
        message = f"there is no profile {given!r}; pass one of {', '.join(map(repr, PROFILES))}"
        raise ParameterError(message, parameter="profile")
    return PROFILES[given]


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
    device: Device,
    profile: Profile,
    wanted: Sequence[CatalogEntry],
    store: Path,
) -> MeasurementSet:
    """Find out which sizes kernels take on a device, and measure them."""
    runner = KernelRunner.open(device)
    protocol = profile.protocol
    sets = dict.fromkeys(entry.family for entry in wanted if entry.purpose == "variant")
    tried = [entry for family in sets for entry in variant_entries(family)[:_TRIED_VARIANTS]]
    others = [entry for entry in wanted if entry.purpose != "variant"]
    with open_store(store, runner, protocol) as file:  # before anything is written or timed
        limits = measure_limits(
            runner.session,
            overhead_factor=profile.overhead_factor,
            max_run_s=profile.max_run_s,
            max_setup_s=profile.max_setup_s,
        )
        sizes = calibrate(
            [*others, *tried],
            runner,
            limits,
            store=store.with_suffix(".sizes.json"),
        )
        cases = sizes.cases(others)
        for family in sets:
            choices = [sizes.choice(entry) for entry in variant_entries(family)[:_TRIED_VARIANTS]]
            largest = max((c for c in choices if c is not None), key=lambda c: c.exponents)
            for exponent in largest.exponents:
                cases += (e.case(exponent) for e in wanted if e.family == family)
        return measure(
            cases,
            store=file,
            protocol=protocol,
            count=partial(
                count_kernel,
                view="structure",
                caches=counted_caches_of(device.identity, is_here=True),
            ),
            runner=runner,
        )


def _check_families(families: Sequence[str]) -> None:
    known = (
        *all_families(purpose=None, collection=None),
        *(name for apart in APART for name in all_families(purpose=None, collection=apart)),
        *all_families(purpose="variant"),
    )
    for family in families:
        if family not in known:
            raise KernelSpecificationError(
                f"no family of kernels is called {family!r}; there are {', '.join(known)}",
                specification=family,
            )
