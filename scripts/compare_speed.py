"""Processor time and memory of commands and calls beside another version's; cost over size.

    python scripts/compare_speed.py --old OLD/bin/python --new NEW/bin/python
    python scripts/compare_speed.py --scale docs/_static/cost-over-size.svg

OLD has, for instance, commit de19785. Both run each row in turn, after one run that fills caches.
Times are user and system time of all processes that a row begins; memory is that of all of them at
once, of shared pages each one's part.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
KERNEL = """
import loopy as lp, numpy as np
axpy = lp.make_kernel(
    "{ [i] : 0 <= i < n }", "z[i] = 2*x[i] + y[i]",
    [lp.GlobalArg("x,y,z", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
    name="axpy", assumptions="n >= 1", lang_version=(2018, 2))
axpy = lp.split_iname(axpy, "i", 256, outer_tag="g.0", inner_tag="l.0")
"""
BEGIN = """
import json, statistics, sys, time, warnings
from time import process_time as now
import numpy as np
import countperf, loopy as lp
warnings.simplefilter("ignore")
"""
READ = """
from countperf.devices.compile.compiled_kernel import read_compiled
from countperf.devices.discovery import find_device
from measurement_kernels.catalog import entries
every = [e for e in entries(purpose=None, collection=None) if e.purpose != "variant"]
some = [(e, e.parameters(e.exponents[0])) for e in every[:: len(every) // 56][:56]]
code = read_compiled([(e.build(), at) for e, at in some], find_device("pocl:0"))
took = []
for (e, at), compiled in zip(some, code):
    began = now()
    try:
        compiled.counts(at, e.statistics_at(at))
    except (AttributeError, countperf.CountperfError):  # not compiled, or not to be followed
        continue
    took.append(now() - began)
print(json.dumps({"median": statistics.median(took), "worst": max(took)}))
"""
CORPUS = """
sys.path.insert(0, ROOT)
from tests.corpus import all_units
ours = theirs = 0.0
for _, build, _ in [each for units in all_units().values() for each in units][::3]:
    try:
        unit = build()
        began = now()
        ready = lp.preprocess_program(unit)
        lp.get_op_map(ready, subgroup_size=32)
        lp.get_mem_access_map(ready, subgroup_size=32)
        lp.get_synchronization_map(ready, subgroup_size=32)
        between = now()
        countperf.count_kernel(unit, cache=False)
    except Exception:  # one of both refuses it
        continue
    ours, theirs = ours + now() - between, theirs + between - began
print(json.dumps({"of Loopy's": ours / theirs}))
"""
COST = """
import kernel
cost = countperf.load_weights(OTHER, model="linear").compile(kernel.axpy)
def took(turns, n):
    cost(n=n)
    began = now()
    for _ in range(turns):
        cost(n=n)
    return (now() - began) / turns
print(json.dumps({"a point": took(2000, 4096), "10^6 points": took(3, np.arange(1, 10**6 + 1))}))
"""
FIT = """
from dataclasses import replace
from countperf.api.evaluation import read_measurements
definition = countperf.load_weights(OTHER, model="structural").definition
every = read_measurements(MEASUREMENTS)
cases = [m for m in every if m.purpose == "measurement"]
copies = [
    m.model_copy(update={name: f"{getattr(m, name)}{turn or ''}" for name in ("case", "kernel")})
    for turn in range(-(-NUMBER // len(cases)))
    for m in cases[:: max(1, len(cases) // NUMBER)]
]
every = replace(every, measurements=tuple(copies[:NUMBER]))
began = now()
countperf.fit(every, model=definition)
print(json.dumps({"cost": now() - began}))
"""
# points are answered at once: what is measured is the ranking itself
RANK = """
from concurrent.futures import Executor, Future
from countperf.tuning.points import Predicted, PredictionTask
from countperf.tuning.ranker import rank_points
import kernel
class AtOnce(Executor):
    def submit(self, function, asked, choices):
        future = Future()
        future.set_result([Predicted(choice=c, time_s=1 + c["a"] / 7 + c["b"]) for c in choices])
        return future
space = countperf.SearchSpace(
    name="s", parameters={"a": range(NUMBER // 10), "b": range(10)}, sizes={"n": 64},
    build=lambda a, b: kernel.axpy)
weights = countperf.load_weights(OTHER, model="structural")
began = now()
rank_points(PredictionTask(space=space, weights=weights, sizes={}), executor=AtOnce())
print(json.dumps({"cost": now() - began}))
"""
COUNT = """
sys.path[:0] = [ROOT, ROOT + "/scripts"]
from survey_kernels import LoopyTime
loopy = LoopyTime()
unit = lp.make_kernel(
    "{ [i] : 0 <= i < n }",
    [lp.Assignment(f"y[{j}, i]", f"{j + 1}*x[i]", id=f"s{j}") for j in range(NUMBER)],
    [lp.GlobalArg("x", np.float32, shape="n"), lp.ValueArg("n", np.int32),
     lp.GlobalArg("y", np.float32, shape=f"{NUMBER}, n")],
    assumptions="n >= 1", lang_version=(2018, 2))
unit = lp.split_iname(unit, "i", 64, outer_tag="g.0", inner_tag="l.0")
began = now()
countperf.count_kernel(unit, view="structure", cache=False)
print(json.dumps({"cost": now() - began - loopy.spent.processor_s}))
"""


class Row(NamedTuple):
    """A command of countperf, or a program that prints its figures; asked ratios by figure."""

    name: str
    text: str
    asked: dict[str, str]  # by cpu, wall, peak or what the program prints
    runs: int | None = None  # by default those of the command line
    each: int = 1  # what times are divided by
    extras: bool = False  # whether it runs where extras are installed


MATMUL = "rank matmul n=1024 m=1024 l=1024 --points"
PREDICT = "predict kernel.py:axpy n=16777216 --weights"
TUNE = "tune matmul n=256 m=256 l=256 --device pocl:0 --weights HERE --budget 20"
ROWS = (
    Row("cold `predict`, another device", f"{PREDICT} OTHER", {"cpu": ".6", "peak": ".6"}),
    Row("the same, all extras installed", f"{PREDICT} OTHER", {"peak": ".4"}, extras=True),
    Row("cold `predict` by code, compiled before", f"{PREDICT} HERE", {"cpu": ".5", "peak": ""}),
    Row("cold `count`", "count kernel.py:axpy", {"cpu": ".8", "peak": ".8"}),
    Row("variant, `rank` of 100", f"{MATMUL} 100 --weights OTHER", {"cpu": ".33"}, 1, 100),
    Row("variant by code, `rank` of 20", f"{MATMUL} 20 --weights HERE", {"wall": ".4"}, 1, 20),
    Row("reading code of 56 kernels", READ, {"median": ".5", "worst": ".3"}, 1),
    Row("`count` of a third of the corpus", CORPUS, {"of Loopy's": ".7"}, 1),
    Row("cost function, model linear", COST, {"a point": "1", "10^6 points": "1"}, 3),
    Row("`fit`, 3,540 cases", FIT.replace("NUMBER", "3540"), {"cost": ".4", "peak": ".5"}, 1),
    Row("`tune` for 20 s", TUNE, {"peak": ".5"}, 1),
    Row("ranking of 10^5 points", RANK.replace("NUMBER", "10**5"), {"cost": "", "peak": ".5"}, 3),
)


class Folder:
    """A folder with the kernel and caches of its own, where an interpreter runs rows."""

    def __init__(self, python: Path, names: dict[str, str], parent: str) -> None:
        self._python, self._names = python.absolute(), names
        self._path = Path(tempfile.mkdtemp(dir=parent))
        (self._path / "kernel.py").write_text(KERNEL)
        variables = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "POCL_CACHE_DIR", "PYTHONPATH")
        self._environment = os.environ | dict.fromkeys(variables, str(self._path))

    def run(self, text: str) -> dict[str, float]:
        """Return the figures of a run, s and MB; none if it fails."""
        is_program = "\n" in text
        for name, value in self._names.items():
            text = text.replace(name, repr(value) if is_program else value)
        words = ["-c", BEGIN + text] if is_program else ["-m", "countperf", *text.split()]
        began, cpu_s, peak_mb, status = time.monotonic(), 0.0, 0.0, 0
        with (self._path / "said").open("w") as said, (self._path / "log").open("w") as log:
            place = {"cwd": self._path, "env": self._environment}
            process = subprocess.Popen([self._python, *words], **place, stdout=said, stderr=log)
            with contextlib.suppress(ChildProcessError):  # until all that it began has ended
                while True:
                    number, ended, used = os.wait3(os.WNOHANG)
                    cpu_s += used.ru_utime + used.ru_stime
                    peak_mb = max(peak_mb, used.ru_maxrss / 1000 if number else tree_mb("self"))
                    status = ended if number == process.pid else status
                    time.sleep(0 if number else 0.2)
        process.returncode = status  # it was waited for here
        if status:
            last = (self._path / "log").read_text().splitlines()[-1:]
            print(f"{self._python}: {text[-60:]!r} fails: {''.join(last)}", file=sys.stderr)
            return {}
        printed = json.loads((self._path / "said").read_text()) if is_program else {}
        return {"cpu": cpu_s, "wall": time.monotonic() - began, "peak": peak_mb, **printed}


def tree_mb(number: str) -> float:
    """Return the memory of the processes that one began, MB."""
    total = 0.0
    for children in Path(f"/proc/{number}/task").glob("*/children"):
        with contextlib.suppress(OSError, TypeError):  # it has ended
            for child in children.read_text().split():
                text = Path(f"/proc/{child}/smaps_rollup").read_text()
                total += int(re.search(r"\nPss:\s+(\d+)", text)[1]) / 1000 + tree_mb(child)
    return total


def lines_of(row: Row, folders: dict[str, Folder], runs: int) -> Iterator[str]:
    """Run a row in both folders by turns; yield a line of the table for each figure."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in ("old", "new")}
    for turn in range(runs + 1):
        for name, folder in folders.items():
            for figure, value in folder.run(row.text).items() if turn or runs > 1 else ():
                if turn:
                    found[name][figure].append(value)
    for figure, asked in row.asked.items():
        old, new = (statistics.median(f[figure]) if f[figure] else None for f in found.values())
        unit, each = ("MB", 1) if figure == "peak" else ("s", row.each)
        unit = "" if figure.startswith("of ") else unit
        cells = ["" if value is None else f"{value / each:.3g} {unit}" for value in (old, new)]
        ratio = f"{new / old:.2f}" if old and new else ""
        yield f"| {row.name}: {figure} | {' | '.join(cells)} | {ratio} | {asked} | {runs} |"


SCALES: dict[str, tuple[str, str, list[int]]] = {
    "counting, without Loopy's scheduling": (COUNT, "instructions", [10, 30, 100, 300, 1000, 3000]),
    "fitting": (FIT, "cases", [100, 300, 1000, 3000, 10_000]),
    "ranking": (RANK, "points", [10**k for k in range(2, 7)]),
}


def scale(folder: Folder, path: Path, only: str) -> None:
    """Draw processor times over sizes; print them with exponents of the upper half."""
    import numpy as np
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "countperf"}
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, (text, unit, sizes) in SCALES.items():
        if not re.search(only, name):
            continue
        runs = [folder.run(text.replace("NUMBER", str(size))) for size in sizes]
        there = [(size, run["cost"]) for size, run in zip(sizes, runs, strict=True) if run]
        half: Any = np.log(there[len(there) // 2 :])
        exponent = float(np.polyfit(half[:, 0], half[:, 1], 1)[0])
        print(f"{name}: exponent {exponent:.2f};", *(f"{n}: {s:.3g} s," for n, s in there))
        axes.loglog(*zip(*there, strict=True), "o-", label=f"{name} ({unit}): {exponent:.2f}")
    axes.set(xlabel="instructions, cases or points", ylabel="processor time, s")
    figure.legend(title="exponent of the upper half", loc="outside upper left")
    figure.savefig(path, metadata={"Date": None})


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans are waited for here
    measurements = str(ROOT / "fits" / options.other / "measurements.jsonl.gz")
    names = {"OTHER": options.other, "HERE": options.here, "MEASUREMENTS": measurements}
    names["ROOT"] = str(ROOT)
    with tempfile.TemporaryDirectory() as parent:
        if options.scale:
            scale(Folder(options.new, names, parent), options.scale, options.only)
            return
        pythons = {"old": options.old, "new": options.new}
        extras = {"old": options.old_extras, "new": options.new_extras}
        plain, extras = (
            {name: Folder(python, names, parent) for name, python in some.items() if python}
            for some in (pythons, extras)
        )
        print("| | old | new | ratio | asked | runs |\n| --- | --- | --- | --- | --- | --- |")
        for row in ROWS:
            if re.search(options.only, row.name):
                runs = row.runs or options.repetitions
                for line in lines_of(row, extras if row.extras else plain, runs):
                    print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for version in ("new", "old", "new-extras", "old-extras"):
        parser.add_argument(f"--{version}", type=Path, help="an interpreter")
    parser.set_defaults(new=Path(sys.executable))
    parser.add_argument("--other", default="pocl-epyc-zen5", help="fit of a device not at hand")
    parser.add_argument("--here", default="pocl-epyc-zen3", help="fit of the device at hand")
    parser.add_argument("--repetitions", type=int, default=7, help="runs of short rows")
    parser.add_argument("--only", default="", help="rows that match this regular expression")
    parser.add_argument("--scale", type=Path, help="draw cost over size into this file instead")
    main(parser.parse_args())
