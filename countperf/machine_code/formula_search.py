"""Search for numbers as polynomials in the sizes (`countperf.machine_code.size_formulas`).

A formula is kept only if what is followed at other sizes, larger ones among them, is what it says,
number by number; then steps are made smaller, and the smallest sizes lower, as far as that still
holds. So a formula is for one remainder of each size, and from smallest to largest sizes that were
looked at.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from countperf.errors import CountingError, ParameterError
from countperf.machine_code.size_formulas import (
    Exponents,
    Key,
    Number,
    Sample,
    SizeFormulas,
    SizePolynomial,
    Sizes,
    is_multiple,
)

Follow = Callable[[Sizes], Sample]


_ALIGNED = 128
"""Vector widths, interleaving and unroll factors divide it."""
_PAGE = 1024
"""Elements of 4 bytes after which lines of a first-level cache fall into the same sets again."""
_HIGHEST_DEGREE = 4
_FAR = (40, 16, 7)
"""Steps to the largest sizes that are tried, those first that can be followed."""
_MOST = 160
"""Sizes at which code is followed for one formula."""
_CHECKS = 4
_SEED = 31


class _Mismatch(Exception):  # noqa: N818  no error: another formula is tried
    """A formula does not say what is followed."""


@dataclass(slots=True)
class _Search:
    """Sizes at which code was followed, and the lattice of the formula."""

    follow: Follow
    is_allowed: Callable[[Sizes], bool]
    names: tuple[str, ...]
    kept: int
    seen: dict[tuple[int, ...], Sample] = field(default_factory=dict[tuple[int, ...], Sample])

    def sample(self, sizes: Sequence[int]) -> Sample:
        key = tuple(sizes)
        if key not in self.seen:
            if len(self.seen) >= _MOST:
                raise CountingError(f"no formula after following the code at {_MOST} sizes")
            self.seen[key] = self.follow(dict(zip(self.names, key, strict=True)))
        return self.seen[key]

    def allowed(self, sizes: Sequence[int]) -> bool:
        return all(each > 0 for each in sizes) and self.is_allowed(
            dict(zip(self.names, sizes, strict=True))
        )

    def check(self, formulas: SizeFormulas, sizes: Sequence[int]) -> None:
        """Raise `_Mismatch` unless formulas say at sizes what is followed there."""
        expected = formulas.at(dict(zip(self.names, sizes, strict=True)))
        found = {key: value for key, value in self.sample(sizes).items() if value}
        if expected != found:
            raise _Mismatch


def find_formulas(
    follow: Follow,
    example: Sizes,
    *,
    extents: Sequence[int] = (),
    is_allowed: Callable[[Sizes], bool] = lambda _: True,
    for_pages: bool = False,
) -> SizeFormulas:
    """Find numbers as polynomials in the sizes."""
    names = tuple(example)
    search = _Search(follow, is_allowed, names, _PAGE if for_pages else 1)
    found: SizeFormulas | None = None
    for times in (1, 4):
        lattice = _lattice(search, [example[name] for name in names], extents, times)
        for degree in range(1, _HIGHEST_DEGREE + 1):
            try:
                found = _interpolated(search, lattice, degree, list(example.values()))
                break
            except _Mismatch:
                continue
        if found is not None:
            break
    if found is None:
        raise CountingError(
            "executed instructions are no polynomial of the sizes: none of degree"
            f" {_HIGHEST_DEGREE} or less says what is followed at {len(search.seen)} sizes"
        )
    for place in range(len(names)):
        found = _with_smaller_steps(search, found, place)
    found = _with_lower_sizes(search, found, [example[name] for name in names])
    draw = random.Random(_SEED)
    drawn = [_drawn(search, found, draw) for _ in range(_CHECKS)]
    for sizes in (*drawn, *_on_pages(search, found)):
        try:
            search.check(found, sizes)
        except _Mismatch:
            raise CountingError(
                "executed instructions are no polynomial of the sizes: a formula from"
                f" {len(search.seen)} sizes fails at another one"
            ) from None
    return replace(found, followed=len(search.seen))


def _lattice(
    search: _Search, example: Sequence[int], extents: Sequence[int], times: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return where the lattice begins, and its steps; 0 for a size that cannot change."""
    step = math.lcm(_ALIGNED, search.kept, *(extent for extent in extents if extent > 0))
    steps: list[int] = []
    base = list(example)
    for place in range(len(example)):
        found = 0
        for factor in (1, 3, 5, 7, 9, 15, 25):
            wide = step * factor
            moved = [
                [*example[:place], example[place] + k * wide, *example[place + 1 :]] for k in (1, 2)
            ]
            if all(map(search.allowed, moved)):
                found = wide
                break
        steps.append(found)
        if found:
            base[place] = example[place] % found
            while base[place] < times * _ALIGNED or not search.allowed(
                [*example[:place], base[place], *example[place + 1 :]]
            ):
                base[place] += found
    return tuple(base), tuple(steps)


