"""Fit ten GPUs to times that others published, and judge the fits on cases that they have not seen.

``python scripts/fit_published_gpus.py --data DIR [--output fits]`` writes ``fits/<gpu>/`` with
``identity.json``, ``weights.json`` (fitted to the smaller 70 % of the sizes of each kernel) and
``held-out.json`` (the larger 30 %), and prints the errors of the latter, and those of tile widths
and of kernels that are left out, which ``--left-out FILE`` writes. DIR holds ``amaris/`` (see
`amaris_data`).

The model was chosen among 18 with occupancy and three without on four of the GPUs (GTX 680,
GTX 970, K40c, Titan X) by larger sizes times tile widths; `docs/evidence/gpus.md` has the figures.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from amaris_data import GPUS, SOURCE, Gpu, timings
from countperf.api.evaluation import evaluate, fit
from countperf.counting.analysis import TransactionCounts
from countperf.devices.parameters import capability_device
from countperf.measuring import Measurement, MeasurementSet
from countperf.measuring.tables import identity_elsewhere
from countperf.models.definition import ModelDefinition
from countperf.models.fitting.fit_model import observations_of
from countperf.models.metrics import Evaluation
from countperf.models.weights import WeightSet
from measurement_kernels.catalog import entry
from published_left_out import LARGER, FitsWithout, geometric_mean, with_calibrated_intervals

COMPUTE_UNITS = {
    "nvidia-gtx-680": 8,
    "nvidia-gtx-750": 4,
    "nvidia-gtx-970": 13,
    "nvidia-gtx-980": 16,
    "nvidia-quadro-k5200": 12,
    "nvidia-k20c": 13,
    "nvidia-k40c": 15,
    "nvidia-titan": 14,
    "nvidia-titan-black": 15,
    "nvidia-titan-x": 24,
}
"""Multiprocessors, from NVIDIA's data sheets."""

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
    capability = next(gpu.capability for gpu in GPUS.values() if gpu.slug == slug)
    limits = capability_device(capability)
    most, sub_groups = limits.max_groups_per_compute_unit, limits.max_sub_groups_per_compute_unit
    units = COMPUTE_UNITS[slug]
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
        device=identity_elsewhere(gpu.slug, gpu.name, COMPUTE_UNITS[gpu.slug]),
        source=SOURCE,
        ignore=["gpu", "size", "runs"],
    )

    def knowing(line: Measurement) -> Measurement:
        counts = _counted(line.kernel, tuple(line.parameters.items()))
        return line.model_copy(update={"transactions": counts})

    return replace(found, measurements=tuple(map(knowing, found)))


def fitted_and_judged(measurements: MeasurementSet) -> tuple[WeightSet, Evaluation]:
    """Fit the smaller sizes, make intervals of them alone, and evaluate the larger sizes."""
    model = model_of(measurements.device.slug)
    found = fit(measurements, model=model, weigh_noise=False)
    weights = with_calibrated_intervals(found.weights, found.observations)
    return weights, evaluate(measurements, weights=weights)


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
    fits = FitsWithout.of(observations_of(measurements), model_of(gpu.slug))
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
        weights, judged = fitted_and_judged(found)
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
