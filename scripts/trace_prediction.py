#!/usr/bin/env python3
"""Print which functions of countperf one plain prediction calls.

They stand by layer, the highest first, in order of first call: how often each is called, and its
module and name. Then follow the calls from a lower layer into a higher one ("climbs"), and the
numbers of functions, of rooms (packages and files at the top of ``countperf/``) and of climbs.
Comprehensions are left out, and what modules call as they are imported; a generator counts at
each value that it gives.

    scripts/trace_prediction.py finite-differences/16x16/f32 n=512 --weights pocl-epyc-zen5
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import countperf

_ROOT = Path(__file__).parents[1]
_PACKAGE = f"{Path(countperf.__file__).parent}/"
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def layers() -> list[list[str]]:
    """Return the rooms of each layer, the lowest first, as import-linter's contract has them."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    lines = next(one["layers"] for one in contracts if one["type"] == "layers")
    rooms = [[name.partition(".")[2] for name in line.split(" | ")] for line in reversed(lines)]
    return [*rooms, ["__init__"]]


class Tracer:
    """A profile function that notes calls of functions of countperf, each a module and a name."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()  # in order of first call
        self.climbs: Counter[tuple[tuple[str, str], tuple[str, str]]] = Counter()
        self._ranks = {room: rank for rank, rooms in enumerate(layers()) for room in rooms}
        self._stack: list[tuple[str, str]] = []
        self._importing = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, or a return."""
        code = frame.f_code
        if event in ("call", "return") and code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in _COMPREHENSIONS
        if self._importing or not (is_function and code.co_filename.startswith(_PACKAGE)):
            return
        if event == "return" and self._stack:
            self._stack.pop()
        elif event == "call":
            module = code.co_filename.removeprefix(_PACKAGE).removesuffix(".py").replace("/", ".")
            called = (module, code.co_qualname.replace(".<locals>", ""))
            if self._stack and self.rank(called) > self.rank(self._stack[-1]):
                self.climbs[self._stack[-1], called] += 1
            self.calls[called] += 1
            self._stack.append(called)

    def rank(self, function: tuple[str, str]) -> int:
        """Return the number of a function's layer, the lowest 0."""
        return self._ranks[function[0].partition(".")[0]]


def main() -> None:
    """Trace the prediction of the kernel and sizes that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernel")
    parser.add_argument("sizes", nargs="*", metavar="NAME=NUMBER")
    parser.add_argument("--weights", help="name of weights; by default those of this machine")
    options = parser.parse_args()
    sizes = {name: int(value) for name, _, value in (text.partition("=") for text in options.sizes)}
    tracer = Tracer()
    sys.setprofile(tracer)
    try:
        countperf.predict(options.kernel, sizes, weights=options.weights)
    finally:
        sys.setprofile(None)
    for rank, rooms in reversed(list(enumerate(layers()))):
        called = [(one, times) for one, times in tracer.calls.items() if tracer.rank(one) == rank]
        if called:
            print(f"\n{' | '.join(rooms)}")
        for (module, name), times in called:
            print(f"{times:9}  {module}.{name}")
    print("\nclimbs")
    for (caller, called), times in tracer.climbs.items():
        print(f"{times:9}  {'.'.join(caller)} -> {'.'.join(called)}")
    rooms = {module.partition(".")[0] for module, _ in tracer.calls}
    print(f"\n{len(tracer.calls)} functions, {len(rooms)} rooms, {len(tracer.climbs)} climbs")


if __name__ == "__main__":
    main()
