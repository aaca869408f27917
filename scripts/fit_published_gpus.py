"""Fit ten GPUs to times that others published, and judge the fits on cases that they have not seen.

``python scripts/fit_published_gpus.py --data DIR [--output fits]`` writes ``fits/<gpu>/`` with
``identity.json``, ``weights.json`` (fitted to the smaller 70 % of the sizes of each kernel) and
``held-out.json`` (the larger 30 %), and prints the errors of the latter, and those of tile widths
and of kernels that are left out, which ``--left-out FILE`` writes. DIR has the times of Amaris et
al., ``amaris/timings.csv.gz``, a row per case (see `SOURCE`).

The model was chosen among 18 with occupancy and three without on four of the GPUs (GTX 680,
GTX 970, K40c, Titan X) by larger sizes times tile widths; `docs/evidence/gpus.md` has the figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from countperf.api.evaluation import evaluate, fit
from countperf.counting.analysis import TransactionCounts
from countperf.devices.parameters import capability_device
from countperf.measuring import MeasurementSet
from countperf.measuring.tables import identity_elsewhere
from countperf.models.definition import ModelDefinition
from countperf.models.fitting import design
from countperf.models.fitting.fit_model import observations_of
from countperf.models.fitting.leaving_out import HeldOutCase, interval_calibration, leave_out
from countperf.models.metrics import Evaluation, mean_error
from countperf.models.weights import WeightSet
from measurement_kernels.catalog import entry

SOURCE = "github.com/marcosamaris/gpuperfpredict, commit 7c8ece00, CC-BY 4.0"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of the data; multiprocessors are from NVIDIA's data sheets."""

    slug: str  # its name in this project
    name: str  # its name for people
    capability: str  # compute capability
    compute_units: int


GPUS = {
    "GTX-680": Gpu("nvidia-gtx-680", "GeForce GTX 680", "3.0", 8),
    "GTX-750": Gpu("nvidia-gtx-750", "GeForce GTX 750", "5.0", 4),
    "GTX-970": Gpu("nvidia-gtx-970", "GeForce GTX 970", "5.2", 13),
    "GTX-980": Gpu("nvidia-gtx-980", "GeForce GTX 980", "5.2", 16),
    "Quadro": Gpu("nvidia-quadro-k5200", "Quadro K5200", "3.5", 12),
    "Tesla-K20": Gpu("nvidia-k20c", "Tesla K20c", "3.5", 13),
    "Tesla-K40": Gpu("nvidia-k40c", "Tesla K40c", "3.5", 15),
    "Titan": Gpu("nvidia-titan", "GeForce GTX Titan", "3.5", 14),
    "TitanBlack": Gpu("nvidia-titan-black", "GeForce GTX Titan Black", "3.5", 15),
    "TitanX": Gpu("nvidia-titan-x", "GeForce GTX Titan X", "5.2", 24),
}
"""By their names in the files."""

KERNELS = {
    "matMul_gpu": "published-matmul/global",
    "matMul_gpu_uncoalesced": "published-matmul/global-swapped",
    "matMul_gpu_sharedmem": "published-matmul/tiled",
    "matMul_gpu_sharedmem_uncoalesced": "published-matmul/tiled-swapped",
    "matrix_sum_coalesced": "published-matrix-sum/rows",
    "matrix_sum_normal": "published-matrix-sum/columns",
    "vectorAdd": "published-vector-add",
    "dotProd": "published-dot-product",
}
"""Kernels of the catalogue by their names in the files; ``subSeqMax`` is not among them."""

TILED = "published-matmul/tiled/"
"""Kernels of which tile widths are left out."""

LARGER = 0.7
"""Sizes of a kernel beyond this quantile are its larger ones."""

_LARGER = " larger"

CHARGED = (
    "groups",
    "subgroups.32.launched",
    "subgroups.32.arithmetic",
    "subgroups.32.load",
    "transactions.32x128.load",
    "transactions.32x32.load",
    "transactions.32x32.store",
    "subgroups.32.passes",
    "subgroups.32.barrier",
    "distinct.load",
    "distinct.store",
    "arithmetic_in_a_row",
    "barriers_in_a_row",
    "barriers_by_group",
)
"""Features that the model charges beside the launch; the last three are of the occupancy."""

