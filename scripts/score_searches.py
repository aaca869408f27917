#!/usr/bin/env python3
"""Judge searches on recorded spaces of GPUs, beside the strategies of Kernel Tuner.

    scripts/score_searches.py found --data DIR [--repeats N]
    scripts/score_searches.py score --data DIR [--repeats N] [--output FILE]

DIR has the public Kernel Tuner caches of the benchmark hub in ``convolution_milo/`` and
``dedispersion_milo/``. Of the convolution the configurations with ``use_shmem = 1`` are searched,
whose kernel is published.

``found`` replays the search without a model, with the recorded times of another GPU as a model, and
draws at random: geometric means over seeds of the best time over the optimum.

``score`` follows the methodology of Willemsen et al. (2024), "A methodology for comparing
optimization algorithms for auto-tuning", doi:10.1016/j.future.2024.05.021, as the package
``autotuning-methodology`` implements it: the budget is what random search is expected to need to
come within 5 % of the way from the optimum to the median; the best so far at 1,000 moments, mean
over repeats, between random search (0) and the optimum (1). All strategies, ours included, run in
Kernel Tuner's simulation mode under the same budget. It needs ``pip install
autotuning-methodology``.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countperf.integrations.kernel_tuner import PosteriorStrategy
from countperf.tuning.recorded_space import RecordedSpace
from countperf.tuning.replay import replay

CONVOLUTION = ("A100", "A4000", "A6000", "MI250X", "W6600")
DEDISPERSION = ("A100", "MI250X")
OTHER = {"A100": "A4000", "A4000": "A6000", "A6000": "A4000", "MI250X": "W6600", "W6600": "MI250X"}
"""GPU whose times rank a GPU's configurations beforehand: the next of the same vendor."""

STRATEGIES = (
    "random_sample",
    "genetic_algorithm",
    "diff_evo",
    "pso",
    "firefly_algorithm",
    "simulated_annealing",
    "dual_annealing",
    "basinhopping",
    "mls",
    "greedy_mls",
    "greedy_ils",
    "ordered_greedy_mls",
)
TIMES = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time")
MOMENTS = 1000
START, CUTOFF = 0.01, 0.95


def convolution(data: Path, device: str) -> RecordedSpace:
    """Return the recorded convolution of a GPU."""
    path = data / "convolution_milo" / f"{device}.json.gz"
    return RecordedSpace.read_file(path).where(use_shmem=1)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def at_random(space: RecordedSpace, count: int, seed: int) -> float:
    """Return the best of `count` configurations drawn without replacement, over the optimum."""
    drawn = np.random.default_rng(seed).choice(len(space.times_s), count, replace=False)
    return float(np.nanmin(space.times_s[drawn])) / space.best_s


