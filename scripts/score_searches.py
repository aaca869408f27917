#!/usr/bin/env python3
"""Judge searches on recorded spaces of GPUs, beside the strategies of Kernel Tuner.

    scripts/score_searches.py found --data DIR [--repeats N]
    scripts/score_searches.py score --data DIR --output DIR [--repeats N] [--space NAME]
    scripts/score_searches.py table --output DIR [--figure FILE] [--compressed FILE]

DIR has the public Kernel Tuner caches of the benchmark hub in ``convolution_milo/`` and
``dedispersion_milo/``. Of the convolution the configurations with ``use_shmem = 1`` are searched,
whose kernel is published.

``found`` replays the search without a model, with the recorded times of another GPU as a model, and
draws at random: geometric means over seeds of the best time over the optimum.

``score`` follows the methodology of Willemsen et al. (2024), "A methodology for comparing
optimization algorithms for auto-tuning", doi:10.1016/j.future.2024.05.021, with the package
``autotuning-methodology``: the budget is the time that random search is expected to need to come
within 5 % of the way from the optimum to the median; the score is the best so far at 1,000 moments
from 1 % on, mean over repeats, between random search (0) and the optimum (1). Two things differ:

- only recorded times of configurations count (compiling, checking, running), for all searches
  alike: `kernel_tuner_simulation` says why;
- the zero is the mean of 2,000 random searches instead of the package's formula, which takes the
  value at the expected rank: random search itself scores -0.9 by that where the budget is eight
  configurations. Scores by the formula are written down as well (``calculated``).

A score that is there is not worked out again. It needs ``pip install autotuning-methodology``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import score_report
from countperf.integrations.kernel_tuner import PosteriorStrategy
from countperf.tuning.recorded_space import RecordedSpace, replay
from kernel_tuner_simulation import Simulation, seconds_of, value_of

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
    "minimize",
    "mls",
    "greedy_mls",
    "greedy_ils",
    "ordered_greedy_mls",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
    "bayes_opt",
)
"""Strategies of Kernel Tuner 1.5 with its default hyperparameters. Without brute_force, those for
several objectives, skopt (100 s of CPU time for 86 measurements) and pyatf_strategies (its search
space does not take pyATF 0.0.13)."""

PUBLISHED: dict[str, dict[str, Any]] = {
    "diff_evo, published": {"popsize": 20, "maxiter": 100, "method": "best1bin"},
    "diff_evo, published later": {
        "popsize": 50,
        "popsize_times_dimensions": False,
        "F": 1.3,
        "CR": 0.9,
        "method": "best1bin",
    },
    "genetic_algorithm, published": {
        "popsize": 30,
        "maxiter": 50,
        "method": "single_point",
        "mutation_chance": 20,
    },
    "pso, published": {"popsize": 30, "maxiter": 100, "c1": 3.0, "c2": 0.5},
    "dual_annealing, published": {"method": "CG"},
    "greedy_ils, published": {"restart": True, "no_improvement": 66, "random_walk": 0.9},
}
"""Tuned hyperparameters: ``experiment_files/compare_hypertuners_paper.json`` and
``compare_hypertuners_milo.json`` (dual_annealing, greedy_ils) of the repository
AutoTuningAssociation/autotuning_methodology, and comments of ``kernel_tuner/hyper.py`` (later).
They were tuned on these spaces among others."""

RANDOM_RUNS = 2000
"""Random searches whose mean is the score's zero."""

MOMENTS = 1000
START, CUTOFF = 0.01, 0.95


def convolution(data: Path, device: str) -> RecordedSpace:
    """Return the recorded convolution of a GPU."""
    path = data / "convolution_milo" / f"{device}.json.gz"
    return RecordedSpace.read_file(path).where(use_shmem=1)


