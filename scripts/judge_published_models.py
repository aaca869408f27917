"""Judge mechanistic models by times that others published: their errors, and the order of variants.

``python scripts/judge_published_models.py --data DIR [--every N]`` prints for each GPU and model
the mean relative error, and Kendall's tau over variants of one computation at one size, the mean
of all sizes. DIR has ``amaris/timings.csv.gz`` (registers as published) and
``convolution_milo/`` and ``dedispersion_milo/``, of which every N-th and every fourth of these
variants are taken. Nothing is fitted. These two are counted on a part of their arrays, of which the
launch has so many more groups.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

import loopy as lp
import numpy as np
import pandas as pd
from loopy.version import LOOPY_USE_LANGUAGE_VERSION_2018_2
from scipy.stats import kendalltau

from countperf.counting.programs import KernelProgram, kernel_programs
from countperf.devices.parameters import load_device
from countperf.errors import CountperfError
from countperf.mechanistic.classes import with_known_classes
from countperf.mechanistic.from_kernel import KernelProfiler
from countperf.mechanistic.predict_all import answer_or_error, build_models, model_names
from countperf.mechanistic.profile import ProfiledKernel
from countperf.text import extract
from fit_published_gpus import KERNELS
from measurement_kernels.catalog import entry
from measurement_kernels.published.convolution import CONVOLUTION, build_convolution

AMARIS = {"GTX-970": "nvidia-gtx-970", "Tesla-K40": "nvidia-k40c", "TitanX": "nvidia-titan-x"}
CONVOLVED = {
    **{"A100": "nvidia-a100", "A4000": "nvidia-rtx-a4000", "A6000": "nvidia-rtx-a6000"},
    **{"MI250X": "amd-mi250x", "W6600": "amd-radeon-pro-w6600"},
}
"""Devices of the catalogue by the names of files."""

IMAGE = 4096
SAMPLES, MEASURES, CHANNELS = 25_000, 2048, 1536  # of the dedispersion
_MOST_ELEMENTS = 250_000
_MOST_INSTRUCTIONS = 500
_SIZES = 3  # of each computation


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A launch that was timed."""

    device: str  # slug
    computation: tuple[Any, ...]  # the same for variants of one computation at one size
    programs: tuple[KernelProgram, ...]
    sizes: dict[str, int]
    share: float  # groups of the launch over those at these sizes
    registers: int
    time_s: float

    def predict(self) -> dict[str, float]:
        """Return the time by each model that answers, s."""
        device = load_device(self.device)
        profiler = KernelProfiler(
            programs=self.programs,
            device=device,
            registers_per_work_item=self.registers,
            max_instructions=_MOST_INSTRUCTIONS,
        )
        try:
            (counted, _), *_ = profiler.launches_at(self.sizes)
        except CountperfError:  # conditions at the border that are not counted
            return {}
        names = ("total_flops", "total_bytes", "work", "transactions")
        totals = extract(counted.profile, *names)
        whole = {name: self.share * value for name, value in totals.items()}
        if (traffic := counted.profile.traffic) is not None:
            moved = {n: self.share * getattr(traffic, n) for n in ("asked", "l2", "memory")}
            moved["charged"] = self.share * traffic.charged
            whole["traffic"] = replace(traffic, **moved)
        launch = replace(counted.launch, num_groups=round(self.share * counted.launch.num_groups))
        profiled = ProfiledKernel(replace(counted.profile, **whole), launch)
        adapted, unknown = with_known_classes(device, counted.profile.counts())
        found = {
            model.model: answer_or_error(partial(model.predict, profiled), unknown)
            for model in build_models("all", adapted)
        }
        return {n: float(a.time_s) for n, a in found.items() if not isinstance(a, Exception)}


def read_amaris(data: Path) -> Iterator[Case]:
    """Yield products and sums at the larger sizes that most variants were timed at."""
    times = pd.read_csv(data / "amaris" / "timings.csv.gz")
    of = times["gpu"].isin(list(AMARIS)) & times["kernel"].isin([*KERNELS][:-1])
    times = times[of].assign(name=times["kernel"].map(KERNELS)).sort_values("size")
    times["family"] = times["name"].str.partition("/")[0]
    for (gpu, family), alike in times.groupby(["gpu", "family"]):
        variants = alike[alike["size"] > alike["size"].quantile(0.5)]["size"].value_counts()
        for row in alike[alike["size"].isin(variants.index[:_SIZES])].itertuples():
            yield Case(
                device=AMARIS[str(gpu)],
                computation=(family, row.size),
                programs=_find_programs(f"{row.name}/{row.block_x}x{row.block_y}/f32"),
                sizes={"n": int(row.size)},
                share=1.0,
                registers=int(row.registers),
                time_s=float(row.median_s),
            )


@cache
def _find_programs(name: str) -> tuple[KernelProgram, ...]:
    return kernel_programs(entry(name).builder())


