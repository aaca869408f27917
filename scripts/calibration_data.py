"""The committed measurements of CPUs, as designs of the models that a calibration fits."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from choosing import Offer, Population, choose_kernels
from countperf.api.calibration import CODE_S
from countperf.devices.identity import DeviceIdentity
from countperf.measuring import Header, MeasurementSet, measurements_in
from countperf.measuring.runner import CALIBRATION
from countperf.models.fitting.design import Design, Observation, build_design
from countperf.models.fitting.fit_model import observations_of
from countperf.models.fitting.prior import (
    ChosenKernel,
    ChosenSize,
    KnownDevice,
    KnownModel,
    ModelKind,
    prior_for,
)
from countperf.models.library import fits_folders
from countperf.models.shipped import COMPILED, load_fitted_model
from countperf.text import extract
from known_devices import MeasuredDevice, fit_devices, shares_of

DEVICES = tuple(
    f"{runtime}-{processor}"
    for runtime in ("intel", "pocl")
    for processor in ("epyc-zen3", "epyc-zen4", "epyc-zen5", "xeon-model167")
)
KINDS: tuple[ModelKind, ...] = ("compiled", "structural")
ERROR, CHOICE_ERROR = 0.3, 0.25
"""Size of the models' own errors, settled by measurement kernels that were not chosen."""

_BUILD_S, _SETUP_S = 0.6, 0.13
"""Time to make, build, check and count a kernel, and to set up and warm up a round, s."""


def cost_s(run_s: Sequence[float], *, reads_code: bool) -> float:
    """Return about how long building and measuring a kernel takes, s."""
    protocol = CALIBRATION
    most_s = protocol.max_seconds or 0.0
    runs = sum(
        max((protocol.drops + 2) * each, min(protocol.runs * each, most_s)) for each in run_s
    )
    code_s = CODE_S / 2 if reads_code else 0.0
    return _BUILD_S + code_s + protocol.rounds * (_SETUP_S * len(run_s) + runs)


def processor_of(slug: str) -> str:
    """Return what two runtimes on one processor have in common."""
    return slug.partition("-")[2]


def is_kin(one: DeviceIdentity, other: DeviceIdentity) -> bool:
    """Tell whether two devices are one processor under two runtimes."""
    return processor_of(one.slug) == processor_of(other.slug)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """A device's measurements."""

    device: DeviceIdentity  # the device
    header: Header  # of its measurements
    lines: list[dict[str, Any]]  # kernel, purpose and sizes of each case
    observations: tuple[Observation, ...]  # the cases

    @property
    def has_code(self) -> bool:
        """True if the compiled code of some case was read."""
        return any(case.has_code for case in self.observations)


class Data:
    """Measurements and designs, kept in a folder since they take minutes to make."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        self._made: dict[str, Any] = {}

    def recorded(self, slug: str) -> Recorded:
        """Return a device's measurements."""
        return self.kept(f"{slug}.recorded", lambda: _read(slug))

    def design(self, slug: str, kind: str) -> tuple[list[int], Design]:
        """Return the design of a device's cases, and the cases' places."""
        return self.kept(f"{slug}.{kind}", lambda: self._design(slug, kind))

    def _design(self, slug: str, kind: str) -> tuple[list[int], Design]:
        found = self.recorded(slug)
        of_kind = [kind != COMPILED or case.has_code for case in found.observations]
        places = np.flatnonzero(of_kind).tolist()
        cases = [found.observations[place] for place in places]
        return places, build_design(cases, load_fitted_model(kind, found.device, overlapped=False))

    def kept(self, name: str, make: Any) -> Any:
        """Return what the folder keeps under a name, made if it is not there."""
        path = self._cache / f"{name}.pickle"
        if name not in self._made and path.exists():
            self._made[name] = pickle.loads(path.read_bytes())
        if name not in self._made:
            self._made[name] = make()
            path.write_bytes(pickle.dumps(self._made[name]))
        return self._made[name]


def _read(slug: str) -> Recorded:
    folder = next(path / slug for path in fits_folders() if (path / slug).is_dir())
    measured = MeasurementSet.read_file(measurements_in(folder))
    lines = [line for line in measured if line.properties is not None]
    return Recorded(
        device=measured.device,
        header=measured.header,
        lines=[extract(line, "kernel", "family", "purpose", "parameters") for line in lines],
        observations=observations_of(lines),
    )


def slugs_of(kind: str, data: Data) -> tuple[str, ...]:
    """Return the devices of which a model's features are known."""
    return tuple(slug for slug in DEVICES if kind != COMPILED or data.recorded(slug).has_code)


def training(data: Data, slug: str, places: Sequence[int]) -> np.ndarray:
    """Return which cases are of measurement kernels."""
    lines = data.recorded(slug).lines
    return np.array([lines[place]["purpose"] == "measurement" for place in places])


