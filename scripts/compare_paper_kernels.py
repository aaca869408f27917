#!/usr/bin/env python3
"""Predict the papers' kernels on the papers' devices by all mechanistic models.

usage: compare_paper_kernels.py TABLE

Writes a table (.csv) with a row for each kernel, device and model that answers. Prints as Markdown
the times on the first device of each kernel, and for Rodinia the mean absolute percentage errors of
the throughput of each model over all numbers of resident groups, relative to the pipeline
simulation. Registers are those that the paper prints, else 32.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import countperf
from countperf.metrics import mape
from measurement_kernels.catalog import entry
from measurement_kernels.entry import CatalogEntry

Case = tuple[str, tuple[str, ...], int, dict[str, int]]

_RODINIA = ("nvidia-k620", "nvidia-gtx-1060", "nvidia-rtx-2070")
_MERGE = ("nvidia-fx-5600", "nvidia-8800-gtx", "nvidia-8800-gt", "nvidia-gtx-280")
_MESH, _IMAGE = {"n": 97046}, {"n": 502, "m": 458}

_LINES = {"opt-srad1": {"image": 2}, "opt-srad2": {"c": 2}, "compute-flux": {"v": 32}}
"""Lines that a sub-group touches at addresses from tables: neighbors in a row, or anywhere."""

CASES: tuple[Case, ...] = (
    *(
        (f"published-rodinia/{kernel}/f32", _RODINIA, 32, sizes)
        for kernel, sizes in (
            ("fan2/8x8", {"n": 1024, "t": 1}),
            ("nw-kernel1/16x1", {"n": 128}),
            ("kmeans-kernel-c/256x1", {"n": 494020}),
            ("kmeans-swap/64x1", {"n": 494020}),
            ("lud-perimeter/32x1", {"n": 127}),
            ("lud-internal/16x16", {"n": 127}),
            ("hotspot/64x4", {"n": 8, "m": 512, "l": 512}),
            ("opt-srad1/256x1", _IMAGE),
            ("opt-srad2/256x1", _IMAGE),
            ("bpnn-layerforward/16x16", {"n": 4096}),
            ("bpnn-adjust-weights/16x16", {"n": 4096}),
            ("compute-step-factor/192x1", _MESH),
            ("time-step/192x1", _MESH),
            ("compute-flux/192x1", _MESH),
        )
    ),
    *(
        (f"{kernel}/f32", _MERGE, registers, sizes)
        for kernel, registers, sizes in (
            ("published-merge/sepia/16x16", 7, {"n": 7000, "m": 7000}),
            ("published-merge/linear/16x16", 15, {"n": 10000, "m": 10000}),
            ("published-merge/svm-linear/64x1", 9, {"n": 736, "s": 992, "f": 16}),
            ("published-merge/svm-radial/64x1", 9, {"n": 736, "s": 992, "f": 16}),
            ("published-matmul/global/16x16", 10, {"n": 2000}),
            ("published-matmul/tiled/16x16", 18, {"n": 2000}),
            ("published-merge/black-scholes/256x1", 11, {"n": 9000000}),
        )
    ),
    ("published-apsp/32x32/f32", ("nvidia-gtx-480",), 20, {"n": 8192}),
    ("published-apsp/16x16/f32", ("nvidia-gtx-480",), 20, {"n": 8192}),
    (
        "published-saxpy2/256x1/f32",
        ("nvidia-gtx-970", "nvidia-titan-x", "nvidia-gtx-1070"),
        8,
        {"n": 5000000, "a": 32},
    ),
)
"""Kernels with their devices, registers of a work item and sizes: Rodinia's, or the papers'."""


def _options(kernel: CatalogEntry, registers: int, sizes: dict[str, int]) -> dict[str, Any]:
    return {
        "registers_per_work_item": registers,
        "lines": _LINES.get(kernel.variant, {}),
        "statistics": kernel.statistics_at(sizes),
    }


def rows(cases: Sequence[Case] = CASES) -> Iterator[dict[str, str]]:
    """Predict each case by all models."""
    for name, devices, registers, sizes in cases:
        kernel = entry(name)
        options = _options(kernel, registers, sizes)
        for slug in devices:
            answers = countperf.predict_all(kernel.build(), slug, sizes, profile_options=options)
            for model, answer in answers.items():
                if isinstance(answer, Exception):
                    continue
                yield {
                    "kernel": name.removesuffix("/f32"),
                    "sizes": " ".join(f"{key}={value}" for key, value in sizes.items()),
                    "registers": str(registers),
                    "device": slug,
                    "model": model,
                    "time_us": f"{float(answer.time_s) * 1e6:.4g}",
                    "bound": answer.bound,
                }


def errors_over_occupancy(case: Case, device: str) -> dict[str, float]:
    """Return the errors of each model over all occupancies, relative to the pipeline simulation."""
    name, _, registers, sizes = case
    kernel = entry(name)
    options = _options(kernel, registers, sizes)
    swept = countperf.sweep(kernel.build(), device, sizes, profile_options=options)
    times: dict[str, list[float]] = {}
    for point in swept.points:
        for model, answer in point.answers.items():
            if not isinstance(answer, Exception):
                times.setdefault(model, []).append(float(answer.time_s))
    reference = times.pop("pipeline-rr")
    return {
        model: mape([1 / t for t in found], [1 / t for t in reference])
        for model, found in times.items()
        if len(found) == len(reference)
    }


def _table(columns: Sequence[str], found: dict[str, dict[str, str]]) -> str:
    lines = [
        "| kernel | " + " | ".join(columns) + " |",
        "| --- |" + " ---: |" * len(columns),
        *(
            f"| {name} | " + " | ".join(cells.get(each, "") for each in columns) + " |"
            for name, cells in found.items()
        ),
    ]
    return "\n".join(lines)


def main() -> None:
    """Write the table, and print what the documentation has of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    options = parser.parse_args()
    found = list(rows())
    with options.table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    first = {name.removesuffix("/f32"): devices[0] for name, devices, *_ in CASES}
    times: dict[str, dict[str, str]] = {}
    for row in found:
        if row["device"] == first[row["kernel"]]:
            times.setdefault(row["kernel"], {})[row["model"]] = row["time_us"]
    print(_table(list(dict.fromkeys(row["model"] for row in found)), times), end="\n\n")
    errors = {
        case[0].removesuffix("/f32"): {
            model: f"{error:.0f}" for model, error in errors_over_occupancy(case, device).items()
        }
        for case in CASES
        if case[1] == _RODINIA
        for device in _RODINIA[:1]
    }
    print(_table(list(next(iter(errors.values()))), errors))


if __name__ == "__main__":
    main()