RESOURCES = {
    "subgroups.32.arithmetic": "compute",
    **dict.fromkeys(("subgroups.32.load", "transactions", "distinct"), "memory: global"),
    "subgroups.32.passes": "memory: local",
    **dict.fromkeys(("arithmetic_in_a_row", "barriers_in_a_row"), "latency chains"),
    "*": "overhead",
}
"""Resources of these features, by pattern."""


@cache
def model_of(slug: str) -> ModelDefinition:
    """Return the model with the limits of a GPU in its formulas.

    Resident groups are as many as the limits of groups and of sub-groups allow. Registers and local
    memory limit none of the kernels: a work item has at most 27 registers and 8 bytes, and each of
    the 2048 that a multiprocessor holds could have 32 and 24.
    """
    gpu = next(gpu for gpu in GPUS.values() if gpu.slug == slug)
    limits, units = capability_device(gpu.capability), gpu.compute_units
    most, sub_groups = limits.max_groups_per_compute_unit, limits.max_sub_groups_per_compute_unit
    launched = "subgroups_32_launched"
    return ModelDefinition.from_object(
        {
            "format": "countperf-model",
            "version": 3,
            "name": "sub-groups",
            "description": "Work of sub-groups of 32, and how many are resident at a time",
            "residual": "log",
            "loss": "soft_l1",
            "loss_scale": 0.2,
            "ignored": [
                *("gmem.*", "lmem.*", "barrier.local"),  # their sectors, passes, instructions count
                *("flop.add.f32", "flop.mul.f32", "flop.fma.f32", "flop.neg.f32"),
                *("subgroups.32.local", "subgroups.32.store", "transactions.32x128.store"),
            ],
            "derived": {
                "resident": f"min({most}, floor({sub_groups}*groups/{launched}))",
                "waves": f"ceil(groups/({units}*resident))",
                "arithmetic_in_a_row": f"waves*subgroups_32_arithmetic/{launched}",
                "barriers_in_a_row": f"waves*subgroups_32_barrier/{launched}",
                "barriers_by_group": "subgroups_32_barrier/resident",
            },
            "terms": {
                "launch": {"charged": ["launches"], "resource": "launch"},
                "work": {"charged": list(CHARGED), "resource": RESOURCES},
            },
        }
    )


