"""Processor times of starting: imports, the help, loading weights; each in fresh processes.

    python scripts/benchmark_startup.py --repetitions 10

Prints the median over processes of user and system time, and what the project asks for.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

_LOAD = """
import time
import countperf
countperf.WeightSet
start = time.process_time()
countperf.load_weights({weights!r})
print(time.process_time() - start)
"""

ASKED_S = {
    "import countperf": 0.15,
    "countperf --help": 0.30,
    "load_weights": 0.20,
    "import and load_weights": None,
}


def process_s(*arguments: str) -> float:
    """Return the processor time of a Python process, s."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


def loading_s(weights: str) -> float:
    """Return the processor time of loading weights, without that of the imports, s."""
    code = _LOAD.format(weights=weights)
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    times: dict[str, list[float]] = {name: [] for name in ASKED_S}
    load = f"import countperf; countperf.load_weights({options.weights!r})"
    for _ in range(options.repetitions):
        times["import countperf"].append(process_s("-c", "import countperf"))
        times["countperf --help"].append(process_s("-m", "countperf", "--help"))
        times["load_weights"].append(loading_s(options.weights))
        times["import and load_weights"].append(process_s("-c", load))
    for name, seconds in times.items():
        asked = ASKED_S[name]
        wanted = "" if asked is None else f"   asked: at most {asked:.2f} s"
        print(f"{name:<24} {statistics.median(seconds):6.3f} s of processor{wanted}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Processor times of starting")
    parser.add_argument("--weights", default="pocl-epyc-zen5", help="name of a fit")
    parser.add_argument("--repetitions", type=int, default=10, help="processes of each kind")
    main(parser.parse_args())