def data_sheet(gpu: str, counts: Path) -> Callable[[Mapping[str, Any]], float]:
    """Return the prediction of convolutions by the data sheet of a GPU and occupancy, s.

    Parameters
    ----------
    gpu : str
        Its name.
    counts : Path
        Counts of the variants, which ``rank_published_convolution.py --counts`` writes.
    """
    from convolution_features import GroupCounts
    from countperf.hardware.library import load_device
    from rank_published_convolution import GPUS, sheet_s

    known = {
        tuple(map(int, name.split(","))): GroupCounts(**each)
        for name, each in json.loads(counts.read_text()).items()
    }
    device = load_device(GPUS[gpu])

    def cost(configuration: Mapping[str, Any]) -> float:
        block_x, block_y, tile_x, tile_y, padding = (
            int(configuration[name])
            for name in (
                "block_size_x",
                "block_size_y",
                "tile_size_x",
                "tile_size_y",
                "use_padding",
            )
        )
        choice = (block_x, block_y, tile_x, tile_y, padding)
        return sheet_s(choice, known[choice], device)

    return cost


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
    """Write runs of all strategies on all spaces, those that are not there yet; print scores."""
    options.output.mkdir(parents=True, exist_ok=True)
    for name, path, keep in spaces(options.data):
        if options.space and options.space != name:
            continue
        judge = Judge(name, path, keep)
        for label, strategy, hyper in judge.strategies(options.data, options.counts):
            file = options.output / f"{name} {label}.json".replace(" ", "-").replace(",", "")
            if file.exists() or (options.strategy and options.strategy not in label):
                continue
            row = judge.judged(strategy, hyper, options.repeats)
            text = json.dumps({"space": name, "strategy": label, "options": hyper} | row)
            file.write_text(text + "\n")
            mean = float(np.mean(row["scores"]))
            print(f"{name:22} {label:36} {mean:6.3f}  {row['cpu_s']:7.2f} s a run", flush=True)


def table(options: argparse.Namespace) -> None:
    """Print the table of scores, and draw the figure."""
    rows = [json.loads(file.read_text()) for file in sorted(options.output.glob("*.json"))]
    score_report.write(rows, options.figure, options.compressed)


