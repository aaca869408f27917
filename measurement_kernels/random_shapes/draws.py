"""Random choices that are the same everywhere, and entries of the catalogue made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TypeVar

from measurement_kernels.arguments import SizeParameter, Sizes
from measurement_kernels.entry import CatalogEntry, StatisticBySize
from measurement_kernels.groups import GroupShape, round_up
from measurement_kernels.program_entries import program_entry
from measurement_kernels.programs import Program, Shape

_Option = TypeVar("_Option")

SEED = 1
"""Another one gives other kernels under the same names: never change it."""

SHORTEST_RUN_S = 0.4e-3
LONGEST_RUN_S = 6e-3
"""Estimated times of a run on two processor cores, at the smallest size."""

LARGEST_GROUP = 512
LOCAL_BYTES = 24 * 1024
"""Work items of a group, and its local memory, that any device has."""

_LENGTHS = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    14,
    16,
    18,
    20,
    24,
    28,
    32,
    36,
    40,
    48,
    56,
    64,
    80,
    96,
    128,
)
_LINEAR = (16, 24, 32, 40, 48, 60, 64, 72, 80, 96, 100, 112, 120, 128, 144, 160, 176, 192, 200, 216)
_BLOCKS = (
    (1, 4),
    (4, 1),
    (2, 2),
    (2, 4),
    (4, 2),
    (1, 8),
    (8, 1),
    (4, 4),
    (2, 8),
    (8, 2),
    (8, 4),
    (6, 1),
    (3, 3),
    (5, 2),
    (3, 4),
)
_LONG = (240, 256, 280, 288, 300, 320, 336, 352, 384, 400, 416, 448, 480, 500, 512)


class Draw:
    """Random choices for one kernel.

    Python promises that `random.Random.random` gives the same numbers in all versions, and nothing
    of the kind for its other functions.

    Parameters
    ----------
    name : str
        Of the kernel.
    regular : bool, optional
        Whether lengths of work groups, blocks and pieces are powers of two.

    Attributes
    ----------
    regular : bool
        As given.
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
        """Draw one of several; an option that is there twice is twice as likely."""
        return options[int(len(options) * self._random.random())]

    def some(self, options: Sequence[_Option], number: int) -> tuple[_Option, ...]:
        """Draw different ones of several, in random order."""
        left = list(options)
        return tuple(left.pop(int(len(left) * self._random.random())) for _ in range(number))

    def chance(self, probability: float) -> bool:
        """Draw a decision."""
        return self._random.random() < probability

    def coefficient(self) -> str:
        """Draw a number between 1/16 and 2 that is exact in binary32."""
        return str(self.integer(1, 32) / 16)

    def length(self, options: Sequence[int]) -> int:
        """Draw one of several lengths, of the powers of two among them if kernels are regular."""
        return self.pick([n for n in options if not self.regular or n & (n - 1) == 0])

    def linear_group(self) -> int:
        """Draw the length of a one-dimensional work group."""
        return self.length(_LINEAR + _LONG)

    def planar_group(self) -> GroupShape:
        """Draw a two-dimensional work group, wide, tall or square, of 16 items at least."""
        while True:
            shape = self.length(_LENGTHS), self.length(_LENGTHS)
            if 16 <= shape[0] * shape[1] <= LARGEST_GROUP:
                return shape

    def block(self, loops: int = 2) -> tuple[int, ...]:
        """Draw how many iterations of some loops each item has, 4 to 32 of one or two in all."""
        shapes = [
            each for each in _BLOCKS if not self.regular or all(n & (n - 1) == 0 for n in each)
        ]
        rows, columns = self.pick(shapes)
        return (rows, columns) if loops == 2 else (rows * columns,)

    def sizes(
        self, multiples: Mapping[str, int], work_s: Callable[[Sizes], float], *, skew: float = 1.0
    ) -> tuple[SizeParameter, ...]:
        """Draw sizes in random proportion whose estimated time is a random one.

        Parameters
        ----------
        multiples : Mapping from str to int
            The sizes, and what they are multiples of.
        work_s : callable
            Estimated time of a run at given sizes, s.
        skew : float
            Each size is up to ``2**skew`` times larger or smaller than in proportion.
        """
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
            SizeParameter(name=name, multiple=multiple, base=sizes[name])
            for name, multiple in multiples.items()
        )


def random_entries(
    family: str,
    description: str,
    number: int,
    regular: int,
    draw_kernel: Callable[[Draw], tuple[Program, Shape] | None],
    *,
    double: int = 0,
    statistics: Mapping[str, StatisticBySize] | None = None,
) -> Iterator[CatalogEntry]:
    """Draw the kernels of a family.

    Parameters
    ----------
    family, description : str
        The family, and what its kernels do.
    number, regular : int
        How many are drawn; and how many more with lengths that are powers of two.
    draw_kernel : callable
        Draws one; None where the choices do not fit together. Then it is asked again, as it is
        where local axis 0 has a single item, for which Loopy makes no code.
    double : int
        How many more are drawn in ``f64``, every other one of them with powers of two.
    statistics : Mapping from str to number, str or callable, optional
        What counting has to know of the data, by array, of those that a kernel may have.
    """
    known = statistics or {}
    for index in range(number + regular + double):
        is_double = index >= number + regular
        draw = Draw(f"{family}/{index}", regular=index % 2 == 0 if is_double else index >= number)
        drawn = draw_kernel(draw)
        while drawn is None or drawn[1].group_shape[0] == 1:
            drawn = draw_kernel(draw)
        program, shape = drawn
        if is_double:
            program = replace(program, element_type="f64")
        steps = (0, 1) if draw.chance(0.5) else (0,)
        yield program_entry(
            program,
            shape,
            family=family,
            variant=f"{index:03d}",
            collection="random",
            description=description,
            exponent_steps=steps,
            statistics={
                argument.name: known[argument.name]
                for argument in program.arguments
                if argument.name in known
            },
        )


def blocked_entries(
    kind: str,
    description: str,
    number: int,
    regular: int,
    draw_kernel: Callable[..., tuple[Program, Shape] | None],
) -> Iterator[CatalogEntry]:
    """Draw kernels of a family whose items have 4 to 32 results each.

    Parameters
    ----------
    kind, description : str
        The family is called ``blocked-<kind>``; and what its kernels do.
    number, regular : int
        How many are drawn; and how many more with lengths that are powers of two.
    draw_kernel : callable
        Draws one, as for `random_entries`; it is told ``blocked=True``.
    """
    yield from random_entries(
        f"blocked-{kind}",
        f"{description}, a block of results per item",
        number,
        regular,
        partial(draw_kernel, blocked=True),
    )
