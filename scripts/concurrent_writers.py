#!/usr/bin/env python3
"""Have processes store fits of the user's at the same time, and count those that remain.

    scripts/concurrent_writers.py 20 --writers 6 --seed 2

Each turn, all writers store a fit under one of few names, list the fits, and remove nothing. Exit
status 1 if a fit is lost, two writers were told the same name, or a writer ended in an error.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_WRITES = """
import sys
from pathlib import Path
from countperf.models import library
from countperf.models.library import load_weights, named_fits, store_own_fit
own, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
library.user_fits_folder = lambda: own
weights = load_weights("pocl-epyc-zen5", model="linear")
first = weights.weights[0].model_copy(update={"value_s": seconds})
weights = weights.model_copy(update={"weights": (first, *weights.weights[1:])})
print(flush=True)
sys.stdin.readline()
stored, path = store_own_fit(weights, name=name)
named_fits()
print(stored)
"""


def main() -> int:
    """Run the turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("turns", type=int)
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    lost = 0
    for _ in range(options.turns):
        names = [chance.choice("ab") for _ in range(options.writers)]
        with tempfile.TemporaryDirectory() as folder:
            lost += _turn(Path(folder) / "fits", names)
    print(f"{options.turns} turns of {options.writers} writers (seed {options.seed}): {lost} lost")
    return 1 if lost else 0


def _turn(own: Path, names: list[str]) -> int:
    """Return how many of the fits that writers store at once are not found afterwards."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITES, str(own), name, f"{number + 1}e-9"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, name in enumerate(names)
    ]
    for each in writers:
        assert each.stdout is not None
        each.stdout.readline()
    for each in writers:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    told = [each.communicate()[0].strip() for each in writers]
    found: list[str] = []
    for number, name in enumerate(told):
        path = own / name.removeprefix("mine/") / "linear.json"
        if name and path.is_file():
            value = json.loads(path.read_text())["weights"][0]["value_s"]
            found += [name] if value == float(f"{number + 1}e-9") else []
    return len(names) - len(set(found))


if __name__ == "__main__":
    sys.exit(main())
