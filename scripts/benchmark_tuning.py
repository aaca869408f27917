"""Quality of tuning beside random search and Kernel Tuner, on spaces measured whole.

``python scripts/benchmark_tuning.py [--device DEVICE] [--points N] [--families NAME ...]``
``python scripts/benchmark_tuning.py --replay-only SLUG [--weights WEIGHTS]``

First a part of each space is measured, all of it (fewer values of its parameters, so that
there are at most N variants), with caches that begin empty, and recorded in
``fits/<device>/tuning`` (a file for each family; the command goes on where it was interrupted).
With ``--replay-only`` no device is needed: the records are there. Then the variants are predicted,
and searches are played again: our own with 5 % of the time that the exhaustive one took, random
search and strategies of Kernel Tuner (simulation mode) with the same, and the model alone. All
searches build variants on as many processors as predict: random search as our own does, those of
Kernel Tuner, which build one after the other, in that fraction of the time. A
search's result is the fastest variant's time as a fraction of the time of the variant that it
found: the median of the repetitions, and the geometric mean over the families. How often our own's
bound of its regret holds is judged by what was recorded. Written to
``fits/<device>/tuning.json``, and printed as a table. Kernel Tuner's strategies use no weights:
where only those have changed, ``--strategies`` without a name keeps what the file says of them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from countperf.errors import DocumentError
from countperf.harness.clock import EventClock
from countperf.harness.devices import find_device
from countperf.harness.environment import available_cores
from countperf.harness.runner import KernelRunner
from countperf.models.library import load_weights
from countperf.tuning.points import PredictionTask
from measurement_kernels.variants import spaces
from tuning_replay.records import Record, read_record, record
from tuning_replay.replay import Recording, predicted_record, random_search, replayed_tuning

STRATEGIES = (
    "random_sample",
    "greedy_ils",
    "genetic_algorithm",
    "simulated_annealing",
    "mls",
)
"""Strategies of Kernel Tuner, with their default options; diff_evo of version 1.5.0 fails where the
population is larger than the space."""

_ERROR = "CompilationFailedConfig"
_KERNEL_TUNER = "Kernel Tuner, "


def records(options: argparse.Namespace) -> dict[str, Record]:
    """Measure the spaces, or read what was measured."""
    folder = None if options.folder is None else Path(options.folder)
    if options.replay_only:
        folder = folder or Path("fits") / options.replay_only / "tuning"
        return {
            family: read_record(folder / f"{family}.jsonl", points=options.points)
            for family in options.families
        }
    caches = tempfile.mkdtemp(prefix="countperf-caches-")  # of PoCL and pyopencl
    os.environ.update(XDG_CACHE_HOME=caches, POCL_CACHE_DIR=caches)
    device = find_device(options.device)
    runner = KernelRunner.open(device, EventClock())
    folder = folder or Path("fits") / device.identity.slug / "tuning"
    sizes = {name: int(value) for name, value in (pair.split("=") for pair in options.sizes)}
    return {
        family: record(
            family,
            runner,
            folder / f"{family}.jsonl",
            points=options.points,
            sizes={n: value for n, value in sizes.items() if n in spaces()[family].sizes},
            progress=print,
        )
        for family in options.families
    }


def predicted(record: Record, options: argparse.Namespace) -> Recording:
    """Predict what was recorded."""
    weights = load_weights(options.weights or record.device.slug)
    question = PredictionTask(space=record.space, weights=weights, sizes={}, incomplete_ok=True)
    return predicted_record(record, question, workers=options.workers)


def kernel_tuner_quality(
    record: Record, strategy: str, seconds: float, seed: int, workers: int
) -> tuple[float, int]:
    """Let a strategy of Kernel Tuner search the record; return its result and evaluations."""
    from kernel_tuner_simulation import Simulation

    options = {"fraction": 1.0} if strategy == "random_sample" else {}
    simulation = Simulation(_kernel_tuner_cache(record, workers))
    run = simulation.run(strategy, limit_s=seconds, seed=seed, options=options)
    measured = int(np.sum(np.diff(run.spent_s, prepend=0) > 0))
    best_ms = np.nanmin(run.values) if not np.isnan(run.values).all() else math.inf
    return float(record.best_s * 1e3 / best_ms), measured


def _kernel_tuner_cache(record: Record, workers: int) -> dict[str, Any]:
    space = record.part
    cache: dict[str, Any] = {}
    for each in record.variants:
        result: dict[str, Any] = {"time": _ERROR, "__error__": _ERROR}
        if each.samples_s:
            result = {"time": each.time_s * 1e3, "times": [s * 1e3 for s in each.samples_s]}
        cache[",".join(str(each.choice[name]) for name in space.parameters)] = {
            **each.choice,
            **result,
            "compile_time": each.build_s * 1e3 / workers,  # as if so many were built at a time
            "verification_time": 0.0,
            "benchmark_time": (each.warm_up_s + sum(each.samples_s)) * 1e3,
        }
    return {
        "device_name": record.device.slug,
        "kernel_name": space.name,
        "problem_size": [1],
        "tune_params_keys": list(space.parameters),
        "tune_params": {name: list(values) for name, values in space.parameters.items()},
        "objective": "time",
        "cache": cache,
    }


def results(recording: Recording, options: argparse.Namespace) -> dict[str, Any]:
    """Play all searches of a family again."""
    record = recording.record
    seconds = options.share * record.exhaustive_s
    seeds = range(options.repetitions)
    workers: int = options.workers
    replays = [
        replayed_tuning(recording, seconds, seed=seed, workers=workers, thinking=True)
        for seed in seeds
    ]
    tuned = [replay.result for replay in replays]
    quality = {
        "model alone": [record.quality(recording.first_pick)],
        "tune": [record.quality(found.winner.choice) for found in tuned],
        "random search": [
            record.quality(random_search(record, seconds, seed=seed, workers=workers))
            for seed in seeds
        ],
    }
    evaluations: dict[str, float] = {"tune": median(len(found.tried) for found in tuned)}
    for strategy in options.strategies:
        pairs = [kernel_tuner_quality(record, strategy, seconds, seed, workers) for seed in seeds]
        quality[f"{_KERNEL_TUNER}{strategy}"] = [found for found, _ in pairs]
        evaluations[f"{_KERNEL_TUNER}{strategy}"] = median(count for _, count in pairs)
    ranking_s = recording.count_s / workers
    return {
        "variants": len(record.variants),
        "failed": sum(not each.samples_s for each in record.variants),
        "best_s": record.best_s,
        "exhaustive_s": record.exhaustive_s,
        "budget_s": seconds,
        "tune_spent_s": median(found.spent_s for found in tuned),
        "regret_bounds": [found.regret_bound for found in tuned],
        "regrets": [replay.regret for replay in replays],
        "bounds_hold": sum(replay.bound_holds is not False for replay in replays) / len(replays),
        "ranking_s": ranking_s,
        "exhaustive_over_ranking": record.exhaustive_s / ranking_s,
        "quality": {name: median(values) for name, values in quality.items()},
        "repetitions": quality,
        "evaluations": evaluations,
    }


def keep_strategies(families: dict[str, dict[str, Any]], path: Path) -> None:
    """Take results of Kernel Tuner's strategies, which use no weights, from an earlier file."""
    earlier = json.loads(path.read_text(encoding="utf-8"))["families"] if path.exists() else {}
    if not set(families) <= set(earlier):
        return
    for name, family in families.items():
        before = earlier[name]
        for field in ("variants", "best_s", "budget_s"):
            if not math.isclose(before[field], family[field]):
                message = (
                    f"{path}: $.families.{name}.{field} is {before[field]}, and"
                    f" {family[field]} now: name --strategies to play them again"
                )
                raise DocumentError(message, path=str(path), field=f"$.families.{name}.{field}")
        for field in ("quality", "repetitions", "evaluations"):
            kept = {k: v for k, v in before[field].items() if k.startswith(_KERNEL_TUNER)}
            family[field].update(kept)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean; 0 if a search found nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if min(values) > 0 else 0.0