def timings(folder: Path) -> pd.DataFrame:
    """Read the times, a row per case."""
    found = pd.read_csv(folder / "amaris" / "timings.csv.gz")
    found = found[found["kernel"].isin(list(KERNELS))].reset_index(drop=True)
    group = found["block_x"].astype(str) + "x" + found["block_y"].astype(str)
    is_dot, items = found["kernel"] == "dotProd", found["block_x"] * found["grid_x"]
    return pd.DataFrame(
        {
            "gpu": found["gpu"],
            "kernel": found["kernel"].map(KERNELS) + "/" + group + "/f32",
            "size": found["size"],
            "runs": found["n"],
            "seconds": found["median_s"],
            "rows": (found["size"] // items).where(is_dot).astype("Int64"),
            "groups": found["grid_x"].where(is_dot).astype("Int64"),
            "n": found["size"].where(~is_dot).astype("Int64"),
        }
    )


@cache
def _counts(kernel: str) -> TransactionCounts:
    roots = model_of("nvidia-k40c").named_transactions  # the same for all
    return TransactionCounts(kernel=entry(kernel).build(), roots=roots, statistics={})


@cache
def _counted(kernel: str, sizes: tuple[tuple[str, int], ...]) -> dict[str, int]:
    return _counts(kernel)(dict(sizes))


def measurements_of(table: pd.DataFrame, gpu: Gpu) -> MeasurementSet:
    """Return the measurements of a GPU; those of the largest sizes have the purpose ``test``."""
    table = table.sort_values("seconds").drop_duplicates(["kernel", "n", "rows", "groups"])
    largest = table.groupby("kernel")["size"].transform(lambda sizes: sizes.quantile(LARGER))
    table = table.assign(purpose=np.where(table["size"] > largest, "test", "measurement"))
    names = list(dict.fromkeys(table["kernel"]))
    found = MeasurementSet.from_table(
        table,
        {name: entry(name).build() for name in names},
        device=identity_elsewhere(gpu.slug, gpu.name, gpu.compute_units),
        source=SOURCE,
        ignore=["gpu", "size", "runs"],
    )
    counts = (_counted(line.kernel, tuple(line.parameters.items())) for line in found)
    pairs = zip(found, counts, strict=True)
    known = tuple(line.model_copy(update={"transactions": each}) for line, each in pairs)
    return replace(found, measurements=known)


def geometric_mean(errors: Iterable[float]) -> float:
    """Return the geometric mean of relative errors, each at least 0.1 %."""
    return mean_error(list(errors), floor=1e-3).value


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutPart:
    """Cases that were left out together."""

    name: str  # the kernel, or the kernel with its work group
    # each with NaN for a time that the other cases do not determine
    cases: tuple[HeldOutCase, ...]
    # where cases are not predicted: features that no other case has, and weights that the other
    # cases do not tell apart
    without_weight: tuple[str, ...]

    @property
    def error(self) -> float | None:
        """Geometric mean of the relative errors; None unless every case is predicted."""
        errors = [case.relative_error for case in self.cases]
        return None if np.isnan(errors).any() else geometric_mean(errors)


class FitsWithout:
    """Cases of a GPU, ready for fits without some of them.

    The family of a case is what is left out together; other fits are looked for near that of all.
    """

    def __init__(self, observations: Iterable[design.Observation], model: ModelDefinition) -> None:
        self.observations = tuple(with_labels(observations))
        self.recipe = design.recipe_of(model)
        whole = design.build_design(self.observations, model)
        self.near = design.estimate_design(whole, self.recipe)

    def without(self, name: str, is_left_out: Callable[[design.Observation], bool]) -> LeftOutPart:
        """Predict some cases by a fit of the others."""
        inside = [case for case in self.observations if is_left_out(case)]
        labels = tuple(dict.fromkeys(case.family for case in inside))
        families = [case.family for case in self.observations]
        whole = self.near.design
        found = leave_out(families, whole, self.near, self.recipe, None, [labels])[labels]
        cases = tuple(
            HeldOutCase(
                name=case.name,
                kernel=case.kernel,
                family=name,
                measured_s=case.time_s,
                predicted_s=time_s,
            )
            for case, time_s in zip(inside, found.times_s.tolist(), strict=True)
        )
        missing: tuple[str, ...] = ()
        if any(np.isnan(case.predicted_s) for case in cases):
            missing = self._not_determined(found.outside)
        return LeftOutPart(name=name, cases=cases, without_weight=missing)

    def _not_determined(self, outside: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return what some cases never have, or never apart from each other."""
        cases = self.near.design
        never = [
            name
            for name, values in zip(cases.function.keys, cases.scaled.T, strict=True)
            if not np.any(values[outside])
        ]
        fitted = design.estimate_design(cases.of_cases(outside), self.recipe, near=self.near)
        together = [name for group in fitted.groups for name in group.features]
        return tuple(dict.fromkeys([*never, *together]))

    def kernels(self) -> Iterator[LeftOutPart]:
        """Leave out each kernel in turn, with all its work groups and types."""
        for name in sorted({case.kernel.rsplit("/", 2)[0] for case in self.observations}):
            yield self.without(name, lambda c, n=name: c.kernel.rsplit("/", 2)[0] == n)

    def tile_widths(self) -> Iterator[LeftOutPart]:
        """Leave out each tile width of the tiled product in turn."""
        for name in sorted({c.kernel for c in self.observations if c.kernel.startswith(TILED)}):
            yield self.without(name, lambda case, n=name: case.kernel == n)


def with_labels(observations: Iterable[design.Observation]) -> Iterator[design.Observation]:
    """Return cases whose family is their kernel with its group, larger sizes (by bytes) apart."""
    cases = list(observations)
    sizes: dict[str, list[float]] = {}
    for case in cases:
        sizes.setdefault(case.kernel, []).append(float(case.counts["distinct.load"]))
    limits = {kernel: float(np.quantile(each, LARGER)) for kernel, each in sizes.items()}
    for case in cases:
        is_larger = float(case.counts["distinct.load"]) > limits[case.kernel]
        yield replace(case, family=f"{case.kernel}{_LARGER if is_larger else ''}")


def with_calibrated_intervals(
    weights: WeightSet, observations: Sequence[design.Observation]
) -> WeightSet:
    """Return weights whose intervals follow from cases of their own fit that were left out.

    These are the larger sizes of all kernels, which count as much as a tile width, and each tile
    width in turn.
    """
    fits = FitsWithout(observations, weights.definition)
    part = fits.without("larger sizes", lambda case: case.family.endswith(_LARGER))
    larger = [replace(case, family=f"{case.kernel}{_LARGER}") for case in part.cases]
    widths = [case for part in fits.tile_widths() for case in part.cases]
    if weights.quality is None:
        return weights
    calibration = interval_calibration([*larger, *widths])
    quality = weights.quality.model_copy(update={"calibration": calibration})
    return weights.model_copy(update={"quality": quality})


def rounded(judged: Evaluation) -> Evaluation:
    """Return an evaluation with times to five digits and intervals to four, for documents."""
    cases = tuple(
        case.model_copy(
            update={
                "predicted_s": float(f"{case.predicted_s:.5g}"),
                "interval_s": case.interval_s
                and tuple(float(f"{end:.4g}") for end in case.interval_s),
            }
        )
        for case in judged.cases
    )
    return judged.model_copy(update={"cases": cases})


def left_out_rows(measurements: MeasurementSet, gpu: Gpu) -> list[dict[str, object]]:
    """Return the errors of what is left out of fits to all sizes, a row per part."""
    fits = FitsWithout(observations_of(measurements), model_of(gpu.slug))
    parts = {"tile width": fits.tile_widths(), "kernel": fits.kernels()}
    return [
        {
            "gpu": gpu.slug,
            "left_out": kind,
            "name": part.name,
            "cases": len(part.cases),
            "error_percent": None if part.error is None else round(100 * part.error, 1),
            "without_weight": " ".join(part.without_weight),
        }
        for kind, found in parts.items()
        for part in found
    ]


def main() -> None:
    """Fit, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with amaris/ in it")
    parser.add_argument("--output", type=Path, help="folder of fits to write to")
    parser.add_argument("--left-out", type=Path, help="CSV file of what was left out, to write")
    parser.add_argument("--gpus", nargs="*", default=list(GPUS), help="only these")
    options = parser.parse_args()
    table = timings(options.data)
    rows: list[dict[str, object]] = []
    for name in options.gpus:
        gpu = GPUS[name]
        found = measurements_of(table.drop(index=table.index[table["gpu"] != name]), gpu)
        fitted = fit(found, model=model_of(gpu.slug))  # the smaller sizes
        weights = with_calibrated_intervals(fitted.weights, fitted.observations)
        judged = evaluate(found, weights=weights)  # the larger sizes
        if options.output is not None:
            folder = options.output / gpu.slug
            weights.write_file(folder / "weights.json")
            rounded(judged).write_file(folder / "held-out.json")
            found.device.write_file(folder / "identity.json")
        held, number = judged.coverage()
        error = geometric_mean(case.relative_error for case in judged.cases)
        rows += left_out_rows(found, gpu)
        print(
            f"{gpu.name:24} {len(found):5} cases, larger sizes {100 * error:.1f} %,"
            f" intervals hold {held} of {number}",
            flush=True,
        )
    left_out = pd.DataFrame(rows)
    if options.left_out is not None:
        left_out.to_csv(options.left_out, index=False)
    for kind, part in left_out.groupby("left_out"):
        print(part.pivot_table(index="gpu", columns="name", values="error_percent").to_string())
        of_gpus = part.dropna().groupby("gpu")["error_percent"]
        means = of_gpus.apply(lambda errors: geometric_mean(errors / 100))
        print((100 * means).round(1).to_string())
        print(f"{kind}: geometric mean {100 * geometric_mean(means):.1f} %")


if __name__ == "__main__":
    main()
