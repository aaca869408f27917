"""Measurements of made-up kernels on a made-up device whose weights are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from countperf.counting.taxonomy import View
from countperf.counting.vector import PropertyVector
from countperf.measuring import Environment, Header, Measurement, MeasurementSet, Protocol
from countperf.models.definition import FeatureSpec, ModelDefinition
from countperf.models.fitting.design import Estimate, Observation, build_design, estimate_design
from countperf.models.fitting.design import recipe_of as recipe_of_model
from countperf.models.fitting.solve import Recipe
from countperf.models.shipped import LINEAR
from tests.models.builders import make_device

TRUE_WEIGHTS = {
    **{"flop.add.f32": 3e-12, "flop.special.f32": 2e-11, "gmem.load.32.stride1": 1e-11},
    **{"gmem.load.32.1of2": 2e-11, "gmem.store.32.stride1": 1.5e-11, "launches": 4e-6},
}
SIZES = (2**10, 2**14, 2**18)


def made_case(
    name: str, counts: Mapping[str, int], time_s: float, *, family: str = "f", kernel: str = ""
) -> Observation:
    return Observation(
        name=name, kernel=kernel or name, family=family, counts=counts, time_s=time_s
    )


def recipe_of(model: ModelDefinition, **changes: Any) -> Recipe:
    return replace(recipe_of_model(model), **changes)


def estimate(cases: Sequence[Observation], model: ModelDefinition, recipe: Recipe) -> Estimate:
    return estimate_design(build_design(cases, model), recipe)


@dataclass(frozen=True, kw_only=True)
class MadeUpKernel:
    name: str
    family: str
    counts: Mapping[str, str | int]
    purpose: str = "measurement"
    sizes: Sequence[int] = SIZES
    view: View = "source"
    off: float = 1.0
    vector: PropertyVector = field(init=False)

    def __post_init__(self) -> None:
        counts = {"launches": 1, **self.counts}
        vector = PropertyVector.from_mapping(counts, kernel=self.name, view=self.view)
        object.__setattr__(self, "vector", vector)

    def observe(
        self,
        weights: Mapping[str, float] = TRUE_WEIGHTS,
        noise: Any = None,
        features: FeatureSpec = LINEAR.features,
    ) -> list[Observation]:
        observations: list[Observation] = []
        for n in self.sizes:
            counts = self.vector.evaluate(n=n) if self.vector.parameters else self.vector.evaluate()
            factor = self.off * (1.0 if noise is None else float(np.exp(noise.normal(0, 0.03))))
            values = features.apply(counts)
            time_s = factor * float(sum(weights[name] * value for name, value in values.items()))
            name = f"{self.name}/n={n}"
            observations.append(
                made_case(name, counts, time_s, family=self.family, kernel=self.name)
            )
        return observations


def _per_item(**counts: int) -> dict[str, str]:
    """Counts of n times as many, by their names with underscores."""
    return {name.replace("_", "."): f"[n] -> {{ {k}n }}" for name, k in counts.items()}


KERNELS = (
    MadeUpKernel(
        name="copy",
        family="stride1",
        counts=_per_item(gmem_load_32_stride1=1, gmem_store_32_stride1=1),
    ),
    MadeUpKernel(
        name="sum-four",
        family="stride1",
        counts=_per_item(gmem_load_32_stride1=4, gmem_store_32_stride1=1, flop_add_f32=3),
    ),
    MadeUpKernel(
        name="pairs",
        family="stride2",
        counts=_per_item(gmem_load_32_1of2=2, gmem_store_32_stride1=1, flop_add_f32=1),
    ),
    MadeUpKernel(
        name="adds",
        family="arithmetic",
        counts=_per_item(flop_add_f32=500, gmem_store_32_stride1=1),
    ),
    MadeUpKernel(
        name="rsqrt",
        family="arithmetic",
        counts=_per_item(
            flop_special_f32_rsqrt=300, flop_special_f32_exp=50, gmem_store_32_stride1=1
        ),
    ),
    MadeUpKernel(name="empty", family="empty", counts={}, sizes=(1, 2)),
)
TEST_KERNEL = MadeUpKernel(
    name="stencil",
    family="stencil",
    purpose="test",
    counts=_per_item(
        gmem_load_32_stride1=5, gmem_store_32_stride1=1, flop_add_f32=6, lmem_store_32=1
    ),
)


def observe_all(noise: Any = None) -> list[Observation]:
    return [case for kernel in KERNELS for case in kernel.observe(noise=noise)]


def measure(
    kernels: Sequence[MadeUpKernel] = KERNELS,
    *,
    weights: Mapping[str, float] = TRUE_WEIGHTS,
    noise: Any = None,
    unstable: Sequence[str] = (),
    uncounted: Sequence[str] = (),
    features: FeatureSpec = LINEAR.features,
) -> MeasurementSet:
    """Return measurements as a campaign over the kernels would have stored them."""
    measurements = [
        Measurement.model_validate(
            {
                **{"case": case.name, "kernel": kernel.name, "family": kernel.family},
                **{"variant": "", "element_type": "f32", "group_shape": (256, 1)},
                "purpose": kernel.purpose,
                "parameters": {"n": n} if kernel.vector.parameters else {},
                **{"recorded_at": "2026-01-01T00:00:00Z", "samples_s": ((case.time_s,),)},
                **{"dropped": 0, "statistic": "minimum after dropping 0", "time_s": case.time_s},
                **{"spread": 0.0, "noise_floor": 0.0, "noise": 0.0},
                "stable": case.name not in unstable,
                "settling": "unsettled" if case.name in unstable else "settled",
                "properties": None if kernel.name in uncounted else kernel.vector.to_document(),
            }
        )
        for kernel in kernels
        for n, case in zip(kernel.sizes, kernel.observe(weights, noise, features), strict=True)
    ]
    return MeasurementSet(header=HEADER, measurements=tuple(measurements))


HEADER = Header(
    device=make_device(),
    protocol=Protocol(
        name="paper",
        rounds=1,
        runs=30,
        drops=4,
        extra_rounds=0,
        spread_limit=0.3,
        noise_limit=0.3,
        separation_s=0.0,
    ),
    environment=Environment(
        recorded_at="2026-01-01T00:00:00Z",
        operating_system="Debian 12",
        processor="Testchip",
        cores=2,
    ),
)
