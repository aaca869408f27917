"""Quality of tuning on a device itself, on spaces that were measured whole.

``python scripts/benchmark_live_tuning.py [--device DEVICE] [--repetitions N]``

`scripts/benchmark_tuning.py` plays searches again, one step after the other; here they run as they
do for users, with everything that goes on side by side: predictions, builds, drivers. A machine is
not as fast on every day: first a sample of each recorded space is measured anew, and its pace is
what that takes now over what it took when all was measured. A search has 5 % of the time that the
exhaustive one took, times the pace of its space. Afterwards the variant that it found and those
that were recorded to be the fastest are timed in turns. (By the recorded times, variants of which
one is faster on one day and the other on another would count as misses.) A variant's time is the
lower quartile over turns of its shortest run in each, as a multiple of what the turn's recorded
variants take, their median, since machines are slower at times: of the shortest runs of all turns,
one that hit upon the best places in memory once would be ahead of all others; and beside others who
use the same cores, a third of the turns or more may take nearly twice as long, which medians do not
survive. The fastest of so many by times that scatter is partly so by luck: the odd turns of all
repetitions say which recorded variant is the fastest, and the even ones what it takes, and the
other way round. The result is that as a fraction of what the variant takes that was found, at most
1. The variant that the model alone picks first stands beside it.

Each repetition is a process of its own, with caches that begin empty, and goes through the values
of parameters in another order. Modules are imported, and the processes that predict are started,
before the search begins, as they were before the exhaustive one. Written to
``fits/<device>/live-tuning.json``; the machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from benchmark_tuning import geometric_mean
from countperf.counting.unattended import without_disk_caches
from countperf.harness.clock import EventClock
from countperf.harness.devices import find_device
from countperf.harness.environment import available_cores
from countperf.harness.runner import KernelRunner
from countperf.models.library import load_weights
from countperf.models.weights import WeightSet
from countperf.tuning.measuring import Bench
from countperf.tuning.points import PredictionTask, predict_points
from countperf.tuning.pools import process_pool
from countperf.tuning.ranker import rank_points
from countperf.tuning.result import Budget, Key, Plan, as_key
from countperf.tuning.search import tune_space
from countperf.tuning.space import Choice, SearchSpace
from measurement_kernels.variants import spaces
from tuning_replay.records import Record, read_record

SEARCH = "tune, on the device"

MODEL = "model alone, on the device"

FASTEST = 16
"""Recorded variants with which those that were found are compared."""

TURNS = 12

KEPT = ("recorded_quality", "spent_s", "tried", "predicted")
"""Fields that are written of each search besides its result."""

Turns = dict[Key, list[float]]
"""For each variant, the logarithm of its time in each turn as a multiple of a typical one's."""


def records(options: argparse.Namespace) -> dict[str, Record]:
    """Read what was measured whole."""
    folder = Path(options.folder or Path("fits") / options.slug / "tuning")
    return {family: read_record(folder / f"{family}.jsonl") for family in options.families}


def paces(options: argparse.Namespace) -> dict[str, float]:
    """Measure a sample of each space anew; return its times now over those of the record."""
    runner = KernelRunner.open(find_device(options.device), EventClock())
    return {
        name: _pace(record, runner, options.sample) for name, record in records(options).items()
    }


def _pace(record: Record, runner: KernelRunner, number: int) -> float:
    ran = [each for each in record.variants if each.samples_s]
    first, *sample = random.Random(0).sample(ran, min(len(ran), number + 1))
    with Bench(record.space, record.sizes, runner, Plan()) as bench, without_disk_caches():
        bench.time(first.choice, None)  # imports are no variant's cost
        began_s = runner.clock.now()
        for each in sample:
            bench.time(each.choice, None)
        return (runner.clock.now() - began_s) / sum(each.cost_s for each in sample)


def picks(options: argparse.Namespace) -> dict[str, Choice]:
    """Predict all recorded variants; return the first that runs of each space."""
    weights = load_weights(options.weights or options.slug)
    found: dict[str, Choice] = {}
    with process_pool() as pool:
        for family, record in records(options).items():
            question = _question(record, record.part, weights)
            ranked = rank_points(question, executor=pool, keep=len(record.variants)).best
            times = {as_key(each.choice): each.time_s for each in ranked}
            ran = (each.choice for each in record.variants if each.samples_s)
            predicted = (choice for choice in ran if as_key(choice) in times)
            found[family] = min(predicted, key=lambda choice: times[as_key(choice)])
    return found


def _question(record: Record, space: SearchSpace, weights: WeightSet) -> PredictionTask:
    return PredictionTask(
        space=space, weights=weights, sizes=dict(record.sizes), incomplete_ok=True
    )


def _timed(record: Record, found: Sequence[Choice], runner: KernelRunner) -> Turns:
    """Time variants and the recorded fastest ones in turns; return the logarithms of multiples."""
    recorded = _fastest(record)
    choices = {as_key(choice): choice for choice in (*recorded, *found)}
    turns: dict[Key, list[float]] = {key: [] for key in choices}
    with Bench(record.space, record.sizes, runner, Plan()) as bench:
        for _ in range(TURNS):
            logs: dict[Key, float] = {}
            for key, each in choices.items():
                samples, _ = bench.time(each, None)
                logs[key] = math.log(min(samples))
            whole = median(logs[as_key(each)] for each in recorded)
            for key, log in logs.items():
                turns[key].append(log - whole)
    return turns


def _fastest(record: Record) -> list[Choice]:
    ran = sorted((each for each in record.variants if each.samples_s), key=lambda each: each.time_s)
    return [each.choice for each in ran[:FASTEST]]