def spaces(data: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Return names, files and selections of the recorded spaces, small budgets first."""
    for device in ("W6600", "MI250X", "A4000", "A6000", "A100"):
        path = data / "convolution_milo" / f"{device}.json.gz"
        yield f"convolution {device}", path, {"use_shmem": 1}
    for device in ("MI250X", "A100"):
        yield f"dedispersion {device}", data / "dedispersion_milo" / f"{device}.json.gz", {}


class Judge:
    """A recorded space with the methodology's budget and baselines."""

    def __init__(self, name: str, path: Path, keep: Mapping[str, Any]) -> None:
        content = json.loads(gzip.decompress(path.read_bytes()))
        content["cache"] = {
            key: row
            for key, row in content["cache"].items()
            if all(row.get(field) == value for field, value in keep.items())
        }
        self.name = name
        self.simulation = Simulation(content)
        rows = list(content["cache"].values())
        self.costs_s = np.array([seconds_of(row) for row in rows])
        self.values = np.array([value_of(row) for row in rows])
        self.optimum = float(np.nanmin(self.values))
        self.median = float(np.nanmedian(self.values))
        self._set_budget(content)
        self.random = self._random_curve()

    def _set_budget(self, content: Mapping[str, Any]) -> None:
        from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
        from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

        with tempfile.TemporaryDirectory() as folder:
            t4 = Path(folder) / "t4.json"
            t4.write_text(json.dumps(_t4_of(content)))
            stats: Any = SearchspaceStatistics(
                application_name=self.name,
                device_name=self.name,
                minimization=True,
                objective_time_keys=["compilation", "validation", "runtimes"],
                objective_performance_keys=["time"],
                full_search_space_file_path=t4,
                full_validate=False,
            )
        *_, start_s, stop_s = stats.cutoff_point_fevals_time_start_end(START, CUTOFF)
        self.moments_s: NDArray[np.float64] = np.linspace(start_s, stop_s, MOMENTS)
        self.evaluations = round(stop_s / float(np.median(self.costs_s)))
        curve = RandomSearchCalculatedBaseline(stats).get_curve_over_time(self.moments_s)
        self.calculated = np.asarray(curve, np.float64)

    def _random_curve(self) -> NDArray[np.float64]:
        """Return the mean of many random searches without replacement."""
        rng = np.random.default_rng(0)
        total = np.zeros(MOMENTS)
        for _ in range(RANDOM_RUNS):
            drawn = rng.permutation(len(self.values))
            total += self.curve(np.cumsum(self.costs_s[drawn]), self.values[drawn])
        return total / RANDOM_RUNS

    def strategies(
        self, data: Path, counts: Path | None = None
    ) -> Iterator[tuple[str, Callable[[int], Any], dict[str, Any]]]:
        """Return names of strategies, functions that make them by a seed, hyperparameters."""
        yield "countperf, no model", lambda seed: PosteriorStrategy(seed=seed), {}
        cost = self._other_gpu(data)
        yield "countperf, another GPU", lambda seed: PosteriorStrategy(cost, seed=seed), {}
        if counts is not None and self.name.startswith("convolution"):
            sheet = data_sheet(self.name.rpartition(" ")[2], counts)
            yield "countperf, data sheet", lambda seed: PosteriorStrategy(sheet, seed=seed), {}
        size = {"max_fevals": self.simulation.space.size}  # else 100, whatever the budget
        given: dict[str, dict[str, Any]] = {
            "random_sample": {"fraction": 1.0},  # else a tenth of the space at most
            **dict.fromkeys(("mls", "greedy_mls", "ordered_greedy_mls", "greedy_ils"), size),
            "bayes_opt": size,
        }
        for name in STRATEGIES:
            yield name, partial(_named, name), given.get(name, {})
        told = {"max_fevals": max(2, self.evaluations)}
        yield "simulated_annealing, told", partial(_named, "simulated_annealing"), told
        for label, hyper in PUBLISHED.items():
            name = label.partition(",")[0]
            yield label, partial(_named, name), given.get(name, {}) | hyper

    def _other_gpu(self, data: Path) -> Callable[[Mapping[str, Any]], float]:
        application, _, device = self.name.partition(" ")
        if application == "convolution":
            other = convolution(data, OTHER[device])
        else:
            device = next(each for each in DEDISPERSION if each != device)
            other = RecordedSpace.read_file(data / "dedispersion_milo" / f"{device}.json.gz")
        times = {
            tuple(each.values()): float(time_s)
            for each, time_s in zip(other.configurations, other.times_s, strict=True)
        }
        return lambda configuration: times.get(tuple(configuration.values()), float("nan"))

    def judged(
        self, make: Callable[[int], Any], hyper: Mapping[str, Any], repeats: int
    ) -> dict[str, Any]:
        """Return scores of repeated runs, the mean curve, and what strategies computed."""
        limit_s = float(self.moments_s[-1])
        runs = [
            self.simulation.run(make(seed), limit_s=limit_s, seed=seed, options=hyper)
            for seed in range(repeats)
        ]
        curves = np.array([self.curve(run.spent_s, run.values) for run in runs])
        relative = (self.random - curves) / (self.random - self.optimum)
        calculated = (self.calculated - curves) / (self.calculated - self.optimum)
        return {
            "scores": np.round(relative.mean(axis=1), 4).tolist(),
            "calculated": np.round(calculated.mean(axis=1), 4).tolist(),
            "curve": np.round(relative.mean(axis=0)[::20], 4).tolist(),
            "cpu_s": round(float(np.mean([run.cpu_s for run in runs])), 3),
            "budget_s": round(limit_s, 2),
            "measured": float(
                np.mean([np.sum(np.diff(run.spent_s, prepend=0) > 0) for run in runs])
            ),
            "spent": round(float(np.mean([min(run.spent_s[-1] / limit_s, 1) for run in runs])), 3),
        }

    def curve(
        self, spent_s: NDArray[np.float64], values: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the best so far at each moment, ms; the median before anything ran."""
        found = np.append(self.median, np.where(np.isnan(values), np.inf, values))
        best = np.minimum.accumulate(found)
        return best[np.searchsorted(spent_s, self.moments_s, side="right")]


def _named(name: str, _seed: int) -> str:
    return name


def _t4_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Kernel Tuner cache as T4 results."""
    rows: list[dict[str, Any]] = []
    for row in content["cache"].values():
        value = value_of(row)
        failed = np.isnan(value)
        times = {
            "compilation": row.get("compile_time", 0.0),
            "validation": row.get("verification_time", 0.0),
            "runtimes": [row.get("benchmark_time", 0.0)],
            "framework": 0.0,
            "search_algorithm": 0.0,
        }
        rows.append(
            {
                "configuration": {name: row[name] for name in content["tune_params_keys"]},
                "times": times,
                "invalidity": "runtime" if failed else "correct",
                "correctness": 0 if failed else 1,
                "measurements": [{"name": "time", "value": value, "unit": "ms"}],
                "objectives": ["time"],
            }
        )
    return {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "milliseconds"},
        "results": rows,
    }


def main() -> None:
    """Run one of the three."""
    os.environ.setdefault("MPLBACKEND", "agg")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("found", "score", "table"))
    parser.add_argument("--data", type=Path, help="folder of the recorded spaces")
    parser.add_argument("--repeats", type=int, default=25, help="seeds of each search")
    parser.add_argument("--output", type=Path, help="folder of scores, a file per space and search")
    parser.add_argument("--space", help="score on this space only")
    parser.add_argument("--strategy", help="score strategies only whose name has this text")
    parser.add_argument("--counts", type=Path, help="counts of the convolutions, for data sheets")
    parser.add_argument("--figure", type=Path, help="where the figure is drawn")
    parser.add_argument("--compressed", type=Path, help="where all scores are written (.json.gz)")
    options = parser.parse_args()
    {"found": found, "score": score, "table": table}[options.what](options)


if __name__ == "__main__":
    main()
