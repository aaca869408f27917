#!/usr/bin/env python3
"""Run commands where caches are full, damaged or no folders, and in locales of ASCII.

    scripts/odd_environments.py 20 --seed 2

Each turn is one command in one environment. Exit status 1 if one failed or ended in a traceback.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_KERNEL = """
import loopy as lp
axpy = lp.make_kernel("{[i]: 0 <= i < n}", "z[i] = 2*x[i]", name="axpy", lang_version=(2018, 2))
axpy = lp.add_dtypes(axpy, {"x": "float32", "z": "float32"})
"""
_COMMANDS = (
    ("weights",),
    ("doctor",),
    ("count", "odd.py:axpy", "n=1000"),
    ("predict", "odd.py:axpy", "n=1000", "--weights", "pocl-epyc-zen5"),
    ("time", "odd.py:axpy", "n=1000", "--weights", "pocl-epyc-zen5", "--force"),
)
_LOCALES = ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"})


def _missing(place: Path) -> None:
    del place


def _a_file(place: Path) -> None:
    place.touch()


def _full(place: Path) -> None:
    place.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if mount and os.getuid() == 0 and subprocess.run(command, check=False).returncode == 0:
        (place / "rest").write_bytes(b"\0" * 2**16)


def _damaged(place: Path) -> None:
    known = Path.home() / ".cache"
    for path in (*known.glob("pytools/*.sqlite"), *known.glob("countperf/*.sqlite3")):
        copy = place / path.relative_to(known)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(b"nonsense" * 2**10)


_PLACES: tuple[Callable[[Path], None], ...] = (_missing, _a_file, _full, _damaged)


def main() -> int:
    """Run commands in environments that a seed chooses, each at most once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("turns", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    every = list(itertools.product(_COMMANDS, _PLACES, _LOCALES))
    chosen = random.Random(options.seed).sample(every, min(options.turns, len(every)))
    failed = sum(not _passes(*each) for each in chosen)
    print(f"{len(chosen)} of {len(every)} environments (seed {options.seed}): {failed} failed")
    return 1 if failed else 0


def _passes(
    command: tuple[str, ...], spoil: Callable[[Path], None], locale: dict[str, str]
) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "caches"
        (Path(folder) / "odd.py").write_text(_KERNEL)
        spoil(place)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "countperf", *command],
                cwd=folder,
                env={**os.environ, **locale, "XDG_CACHE_HOME": str(place)},
                capture_output=True,
                check=False,
            )
        finally:
            if os.path.ismount(place):
                subprocess.run(["umount", str(place)], check=True)
    said = done.stderr.decode(errors="replace")
    passes = done.returncode == 0 and "Traceback" not in said
    if not passes:
        print(f"{' '.join(command)}, {spoil.__name__}, {locale}: {done.returncode}: {said[-400:]}")
    return passes


if __name__ == "__main__":
    sys.exit(main())
