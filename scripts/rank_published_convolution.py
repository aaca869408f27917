"""Rank a published convolution on five GPUs without their times, and judge the order by the times.

``python scripts/rank_published_convolution.py --data DIR [--counts FILE] [--mechanistic]`` prints,
for each GPU and model, Kendall's tau, the time of the first variant over the fastest one's, and the
time of the best of the first five. DIR holds ``convolution_milo/`` and ``ktt/``; ``--counts`` keeps
what is counted between calls.

Models, from the least that has to be known to the most:

- ``data sheet``: rates of the data sheet and occupancy (`sheet_s`), nothing fitted;
- ``weights of Titan X``: the shipped fit to Amaris' kernels, which has never seen a convolution;
- ``times of GPU``: weights fitted to the times that another GPU took for these variants;
- mechanistic models of the library, on the GPUs of the catalogue that they answer on.

The form of `sheet_s` and the features of the fit were chosen on the same kernel's times on an
RTX 2080 Ti and an RTX 3090 (``ktt/``, other blocks and tiles), before the five GPUs were looked at.
Sources: github.com/AutoTuningAssociation/benchmark_hub, commit 8eeb99e7, MIT.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import kendalltau

from convolution_features import (
    IMAGE,
    Choice,
    GroupCounts,
    count_groups,
    groups,
    is_whole,
)
from countperf.errors import CountperfError, ParameterError
from countperf.hardware.library import load_device
from countperf.hardware.parameters import DeviceParameters
from countperf.mechanistic.from_kernel import profile_kernel
from countperf.mechanistic.occupancy import resident_groups
from countperf.mechanistic.predict_all import predict_all
from countperf.models.library import load_weights
from countperf.tuning.recorded_space import RecordedSpace
from measurement_kernels.published.convolution import build_convolution

GPUS = {
    "A100": "nvidia-a100",
    "A4000": "nvidia-rtx-a4000",
    "A6000": "nvidia-rtx-a6000",
    "MI250X": "amd-mi250x",
    "W6600": "amd-radeon-pro-w6600",
}
"""Devices of the catalogue by the names of the files."""

DESIGN = {"2080Ti": "nvidia-rtx-2080-ti", "3090": "nvidia-rtx-3090"}
"""GPUs on which the model from the data sheet was chosen."""

MECHANISTIC = (
    *("roofline", "roofline-bytes", "volkov", "transit", "wfg-corrected"),
    *("gpumech-rr", "gpumech-gto"),
)
_MOST_ELEMENTS = 1_000_000
_LANES = 32
_SECTORS_PER_CYCLE = 2.0  # 64 bytes from the second-level cache, a compute unit
_LATENCY = 500.0  # cycles of a load from memory, and of a barrier
_FMA_LATENCY = 4.0


def registers(choice: Choice) -> int:
    """Return about as many registers as compilers give a work item.

    A rule for what KTT's file says of nvcc: 28 without own pixels, 8 more for each, at most 60.
    """
    _, _, columns, rows, _ = choice
    return min(60, 28 + 8 * (columns * rows - 1))


def resident(choice: Choice, counts: GroupCounts, device: DeviceParameters) -> int:
    """Return the groups of a variant that are resident on a compute unit."""
    return resident_groups(
        device,
        work_items_per_group=counts.items,
        registers_per_work_item=registers(choice),
        local_bytes_per_group=counts.local_bytes,
    ).active_groups


def sheet_s(choice: Choice, counts: GroupCounts, device: DeviceParameters) -> float:
    """Predict a variant by the data sheet and occupancy, s.

    A group takes the longest of its pipelines: fused operations over the lanes, instructions over
    the schedulers, passes over the banks of local memory, sectors from the second-level cache.
    Other resident groups hide what it waits for: the latency of its loads, and of its chains of
    operations where there are few of them. Infinite where no group fits.
    """
    try:
        at_a_time = resident(choice, counts, device)
    except ParameterError:
        return float("inf")
    lanes = device.require("cores_per_compute_unit")
    schedulers = device.require("schedulers_per_compute_unit")
    units = device.require("num_compute_units")
    fused = counts.fused_instructions * _LANES / lanes
    executed = counts.fused_instructions + counts.local_loads + counts.local_stores + counts.loads
    passes = counts.local_load_passes + counts.local_store_passes
    fetched = counts.load_sectors / _SECTORS_PER_CYCLE
    busy = max(fused, executed / schedulers, passes, fetched)
    own_chains = counts.pixels / counts.items
    chain = counts.fused_instructions / counts.sub_groups / own_chains * _FMA_LATENCY
    alone = max(fused, executed / schedulers, passes, chain) + fetched + _LATENCY
    cycles = max(busy, alone / at_a_time)
    rounds = ceil(groups(choice) / units)
    memory = 2 * 4 * IMAGE**2 / device.require("bandwidth_byte_per_s")
    return max(rounds * cycles / device.require("clock_hz"), memory)


# --- weights


def features(choice: Choice, counts: GroupCounts, device: DeviceParameters) -> NDArray[np.float64]:
    """Return what a fit charges, of the whole launch and per compute unit."""
    try:
        at_a_time = resident(choice, counts, device)
    except ParameterError:
        return np.full(8, np.nan)
    number = ceil(groups(choice) / device.require("num_compute_units"))
    chain = counts.fused_instructions / counts.sub_groups / (counts.pixels / counts.items)
    return number * np.array(
        [
            1.0,
            counts.sub_groups,
            counts.fused_instructions,
            counts.local_load_passes,
            counts.local_store_passes,
            counts.load_sectors,
            1.0 / at_a_time,
            chain / at_a_time,
        ]
    )


def fitted(
    x: NDArray[np.float64], times_s: NDArray[np.float64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Fit weights that are not negative; return the prediction."""
    scale = np.nanmean(x, axis=0)
    known = np.isfinite(times_s) & np.isfinite(x).all(axis=1)
    a, b = x[known] / scale, np.log(times_s[known])
    start = np.log(np.full(x.shape[1], np.exp(b.mean()) / x.shape[1]))

    def residuals(w: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(a @ np.exp(w)) - b

    found = least_squares(residuals, start, loss="soft_l1", f_scale=0.2, bounds=(-60, 5))
    weights = np.exp(found.x) / scale
    return lambda other: other @ weights


def titan_x_s(choice: Choice, counts: GroupCounts) -> float:
    """Predict by the shipped weights of the GeForce GTX Titan X, s."""
    passes = counts.local_load_passes + counts.local_store_passes
    number = groups(choice)
    at_a_time = min(32, 64 // counts.sub_groups)  # as in the model's formula, of the Titan X
    waves = ceil(number / (24 * at_a_time))
    charged = {
        "groups": number,
        "subgroups.32.launched": number * counts.sub_groups,
        "subgroups.32.arithmetic": number * counts.fused_instructions,
        "subgroups.32.load": number * counts.loads,
        "transactions.32x128.load": number * counts.load_lines,
        "transactions.32x32.load": number * counts.load_sectors,
        "transactions.32x32.store": IMAGE**2 // 8,
        "subgroups.32.passes": number * passes,
        "subgroups.32.barrier": number * counts.sub_groups,
        "distinct.load": 4 * IMAGE**2,
        "distinct.store": 4 * IMAGE**2,
        "arithmetic_in_a_row": waves * counts.fused_instructions / counts.sub_groups,
        "barriers_in_a_row": waves,
        "barriers_by_group": number * counts.sub_groups / at_a_time,
    }
    return sum(value * charged[name] for name, value in _titan_x().items())


@cache
def _titan_x() -> Mapping[str, float]:
    weights = load_weights("nvidia-titan-x").weights
    return {each.feature: each.value_s for each in weights if each.term == "work"}


# --- judging


def judged(predicted: Sequence[float], times_s: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return tau, and the first variant's and the best of the first five's time over the best.

    Variants that failed, or that do not fit, are left out. Of variants that are predicted alike,
    the first in the file comes first.
    """
    order = np.asarray(predicted, dtype=np.float64)
    known = np.isfinite(times_s) & np.isfinite(order)
    order, times = order[known], times_s[known]
    first = np.argsort(order, kind="stable")
    best = float(np.nanmin(times_s))
    correlation: Any = kendalltau(order, times)
    tau = float(correlation.statistic)
    return tau, float(times[first[0]]) / best, float(times[first[:5]].min()) / best


def choices_of(space: RecordedSpace, names: Sequence[str]) -> list[Choice]:
    """Return the variants of a file by the names of its parameters."""
    found = [[int(each[name]) for name in names] for each in space.configurations]
    return [(one[0], one[1], one[2], one[3], one[4] if len(one) > 4 else 0) for one in found]


def recorded(data: Path) -> dict[str, tuple[list[Choice], NDArray[np.float64]]]:
    """Read the variants and times of the five GPUs."""
    names = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "use_padding")
    found: dict[str, tuple[list[Choice], NDArray[np.float64]]] = {}
    for gpu in GPUS:
        space = RecordedSpace.read_file(data / f"convolution_milo/{gpu}.json.gz")
        space = space.where(use_shmem=1)
        found[gpu] = choices_of(space, names), space.times_s
    return found


def designs(data: Path) -> dict[str, tuple[list[Choice], NDArray[np.float64]]]:
    """Read those of the GPUs on which the models were chosen, whose tiles divide the image."""
    names = ("BLOCK_SIZE_X", "BLOCK_SIZE_Y", "TILE_SIZE_X", "TILE_SIZE_Y")  # PADDING does nothing
    found: dict[str, tuple[list[Choice], NDArray[np.float64]]] = {}
    for gpu in DESIGN:
        space = RecordedSpace.read_file(data / f"ktt/hub_KTConvolutionOutput_{gpu}.json.gz")
        choices = choices_of(space, names)
        whole = [place for place, each in enumerate(choices) if is_whole(each)]
        found[gpu] = [choices[place] for place in whole], space.times_s[whole]
    return found


def mechanistic_s(choice: Choice, device: DeviceParameters) -> dict[str, float]:
    """Predict a variant by the mechanistic models, s; infinite where one gives no answer.

    The image is as large as counting lists it, and the time is scaled by the work groups.
    """
    wide, high, columns, rows, padding = choice
    height, width = high * rows, wide * columns
    number = max(1, _MOST_ELEMENTS // ((height + 14) * (width + 14)))
    down = max(1, min(IMAGE // height, int(number**0.5)))
    across = max(1, min(IMAGE // width, number // down))
    unit = build_convolution(wide, high, columns, rows, use_padding=padding)
    share = groups(choice) / (down * across)
    try:
        profiler = profile_kernel(unit, device, registers_per_work_item=registers(choice))
        found = predict_all(
            profiler, device, {"h": height * down, "w": width * across}, models=MECHANISTIC
        )
    except CountperfError:
        return {}
    return {name: float(each.time_s) * share for name, each in found.predictions.items()}


def _line(gpu: str, model: str, found: tuple[float, float, float]) -> None:
    tau, first, five = found
    print(f"{gpu:8} {model:28} {tau:6.2f} {first:6.2f} {five:6.2f}", flush=True)


def main() -> None:
    """Rank and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--counts", type=Path, help="file that keeps the counts (JSON)")
    parser.add_argument("--design", action="store_true", help="judge on the RTX 2080 Ti and 3090")
    parser.add_argument(
        "--mechanistic", type=int, metavar="N", help="mechanistic models, on every N-th variant"
    )
    parser.add_argument("--gpu", nargs="*", help="judge on these only")
    options = parser.parse_args()
    spaces = designs(options.data) if options.design else recorded(options.data)
    slugs = DESIGN if options.design else GPUS
    wanted = [choice for choices, _ in spaces.values() for choice in choices]
    counts = count_groups(wanted, options.counts)
    devices = {gpu: load_device(slug) for gpu, slug in slugs.items()}
    x = {
        gpu: np.array([features(each, counts[each], devices[gpu]) for each in choices])
        for gpu, (choices, _) in spaces.items()
    }
    for gpu, (choices, times_s) in spaces.items():
        if options.gpu and gpu not in options.gpu:
            continue
        device = devices[gpu]
        sheet = [sheet_s(each, counts[each], device) for each in choices]
        _line(gpu, "data sheet", judged(sheet, times_s))
        titan = [titan_x_s(each, counts[each]) for each in choices]
        _line(gpu, "weights of Titan X", judged(titan, times_s))
        for other, (_, other_s) in spaces.items():
            if other == gpu:
                continue
            predict = fitted(x[other], other_s)
            _line(gpu, f"weights fitted to {other}", judged(predict(x[gpu]).tolist(), times_s))
            if spaces[other][0] == choices:
                _line(gpu, f"measured times of {other}", judged(other_s.tolist(), times_s))
        if options.mechanistic:
            sample = choices[:: options.mechanistic]
            every = [mechanistic_s(each, device) for each in sample]
            for model in MECHANISTIC:
                predicted = [each.get(model, float("inf")) for each in every]
                _line(gpu, model, judged(predicted, times_s[:: options.mechanistic]))


if __name__ == "__main__":
    main()
