"""Kernels of a fit that tell how fast the machine is, and what the fit expects of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from countperf.display import ShortRepr
from countperf.fitting.design import Observation
from countperf.models.drift import CORE, GROUPS, Probe, group_of
from countperf.models.function import model_inputs
from countperf.models.weights import WeightSet

PROBES = {
    "independent-chains/fma-1/128x1/f32": "independent-chains",
    "stride1/copy/256x1/f32": "stride1",
}
"""Measurement kernels that are probes, and the family that says what the fit expects of them: a
chain of multiply-adds, and copies in the last cache and in memory."""

_SHORTEST_S, _LONGEST_S = 1e-4, 7e-3
"""Times at the fit of sizes that are probed."""


def probes_of(weights: WeightSet, observations: Iterable[Observation]) -> tuple[Probe, ...]:
    """Return the smallest and the largest measured size of each probe.

    A probe is expected to take what the weights say, times by how much they are off in the mean at
    all sizes of its kernel in the core. Memory changes from hour to hour where others use it, so
    that single times say little of it: there the mean is over all kernels of the probes' families
    of which memory takes most.
    """
    families = frozenset(PROBES.values())
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
            probes.append(
                Probe(
                    kernel=kernel,
                    parameters=one.parameters,
                    expected_s=one.predicted_s * math.exp(off),
                    shares=one.shares,
                )
            )
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

    @property
    def parameters(self) -> dict[str, int]:
        """Sizes, as the case is named."""
        texts = (text.split("=") for text in self.case.name.rsplit("/", 1)[1].split(","))
        return {name: int(value) for name, value in texts}


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
