"""Probes: kernels that tell how fast a machine is, and weights that follow measured kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from countperf.display import ShortRepr
from countperf.errors import FitError
from countperf.fitting.design import Observation
from countperf.fitting.leaving_out import log_scatter
from countperf.measurements import Header
from countperf.metrics import mean_error
from countperf.models.drift import CORE, GROUPS, Probe, factors_of, group_of
from countperf.models.function import MeasurementSource, model_inputs
from countperf.models.weights import WeightSet

PROBES = ("independent-chains/fma-1/128x1/f32", "stride1/copy/256x1/f32")
"""Measurement kernels that are probes: a chain of multiply-adds, and copies in the last cache and
in memory."""

_SHORTEST_S, _LONGEST_S = 1e-4, 7e-3
"""Times at the fit of sizes that are probed."""

_SCATTER = 0.5
"""Scatter of logarithms of errors that is assumed of weights without one."""


def probes_of(weights: WeightSet, observations: Iterable[Observation]) -> tuple[Probe, ...]:
    """Return the smallest and the largest measured size of each probe.

    A probe is expected to take what the weights say, times by how much they are off in the mean at
    all sizes of its kernel in the core. Memory changes from hour to hour where others use it, so
    that single times say little of it: there the mean is over all kernels of the probes' families
    of which memory takes most.
    """
    families = {kernel.split("/")[0] for kernel in PROBES}
    timed = [
        timed_case(weights, observation)
        for observation in observations
        if observation.family in families
        and (observation.has_code or not weights.definition.reads_code)
    ]
    probes: list[Probe] = []
    for kernel in PROBES:
        sizes = [
            one
            for one in timed
            if one.case.kernel == kernel and _SHORTEST_S <= one.case.time_s <= _LONGEST_S
        ]
        sizes.sort(key=lambda one: one.case.time_s)
        for one in dict.fromkeys((*sizes[:1], *sizes[-1:])):
            alike = [
                o
                for o in timed
                if o.most == one.most and (o.most != CORE or o.case.kernel == kernel)
            ]
            off = np.mean([math.log(o.case.time_s / o.predicted_s) for o in alike])
            probes.append(one.probe(one.predicted_s * math.exp(off)))
    return tuple(probes)


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedCase(ShortRepr):
    """A measured case with what weights make of it."""

    case: Observation
    predicted_s: float
    shares: dict[str, float]  # of the predicted time, by group of weights; launches left out

    @property
    def most(self) -> str:
        """The group of weights that takes most of the time."""
        return max(self.shares, key=self.shares.__getitem__)

    def probe(self, expected_s: float) -> Probe:
        """Return it as a probe that is expected to take a time, s."""
        return Probe(
            kernel=self.case.kernel,
            parameters=dict(self.case.parameters),
            expected_s=expected_s,
            shares=self.shares,
        )


def timed_case(weights: WeightSet, case: Observation) -> TimedCase:
    """Predict a measured case by the groups of weights."""
    charge = weights.charge(model_inputs(weights.definition, case.counts))
    changes = np.array([*charge.changes.values()], np.float64)
    parts = changes * np.array(weights.unknowns)
    groups = [group_of(feature) for _, feature in weights.function.columns]
    whole = parts.sum() or 1.0
    shares = {
        group: float(sum(p for p, g in zip(parts, groups, strict=True) if g == group) / whole)
        for group in GROUPS
    }
    return TimedCase(case=case, predicted_s=float(weights.corrected(charge)[0]), shares=shares)


def readable(observations: Sequence[Observation], *, reads_code: bool) -> list[Observation]:
    """Return the cases that have what a model reads; refuse where there are none."""
    cases = [case for case in observations if case.has_code or not reads_code]
    if not cases:
        raise FitError(
            "no measured kernel has what the model reads: measure more kernels (countperf"
            " calibrate goes on)"
        )
    return cases


def measurement_source(observations: Sequence[Observation], header: Header) -> MeasurementSource:
    """Say what weights rest on."""
    return MeasurementSource(
        cases=len(observations),
        unstable_cases=sum(not case.stable for case in observations),
        families=tuple(dict.fromkeys(case.family for case in observations)),
        protocol=header.protocol.name,
        recorded_at=header.environment.recorded_at,
    )


def follow(
    weights: WeightSet, observations: Sequence[Observation], header: Header, *, noise: float = 0.0
) -> WeightSet:
    """Have weights that ship for a device follow its measured kernels: its clock and its memory.

    What a long campaign found stays, with its correction by kernels alike. Intervals get wider as
    far as left-out families are predicted worse than in the fit, and by `noise` of the times.
    """
    complete = [
        case
        for case in observations
        if not weights.missing(model_inputs(weights.definition, case.counts))
    ]
    cases = readable(complete, reads_code=weights.definition.reads_code)
    timed = [timed_case(weights, case) for case in cases]
    probes = [one.probe(one.predicted_s) for one in timed]
    quality = weights.quality
    then = (quality and quality.held_out_scatter) or _SCATTER

    def factors(left_out: str = "") -> dict[str, float]:
        kept = [n for n, one in enumerate(timed) if one.case.family != left_out]
        times = [timed[n].case.time_s for n in kept]
        return factors_of([probes[n] for n in kept], times, noise=then)

    of_families = {family: factors(family) for family in {one.case.family for one in timed}}
    predicted = [
        probe.moved(of_families[one.case.family]).expected_s
        for probe, one in zip(probes, timed, strict=True)
    ]
    measured = [one.case.time_s for one in timed]
    now = log_scatter(predicted, measured) or then
    if quality is not None:
        errors = np.abs(np.array(predicted) / measured - 1.0)
        changes: dict[str, Any] = {
            "held_out_error": mean_error(errors).value,
            "held_out_scatter": now,
        }
        if quality.calibration is not None:
            changes["calibration"] = quality.calibration.widened(max(1.0, now / then), noise)
        quality = quality.model_copy(update=changes)
    return weights.scaled(factors()).model_copy(
        update={"quality": quality, "source": measurement_source(cases, header)}
    )