def found(options: argparse.Namespace) -> None:
    """Print what searches find in 1 and 2 % of the configurations."""
    print("| convolution | searched | random | no model | worst | another GPU's times |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    rows: dict[int, list[list[float]]] = {1: [], 2: []}
    for device in CONVOLUTION:
        space = convolution(options.data, device)
        other = convolution(options.data, OTHER[device])
        ranked = other.times_of(space.configurations)
        for percent, row in rows.items():
            count = percent * len(space.configurations) // 100
            seeds = range(options.repeats)
            plain = [replay(space, measurements=count, seed=s).over_optimum for s in seeds]
            led = [
                replay(space, measurements=count, predicted_s=ranked, seed=s).over_optimum
                for s in seeds
            ]
            random = [at_random(space, count, s) for s in range(400)]
            each = [geometric_mean(random), geometric_mean(plain), max(plain), geometric_mean(led)]
            row.append(each)
            shown = " | ".join(f"{value:.3f}" for value in each)
            print(f"| {device} | {count} of {len(space.configurations)} | {shown} |", flush=True)
    for percent, row in rows.items():
        means = np.exp(np.log(np.array(row)).mean(axis=0))
        shown = " | ".join(f"{value:.3f}" for value in means)
        print(f"| geometric mean | {percent} % | {shown} |")


def score(options: argparse.Namespace) -> None:
    """Print the methodology's score of all strategies on all spaces."""
    scores: dict[str, dict[str, float]] = {}
    cpu_s: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path, keep in _spaces(options.data):
            judge = Judge(name, path, keep, Path(folder))
            for label, strategy in judge.strategies(options.data):
                began_s = time.process_time()
                curves = [judge.curve(strategy(seed), seed) for seed in range(options.repeats)]
                spent_s = time.process_time() - began_s
                cpu_s[label] = cpu_s.get(label, 0.0) + spent_s
                scores.setdefault(label, {})[name] = judge.score(np.mean(curves, axis=0))
                print(f"{name:24} {label:24} {scores[label][name]:.3f}", flush=True)
                if options.output is not None:
                    Path(options.output).write_text(json.dumps(scores, indent=1) + "\n")
    _print_scores(scores)


def _print_scores(scores: Mapping[str, Mapping[str, float]]) -> None:
    names = list(next(iter(scores.values())))
    print("| strategy | " + " | ".join(names) + " | mean |")
    print("| --- |" + " ---: |" * (len(names) + 1))
    rows = [(float(np.mean(list(row.values()))), label, row) for label, row in scores.items()]
    for mean, label, row in sorted(rows, key=lambda each: -each[0]):
        print(f"| {label} | " + " | ".join(f"{row[n]:.2f}" for n in names) + f" | {mean:.3f} |")


def _spaces(data: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    for device in CONVOLUTION:
        yield (
            f"convolution {device}",
            data / "convolution_milo" / f"{device}.json.gz",
            {"use_shmem": 1},
        )
    for device in DEDISPERSION:
        yield f"dedispersion {device}", data / "dedispersion_milo" / f"{device}.json.gz", {}


class Judge:
    """One recorded space with the methodology's budget, baseline and optimum."""

    def __init__(self, name: str, path: Path, keep: Mapping[str, Any], folder: Path) -> None:
        from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
        from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

        content = json.loads(gzip.decompress(path.read_bytes()))
        content["cache"] = {
            key: row
            for key, row in content["cache"].items()
            if all(row.get(field) == value for field, value in keep.items())
        }
        content.setdefault("device_name", name)
        self.name = name
        self.content = content
        self.cache = folder / f"{name.replace(' ', '-')}.json"
        self.cache.write_text(json.dumps(content))
        self.known = set(content["cache"])
        t4 = folder / f"{name.replace(' ', '-')}-t4.json"
        t4.write_text(json.dumps(_t4_of(content)))
        stats: Any = SearchspaceStatistics(
            application_name=name,
            device_name=name,
            minimization=True,
            objective_time_keys=["compilation", "validation", "runtimes", "framework"],
            objective_performance_keys=["time"],
            full_search_space_file_path=t4,
            full_validate=False,
        )
        *_, start_s, stop_s = stats.cutoff_point_fevals_time_start_end(START, CUTOFF)
        self.moments_s: NDArray[np.float64] = np.linspace(start_s, stop_s, MOMENTS)
        self.optimum = float(stats.total_performance_absolute_optimum())
        self.median = float(stats.total_performance_median())
        baseline = RandomSearchCalculatedBaseline(stats)
        self.random = np.asarray(baseline.get_curve_over_time(self.moments_s), np.float64)

    def strategies(self, data: Path) -> Iterator[tuple[str, Callable[[int], Any]]]:
        """Return strategies by name, each made by a seed."""
        yield "countperf, no model", lambda seed: PosteriorStrategy(seed=seed)
        device = self.name.rpartition(" ")[2]
        if self.name.startswith("convolution"):
            other = convolution(data, OTHER[device])
        else:
            device = next(each for each in DEDISPERSION if each != device)
            other = RecordedSpace.read_file(data / "dedispersion_milo" / f"{device}.json.gz")
        times = {
            tuple(each.values()): float(time_s)
            for each, time_s in zip(other.configurations, other.times_s, strict=True)
        }

        def cost(configuration: Mapping[str, Any]) -> float:
            return times.get(tuple(configuration.values()), float("nan"))

        yield "countperf, another GPU", lambda seed: PosteriorStrategy(cost, seed=seed)
        for name in STRATEGIES:
            yield name, partial(_named, name)

    def curve(self, strategy: Any, seed: int) -> NDArray[np.float64]:
        """Return the best objective so far at each moment; the median before anything ran."""
        import random

        import kernel_tuner
        from kernel_tuner.strategies.wrapper import OptAlgWrapper

        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # Kernel Tuner's strategies draw from it
        known = self.known

        def is_known(config: Mapping[str, Any]) -> bool:
            return ",".join(map(str, config.values())) in known

        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results, _ = kernel_tuner.tune_kernel(
                self.content["kernel_name"],
                "",
                self.content["problem_size"],
                [],
                self.content["tune_params"],
                restrictions=is_known,
                strategy=strategy if isinstance(strategy, str) else OptAlgWrapper(strategy),
                strategy_options={"time_limit": 1.1 * float(self.moments_s[-1])},
                simulation_mode=True,
                cache=str(self.cache),
                lang="CUDA",
                quiet=True,
            )
        spent_s = np.cumsum([_spent_s(each) for each in results])
        values = np.array([_time_ms(each) for each in results])
        best = np.minimum.accumulate(
            np.append(self.median, np.where(np.isnan(values), np.inf, values))
        )
        return best[np.searchsorted(spent_s, self.moments_s, side="right")]

    def score(self, curve: NDArray[np.float64]) -> float:
        """Return the mean of the curve between random search and the optimum."""
        return float(np.mean((self.random - curve) / (self.random - self.optimum)))


def _named(name: str, _seed: int) -> str:
    return name


def _spent_s(result: Mapping[str, Any]) -> float:
    known = [result.get(name) for name in TIMES]
    return sum(float(each) for each in known if isinstance(each, int | float)) / 1e3


def _time_ms(result: Mapping[str, Any]) -> float:
    time_ms = result.get("time")
    if "__error__" in result or not isinstance(time_ms, int | float) or time_ms > 1e19:
        return float("nan")
    return float(time_ms)


def _t4_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Kernel Tuner cache as T4 results."""
    rows: list[dict[str, Any]] = []
    for row in content["cache"].values():
        failed = np.isnan(_time_ms(row))
        times = {
            "compilation": row.get("compile_time", 0.0),
            "validation": row.get("verification_time", 0.0),
            "runtimes": [row.get("benchmark_time", 0.0)],
            "framework": row.get("framework_time", 0.0),
            "search_algorithm": row.get("strategy_time", 0.0),
        }
        value = [] if failed else [{"name": "time", "value": row["time"], "unit": "ms"}]
        rows.append(
            {
                "configuration": {name: row[name] for name in content["tune_params_keys"]},
                "times": times,
                "invalidity": "runtime" if failed else "correct",
                "correctness": 0 if failed else 1,
                "measurements": value or [{"name": "time", "value": float("nan"), "unit": "ms"}],
                "objectives": ["time"],
            }
        )
    return {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "milliseconds"},
        "results": rows,
    }


def main() -> None:
    """Run one of the two."""
    os.environ.setdefault("MPLBACKEND", "agg")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("found", "score"))
    parser.add_argument("--data", type=Path, required=True, help="folder of the recorded spaces")
    parser.add_argument("--repeats", type=int, default=20, help="seeds of each search")
    parser.add_argument("--output", help="where scores are written (.json)")
    options = parser.parse_args()
    {"found": found, "score": score}[options.what](options)


if __name__ == "__main__":
    main()
