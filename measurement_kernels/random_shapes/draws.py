"""Random choices that are the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias, TypeVar

from measurement_kernels.arguments import SizeParameter, Sizes
from measurement_kernels.groups import GroupShape, round_up
from measurement_kernels.programs import Program, Shape

_Option = TypeVar("_Option")

SEED = 1
"""Seed of all draws; another one gives other kernels under the same names: never change it."""

SHORTEST_RUN_S = 0.4e-3
LONGEST_RUN_S = 6e-3
"""Estimated times of a run on two processor cores, at the smallest size."""

LARGEST_GROUP = 512
LOCAL_BYTES = 24 * 1024
"""Work items of a group, and its local memory, that every device supports."""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


_LENGTHS = _numbers("1 2 3 4 5 6 8 10 12 14 16 18 20 24 28 32 36 40 48 56 64 80 96 128")
_LINEAR = _numbers(
    "16 24 32 40 48 60 64 72 80 96 100 112 120 128 144 160 176 192 200 216 "
    "240 256 280 288 300 320 336 352 384 400 416 448 480 500 512"
)
_BLOCK_ROWS = _numbers("1 4 2 2 4 1 8 4 2 8 8 6 3 5 3")
_BLOCK_COLUMNS = _numbers("4 1 2 4 2 8 1 4 8 2 4 1 3 2 4")


class Draw:
    """Random choices for one kernel.

    Python guarantees that `random.Random.random` gives the same numbers in all versions; it
    guarantees nothing for its other functions.
    """

    def __init__(self, name: str, *, regular: bool = False) -> None:
        self._random = Random(f"{name} {SEED}")
        self.regular = regular

    def real(self, low: float, high: float) -> float:
        """Draw from an interval."""
        return low + (high - low) * self._random.random()

    def integer(self, low: int, high: int) -> int:
        """Draw an integer, both ends included."""
        return low + int((high - low + 1) * self._random.random())

    def pick(self, options: Sequence[_Option]) -> _Option:
        """Draw an option; one that is listed twice is twice as likely."""
        return options[int(len(options) * self._random.random())]

    def some(self, options: Sequence[_Option], number: int) -> tuple[_Option, ...]:
        """Draw different options, in random order."""
        left = list(options)
        return tuple(left.pop(int(len(left) * self._random.random())) for _ in range(number))

    def chance(self, probability: float) -> bool:
        """Draw a decision."""
        return self._random.random() < probability

    def coefficient(self) -> str:
        """Draw a number between 1/16 and 2 that is exact in binary32."""
        return str(self.integer(1, 32) / 16)

    def length(self, options: Sequence[int]) -> int:
        """Draw a length, a power of two if lengths are regular."""
        return self.pick([n for n in options if not self.regular or n & (n - 1) == 0])

    def linear_group(self) -> int:
        """Draw the length of a one-dimensional work group."""
        return self.length(_LINEAR)

    def planar_group(self) -> GroupShape:
        """Draw a two-dimensional work group of at least 16 items."""
        while True:
            shape = self.length(_LENGTHS), self.length(_LENGTHS)
            if 16 <= shape[0] * shape[1] <= LARGEST_GROUP:
                return shape

    def loops_and_items(self, planar: bool) -> tuple[str, tuple[int, ...]]:
        """Draw the work group of loops i and j, or of i alone."""
        return ("ij", self.planar_group()) if planar else ("i", (self.linear_group(),))

    def block(self, loops: int = 2) -> tuple[int, ...]:
        """Draw an item's iterations of one or two loops, 4 to 32 in all."""
        shapes = [
            each
            for each in zip(_BLOCK_ROWS, _BLOCK_COLUMNS, strict=True)
            if not self.regular or all(n & (n - 1) == 0 for n in each)
        ]
        rows, columns = self.pick(shapes)
        return (rows, columns) if loops == 2 else (rows * columns,)

    def sizes(
        self, multiples: Mapping[str, int], work_s: Callable[[Sizes], float], *, skew: float = 1.0
    ) -> tuple[SizeParameter, ...]:
        """Draw sizes in random proportion whose estimated time is a random one."""
        proportion = {name: 2 ** self.real(-skew, skew) for name in multiples}
        target = SHORTEST_RUN_S * (LONGEST_RUN_S / SHORTEST_RUN_S) ** self.real(0, 1)
        length = 4.0
        while True:
            sizes = {
                name: round_up(max(1, int(length * proportion[name])), multiple)
                for name, multiple in multiples.items()
            }
            if work_s(sizes) >= target:
                break
            length *= 1.04
        return tuple(
            SizeParameter(name, multiple, base=sizes[name]) for name, multiple in multiples.items()
        )


DrawKernel: TypeAlias = Callable[[Draw], tuple[Program, Shape] | None]
"""Draws a kernel; returns None if the choices do not fit together."""


def shape_of(indices: str, sizes: Mapping[str, str | int]) -> str:
    """Return the extents of an array from its indices, each of which ends in the name of a loop."""
    return ", ".join(str(sizes[index[-1]]) for index in indices.split(", "))