def known_model(data: Data, kind: ModelKind, slugs: Sequence[str]) -> KnownModel:
    """Fit the devices together."""
    members: list[MeasuredDevice] = []
    for slug in slugs:
        places, design = data.design(slug, kind)
        chosen = training(data, slug, places)
        own = design.of_cases(chosen, with_all=True)
        found = data.recorded(slug)
        kernels = [found.lines[place]["kernel"] for place in np.array(places)[chosen]]
        members.append(
            MeasuredDevice(
                device=found.device, design=own, kernels=() if kind == COMPILED else tuple(kernels)
            )
        )
    return fit_devices(kind, members, error=ERROR, is_kin=is_kin)


def two_sizes(data: Data, slug: str) -> dict[str, tuple[int, ...]]:
    """Return the fastest and the slowest case of each measurement kernel, by place."""
    found = data.recorded(slug)
    cases: dict[str, list[int]] = {}
    for place, line in enumerate(found.lines):
        if line["purpose"] == "measurement":
            cases.setdefault(line["kernel"], []).append(place)
    chosen: dict[str, tuple[int, ...]] = {}
    for kernel, places in cases.items():
        places.sort(key=lambda place: found.observations[place].time_s)
        chosen[kernel] = (places[0], places[-1]) if len(places) > 1 else (places[0],)
    return chosen


def population_of(
    data: Data, model: KnownModel, each: KnownDevice
) -> tuple[Population, dict[int, int]]:
    """Return a known device's measurement kernels as a population, and their rows by place."""
    slug = each.device.slug
    places, design = data.design(slug, model.kind)
    own = training(data, slug, places)
    design = design.of_cases(own, with_all=True).with_columns(model.columns)
    others = model.without(lambda device: is_kin(device, each.device))
    prior = prior_for(
        others if others.devices else model, each.device, model.columns, lambda _: None
    )
    lines = data.recorded(slug).lines
    kept = [place for place, is_own in zip(places, own, strict=True) if is_own]
    families = Counter(lines[place]["family"] for place in kept)
    importance = np.array([1.0 / families[lines[place]["family"]] for place in kept])
    population = Population(
        shares=shares_of(design, each.logs),
        importance=importance / importance.sum(),
        covariance=prior.covariance,
        error=CHOICE_ERROR,
    )
    return population, {place: row for row, place in enumerate(kept)}


def choose(
    data: Data, models: Mapping[ModelKind, KnownModel], *, budget_s: float
) -> list[ChosenKernel]:
    """Choose kernels that several of the known devices of models were measured with."""
    populations: list[Population] = []
    rows_by: list[tuple[str, dict[int, int]]] = []
    for model in models.values():
        for each in model.devices:
            population, rows = population_of(data, model, each)
            populations.append(population)
            rows_by.append((each.device.slug, rows))
    slugs = tuple(dict.fromkeys(slug for slug, _ in rows_by))
    sizes = {slug: two_sizes(data, slug) for slug in slugs}
    known = Counter(kernel for found in sizes.values() for kernel in found)
    offers: list[Offer] = []
    for kernel in sorted(kernel for kernel, number in known.items() if number > 1):
        there = {slug: found[kernel] for slug, found in sizes.items() if kernel in found}
        slug, places = next(iter(there.items()))
        offers.append(
            Offer(
                name=kernel,
                family=data.recorded(slug).lines[places[0]]["family"],
                rows=tuple(
                    tuple(rows[place] for place in there.get(slug, ()) if place in rows)
                    for slug, rows in rows_by
                ),
                cost_s=float(np.mean([_cost(data, *each) for each in there.items()])),
            )
        )
    chosen = choose_kernels(populations, offers, budget_s=budget_s)
    return [_described(data, each.name, sizes) for each in chosen]


def _cost(data: Data, slug: str, places: Sequence[int]) -> float:
    observations = data.recorded(slug).observations
    return cost_s([observations[place].time_s for place in places], reads_code=True)


def _described(
    data: Data, kernel: str, sizes: Mapping[str, Mapping[str, tuple[int, ...]]]
) -> ChosenKernel:
    """Describe a kernel by what one of its usual devices measured."""
    sizes_of = {
        slug: str([data.recorded(slug).lines[place]["parameters"] for place in found[kernel]])
        for slug, found in sizes.items()
        if kernel in found
    }
    usual = Counter(sizes_of.values()).most_common(1)[0][0]
    slug = next(slug for slug, each in sizes_of.items() if each == usual)
    chosen, found = sizes[slug][kernel], data.recorded(slug)
    return ChosenKernel(
        name=kernel,
        family=found.lines[chosen[0]]["family"],
        sizes=tuple(
            ChosenSize(
                parameters=found.lines[place]["parameters"],
                run_s=float(f"{found.observations[place].time_s:.3g}"),
            )
            for place in chosen
        ),
    )
