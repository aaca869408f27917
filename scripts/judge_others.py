"""Judge models by kernels of other projects: mean factors, in cache and in memory.

``python scripts/judge_others.py [--again FOLDER]`` writes a table of the devices that have
``fits/<device>/others-judges.jsonl.gz``, by the weights that ship. FOLDER has measurements of the
same kernels at another time, ``<device>.jsonl``: how far times repeat. Beside the fitted models are
what a user would take instead: a roofline with the device's measured bandwidth and the peak of
arithmetic at its clock, the cycles of llvm-mca alone at the clock that the system reports, and the
paper's linear model.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from countperf.api.evaluation import compare, evaluate
from countperf.counting.vector import PropertyVector
from countperf.devices.identity import memory_hierarchy_of
from countperf.devices.parameters import load_device
from countperf.measuring import MeasurementSet
from countperf.models.metrics import EvaluatedCase, factor_between
from countperf.models.shipped import LAST_LEVEL_SHARE

ROOT = Path(__file__).resolve().parent.parent
JUDGES = "others-judges.jsonl.gz"
ROOFLINE = "roofline-bytes"
Key = tuple[str, ...]  # a kernel and its sizes
Times = Mapping[Key, float]
ROWS = {
    "measured again": "the same times, measured an hour apart",
    "compiled": "machine code (compiled)",
    "structural": "counts (structural)",
    "linear": "the paper's linear model",
    ROOFLINE: "a roofline with this machine's peaks",
    "llvm-mca": "llvm-mca's cycles alone",
}


def key_of(kernel: str, parameters: Mapping[str, int]) -> Key:
    """Return what tells a case from others."""
    return kernel, *(f"{name}={value}" for name, value in sorted(parameters.items()))


def predict_all(measured: MeasurementSet, slug: str) -> dict[str, Times]:
    """Predict the cases by each model, s; those that it refuses are missing."""
    cases: dict[str, tuple[EvaluatedCase, ...]] = {
        name: evaluate(measured, weights=slug, model=name, purposes=["application"]).cases
        for name in ("compiled", "structural", "linear")
    }
    roofline = compare(measured, models=[ROOFLINE], levels=["published"], purposes=["application"])
    cases[ROOFLINE] = roofline.models[0].cases
    made: dict[str, Times] = {
        name: {key_of(case.kernel, case.parameters): case.predicted_s for case in some}
        for name, some in cases.items()
    }
    device = load_device(slug)
    rate = device.require("num_compute_units") * device.require("clock_hz")
    made["llvm-mca"] = {
        key_of(m.kernel, m.parameters): m.code["code.cycles_throughput"] / rate
        for m in measured
        if m.code is not None
    }
    return made


def count_bytes(measured: MeasurementSet) -> Times:
    """Count the distinct bytes of each case."""
    found: dict[Key, float] = {}
    for case in measured:
        if case.properties is not None:
            counts = PropertyVector.from_document(case.properties).evaluate(case.parameters)
            loaded, stored, both = (
                float(counts.get(f"bytes.kernel.{name}", 0)) for name in ("load", "store", "update")
            )
            found[key_of(case.kernel, case.parameters)] = loaded + stored - both
    return found


def mean_factor(predicted: Times, measured: Times) -> str:
    """Write the mean factor between two times of the same cases, and of how many."""
    logs = [
        math.log(min(factor_between(time_s, measured[key]), 1000.0))
        for key, time_s in predicted.items()
        if key in measured
    ]
    return f"{math.exp(fmean(logs)):.2f} ({len(logs)})" if logs else ""


def main() -> None:
    """Print the table."""
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--again", type=Path, metavar="FOLDER")
    again = command.parse_args().again
    columns: list[dict[str, str]] = []
    titles: list[str] = []
    for path in sorted((ROOT / "fits").glob(f"*/{JUDGES}")):
        slug, every = path.parent.name, MeasurementSet.read_file(path)
        measured = every.select(lambda m: m.purpose == "application")
        times = {key_of(m.kernel, m.parameters): m.time_s for m in measured}
        made = predict_all(measured, slug)
        if again is not None and (second := again / f"{slug}.jsonl").is_file():
            repeated = MeasurementSet.read_file(second)
            made["measured again"] = {key_of(m.kernel, m.parameters): m.time_s for m in repeated}
        memory = memory_hierarchy_of(measured.device)
        most = LAST_LEVEL_SHARE * memory.caches[-1].size_bytes
        sizes = count_bytes(measured)
        for place in ("in cache", "in memory"):
            here = {k: t for k, t in times.items() if (sizes[k] > most) == (place == "in memory")}
            titles.append(f"{slug}, {place}")
            columns.append({name: mean_factor(some, here) for name, some in made.items()})
    print(f"| mean factor (cases) | {' | '.join(titles)} |")
    print(f"| --- | {' | '.join('---:' for _ in titles)} |")
    for name, label in ROWS.items():
        print(f"| {label} | {' | '.join(column.get(name, '') for column in columns)} |")


if __name__ == "__main__":
    main()