def _interpolated(
    search: _Search,
    lattice: tuple[tuple[int, ...], tuple[int, ...]],
    degree: int,
    example: Sequence[int],
) -> SizeFormulas:
    """Return formulas of a degree that hold at sizes that they were not made from."""
    base, steps = lattice
    start = search.sample(base)
    moved = [place for place, step in enumerate(steps) if step]
    free = [
        place
        for place in moved
        if search.sample([*base[:place], base[place] + steps[place], *base[place + 1 :]]) != start
    ]

    def sizes(k: Mapping[int, int]) -> list[int]:
        return [
            b + s * k.get(place, 0) for place, (b, s) in enumerate(zip(base, steps, strict=True))
        ]

    points = list(_simplex(len(free), degree))
    samples = [search.sample(sizes(dict(zip(free, point, strict=True)))) for point in points]
    keys: dict[Key, None] = {key: None for sample in samples for key in sample}
    alike: dict[tuple[Number, ...], list[Key]] = {}
    for key in keys:
        alike.setdefault(tuple(sample.get(key, 0) for sample in samples), []).append(key)
    distances = tuple(step or 1 for step in steps)
    rows = tuple(
        (SizePolynomial(base, distances, _terms(points, values, free, len(base))), tuple(some))
        for values, some in alike.items()
    )
    found = SizeFormulas(
        names=search.names,
        base=base,
        moduli=steps,
        low=base,
        high=base,
        rows=rows,
        followed=len(search.seen),
    )
    if not moved:
        return found
    search.check(found, sizes({place: degree + 1 + number for number, place in enumerate(moved)}))
    for number, place in enumerate(moved):
        search.check(found, sizes({place: degree + 2 + number}))
    for far in _far_sizes(lattice, example):
        try:
            search.check(found, far)
        except (CountingError, ParameterError):
            continue
        return replace(found, high=tuple(far))
    raise _Mismatch