def table(families: dict[str, dict[str, Any]], means: dict[str, float]) -> str:
    """Write one line for each search, one column for each family."""
    names = list(families)
    width = max(len(name) for name in means) + 2
    lines = ["".ljust(width) + "".join(name.rjust(20) for name in [*names, "geometric mean"])]
    for search, mean in means.items():
        found = [families[name]["quality"][search] for name in names]
        lines.append(
            search.ljust(width) + "".join(f"{100 * value:18.1f} %" for value in [*found, mean])
        )
    for label, key in (
        ("regret bounds hold", "bounds_hold"),
        ("variants", "variants"),
        ("all measured, s", "exhaustive_s"),
        ("budget, s", "budget_s"),
        ("ranked, s", "ranking_s"),
        ("measured / ranked", "exhaustive_over_ranking"),
    ):
        row = "".join(f"{families[name][key]:20.1f}" for name in names)
        lines.append(label.ljust(width) + row)
    return "\n".join(lines)


def main() -> None:
    """Record, play again, print and write."""
    command = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    command.add_argument("--device", help="pocl:0, or part of a name")
    command.add_argument("--replay-only", metavar="SLUG", help="read fits/SLUG/tuning, no device")
    command.add_argument("--weights", help="slug or path; by default the device's")
    command.add_argument("--points", type=int, default=600, help="variants of each family")
    command.add_argument("--families", nargs="+", default=list(spaces()), choices=list(spaces()))
    command.add_argument("--sizes", nargs="*", default=[], metavar="NAME=VALUE")
    command.add_argument("--share", type=float, default=0.05, help="of the exhaustive time")
    command.add_argument("--repetitions", type=int, default=7)
    command.add_argument(
        "--workers", type=int, default=available_cores(), help="predicting processes"
    )
    command.add_argument("--strategies", nargs="*", default=list(STRATEGIES))
    command.add_argument("--folder", help="of the records; by default fits/<device>/tuning")
    command.add_argument("--output", help="by default fits/<device>/tuning.json")
    options = command.parse_args()
    found = records(options)
    families = {name: results(predicted(each, options), options) for name, each in found.items()}
    device = next(iter(found.values())).device
    path = Path(options.output or Path("fits") / device.slug / "tuning.json")
    if not options.strategies:
        keep_strategies(families, path)
    searches = next(iter(families.values()))["quality"]
    means = {
        name: geometric_mean([family["quality"][name] for family in families.values()])
        for name in searches
    }
    content = {
        "format": "countperf-tuning-benchmark",
        "version": 1,
        "device": device.to_object(),
        "share": options.share,
        "families": families,
        "geometric_mean": means,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(table(families, means))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