def judged(record: Record, repetitions: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the shares of the speed of what was found, for each repetition of a space's search."""
    pooled: dict[Key, list[float]] = {}
    for each in repetitions:
        for choice, logs in each["turns"]:
            pooled.setdefault(as_key(choice), []).extend(logs)
    recorded = [as_key(each) for each in _fastest(record)]
    halves = [{key: _time(pooled[key][first::2]) for key in recorded} for first in range(2)]
    best = fmean(
        there[min(here, key=lambda key: here[key])] for here, there in (halves, halves[::-1])
    )
    return [
        {
            name: min(1.0, math.exp(best - _time(pooled[as_key(choice)])))
            for name, choice in each["found"].items()
        }
        for each in repetitions
    ]


def _time(logs: Sequence[float]) -> float:
    return quantiles(logs, n=4)[0]


def repetition(options: argparse.Namespace) -> dict[str, Any]:
    """Search all spaces once."""
    runner = KernelRunner.open(find_device(options.device), EventClock())
    weights = load_weights(options.weights or options.slug)
    found: dict[str, Any] = {}
    with process_pool() as pool:
        _warm_up(options, pool, weights)
        for family, record in records(options).items():
            part = record.part
            order = random.Random(options.seed)
            values = {name: order.sample(some, len(some)) for name, some in part.parameters.items()}
            result = tune_space(
                _question(record, replace(part, parameters=values), weights),
                runner,
                Budget(seconds=options.share * options.pace[family] * record.exhaustive_s),
                executor=pool,
            )
            choices = {SEARCH: result.winner.choice, MODEL: options.picks[family]}
            turns = _timed(record, [*choices.values()], runner)
            found[family] = {
                "found": choices,
                "turns": [(dict(key), logs) for key, logs in turns.items()],
                "recorded_quality": record.quality(result.winner.choice),
                "spent_s": result.spent_s,
                "tried": len(result.tried),
                "predicted": result.predicted,
            }
    return found


def _warm_up(options: argparse.Namespace, pool: Any, weights: Any) -> None:
    """Have each process import what predictions need, with a variant that is not searched."""
    space = next(space for name, space in spaces().items() if name != options.families[0])
    question = PredictionTask(space=space, weights=weights, sizes={}, incomplete_ok=True)
    first = next(iter(space.choices()))
    tasks = [pool.submit(predict_points, question, [first]) for _ in range(4 * available_cores())]
    for task in tasks:
        task.result()


def _apart(command: Sequence[str]) -> dict[str, Any]:
    """Run this program in a process of its own, with empty caches, and return what it prints."""
    with tempfile.TemporaryDirectory(prefix="countperf-caches-") as caches:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, *command],
            env={**os.environ, "XDG_CACHE_HOME": caches, "POCL_CACHE_DIR": caches},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def _rounded(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())


def main() -> None:
    """Measure the pace, search, print and write."""
    command = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    command.add_argument("--device", help="pocl:0, or part of a name")
    command.add_argument("--families", nargs="+", default=list(spaces()), choices=list(spaces()))
    command.add_argument("--weights", help="slug or path; by default the device's")
    command.add_argument("--share", type=float, default=0.05, help="of the exhaustive time")
    command.add_argument("--sample", type=int, default=12, help="variants of a space, for the pace")
    command.add_argument("--repetitions", type=int, default=7)
    command.add_argument("--folder", help="of the records; by default fits/<device>/tuning")
    command.add_argument("--output", help="by default fits/<device>/live-tuning.json")
    command.add_argument("--slug", help=argparse.SUPPRESS)
    command.add_argument("--part", help=argparse.SUPPRESS)
    command.add_argument("--pace", type=json.loads, help=argparse.SUPPRESS)
    command.add_argument("--picks", type=json.loads, help=argparse.SUPPRESS)
    command.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = command.parse_args()
    if options.slug is not None:
        parts = {each.__name__: each for each in (paces, picks, repetition)}
        print(json.dumps(parts[options.part](options)))
        return
    device = find_device(options.device).identity
    again = [*sys.argv[1:], f"--slug={device.slug}"]
    measured = [_apart([*again, "--part=paces"])]
    known = [
        f"--pace={json.dumps(measured[0])}",
        f"--picks={json.dumps(_apart([*again, '--part=picks']))}",
    ]
    repetitions: list[dict[str, Any]] = []
    for seed in range(options.repetitions):
        repetitions.append(_apart([*again, "--part=repetition", *known, f"--seed={seed}"]))
        for name, found in repetitions[-1].items():
            print(f"{seed}, {name}: {found['recorded_quality']:.3f} by what was recorded")
    measured.append(_apart([*again, "--part=paces"]))
    options.slug = device.slug
    families: dict[str, Any] = {}
    for family, record in records(options).items():
        searches = [each[family] for each in repetitions]
        shares = judged(record, searches)
        families[family] = {
            "quality": {search: median(each[search] for each in shares) for search in shares[0]},
            "repetitions": [
                {"quality": share} | {name: each[name] for name in KEPT}
                for share, each in zip(shares, searches, strict=True)
            ],
        }
    means = {
        search: geometric_mean([each["quality"][search] for each in families.values()])
        for search in (SEARCH, MODEL)
    }
    content = {
        "format": "countperf-live-tuning-benchmark",
        "version": 3,
        "device": device.to_object(),
        "share": options.share,
        "paces": measured,  # before and after
        "families": families,
        "geometric_mean": means,
    }
    path = Path(options.output or Path("fits") / device.slug / "live-tuning.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for name in options.families:
        before, after = (each[name] for each in measured)
        print(f"{name}: {_rounded(families[name]['quality'])}", end=" ")
        print(f"(pace before and after: {before:.2f}, {after:.2f})")
    print(_rounded(means))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