def read_convolution(data: Path, every: int) -> Iterator[Case]:
    """Yield every so many-th variant of the convolution that uses local memory."""
    times: dict[str, dict[tuple[int, ...], float]] = {}
    names = CONVOLUTION.parameters
    for gpu, slug in CONVOLVED.items():
        with gzip.open(data / "convolution_milo" / f"{gpu}.json.gz", "rt") as file:
            rows = [row for row in json.load(file)["cache"].values() if row["use_shmem"]]
        times[slug] = {tuple(row[n] for n in names): row["time"] for row in rows}
    for choice in [*CONVOLUTION.choices()][::every]:
        height = choice["block_size_y"] * choice["tile_size_y"]
        width = choice["block_size_x"] * choice["tile_size_x"]
        number = max(1, _MOST_ELEMENTS // ((height + 14) * (width + 14)))
        down = max(1, min(IMAGE // height, int(number**0.5)))
        across = max(1, min(IMAGE // width, number // down))
        groups = -(-IMAGE // height) * -(-IMAGE // width)
        pixels = choice["tile_size_x"] * choice["tile_size_y"]
        programs = kernel_programs(build_convolution(**choice))
        for slug, of in times.items():
            time = of.get(tuple(choice[name] for name in names))
            if isinstance(time, float):
                yield Case(
                    device=slug,
                    computation=("convolution",),
                    programs=programs,
                    sizes={"h": height * down, "w": width * across},
                    share=groups / (down * across),
                    registers=min(60, 28 + 8 * (pixels - 1)),  # about what nvcc gave KTT's
                    time_s=1e-3 * time,
                )


def build_dedispersion(
    bx: int, by: int, tx: int, ty: int, stride_x: int, stride_y: int
) -> lp.TranslationUnit:
    """Build a variant of the dedispersion: sums of u8 over channels, output by output.

    A group of ``bx`` by ``by`` items has ``tx`` by ``ty`` outputs an item, neighbors or, with
    strides, a group apart. The published kernel shifts samples by a delay of each channel, .14
    samples a measure in the mean, which is left out here: it moves a sub-group's access by less
    than a sector.
    """
    x = f"{bx * tx}*gx + " + (f"{bx}*ex + lx" if stride_x else f"{tx}*lx + ex")
    y = f"{by * ty}*gy + " + (f"{by}*ey + ly" if stride_y else f"{ty}*ly + ey")
    unit = lp.make_kernel(
        [
            f"[n, m] -> {{ [gx, gy]: 0 <= gx, gy and {bx * tx}*gx < n and {by * ty}*gy < m }}",
            f"{{ [lx, ly, ex, ey]: 0 <= lx < {bx} and 0 <= ly < {by}"
            f" and 0 <= ex < {tx} and 0 <= ey < {ty} }}",
            "[k] -> { [c]: 0 <= c < k }",
        ],
        f"""
        for gx, gy, lx, ly, ex, ey
            <float32> total = 0 {{id=zero}}
            for c
                total = total + samples[c, {x}] {{id=sum, dep=zero}}
            end
            out[{y}, {x}] = total {{dep=sum}}
        end
        """,
        [
            lp.GlobalArg("samples", np.uint8, shape="(k, n)"),
            lp.GlobalArg("out", np.float32, shape="(m, n)", is_input=False),
            lp.ValueArg("n, m, k", np.int32),
        ],
        name="dedispersion",
        assumptions=f"n >= 1 and m >= 1 and n mod {bx * tx} = 0 and m mod {by * ty} = 0",
        lang_version=LOOPY_USE_LANGUAGE_VERSION_2018_2,
    )
    return lp.tag_inames(unit, {"gx": "g.0", "gy": "g.1", "lx": "l.0", "ly": "l.1"})


def read_dedispersion(data: Path, every: int) -> Iterator[Case]:
    """Yield every so many-th variant of the dedispersion."""
    for gpu in ("A100", "MI250X"):
        with gzip.open(data / "dedispersion_milo" / f"{gpu}.json.gz", "rt") as file:
            rows = [*json.load(file)["cache"].values()][::every]
        for row in rows:
            of = [row[f"block_size_{a}"] for a in "xy"] + [row[f"tile_size_{a}"] for a in "xy"]
            strides = [row[f"tile_stride_{a}"] for a in "xy"]
            sizes = {"n": 8 * of[0] * of[2], "m": 4 * of[1] * of[3], "k": CHANNELS}
            if isinstance(row["time"], float):
                yield Case(
                    device=CONVOLVED[gpu],
                    computation=("dedispersion",),
                    programs=_dedispersion_programs(*of, *strides),
                    sizes=sizes,
                    share=SAMPLES * MEASURES / (sizes["n"] * sizes["m"]),
                    registers=32,
                    time_s=1e-3 * row["time"],
                )


@cache
def _dedispersion_programs(*choice: int) -> tuple[KernelProgram, ...]:
    return kernel_programs(build_dedispersion(*choice))


def judge(cases: Iterator[Case]) -> pd.DataFrame:
    """Return by device and model the cases, the mean error and the mean tau."""
    times: defaultdict[tuple[str, str], defaultdict[Any, list[tuple[float, float]]]]
    times = defaultdict(lambda: defaultdict(list))
    for case in cases:
        for model, time_s in case.predict().items():
            times[case.device, model][case.computation].append((time_s, case.time_s))
    rows: list[dict[str, Any]] = []
    for (device, model), by_computation in times.items():
        every = [pair for pairs in by_computation.values() for pair in pairs]
        taus = [
            float(kendalltau(*zip(*pairs, strict=True)).statistic)
            for pairs in by_computation.values()
            if len(pairs) > 3
        ]
        errors = [abs(predicted / measured - 1) for predicted, measured in every]
        known = [0.0 if np.isnan(tau) else tau for tau in taus]  # alike: no order
        figures = {"error": mean(errors), "tau": mean(known) if known else np.nan}
        rows.append({"device": device, "model": model, "cases": len(every), **figures})
    order = [*model_names()]
    return pd.DataFrame(rows).sort_values(
        ["device", "model"], key=lambda of: of.map(order.index) if of.name == "model" else of
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--every", type=int, default=40)
    options = parser.parse_args()
    for cases in (
        read_amaris(options.data),
        read_convolution(options.data, options.every),
        read_dedispersion(options.data, 4 * options.every),
    ):
        print(judge(cases).round(2).to_string(index=False), flush=True)