def _far_sizes(
    lattice: tuple[tuple[int, ...], tuple[int, ...]], example: Sequence[int]
) -> Iterator[list[int]]:
    """Yield largest sizes to try: beyond the example, at it, and some steps away."""
    for factor, least in ((2, _FAR[0]), (1, _FAR[0]), (0, _FAR[1]), (0, _FAR[2])):
        yield [
            start + step * max(least - place, -(-(factor * size - start) // step))
            if step
            else start
            for place, (start, step, size) in enumerate(zip(*lattice, example, strict=True))
        ]


def _simplex(number: int, degree: int) -> Iterator[Exponents]:
    for point in itertools.product(range(degree + 1), repeat=number):
        if sum(point) <= degree:
            yield point


def _terms(
    points: Sequence[Exponents], values: Sequence[Number], free: Sequence[int], number: int
) -> dict[Exponents, Number]:
    """Return forward differences at the base that are not zero, by exponents of all sizes."""
    known = dict(zip(points, values, strict=True))
    found: dict[Exponents, Number] = {}
    for point in points:
        value: Number = 0
        for below in itertools.product(*(range(each + 1) for each in point)):
            sign = -1 if (sum(point) - sum(below)) % 2 else 1
            value += sign * math.prod(map(math.comb, point, below)) * known[below]
        if value:
            exponents = [0] * number
            for place, exponent in zip(free, point, strict=True):
                exponents[place] = exponent
            found[tuple(exponents)] = value
    return found


def _with_smaller_steps(search: _Search, formulas: SizeFormulas, place: int) -> SizeFormulas:
    """Make a modulus the least that the kernel takes, else divide it by its prime factors.

    Formulas have to hold between the sizes from which they were found.
    """
    largest = formulas.moduli[place]
    divisors = (each for each in range(1, largest) if largest % each == 0)
    for modulus in divisors:
        smaller, points = _with_modulus(formulas, place, modulus, 2)
        if modulus % search.kept == 0 and all(map(search.allowed, points)):
            if all(_holds(search, smaller, point) for point in points):
                return smaller
            break
    found = formulas
    for prime in _primes(largest):
        modulus = found.moduli[place] // prime
        smaller, points = _with_modulus(found, place, modulus, prime)
        if modulus % search.kept == 0 and all(_holds(search, smaller, p) for p in points):
            found = smaller
    return found


def _with_modulus(
    formulas: SizeFormulas, place: int, modulus: int, prime: int
) -> tuple[SizeFormulas, list[list[int]]]:
    """Return formulas with another modulus, and sizes at which to check them then."""
    moduli = (*formulas.moduli[:place], modulus, *formulas.moduli[place + 1 :])
    points = [list(formulas.base) for _ in range(2)]
    for point, times in zip(points, (1, 2 * prime + 1), strict=True):
        point[place] += modulus * times
    return replace(formulas, moduli=moduli), points


def _primes(number: int) -> list[int]:
    found: list[int] = []
    prime = 2
    while number > 1:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return found


def _with_lower_sizes(
    search: _Search, formulas: SizeFormulas, example: Sequence[int]
) -> SizeFormulas:
    """Take in sizes below the base, as long as formulas hold there."""
    base = formulas.base
    lowest: list[int] = []
    for place, (start, modulus) in enumerate(zip(base, formulas.moduli, strict=True)):
        first = start % modulus or modulus if modulus else start
        tried = sorted({first, first + modulus, example[place], start})
        lowest.append(
            next(
                size
                for size in tried
                if size == start
                or (
                    size < start
                    and is_multiple(size - start, modulus)
                    and _holds(search, formulas, [*base[:place], size, *base[place + 1 :]])
                )
            )
        )
    corners = (lowest, [min(one, other) for one, other in zip(base, example, strict=True)])
    for corner in corners:
        low = [max(one, other) for one, other in zip(corner, lowest, strict=True)]
        if formulas.covers_remainders(low) and _holds(search, formulas, low):
            return replace(formulas, low=tuple(low))
    return formulas


def _holds(search: _Search, formulas: SizeFormulas, sizes: Sequence[int]) -> bool:
    """Say whether formulas say at sizes what is followed there."""
    if not search.allowed(sizes):
        return False
    try:
        search.check(formulas, sizes)
    except (_Mismatch, CountingError):
        return False
    return True


def _on_pages(search: _Search, formulas: SizeFormulas) -> Iterator[list[int]]:
    """Yield sizes that are multiples of 1024, at which lines crowd into the sets of a cache."""
    whole = list(formulas.base)
    for place, modulus in enumerate(formulas.moduli):
        some = range(formulas.low[place], formulas.high[place] + 1, modulus) if modulus else ()
        page = next((size for size in some if size % _PAGE == 0), None)
        if page is not None:
            whole[place] = page
            alone = [*formulas.base[:place], page, *formulas.base[place + 1 :]]
            if search.allowed(alone):
                yield alone
    if search.allowed(whole):
        yield whole


def _drawn(search: _Search, formulas: SizeFormulas, draw: random.Random) -> list[int]:
    """Return sizes for which formulas are to hold; the largest ones if no other are allowed."""
    for _ in range(20):
        sizes = [
            low + modulus * draw.randint(0, (high - low) // modulus) if modulus else low
            for low, high, modulus in zip(formulas.low, formulas.high, formulas.moduli, strict=True)
        ]
        if search.allowed(sizes):
            return sizes
    return list(formulas.high)
